"""PEFT's tests on models with an encoder and a decoder."""

import models
import retarget
import tests.test_encoder_decoder_models as upstream
import tests.testing_common as common

upstream.PEFT_ENCODER_DECODER_MODELS_TO_TEST[:] = models.WITH_DECODERS
upstream.ALL_CONFIGS[:] = retarget.transformer_cases("SEQ_2_SEQ_LM")
retarget.retarget(common)
retarget.retarget(upstream)

TestEncoderDecoderModels = upstream.TestEncoderDecoderModels
