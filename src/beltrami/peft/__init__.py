"""HypLoRA: hyperbolic fine-tuning as a PEFT method.

Importing this registers the method, so that `get_peft_model`, `PeftModel.from_pretrained` and the
Auto classes know it:

>>> from beltrami.peft import HypLoraConfig
>>> model = get_peft_model(model, HypLoraConfig(r=16, alpha=32, target_modules="all-linear"))
"""

from __future__ import annotations

try:
    import peft as _peft
except ImportError as error:
    raise ImportError(
        "beltrami.peft needs PEFT: pip install 'beltrami[peft]' (peft 0.20 or later)"
    ) from error

if tuple(int(n) for n in _peft.__version__.split(".")[:2]) < (0, 20):
    raise ImportError(
        f"beltrami.peft needs peft 0.20 or later, found {_peft.__version__}: "
        "pip install --upgrade 'beltrami[peft]'"
    )

from beltrami.peft.calibration import LinearFit
from beltrami.peft.config import HypLoraConfig
from beltrami.peft.gain_statistics import measure_gains
from beltrami.peft.layer import (
    HypLoraEmbedding,
    HypLoraLayer,
    HypLoraLinear,
    HypLoraLorentzLinear,
)
from beltrami.peft.model import HypLoraModel
from beltrami.peft.param_groups import loraplus_groups
from beltrami.peft.rank_allocation import RankAllocator
from beltrami.peft.rank_callback import RankAllocationCallback
from beltrami.peft.registration import register
from beltrami.peft.saving import save_adapter

__all__ = [
    "HypLoraConfig",
    "HypLoraEmbedding",
    "HypLoraLayer",
    "HypLoraLinear",
    "HypLoraLorentzLinear",
    "HypLoraModel",
    "LinearFit",
    "RankAllocationCallback",
    "RankAllocator",
    "loraplus_groups",
    "measure_gains",
    "save_adapter",
]

register(HypLoraConfig, HypLoraModel)
