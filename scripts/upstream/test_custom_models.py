"""PEFT's tests on small models of its own."""

import retarget
import tests.test_custom_models as upstream
import tests.testing_common as common

upstream.TEST_CASES[:] = list(retarget.custom_cases(upstream.TEST_CASES))
upstream.ALL_PEFT_CONFIG_CLASSES[:] = [retarget.HypLoraConfig]
upstream.MULTIPLE_ACTIVE_ADAPTERS_TEST_CASES[:] = list(retarget.several_active_cases())
upstream.MIXED_ADAPTER_TEST_CASES[:] = list(retarget.mixed_batch_cases())
retarget.retarget(common)
retarget.retarget(upstream)

TestPeftCustomModel = upstream.TestPeftCustomModel
TestMultiRankAdapter = upstream.TestMultiRankAdapter
TestMultipleActiveAdapters = upstream.TestMultipleActiveAdapters
TestRequiresGrad = upstream.TestRequiresGrad
retarget.expect_our_names(TestRequiresGrad)
TestMixedAdapterBatches = upstream.TestMixedAdapterBatches
TestDefaultTargetModules = upstream.TestDefaultTargetModules
if hasattr(upstream, "TestPeftFsdpStateDict"):  # peft 0.21
    TestPeftFsdpStateDict = upstream.TestPeftFsdpStateDict
