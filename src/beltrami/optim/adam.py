"""Riemannian Adam and AdamW, for points and plain parameters together."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam

from beltrami.geometry import Euclidean, Manifold
from beltrami.kernels.launch.dispatch import unsupported_device
from beltrami.kernels.rows.adam_rows import AdamRates, adam_rows_
from beltrami.optim.checks import check_flag, check_number, check_rate
from beltrami.optim.general import adam_points_
from beltrami.optim.groups import Group
from beltrami.optim.optimizer import Params, RiemannianOptimizer
from beltrami.optim.points import (
    Factor,
    count_factors,
    factors_of,
    has_kernels,
    inner_dims,
)
from beltrami.optim.rate_unit import UNIT, in_unit_of_coordinates
from beltrami.optim.rows import Rows, can_join, join, move_rows, numbers_dtype
from beltrami.optim.sharded import local, row_numbers_like


class _Lists(NamedTuple):
    """Parameters with a gradient and their state, in the order torch's functions take them."""

    params: list[Tensor]
    grads: list[Tensor]
    firsts: list[Tensor]
    seconds: list[Tensor]
    maxima: list[Tensor]
    steps: list[Tensor]

    @classmethod
    def empty(cls) -> _Lists:
        return cls([], [], [], [], [], [])

    def numbers(self, i: int) -> tuple[Tensor, ...]:
        """The second moment of one parameter, and with AMSGrad its largest so far."""
        return (self.seconds[i], self.maxima[i]) if self.maxima else (self.seconds[i],)

    def without(self, left_out: set[int]) -> _Lists:
        return _Lists(*([t for i, t in enumerate(ts) if i not in left_out] for ts in self))


