"""transformers' common tests of models, on HELM and on its flat form.

`scripts.test_transformers --upstream` runs this with transformers' own tests on the path. What is
left out, and why, is in `SKIPPED`.
"""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

import pytest
import torch
from tests.test_configuration_common import ConfigTester
from tests.test_modeling_common import ModelTesterMixin, ids_tensor
from transformers.models.auto import modeling_auto

import beltrami.models.helm.config as helm_config
from beltrami.models.helm import (
    HelmConfig,
    HelmForCausalLM,
    HelmForQuestionAnswering,
    HelmForSequenceClassification,
    HelmForTokenClassification,
    HelmModel,
)

CLASSES = {
    "MODEL": HelmModel,
    "MODEL_FOR_CAUSAL_LM": HelmForCausalLM,
    "MODEL_FOR_SEQUENCE_CLASSIFICATION": HelmForSequenceClassification,
    "MODEL_FOR_TOKEN_CLASSIFICATION": HelmForTokenClassification,
    "MODEL_FOR_QUESTION_ANSWERING": HelmForQuestionAnswering,
}
for _task, _class in CLASSES.items():  # by which the tests choose labels
    getattr(modeling_auto, f"{_task}_MAPPING_NAMES")["helm"] = _class.__name__

SKIPPED = {
    "test_generation_tester_mixin_inheritance": "tests of generate are not in the distribution",
    "test_keep_in_fp32_modules_exist": "which of the names there are depends on the config",
    "test_model_rope_scaling_from_config": "positions past the longest are refused without scaling",
    "test_model_weights_reload_no_missing_tied_weights": "weights of another model are refused",
    "test_resize_tokens_embeddings": "new points lie at the centroid, not at the mean",
    "test_resize_embeddings_untied": "new points lie at the centroid, not at the mean",
}


@pytest.fixture(autouse=True)
def _any_field(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let configs have the fields that the tests set for models of any kind."""
    monkeypatch.setattr(helm_config, "_check_known", lambda given, config: None)
    for name, reason in SKIPPED.items():
        if request.node.name.startswith(name):
            pytest.skip(reason)


class Tester:
    """What the tests ask of a model's own tester."""

    is_training = True
    batch_size, seq_length, vocab_size = 3, 7, 99
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def get_config(self) -> HelmConfig:
        """A tiny config."""
        return HelmConfig(
            vocab_size=self.vocab_size, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=128,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, **self.fields,
        )  # fmt: skip

    def prepare_config_and_inputs_for_common(self) -> tuple[HelmConfig, dict[str, torch.Tensor]]:
        """A config and a batch."""
        ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size)
        return self.get_config(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    prepare_config_and_inputs = prepare_config_and_inputs_for_common


class HelmTest(ModelTesterMixin, unittest.TestCase):
    """Scores by distance: the tests tie embeddings, which those by hyperplanes cannot be."""

    all_model_classes = tuple(CLASSES.values())
    fields: ClassVar[dict[str, Any]] = {"logits": "distance"}

    def setUp(self) -> None:
        """A tester for each test."""
        self.model_tester = Tester(**self.fields)
        self.config_tester = ConfigTester(
            self, config_class=HelmConfig, hidden_size=32, num_attention_heads=4
        )

    def test_config(self) -> None:
        """transformers' tests of configs."""
        self.config_tester.run_common_tests()


class FlatTest(HelmTest):
    """The twin."""

    fields: ClassVar[dict[str, Any]] = {"geometry": "euclidean"}
