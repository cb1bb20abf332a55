"""What every layer shares: the manifold it works on and the checks of what it is given."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from beltrami.checks import check_choice
from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall


class Layer(nn.Module):
    """A module that maps points of `manifold` to points of `manifold_out`.

    The manifold is a plain attribute: it registers nothing. A learnable `Curvature` is registered
    once, by the model that owns it, and `beltrami.nn.check_model` says if that was forgotten.

    Subclasses list the manifolds they work on in `accepts`, and say by `several` whether there may
    be several curvatures, (k, 1) for points (..., k, d) or (E, 1, 1) for (E, n, d). The parameters
    that are themselves points go into `manifold_of`, name by name, and those that are logarithms of
    scales or weights into `log_scales`, where the optimisers look.
    """

    accepts: ClassVar[tuple[type[Manifold], ...]] = (Lorentz, PoincareBall, Euclidean)
    several: ClassVar[bool] = False

    def __init__(self, manifold: Manifold) -> None:
        super().__init__()
        self.manifold = check_manifold(
            manifold, self.accepts, type(self).__name__, several=self.several
        )
        self.manifold_of: dict[str, Manifold] = {}
        self.log_scales: set[str] = set()

    @property
    def manifold_out(self) -> Manifold:
        """The manifold of the output; that of the input unless a layer says otherwise."""
        return self.manifold

    def no_weight_decay(self) -> set[str]:
        """Names of this layer's own parameters that weight decay must leave alone."""
        return set(self.log_scales)

    def check_size(self, x: Tensor, size: int, name: str = "x") -> None:
        """Raise `ValueError` unless the last dimension of x is `size`."""
        if x.ndim == 0 or x.shape[-1] != size:
            hint = ""
            if x.ndim and x.shape[-1] == size + 1 and isinstance(self.manifold, Lorentz):
                hint = "; points carry no time coordinate here, drop it with x[..., 1:]"
            raise ValueError(
                f"{type(self).__name__} on {self.manifold!r} takes {name} of shape (..., {size}), "
                f"got {tuple(x.shape)}{hint}"
            )


def initial_curvature(manifold: Manifold) -> float:
    """c at the start of training, the same whether it is learned or fixed; 0 if flat."""
    curvature = getattr(manifold, "curvature", None)
    c = manifold.c if curvature is None else curvature.init
    return float(c.detach() if isinstance(c, Tensor) else c)


def check_manifold(
    manifold: Manifold,
    accepts: tuple[type[Manifold], ...],
    layer: str,
    name: str = "manifold",
    *,
    several: bool = False,
) -> Manifold:
    """The manifold, if it is one of the types a layer accepts, with one curvature or `several`."""
    if isinstance(manifold, accepts):
        count = manifold.shape.numel()
        if count != 1 and not several:
            raise ValueError(
                f"{layer} works with one curvature, got {name}={manifold!r} with {count}: "
                "use one layer a curvature"
            )
        return manifold
    names = ", ".join(kind.__name__ for kind in accepts)
    if isinstance(manifold, type) and issubclass(manifold, Manifold):
        raise TypeError(f"{name} must be an object, not a class: use {manifold.__name__}()")
    in_ball = isinstance(manifold, PoincareBall) and Lorentz in accepts
    got = repr(manifold) if isinstance(manifold, Manifold) else type(manifold).__name__
    hint = "; ChangeCurvature takes points of the ball to Lorentz" if in_ball else ""
    raise TypeError(f"{layer} works on {names}; got {name}={got}{hint}")


def check_form(
    form: str | None, forms: dict[type[Manifold], tuple[str, ...]], manifold: Manifold, layer: str
) -> str:
    """One of the forms a layer has on a manifold; the first of them if None."""
    choices = next(names for kind, names in forms.items() if isinstance(manifold, kind))
    return choices[0] if form is None else check_choice(f"{layer}: form", form, choices)