class RiemannianAdam(RiemannianOptimizer):
    """Adam on manifolds (Bécigneul and Ganea 2019), and torch's Adam for plain parameters.

    A point moves along the geodesic of its first moment, which is carried along; the second moment
    is one number a row, and in a product one a factor, so the state is half of Adam's. It is the
    mean over the d coordinates, so that a row moves about lr·√d, as in Adam, and one learning rate
    serves all widths, flat or curved. See `beltrami.kernels.rows.adam_rows` for the formulas.

    Args:
        params: a module, whose layers say which parameters are points; the groups of
            `param_groups(model)`; or parameters, with `manifold` in each group or for all.
        lr: the root mean square change of a coordinate, as in `torch.optim.Adam`.
        betas, eps, amsgrad, maximize: as there.
        weight_decay: for plain parameters as in torch (added to the gradient); for points
            weight_decay/2 times the squared distance from the origin is added to the loss.
        manifold: of parameters whose group does not say.
        foreach: step small tables of one width together (default), or each alone. For plain
            parameters as in torch.
        fused: True demands the Triton kernel, False the plain one, None takes what fits. For plain
            parameters as in torch.
        capturable: as in torch, for CUDA graphs.
        nonfinite: "skip" leaves rows with a gradient that is not finite where they are, and their
            moments too; "raise" stops before anything has moved, and waits for the device to see.

    Sparse gradients (of embeddings) move the rows they name and leave all others alone, moments
    too, as `torch.optim.SparseAdam` does.
    """

    _own_option: ClassVar[str] = "betas"
    _decoupled: ClassVar[bool] = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        manifold: Manifold | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        nonfinite: str = "skip",
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "capturable": capturable,
            "nonfinite": nonfinite,
            "rate_unit": UNIT,
        }
        super().__init__(params, defaults, manifold)

    def _check_rate_unit(self) -> None:
        for group in self.param_groups:
            if group.setdefault("rate_unit", None) != UNIT:
                if not isinstance(group["manifold"], Euclidean):
                    raise ValueError(
                        "this pickled optimiser is of an earlier version, whose learning rates of "
                        "points have another unit; load its state_dict() instead, which converts"
                    )
                group["rate_unit"] = UNIT

    def _check_options(self, options: Group) -> None:
        check_rate(options)
        for name in ("amsgrad", "maximize", "capturable"):
            check_flag(name, options[name])
        check_flag("fused", options["fused"], optional=True)
        if options["foreach"] and options["fused"]:
            raise ValueError("foreach and fused cannot both be True: choose one")
        check_number("eps", options["eps"])
        check_number("weight_decay", options["weight_decay"])
        betas = options["betas"]
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise TypeError(f"betas must be two numbers, got {betas!r}")
        for i, beta in enumerate(betas):
            check_number(f"betas[{i}]", beta, high=1.0)
        if options["fused"] and isinstance(options["manifold"], Manifold):
            _check_fused(options)

    def _converted(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return in_unit_of_coordinates(self.param_groups, state_dict, decoupled=self._decoupled)

    def _init_group(
        self,
        group: Group,
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        max_exp_avg_sqs: list[Tensor],
        steps: list[Tensor],
    ) -> None:
        """Collect the parameters that have a gradient, with their state, made where there is none.

        The name and the lists are torch's own: its compiler runs a method so called instead of
        tracing it.
        """
        plain = isinstance(group["manifold"], Euclidean)
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if not state:
                on_device = group["capturable"] or (plain and group["fused"])
                device = local(p).device if on_device else torch.device("cpu")
                state["step"] = torch.zeros((), dtype=torch.float32, device=device)
                state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                names = ["exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
                for name in names:
                    state[name] = _second_moment(p, group["manifold"])
            params.append(p)
            grads.append(p.grad)
            exp_avgs.append(state["exp_avg"])
            exp_avg_sqs.append(state["exp_avg_sq"])
            if group["amsgrad"]:
                max_exp_avg_sqs.append(state["max_exp_avg_sq"])
            steps.append(state["step"])

    def _step_points(self, group: Group) -> None:
        all_rows = _Lists.empty()
        self._init_group(group, *all_rows)
        factors: dict[int, list[Factor]] = {}
        together: dict[tuple[int, float, torch.dtype, torch.device], list[Rows]] = {}
        for i, (x, g) in enumerate(zip(all_rows.params, all_rows.grads, strict=True)):
            width, step = x.shape[-1], all_rows.steps[i]
            if width not in factors:
                factors[width] = factors_of(group["manifold"], width)
            step.add_(1)
            rows = Rows(x, g, (all_rows.firsts[i],), all_rows.numbers(i))
            if group["foreach"] is not False and step.is_cpu and can_join(rows, factors[width]):
                key = (width, step.item(), x.dtype, x.device)
                together.setdefault(key, []).append(rows)
                continue
            mover = _Mover(group, self._rates(group, step), factors[width])
            move_rows(*rows, mover, inner=inner_dims(group["manifold"]))
        for (width, count, _, _), joined in together.items():
            join(joined, _Mover(group, self._rates(group, count), factors[width]))

    def _rates(self, group: Group, step: Tensor | float) -> AdamRates:
        """The numbers of a step: floats, or tensors if the count is on a device or compiled."""
        beta1, beta2 = group["betas"]
        if isinstance(step, Tensor):
            fixed = step.is_cpu and not torch.compiler.is_compiling()
            step = step.item() if fixed else step.double()
        lr, decay = group["lr"], group["weight_decay"]
        pulls = self._decoupled and decay and (isinstance(lr, Tensor) or lr != 0)
        return AdamRates(
            lr / (1 - beta1**step),
            1 - beta2**step,
            beta1,
            beta2,
            group["eps"],
            0.0 if self._decoupled else decay,
            1 - lr * decay if pulls else None,
        )

    def _step_plain(self, group: Group) -> None:
        dense = _Lists.empty()
        self._init_group(group, *dense)
        sparse = {i for i, g in enumerate(dense.grads) if g.is_sparse}
        for i in sparse:

            def move(rows: Rows, step: Tensor = dense.steps[i]) -> None:
                first, (second, *largest) = rows.moments[0], rows.numbers
                self._torch_adam(
                    group, _Lists([rows.x], [rows.g], [first], [second], largest, [step])
                )

            move_rows(dense.params[i], dense.grads[i], (dense.firsts[i],), dense.numbers(i), move)
        self._torch_adam(group, dense.without(sparse) if sparse else dense)

    def _torch_adam(self, group: Group, lists: _Lists) -> None:
        if not lists.params:
            return
        beta1, beta2 = group["betas"]
        adam(
            lists.params,
            lists.grads,
            lists.firsts,
            lists.seconds,
            lists.maxima,
            lists.steps,
            foreach=group["foreach"],
            capturable=group["capturable"],
            fused=group["fused"],
            has_complex=any(p.is_complex() for p in lists.params),
            decoupled_weight_decay=self._decoupled,
            amsgrad=group["amsgrad"],
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
        )


class RiemannianAdamW(RiemannianAdam):
    """`RiemannianAdam` with decoupled weight decay, and torch's AdamW for plain parameters.

    A point is first drawn along its geodesic to the origin, to 1 − lr·weight_decay of its distance
    from there, its first moment with it; then the step is taken. As c → 0 that is AdamW's decay.

    Args:
        params, lr, betas, eps, amsgrad, manifold, maximize, foreach, fused, capturable, nonfinite:
            as for `RiemannianAdam`.
        weight_decay: what is decayed is, with a module, decided by `param_groups`: points and
            curvatures are not.
    """

    _decoupled: ClassVar[bool] = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        manifold: Manifold | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        nonfinite: str = "skip",
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            manifold=manifold,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            capturable=capturable,
            nonfinite=nonfinite,
        )


class _Mover:
    """One step of some rows with the numbers of the step, factor by factor."""

    def __init__(self, group: Group, rates: AdamRates, factors: list[Factor]) -> None:
        self.group, self.rates, self.factors = group, rates, factors

    def __call__(self, rows: Rows) -> None:
        g = -rows.g if self.group["maximize"] else rows.g
        for factor in self.factors:
            first = rows.moments[0]
            x, moment = factor.rows(rows.x), factor.rows(first)
            second, *rest = (factor.numbers(t) for t in rows.numbers)
            largest = rest[0] if rest else None
            args = x, factor.rows(g), moment, second, largest, self.rates
            if factor.model is None:
                adam_points_(*args, factor.manifold)
            else:
                adam_rows_(*args, c=factor.c, model=factor.model, fused=self.group["fused"])


def _second_moment(p: Tensor, manifold: Manifold) -> Tensor:
    if isinstance(manifold, Euclidean):
        return torch.zeros_like(p, memory_format=torch.preserve_format)
    return row_numbers_like(p, count_factors(manifold), numbers_dtype(p))


def _check_fused(options: Group) -> None:
    """Raise `ValueError` if `fused=True` demands a step of points that there is not."""
    manifold = options["manifold"]
    if isinstance(manifold, Euclidean):
        return
    if not has_kernels(manifold):
        raise ValueError(
            f"fused=True, but there is no fused step for {manifold!r}: leave fused at None"
        )
    if options["capturable"]:
        raise ValueError(
            "fused=True and capturable=True: the fused step of points takes its numbers from "
            "the host, which a graph cannot capture; leave fused at None"
        )
    for p in options.get("params", ()):
        if obstacle := unsupported_device("x", local(p).device):
            raise ValueError(
                f"fused=True, but the Triton kernel cannot step these points: {obstacle}; "
                "leave fused at None"
            )
