"""geoopt, whose updates ours are compared with; it warns when imported, of torch.jit.script."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import geoopt as geoopt
