"""Riemannian SGD with momentum, for points and plain parameters together."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from beltrami.geometry import Manifold
from beltrami.kernels.rows.sgd_rows import SGDRates, sgd_rows_
from beltrami.optim.checks import check_flag, check_number, check_rate
from beltrami.optim.general import sgd_points_
from beltrami.optim.groups import Group
from beltrami.optim.optimizer import Params, RiemannianOptimizer
from beltrami.optim.points import Factor, factors_of, inner_dims
from beltrami.optim.rows import Rows, can_join, join, move_rows


class RiemannianSGD(RiemannianOptimizer):
    """SGD along geodesics (Bonnabel 2013), and torch's SGD for plain parameters.

    The momentum of a point is carried along its path; with Nesterov's, along the geodesic of the
    corrected direction.

    Args:
        params: a module, whose layers say which parameters are points; the groups of
            `param_groups(model)`; or parameters, with `manifold` in each group or for all.
        lr, momentum, dampening, nesterov, maximize: as in `torch.optim.SGD`.
        weight_decay: for plain parameters as in torch (added to the gradient); for points
            weight_decay/2 times the squared distance from the origin is added to the loss.
        manifold: of parameters whose group does not say.
        foreach: step small tables of one width together (default), or each alone. For plain
            parameters as in torch.
        nonfinite: "skip" leaves rows with a gradient that is not finite where they are, and their
            momentum too; "raise" stops before anything has moved, and waits for the device to see.

    Sparse gradients move the rows they name and leave all others alone, momentum too; the first
    gradient of a row is then damped like all others.
    """

    _own_option: ClassVar[str] = "momentum"

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        manifold: Manifold | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        nonfinite: str = "skip",
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "nonfinite": nonfinite,
        }
        super().__init__(params, defaults, manifold)

    def _check_options(self, options: Group) -> None:
        check_rate(options)
        for name in ("nesterov", "maximize"):
            check_flag(name, options[name])
        for name in ("momentum", "dampening", "weight_decay"):
            check_number(name, options[name])
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise ValueError(
                "nesterov needs a momentum and zero dampening, got "
                f"momentum={options['momentum']}, dampening={options['dampening']}"
            )

    def _init_group(
        self,
        group: Group,
        params: list[Tensor],
        grads: list[Tensor],
        buffers: list[Tensor | None],
        fresh: list[bool],
    ) -> None:
        """Collect the parameters that have a gradient, with their momentum where there is one.

        The name and the lists are torch's own: its compiler runs a method so called instead of
        tracing it.
        """
        for p in group["params"]:
            if p.grad is None:
                continue
            # `get`: an entry made here would be there when the compiler traces a step once more
            state = self.state.get(p, {}) if group["momentum"] else {}
            buffer = state.get("momentum_buffer")
            params.append(p)
            grads.append(p.grad)
            buffers.append(buffer)
            fresh.append(buffer is None)

    def _step_points(self, group: Group) -> None:
        params: list[Tensor] = []
        grads: list[Tensor] = []
        buffers: list[Tensor | None] = []
        fresh: list[bool] = []
        self._init_group(group, params, grads, buffers, fresh)
        lr, momentum = group["lr"], group["momentum"]
        rates = SGDRates(lr, momentum, group["dampening"], group["nesterov"], group["weight_decay"])
        factors: dict[int, list[Factor]] = {}
        together: dict[tuple[int, bool, torch.dtype, torch.device], list[Rows]] = {}
        for x, g, buffer, first in zip(params, grads, buffers, fresh, strict=True):
            width = x.shape[-1]
            if width not in factors:
                factors[width] = factors_of(group["manifold"], width)
            if momentum and buffer is None:
                buffer = torch.zeros_like(x, memory_format=torch.preserve_format)
                self.state[x]["momentum_buffer"] = buffer
            rows = Rows(x, g, () if buffer is None else (buffer,), ())
            if group["foreach"] is not False and can_join(rows, factors[width]):
                key = (width, first, x.dtype, x.device)
                together.setdefault(key, []).append(rows)
                continue
            mover = _Mover(group, rates, factors[width], first and not g.is_sparse)
            move_rows(*rows, mover, inner=inner_dims(group["manifold"]))
        for (width, first, _, _), joined in together.items():
            join(joined, _Mover(group, rates, factors[width], first))

    def _step_plain(self, group: Group) -> None:
        params: list[Tensor] = []
        grads: list[Tensor] = []
        buffers: list[Tensor | None] = []
        fresh: list[bool] = []
        self._init_group(group, params, grads, buffers, fresh)
        if not params:
            return
        lr, sparse = group["lr"], any(g.is_sparse for g in grads)
        # torch's other steps read a rate off the device, which waits, and which no graph captures.
        fused = (
            isinstance(lr, Tensor)
            and lr.is_cuda
            and not sparse
            and not torch.compiler.is_compiling()
            and all(p.device == lr.device and p.is_floating_point() for p in params)
            and (not group["momentum"] or len(set(fresh)) == 1)  # it takes all first steps at once
        )
        sgd(
            params,
            grads,
            buffers,
            has_sparse_grad=sparse,
            foreach=None if fused else group["foreach"],
            fused=True if fused else None,
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=lr.float() if fused else lr,
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
        if group["momentum"]:
            for p, buffer in zip(params, buffers, strict=True):
                self.state[p]["momentum_buffer"] = buffer


class _Mover:
    """One step of some rows with the numbers of the step, factor by factor."""

    def __init__(self, group: Group, rates: SGDRates, factors: list[Factor], first: bool) -> None:
        self.group, self.rates, self.factors, self.first = group, rates, factors, first

    def __call__(self, rows: Rows) -> None:
        g = -rows.g if self.group["maximize"] else rows.g
        for factor in self.factors:
            moment = factor.rows(rows.moments[0]) if rows.moments else None
            args = factor.rows(rows.x), factor.rows(g), moment, self.rates
            if factor.model is None:
                sgd_points_(*args, self.first, factor.manifold)
            else:
                sgd_rows_(*args, first=self.first, c=factor.c, model=factor.model)
