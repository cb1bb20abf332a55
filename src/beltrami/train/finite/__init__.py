r"""Where the first NaN came from.

Nothing here is attached to a model while it trains. Once a loss or a gradient is found to be
non-finite, `find_nonfinite` runs the same batch again, with a hook on every module, and names the
first one that put out something non-finite though all it was given was finite.

NaN and +∞ are what it looks for. −∞ alone is not a fault: masks are made of it. If a module made −∞
out of finite inputs before the fault, as log 0 does, the report says so.
"""

from beltrami.optim.module_paths import module_paths
from beltrami.train.finite.find import find_nonfinite
from beltrami.train.finite.keep import RandomState
from beltrami.train.finite.report import Entries, NonFinite, NonFiniteLossError, entries

__all__ = [
    "Entries",
    "NonFinite",
    "NonFiniteLossError",
    "RandomState",
    "entries",
    "find_nonfinite",
    "module_paths",
]
