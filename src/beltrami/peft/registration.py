"""HypLoRA among PEFT's methods.

PEFT finds a method by a member of its enum `PeftType` and has no way to add one from outside, so
the member is made here, once, when `beltrami.peft` is imported.
"""

from __future__ import annotations

from typing import Any

from peft.utils.peft_types import PeftType, register_peft_method

NAME = "HYPLORA"
PREFIX = "hyplora_"


def _member() -> Any:
    if NAME in PeftType.__members__:
        return PeftType[NAME]
    member = str.__new__(PeftType, NAME)
    member._name_ = NAME
    member._value_ = NAME
    member._sort_order_ = len(PeftType.__members__)
    member.__objclass__ = PeftType
    PeftType._member_map_[NAME] = member
    PeftType._value2member_map_[NAME] = member
    PeftType._member_names_.append(NAME)
    type.__setattr__(PeftType, NAME, member)
    return member


PEFT_TYPE: Any = _member()


def register(config_class: type, model_class: type) -> None:
    """Tell PEFT about the method, unless it knows it already."""
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING

    if PEFT_TYPE not in PEFT_TYPE_TO_TUNER_MAPPING:
        register_peft_method(name=NAME.lower(), config_cls=config_class, model_cls=model_class)
