"""beltrami: hyperbolic foundation models for PyTorch.

Importing the package loads torch and nothing else heavy; each subpackage loads on first use:
`import beltrami; beltrami.nn.Linear`.
"""

from beltrami.geometry.checks import debug
from beltrami.lazy import lazy

__version__ = "0.1.0"
__all__ = ["__version__", "debug"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "analysis": "beltrami.analysis",
        "cli": "beltrami.cli",
        "data": "beltrami.data",
        "diagnosis": "beltrami.diagnosis",
        "geometry": "beltrami.geometry",
        "kernels": "beltrami.kernels",
        "losses": "beltrami.losses",
        "models": "beltrami.models",
        "nn": "beltrami.nn",
        "optim": "beltrami.optim",
        "peft": "beltrami.peft",
        "recipes": "beltrami.recipes",
        "report": "beltrami.report",
        "train": "beltrami.train",
    },
)
