"""PEFT's tests of how adapters start, load and are scaled."""

import retarget
import tests.test_initialization as upstream

retarget.retarget(upstream)

TestLoraInitialization = upstream.TestLoraInitialization
TestCustomModelConfigWarning = upstream.TestCustomModelConfigWarning
TestLowCpuMemUsage = upstream.TestLowCpuMemUsage
TestNamingConflictWarning = upstream.TestNamingConflictWarning
TestScaling = upstream.TestScaling
TestNoInfiniteRecursionDeepspeed = upstream.TestNoInfiniteRecursionDeepspeed
