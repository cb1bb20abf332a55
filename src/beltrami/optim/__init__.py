"""Riemannian optimisers: points and plain parameters in one `torch.optim.Optimizer`.

>>> optimizer = create_optimizer(model, lr=1e-3, weight_decay=0.01)     # groups made for you
>>> optimizer = RiemannianAdam(model, lr=1e-3)                          # or the class itself
>>> optimizer = RiemannianAdam([table], lr=1e-3, manifold=Lorentz(1.0)) # or single parameters

`RiemannianTrainer` and the NaN finder live in `beltrami.train`; their old names here,
`beltrami.optim.trainer` and `beltrami.optim.finite`, still work, with a warning.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from beltrami.optim.adam import RiemannianAdam, RiemannianAdamW
from beltrami.optim.clip import clip_grad_norm_, grad_norm
from beltrami.optim.create import create_optimizer
from beltrami.optim.groups import param_groups
from beltrami.optim.metrics import geometry_metrics
from beltrami.optim.sgd import RiemannianSGD

__all__ = [
    "RiemannianAdam",
    "RiemannianAdamW",
    "RiemannianSGD",
    "clip_grad_norm_",
    "create_optimizer",
    "geometry_metrics",
    "grad_norm",
    "param_groups",
]

_MOVED = {
    "NonFiniteLossError": "beltrami.train.finite",
    "find_nonfinite": "beltrami.train.finite",
    "finite": "beltrami.train.finite",
    "trainer": "beltrami.train.trainer",
}


def __getattr__(name: str) -> Any:
    """Names that moved to `beltrami.train`; their aliases go with version 0.3."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    moved = _MOVED[name]
    warnings.warn(f"beltrami.optim.{name} moved to {moved}", DeprecationWarning, stacklevel=2)
    module = importlib.import_module(moved)
    return module if moved.endswith(f".{name}") else getattr(module, name)
