"""The former home of the measures of hierarchies, which `beltrami.analysis` exports now."""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    """Names that `beltrami.analysis` exports; the alias goes with version 0.3."""
    from beltrami import analysis

    if name.startswith("_") or name not in analysis.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"import {name} from beltrami.analysis; beltrami.analysis.hierarchy goes with version 0.3",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(analysis, name)
