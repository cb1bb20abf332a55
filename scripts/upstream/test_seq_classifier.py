"""PEFT's tests on classifiers of texts."""

import models
import retarget
import tests.test_seq_classifier as upstream
import tests.testing_common as common

upstream.PEFT_SEQ_CLS_MODELS_TO_TEST[:] = models.CLASSIFIERS
upstream.ALL_CONFIGS[:] = retarget.transformer_cases("SEQ_CLS")
retarget.retarget(common)
retarget.retarget(upstream)

TestSequenceClassificationModels = upstream.TestSequenceClassificationModels
