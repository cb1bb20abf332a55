"""Options that belong together: small ones for two cores, and those of the paper.

The paper's (Liu, Liu and Gore, arXiv 2505.10465) are those of the scripts published with it:
"paper" is the grid of 1,000 features, of which one --laws and one --densities at a time are one
panel; "paper-large" is the experiment with 10,240 features.
"""

from __future__ import annotations

from typing import Any, Literal

Preset = Literal["small", "paper", "paper-large"]

SMALL: dict[str, Any] = {
    "features": 400,
    "widths": (6, 10, 16, 25, 40),
    "gammas": (-0.556, 0.333),
    "laws": ("power:1", "exponential:40"),
    "steps": 16000,
    "batch": 512,
    "learning_rate": 0.01,
    "warm_up": 0.1,
}
PAPER: dict[str, Any] = {
    **SMALL,
    "features": 1000,
    "widths": (10, 15, 25, 39, 63, 100),
    "gammas": tuple(round(-1 + 2 * i / 9, 3) for i in range(10)),
    "laws": ("power:1",),
    "steps": 20000,
    "batch": 2048,
}
PRESETS: dict[str, dict[str, Any]] = {
    "small": SMALL,
    "paper": PAPER,
    "paper-large": {
        **PAPER,
        "features": 10240,
        "widths": tuple(2**k for k in range(3, 11)),
        "gammas": (-1.0, 0.1),
        "laws": ("power:1.2", "linear", "exponential:400"),
        "steps": 40000,
        "batch": 8192,
        "warm_up": 0.05,
    },
}
LARGE = "paper-large"  # has rates that depend on the width
