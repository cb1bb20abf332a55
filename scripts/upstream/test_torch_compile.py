"""PEFT's tests under torch.compile.

The graphs are traced, forward and backward, but not turned into C++: that takes minutes a test.
Tests that quantise run without.
"""

import os

os.environ["PEFT_DEBUG_WITH_TORCH_COMPILE"] = "1"  # they are skipped otherwise

import models
import retarget
import tests.test_torch_compile as upstream
import torch

BACKEND = "aot_eager"

upstream.SETTINGS.clear()
upstream.SETTINGS.update(retarget.compile_cases(BACKEND))
retarget.retarget(upstream)
upstream.load_dataset_english_quotes = models.quotes
upstream.BitsAndBytesConfig = lambda **_: None

TestTorchCompileCausalLM = upstream.TestTorchCompileCausalLM
TestTorchCompileCausalLM.model_id = models.LLAMA
TestTorchCompileCausalLM.compile = lambda _, model, __: torch.compile(model, backend=BACKEND)
retarget.drop_marks(TestTorchCompileCausalLM, "skip", "bitsandbytes")
