"""PEFT's tests on decoders."""

import models
import retarget
import tests.test_decoder_models as upstream
import tests.testing_common as common

upstream.PEFT_DECODER_MODELS_TO_TEST[:] = models.DECODERS
upstream.ALL_CONFIGS[:] = retarget.transformer_cases("CAUSAL_LM")
retarget.retarget(common)
retarget.retarget(upstream)
upstream.check_beft_config = lambda *_: None  # it would skip Llama for all methods

TestDecoderModels = upstream.TestDecoderModels
