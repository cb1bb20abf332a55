"""Engines that points survive, and those that tear them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beltrami.geometry import Curvature, Euclidean
from beltrami.geometry.manifold import manifolds_of
from beltrami.optim.groups import curvature_parameters
from beltrami.optim.metrics import named_points

if TYPE_CHECKING:
    from beltrami.train.trainer.mixin import RiemannianTrainerMixin


def _curved(trainer: RiemannianTrainerMixin) -> list[str]:
    """Names of the model's parameters that are points of a curved manifold."""
    points = named_points(trainer.model)
    return [name for name, _, manifold in points if manifold != Euclidean()]


def _fsdp_version(trainer: RiemannianTrainerMixin) -> int:
    """1 or 2, or 0 where parameters are not split."""
    if not trainer.is_fsdp_enabled:
        return 0
    return int(getattr(trainer.accelerator.state.fsdp_plugin, "fsdp_version", 1))


def check_engine(trainer: RiemannianTrainerMixin) -> None:
    """Raise `ValueError` for engines that tear points apart, or from their curvature."""
    name = next(iter(_curved(trainer)), None)
    engine = "DeepSpeed" if trainer.is_deepspeed_enabled else "FSDP1"
    if name is not None and (trainer.is_deepspeed_enabled or _fsdp_version(trainer) == 1):
        raise ValueError(
            f"{engine} flattens parameters, and then the rows of {name} are not points any "
            "more: use FSDP2 (fsdp_version: 2 in the accelerate configuration) or DDP"
        )
    count = trainer.args.n_gpu
    if count > 1 and (name is not None or _has_curvature(trainer)):
        raise ValueError(
            f"one process sees {count} GPUs, so Trainer would use nn.DataParallel, whose copies of "
            "the layers all read the curvature on the first GPU: start it with torchrun "
            f"--nproc-per-node {count}, or show it one GPU, CUDA_VISIBLE_DEVICES=0"
        )


def _has_curvature(trainer: RiemannianTrainerMixin) -> bool:
    """Whether layers read a curvature, learned or not, that is not a tensor of their own."""
    modules = list(trainer.model.modules())
    tensors = (curvature_parameters(manifold) for m in modules for manifold in manifolds_of(m))
    return any(isinstance(module, Curvature) for module in modules) or any(tensors)


def gather_points_whole(trainer: RiemannianTrainerMixin) -> None:
    """Let FSDP2 gather parameters in their own dtype, if some of them are points.

    With bf16, accelerate would have it gather them all in bfloat16, points and curvatures with
    three digits. Autocast alone does what it does in one process.
    """
    if _fsdp_version(trainer) == 2 and _curved(trainer):
        from torch.distributed.fsdp import MixedPrecisionPolicy

        trainer.accelerator.state.fsdp_plugin.mixed_precision_policy = MixedPrecisionPolicy()
