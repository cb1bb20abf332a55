"""The arguments of a Trainer: what of them a Riemannian optimiser takes, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments
from transformers.utils.logging import get_logger

from beltrami.geometry import Euclidean, Lorentz, Manifold, Product
from beltrami.optim.checks import check_number
from beltrami.optim.groups import param_groups
from beltrami.optim.metrics import named_points

if TYPE_CHECKING:
    from beltrami.train.trainer.mixin import RiemannianTrainerMixin

_logger = get_logger("transformers.beltrami")  # heard, and silenced, as transformers' own are

# The values of TrainingArguments.optim that have a Riemannian form, and what `optim_args` may set.
_OPTIMIZERS = {
    "adamw_torch": ("adamw", ("amsgrad",)),
    "adamw_torch_fused": ("adamw", ("amsgrad",)),
    "sgd": ("sgd", ("momentum", "dampening", "nesterov")),
}

# The Trainer's own options, the kind of `param_groups` that each is for, and its name in messages.
_KINDS = {
    "point_lr": ("points", "points"),
    "curvature_lr": ("curvature", "curvatures"),
    "scale_lr": ("log_scale", "logarithms of scales"),
    "point_weight_decay": ("points", "points"),
}


def check_options(trainer: RiemannianTrainerMixin) -> None:
    """Raise `ValueError` for what would be ignored, now and not when training starts."""
    args = trainer.args
    if trainer.optimizer_cls_and_kwargs is not None:
        raise ValueError(
            f"optimizer_cls_and_kwargs names {trainer.optimizer_cls_and_kwargs[0].__name__}, but "
            "this Trainer builds a Riemannian optimiser: set args.optim, or give an optimiser "
            "of beltrami.optim as optimizers=(optimizer, None)"
        )
    if args.optim_target_modules is not None:
        raise ValueError(
            f"optim_target_modules={args.optim_target_modules!r} is for GaLore and its kind, which "
            "have no Riemannian form: leave it at None, and freeze what is not to be trained"
        )
    given = {name: value for name in _KINDS if (value := getattr(trainer, name)) is not None}
    check_number("point_weight_decay", trainer.point_weight_decay)
    if not trainer.point_weight_decay:
        del given["point_weight_decay"]
    if trainer.optimizer is not None:
        if given:
            raise ValueError(
                f"{', '.join(given)} is for the optimiser this Trainer builds, but optimizers= "
                "brings one: give it to beltrami.optim.create_optimizer(model, ...)"
            )
        _check_given_optimizer(trainer)
        return
    optimizer_options(args)
    check_number("learning_rate", args.learning_rate)
    check_number("weight_decay", args.weight_decay)
    kinds = {group["kind"] for group in param_groups(trainer.model)}
    for name, value in given.items():
        check_number(name, value)
        kind, described = _KINDS[name]
        if kind not in kinds:
            raise ValueError(
                f"{name}={value} would be ignored: {type(trainer.model).__name__} has no "
                f"{described} that are trained; leave out {name}"
            )


def _check_given_optimizer(trainer: RiemannianTrainerMixin) -> None:
    """Warn of an optimiser that does not know it steps points; raise if it can lose them."""
    groups = getattr(trainer.optimizer, "param_groups", [])  # accelerate's stand-in has none
    blind = {id(p) for group in groups if "manifold" not in group for p in group["params"]}
    points = [(n, m) for n, p, m in named_points(trainer.model) if id(p) in blind]
    curved = [(name, manifold) for name, manifold in points if manifold != Euclidean()]
    if not curved:
        return
    kind = type(trainer.optimizer)
    bound = [(name, manifold) for name, manifold in curved if not _fills_space(manifold)]
    name, manifold = (bound or curved)[0]
    says = f"optimizers= brings {kind.__module__}.{kind.__qualname__}, for which {name} is flat"
    if bound and kind.__module__.startswith("torch.optim"):
        raise ValueError(
            f"{says}: its steps can leave {manifold!r}; use beltrami.optim.create_optimizer(model)"
        )
    _logger.warning(
        f"{says}: its steps are not those of {manifold!r}; beltrami.optim.create_optimizer(model) "
        "makes one that knows"
    )


def _fills_space(manifold: Manifold) -> bool:
    """Whether any numbers are coordinates of a point, so that no step can leave the manifold."""
    if isinstance(manifold, Product):
        return all(_fills_space(block.manifold) for block in manifold.factors)
    return isinstance(manifold, Euclidean | Lorentz)


def optimizer_options(args: TrainingArguments) -> tuple[str, dict[str, Any]]:
    """Name and options for `create_optimizer`; `ValueError` for what has no Riemannian form."""
    optim = _name(args.optim)
    if optim not in _OPTIMIZERS:
        raise ValueError(
            f"optim={optim!r} has no Riemannian form: use one of {', '.join(_OPTIMIZERS)}, or give "
            "Trainer an optimiser of your own as optimizers=(optimizer, None)"
        )
    name, allowed = _OPTIMIZERS[optim]
    options: dict[str, Any] = {}
    if name == "adamw":
        options = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
    for pair in filter(None, (args.optim_args or "").replace(" ", "").split(",")):
        key, _, text = pair.partition("=")
        if key not in allowed:
            raise ValueError(
                f"optim_args={args.optim_args!r}: with optim={optim!r} one can set "
                f"{', '.join(allowed)}, not {key!r}"
            )
        options[key] = _option(key, text)
    return name, options


def _option(key: str, text: str) -> float | bool:
    """The value of an optimiser's option written as text."""
    words = {"true": True, "false": False}
    if key in ("amsgrad", "nesterov"):
        if text.lower() not in words:
            raise ValueError(f"optim_args: {key} must be true or false, got {text!r}")
        return words[text.lower()]
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"optim_args: {key} must be a number, got {text!r}") from None
    check_number(f"optim_args: {key}", value)
    return value


def _name(optim: Any) -> str:
    return str(getattr(optim, "value", optim))
