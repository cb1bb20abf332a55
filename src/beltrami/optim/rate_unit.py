"""The unit of a point's learning rate, written into states of Adam, and older states converted.

In state dicts of beltrami 0.1 the learning rate of points was the length of a row's step, and the
second moment the squared length of its gradient. Now both are taken a coordinate: for rows of d
coordinates `lr_old = lr·√d` and `v_old = v·d`.
"""

from __future__ import annotations

from typing import Any

from beltrami.geometry import Euclidean
from beltrami.optim.groups import Group
from beltrami.optim.points import factors_of

UNIT = "rms"


def in_unit_of_coordinates(
    groups: list[Group], state_dict: dict[str, Any], *, decoupled: bool
) -> dict[str, Any]:
    """A state dict of Adam with rates and second moments in today's unit; the same if it is so.

    Args:
        groups: of the optimiser that is to load it; they name manifolds and parameters.
        state_dict: what is to be loaded; it is left as it is.
        decoupled: whether weight decay is multiplied by the learning rate.

    Raises:
        ValueError: an older state that cannot be converted exactly.
    """
    states, saved_groups = dict(state_dict["state"]), list(state_dict["param_groups"])
    for i, (group, saved) in enumerate(zip(groups, saved_groups, strict=True)):
        unit = saved.get("rate_unit")
        if unit not in (None, UNIT):
            raise ValueError(
                f"the state dict's parameter group {i} has rate_unit={unit!r}, which this version "
                f"of beltrami does not know: it writes {UNIT!r}"
            )
        saved_groups[i] = {**saved, "rate_unit": UNIT}
        if unit == UNIT or isinstance(group["manifold"], Euclidean):
            continue
        d = _dimension(group, saved, i)
        saved_groups[i] |= {"lr": saved["lr"] / d**0.5, "eps": saved["eps"] / d**0.5}
        if decoupled:
            saved_groups[i]["weight_decay"] = saved["weight_decay"] * d**0.5
        for key in saved["params"]:
            if key in states:
                states[key] = {
                    name: value / d if name.endswith("exp_avg_sq") else value
                    for name, value in states[key].items()
                }
    return {**state_dict, "state": states, "param_groups": saved_groups}


def _dimension(group: Group, saved: Group, i: int) -> int:
    """The dimension of all rows of a group; `ValueError` if there are several, or a schedule."""
    factors = [f for p in group["params"] for f in factors_of(group["manifold"], p.shape[-1])]
    dimensions = sorted({f.manifold.tangent0_size(f.size) for f in factors})
    rate = saved.get("initial_lr", saved["lr"])  # a scheduler may have changed the other
    changed = (
        f"the state dict's parameter group {i} is of an older version of beltrami, in which the "
        "learning rate of points was the length of a row's step; it is now the root mean square "
        "change of a coordinate, the old one over √d for rows of d coordinates. It cannot be "
        "converted, since "
    )
    start_again = (
        "start a new optimiser from the saved weights, with "
        + " or ".join(f"point_lr={rate / d**0.5:.3g} for d={d}" for d in dimensions)
        + ", or end the run with the version that began it"
    )
    if len(dimensions) != 1:
        raise ValueError(f"{changed}its rows have several widths: {start_again}")
    if "initial_lr" in saved:
        raise ValueError(
            f"{changed}a learning-rate scheduler has rates of its own, which would be √d times too "
            f"large: {start_again}; or take 'initial_lr' out of the saved groups, load them, and "
            "make a new scheduler"
        )
    return dimensions[0]
