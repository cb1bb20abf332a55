"""PEFT's tests of configs."""

import retarget
import tests.test_config as upstream

retarget.retarget(upstream)

TestPeftConfig = upstream.TestPeftConfig
