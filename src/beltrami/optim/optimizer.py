"""What the Riemannian optimisers share: groups that know their manifold, state dicts, order.

`group["manifold"]` is the live manifold of a group's parameters. In a state dict it is written as
text (its repr), so that checkpoints hold numbers and strings only, and a state is not loaded onto
another manifold.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami.geometry import Euclidean, Manifold
from beltrami.optim.checks import (
    check_curvatures,
    check_gradients,
    check_group,
    check_widths,
    point_widths,
)
from beltrami.optim.follow import follow_curvature, follows, lengths_of_moments
from beltrami.optim.groups import Group, param_groups
from beltrami.optim.points import count_factors
from beltrami.optim.rows import numbers_dtype
from beltrami.optim.sharded import local

Params = nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Group]


class RiemannianOptimizer(torch.optim.Optimizer):
    """Base class: points and plain parameters in one optimiser."""

    _own_option: ClassVar[str]
    """An option that other optimisers do not have, by which a state dict is recognised."""

    def __init__(self, params: Params, defaults: Group, manifold: Manifold | None) -> None:
        if isinstance(params, nn.Module):
            if manifold is not None:
                raise ValueError(
                    f"manifold={manifold!r} is for parameters given one by one: a module's layers "
                    "say themselves where their parameters lie, in `manifold_of`"
                )
            params = param_groups(params, weight_decay=defaults["weight_decay"])
        self._widths: list[list[int]] = []
        defaults = {**defaults, "manifold": manifold}
        self._check_options(defaults)
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; it must say its `manifold`, unless the optimiser was given one for all."""
        super().add_param_group(param_group)
        try:
            self._check_options(param_group)
            check_group(param_group)
            check_curvatures(self.param_groups)
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise
        self._widths.append(point_widths(param_group))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_widths" not in self.__dict__:  # a pickle; a state dict is loaded into known groups
            self._widths = [point_widths(group) for group in self.param_groups]
            self._check_rate_unit()

    def _check_rate_unit(self) -> None:
        """Raise where a pickle of an earlier version has learning rates of another unit."""

    @abstractmethod
    def _check_options(self, options: Group) -> None:
        """Raise for options that make no sense: the defaults, or those of a group and its `params`.

        Called before anything is kept, so that what is refused leaves no trace.
        """

    # --- stepping ---------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every parameter that has a gradient; the others stay.

        Points move first, with the curvature their gradients were computed with; then plain
        parameters and with them the curvatures; then points that the new curvature would leave
        outside their manifold are moved onto it (see `docs/optimisers.md`).

        Args:
            closure: computes the loss anew and returns it, as in torch.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, widths in zip(self.param_groups, self._widths, strict=True):
            check_widths(group, widths)
            if group["nonfinite"] == "raise":
                check_gradients(group)
        for group in self.param_groups:
            if not isinstance(group["manifold"], Euclidean):
                self._step_points(group)
        bound = [group for group in self.param_groups if follows(group)]
        lengths = [lengths_of_moments(group, self.state) for group in bound]
        for group in self.param_groups:
            if isinstance(group["manifold"], Euclidean):
                self._step_plain(group)
        for group, before in zip(bound, lengths, strict=True):
            follow_curvature(group, self.state, before)
        return loss

    @abstractmethod
    def _step_points(self, group: Group) -> None:
        """Step the points of a group."""

    @abstractmethod
    def _step_plain(self, group: Group) -> None:
        """Step plain parameters, exactly as torch does."""

    # --- state dicts ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """As in torch, with every group's manifold as text."""
        state = super().state_dict()
        groups = [{**g, "manifold": repr(g["manifold"])} for g in state["param_groups"]]
        return {**state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; `ValueError` if it belongs to another manifold or another optimiser."""
        self._check_state(state_dict)
        state_dict = self._converted(state_dict)
        live = [(group["manifold"], group["nonfinite"]) for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, (manifold, nonfinite) in zip(self.param_groups, live, strict=True):
            group["manifold"], group["nonfinite"] = manifold, nonfinite
            for name, value in self.defaults.items():
                group.setdefault(name, value)  # a state of torch's own has not all of our options
        # torch casts state to the parameters' dtype; numbers of rows are kept wider than bfloat16.
        for parameter, _, saved in self._saved_states(state_dict):
            state, dtype = self.state[parameter], numbers_dtype(parameter)
            for name, value in saved.items():
                if name.endswith("exp_avg_sq") and state[name].dtype != dtype:
                    state[name] = value.to(state[name].device, dtype, copy=True)
        self._place_steps()

    def _converted(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A checked state dict of an older version as today's."""
        return state_dict

    def _place_steps(self) -> None:
        """Count the steps of points on the host, unless a graph is to capture them.

        torch leaves a count where a checkpoint was loaded to, or moves it to the parameter's
        device; from there the fused step would have to wait for it.
        """
        for group in self.param_groups:
            if isinstance(group["manifold"], Euclidean):
                continue
            for parameter in group["params"]:
                state = self.state.get(parameter, {})
                if "step" in state:
                    on_device = group.get("capturable", False)
                    device = local(parameter).device if on_device else torch.device("cpu")
                    state["step"] = state["step"].to(device)

    def _check_state(self, state_dict: dict[str, Any]) -> None:
        """Raise `ValueError` unless manifolds and the shapes of moments are those of this one."""
        saved_groups = state_dict["param_groups"]
        if len(saved_groups) != len(self.param_groups):
            raise ValueError(
                "the state dict has a different number of parameter groups: "
                f"{_kinds(saved_groups)}; this optimiser has {_kinds(self.param_groups)}. Older "
                "versions of beltrami had log_scale, the logarithms of scales, in no_decay"
            )
        for i, (group, saved) in enumerate(zip(self.param_groups, saved_groups, strict=True)):
            if self._own_option not in saved:
                raise ValueError(
                    f"the state dict's parameter group {i} has no {self._own_option!r}: it was "
                    f"saved by another optimiser, not by {type(self).__name__}"
                )
            here, there = repr(group["manifold"]), saved.get("manifold", repr(Euclidean()))
            if here != there:
                raise ValueError(
                    f"the state dict's parameter group {i} lies on {there}, that of this optimiser "
                    f"on {here}: a state can only be loaded onto the manifold it was saved from"
                )
        for parameter, manifold, saved in self._saved_states(state_dict):
            for name, expected in _state_shapes(parameter, manifold).items():
                value = saved.get(name)
                if isinstance(value, Tensor) and value.shape != expected:
                    raise ValueError(
                        f"the state dict holds {name} of shape {tuple(value.shape)} for a "
                        f"parameter of shape {tuple(parameter.shape)}, expected "
                        f"{tuple(expected)}: it was saved by another optimiser or for another model"
                    )

    def _saved_states(
        self, state_dict: dict[str, Any]
    ) -> Iterator[tuple[Tensor, Manifold, dict[str, Any]]]:
        """Our points, each with its manifold and what a state dict holds for it."""
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=False):
            if isinstance(group["manifold"], Euclidean):
                continue
            for parameter, key in zip(group["params"], saved["params"], strict=False):
                if key in state_dict["state"]:
                    yield parameter, group["manifold"], state_dict["state"][key]


def _kinds(groups: list[Group]) -> str:
    return ", ".join(str(group.get("kind", "unnamed")) for group in groups)


def _state_shapes(parameter: Tensor, manifold: Manifold) -> dict[str, torch.Size]:
    """Shapes of the state of points."""
    numbers = torch.Size((*parameter.shape[:-1], count_factors(manifold)))
    same = ("exp_avg", "momentum_buffer")
    return dict.fromkeys(same, parameter.shape) | dict.fromkeys(
        ("exp_avg_sq", "max_exp_avg_sq"), numbers
    )
