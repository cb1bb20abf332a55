"""The right optimiser for a model in one call."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from beltrami.geometry.manifold import check_model
from beltrami.optim.adam import RiemannianAdam, RiemannianAdamW
from beltrami.optim.checks import check_choice
from beltrami.optim.groups import param_groups
from beltrami.optim.optimizer import RiemannianOptimizer
from beltrami.optim.sgd import RiemannianSGD

OPTIMIZERS: dict[str, type[RiemannianOptimizer]] = {
    "adam": RiemannianAdam,
    "adamw": RiemannianAdamW,
    "sgd": RiemannianSGD,
}


def create_optimizer(
    model: nn.Module,
    name: str = "adamw",
    *,
    lr: float | Tensor = 1e-3,
    weight_decay: float = 0.0,
    point_lr: float | None = None,
    point_weight_decay: float = 0.0,
    curvature_lr: float | None = None,
    scale_lr: float | None = None,
    **options: Any,
) -> RiemannianOptimizer:
    """An optimiser with the parameter groups of `param_groups(model, ...)`.

    A learnable curvature that no module of the model has registered is a `ValueError`.

    Args:
        model: any module; without points and curvatures the optimiser is torch's own.
        name: "adam", "adamw" or "sgd", in any case.
        lr: learning rate.
        weight_decay: of what may decay, see `param_groups`; none by default, also for "adamw",
            whose class has 0.01.
        point_lr, curvature_lr, scale_lr: learning rates of points, of curvatures and of logarithms
            of scales (temperatures), if not `lr`.
        point_weight_decay: of points, a pull to the origin.
        options: of the optimiser: betas, eps, momentum, fused, nonfinite, ...
    """
    name, given = str(name).lower(), cast(Any, model)
    check_choice("name", name, tuple(OPTIMIZERS))
    if not isinstance(given, nn.Module):
        OPTIMIZERS[name](given, lr=lr)  # type: ignore[call-arg]  # says what parameters lack
        raise TypeError(f"model must be a torch.nn.Module, got {type(given).__name__}")
    check_model(model)
    groups = param_groups(
        model,
        weight_decay=weight_decay,
        point_weight_decay=point_weight_decay,
        point_lr=point_lr,
        curvature_lr=curvature_lr,
        scale_lr=scale_lr,
    )
    if not groups:
        raise ValueError(
            f"{type(model).__name__} has no parameter that needs a gradient, nothing to optimise"
        )
    return OPTIMIZERS[name](groups, lr=lr, **options)  # type: ignore[call-arg]
