"""beltrami: hyperbolic foundation models for PyTorch.

Importing the package loads torch and nothing else heavy; each subpackage loads on first use.
"""

from beltrami.geometry.checks import debug

__version__ = "0.1.0"
__all__ = ["__version__", "debug"]
