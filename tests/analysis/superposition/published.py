"""Numbers of Liu et al. 2025, "Superposition Yields Robust Neural Scaling", figures digitised."""

from __future__ import annotations

WIDTHS = (8, 16, 32, 64, 128, 256, 512, 1024)

# Figure 1d, strong superposition (γ = −1), n = 10240: losses by the law of frequencies.
STRONG = {
    "exponential": (1.29, 0.9412, 0.5644, 0.187, 0.1144, 0.04613, 0.03344, 0.01024),
    "power": (0.5468, 0.414, 0.3115, 0.1575, 0.08824, 0.029, 0.03068, 0.008766),
    "linear": (1.332, 1.242, 0.9559, 0.6703, 0.3345, 0.1662, 0.07523, 0.05537),
}
# Figure 1b, weak superposition (γ = 0.1).
WEAK = {
    "exponential": (1.329, 1.278, 1.274, 1.172, 1.022, 0.8975, 0.6932, 0.3986),
    "power": (0.6829, 0.8795, 0.927, 0.9423, 0.6806, 0.5566, 0.3841, 0.2672),
    "linear": (1.342, 1.335, 1.304, 1.246, 1.222, 1.125, 1.027, 0.8799),
}

# Figure 7b: a = 1, γ = −0.556, n = 1000; the first row has one active feature a sample.
TOY_WIDTHS = (10, 15, 25, 39, 63, 100)
TOY = (0.6902, 0.5647, 0.3580, 0.2018, 0.1165, 0.06367)

# Figure 3a: φ½ at a = 1, by γ, at the same six widths.
PHI_HALF = {
    -1.0: (1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    -0.556: (1.0, 0.999, 0.998, 0.996, 0.992, 0.998),
    -0.111: (0.083, 0.288, 0.553, 0.686, 0.789, 0.864),
    0.333: (0.026, 0.03, 0.057, 0.083, 0.137, 0.161),
    1.0: (0.02, 0.022, 0.048, 0.043, 0.062, 0.1),
}

# The fit of 27 language models on 4 data sets, L = A·m^−α + B (notebook, cell 6), and the widths.
ALPHA, SCALE, MEAN_SQUARED = 0.9098, 476.08, 0.0051977
MODELS = {
    "opt": (768, 1024, 2048, 2560, 4096, 5120, 7168, 9216),
    "Qwen2.5": (896, 1536, 2048, 3584, 5120, 5120, 8192),
    "gpt2": (768, 1024, 1280, 1600),
    "pythia": (512, 768, 1024, 2048, 2048, 2560, 4096, 5120),
}
DATASETS = ("wiki", "c4", "pile", "book")
OFFSETS = {
    "opt": (2.2074, 2.2745, 1.7193, 2.1845),
    "Qwen2.5": (1.6079, 2.1009, 1.4890, 1.9348),
    "gpt2": (2.3018, 2.3546, 1.9413, 2.2961),
    "pythia": (2.1407, 2.2998, 1.5203, 2.2415),
}
