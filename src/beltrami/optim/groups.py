"""Which parameters are points, curvatures, logarithms of scales, and which may decay.

A parameter on a manifold is a plain `nn.Parameter`. The module that owns it says that it is a
point, `module.manifold_of[name]`, that it is the logarithm of a scale, `module.log_scales`, or that
it must not decay, `module.no_weight_decay()`; `param_groups` reads that. Nothing is attached to
tensors, so nothing is lost when they are copied, moved, sharded or replaced, and no parameter is
recognised by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from beltrami.geometry import Curvature, Euclidean, Manifold
from beltrami.geometry.manifold import learnable_curvatures, manifolds_of
from beltrami.optim.sharded import is_sharded

Group = dict[str, Any]

_KINDS = ("decay", "no_decay", "log_scale", "points", "curvature")


def param_groups(
    model: nn.Module,
    *,
    weight_decay: float = 0.0,
    point_weight_decay: float = 0.0,
    lr: float | None = None,
    point_lr: float | None = None,
    curvature_lr: float | None = None,
    scale_lr: float | None = None,
) -> list[Group]:
    """Parameter groups of a model for the optimisers of this package.

    One group a manifold for points (`kind` "points"), one for curvatures ("curvature"), one for
    logarithms of scales ("log_scale": what a module's `log_scales` names, such as the temperatures
    of attention), one for what weight decay may touch ("decay") and one for the rest ("no_decay"):
    what a module's `no_weight_decay()` names, and parameters with fewer than two dimensions, such
    as biases and the gains of norms. Parameters that need no gradient are left out. A Euclidean
    twin, whose points lie on `Euclidean()`, gets the same groups.

    Args:
        model: any module; those without `manifold_of` are plain.
        weight_decay: of the group "decay".
        point_weight_decay: of points: a pull along geodesics to the origin.
        lr: learning rate of all groups, if not that of the optimiser.
        point_lr, curvature_lr, scale_lr: of points, curvatures and logarithms of scales, if not
            `lr`.

    Returns: dicts with `params` (pairs of name and parameter), `manifold`, `weight_decay`, `kind`
        and, where given, `lr`.
    """
    points = points_of(model.named_modules())
    curvatures = _curvatures(model)
    exempt, log_scales = _named(model, "no_weight_decay"), _named(model, "log_scales")
    groups: dict[tuple[str, Manifold], Group] = {}
    flat: Manifold = Euclidean()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        manifold = flat
        if id(parameter) in curvatures:
            kind, decay, rate = "curvature", 0.0, curvature_lr
        elif id(parameter) in points:
            kind, decay, rate = "points", point_weight_decay, point_lr
            manifold = points[id(parameter)][2]
        elif id(parameter) in log_scales:
            kind, decay, rate = "log_scale", 0.0, scale_lr
        elif id(parameter) in exempt or parameter.ndim < 2:
            kind, decay, rate = "no_decay", 0.0, None
        else:
            kind, decay, rate = "decay", weight_decay, None
        group = groups.setdefault(
            (kind, manifold),
            {"params": [], "manifold": manifold, "weight_decay": decay, "kind": kind},
        )
        rate = lr if rate is None else rate
        if rate is not None:
            group["lr"] = rate
        group["params"].append((name, parameter))
    # Plain ones first: a Trainer's log shows the learning rate of the first group.
    return sorted(groups.values(), key=lambda group: _KINDS.index(group["kind"]))


def points_of(modules: Iterable[tuple[str, nn.Module]]) -> dict[int, tuple[str, Tensor, Manifold]]:
    """Names, values and manifolds of the parameters that are points, by identity."""
    points: dict[int, tuple[str, Tensor, Manifold]] = {}
    for prefix, module in modules:
        for own, manifold in getattr(module, "manifold_of", {}).items():
            name = f"{prefix}.{own}" if prefix else own
            parameter = _attribute(module, own)
            if not isinstance(manifold, Manifold):
                raise TypeError(
                    f"manifold_of[{own!r}] of {prefix or type(module).__name__} must be a "
                    f"Manifold such as Lorentz(1.0), got {manifold!r}"
                )
            if not isinstance(parameter, Tensor):
                raise ValueError(
                    f"manifold_of of {prefix or type(module).__name__} names {own!r}, which is not "
                    "a parameter of that module: a parametrised or flattened parameter (FSDP1) "
                    "cannot be trained as points"
                )
            known, _, there = points.setdefault(id(parameter), (name, parameter, manifold))
            if there != manifold:
                raise ValueError(
                    f"{known} and {name} are one parameter, but its modules say it lies on "
                    f"{there!r} and on {manifold!r}"
                )
    return points


def _attribute(module: nn.Module, name: str) -> Any:
    """A parameter or buffer of a module, or with a dotted name of a module in it; else None."""
    path, _, own = name.rpartition(".")
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        return None
    return {**owner._parameters, **owner._buffers}.get(own)


def _curvatures(model: nn.Module) -> set[int]:
    """Identities of the parameters that are curvatures, of either kind."""
    identities: set[int] = set()
    split = any(is_sharded(p) for p in model.parameters())
    for module in model.modules():
        if isinstance(module, Curvature):
            identities |= {id(p) for p in module.parameters()}
        for manifold in manifolds_of(module):
            for raw in curvature_parameters(manifold):
                if split and not is_sharded(raw):
                    raise ValueError(
                        f"{manifold!r} was made with a tensor that FSDP2 has replaced in the model "
                        "but cannot replace in the manifold: make it with a Curvature"
                    )
                identities.add(id(raw))
    return identities


def curvature_parameters(manifold: Manifold) -> list[Tensor]:
    """The tensors behind the curvatures that a manifold may learn."""
    learnable = learnable_curvatures(manifold)
    return [c.raw if isinstance(c, Curvature) else c for c in learnable]


def _named(model: nn.Module, attribute: str) -> set[int]:
    """Identities of the parameters that a module names in `log_scales` or `no_weight_decay()`.

    Names are relative to the module that gives them, so a whole model that lists dotted names, as
    those of timm do, is understood too.
    """
    listed: set[int] = set()
    for module in model.modules():
        names = getattr(module, attribute, None)
        if attribute == "no_weight_decay":  # a method; other code has attributes of that name
            names = names() if callable(names) else None
        if names:
            named = dict(module.named_parameters(remove_duplicate=False))
            listed |= {id(named[name]) for name in names if name in named}
    return listed
