"""PEFT's tests on encoders."""

import models
import retarget
import tests.test_feature_extraction_models as upstream
import tests.testing_common as common

upstream.PEFT_FEATURE_EXTRACTION_MODELS_TO_TEST[:] = models.ENCODERS
upstream.ALL_CONFIGS[:] = retarget.transformer_cases("FEATURE_EXTRACTION")
retarget.retarget(common)
retarget.retarget(upstream)

TestPeftFeatureExtractionModel = upstream.TestPeftFeatureExtractionModel
