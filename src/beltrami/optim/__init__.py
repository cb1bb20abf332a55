"""Riemannian optimisers: points and plain parameters in one `torch.optim.Optimizer`.

>>> optimizer = create_optimizer(model, lr=1e-3, weight_decay=0.01)     # groups made for you
>>> optimizer = RiemannianAdam(model, lr=1e-3)                          # or the class itself
>>> optimizer = RiemannianAdam([table], lr=1e-3, manifold=Lorentz(1.0)) # or single parameters

`trainer` (loaded on first use, needs transformers) has `RiemannianTrainer`; `finite` finds the
layer where a NaN began.
"""

from beltrami.optim.adam import RiemannianAdam, RiemannianAdamW
from beltrami.optim.clip import clip_grad_norm_, grad_norm
from beltrami.optim.create import create_optimizer
from beltrami.optim.finite import NonFiniteLossError, find_nonfinite
from beltrami.optim.groups import param_groups
from beltrami.optim.metrics import geometry_metrics
from beltrami.optim.sgd import RiemannianSGD

__all__ = [
    "NonFiniteLossError",
    "RiemannianAdam",
    "RiemannianAdamW",
    "RiemannianSGD",
    "clip_grad_norm_",
    "create_optimizer",
    "find_nonfinite",
    "geometry_metrics",
    "grad_norm",
    "param_groups",
]
