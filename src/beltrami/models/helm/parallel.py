"""Tensor parallelism: what a process does that holds a share of the heads, channels and words.

Projections are split as Llama's are. What lies beside them is split with them, in styles that
`from_pretrained(..., tp_plan="auto")` finds in transformers' registry:

- "helm_heads", "helm_gated": the excess time of a row of which each process has a share needs the
  sum of the squared norms of all shares, one number a token more to add up. Scales of heads, and
  time columns of split outputs, are split.
- "helm_words", "helm_word_matrix": scores of a share of the words, by all that belongs to them,
  and then the scores of all.

What is computed from a share, and a parameter that is whole, gets its gradients added up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from transformers.distributed.parallel_utils import (
    ALL_PARALLEL_STYLES,
    _AllReduceBackward,
    _AllReduceForward,
    _use_local_dtensor_params,
)
from transformers.distributed.tensor_parallel import TensorParallelLayer

from beltrami.geometry.chord import dot
from beltrami.kernels.launch.dtypes import upcast

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# Projections whose input is split; that of all others is whole, and their output is split.
_ROWWISE = ("o", "down")


class HelmShares(TensorParallelLayer):
    """A module with projections: parameters beside those whose output is split are split, too."""

    split: tuple[str, ...] = ("gate_time", "up_time")

    def shard_param(self, module: nn.Module, param: str, mesh: DeviceMesh) -> None:
        """Split a parameter by its rows, if it is one of `split`."""
        whole = module._parameters.get(param)
        if whole is not None and param in self.split:
            pieces = distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
            module._parameters[param] = nn.Parameter(pieces, requires_grad=whole.requires_grad)

    def install_forward(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        """Sum over the processes what a whole row is needed for."""
        own: Any = module
        if any(getattr(own, f"{name}_offset", None) is not None for name in _ROWWISE):
            raise ValueError(
                'time_columns="hyperplane" cannot be split over processes: the lengths of rows are '
                "needed, of which each has a share. Use another value, or load without tp_plan"
            )
        own.is_split = True
        own.excess_time = partial(_excess_time, own, own.excess_time, mesh.get_group())
        super().install_forward(module, mesh)
        return module

    def should_use_local_tensors(self, module: nn.Module) -> bool:
        """The module computes with its shares."""
        return True


class HelmHeads(HelmShares):
    """Attention: whole heads go to each process."""

    split = ("log_scale", "q_time", "k_time", "v_time")

    def install_forward(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        """As above; what all heads share gets the gradients of all."""
        own: Any = module
        config, size = own.config, mesh.size()
        for name in ("num_attention_heads", "num_key_value_heads"):
            if getattr(config, name) % size:
                raise ValueError(
                    f"{name}={getattr(config, name)} cannot be split over {size} processes, each "
                    "with whole heads: tp_size must divide it"
                )
        own.num_key_value_heads = config.num_key_value_heads // size
        own.head_radius = partial(_with_gradients_of_all, own.head_radius, mesh.get_group())
        for name in ("q_norm", "k_norm"):
            if hasattr(own, name):
                summed: Any = ALL_PARALLEL_STYLES["replicated_with_grad_allreduce"]
                summed.install_forward(getattr(own, name), mesh)
        return super().install_forward(module, mesh)


class HelmWordMatrix(HelmShares):
    """`lm_head`, of which `HelmWords` computes the scores."""

    split = ("weight",)

    def install_forward(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        """Nothing: it is not called, or with its share."""
        return module


class HelmWords(HelmShares):
    """Scores of words: those of a share, from whole points, and then of all."""

    split = ("offset", "time")

    def install_forward(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        """Compute a share and gather."""
        own: Any = module
        group, plain = mesh.get_group(), own.forward
        own.radius = partial(_with_gradients_of_all, own.radius, group)

        def forward(x: Tensor, lm_head: nn.Module) -> Tensor:
            x = _AllReduceBackward.apply(x, group)
            temperature = own._parameters.get("log_temperature")
            with _use_local_dtensor_params(own), _use_local_dtensor_params(lm_head):
                try:
                    if temperature is not None:
                        summed = _AllReduceBackward.apply(temperature.view_as(temperature), group)
                        own._parameters["log_temperature"] = summed
                    scores = plain(x, lm_head)
                finally:
                    if temperature is not None:
                        own._parameters["log_temperature"] = temperature
            words = lm_head.out_features
            split = TensorParallelLayer._from_local_last_dim_shard(scores, mesh, words)
            whole: Tensor = split.redistribute(placements=[Replicate()]).to_local()
            return whole

        own.forward = forward
        return module


def _excess_time(
    module: Any, plain: Callable[..., Tensor], group: Any, x: Tensor, name: str
) -> Tensor:
    if name not in _ROWWISE:
        tau: Tensor = _AllReduceBackward.apply(plain(x, name), group)
        return tau
    share = upcast(x)
    square = _AllReduceForward.apply(dot(share, share), group)
    radius = module.radius(x)
    excess: Tensor = square / (torch.sqrt(square + radius * radius) + radius)
    return excess


def _with_gradients_of_all(plain: Callable[..., Any], group: Any, *args: Any) -> Any:
    value = plain(*args)
    if not isinstance(value, Tensor):
        return value
    return _AllReduceBackward.apply(value.view_as(value), group)


_STYLES: dict[str, Any] = {
    "helm_heads": HelmHeads(),
    "helm_gated": HelmShares(),
    "helm_words": HelmWords(),
    "helm_word_matrix": HelmWordMatrix(),
}
for _name, _style in _STYLES.items():
    ALL_PARALLEL_STYLES.register(_name, _style)
