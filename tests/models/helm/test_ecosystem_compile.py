"""`torch.compile` of a HELM, whole and by blocks, and of its decoding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters
from transformers import CompileConfig

from beltrami.geometry import Curvature, Lorentz
from tests.models.helm import small


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def gradients(model: Any, called: Any, length: int) -> dict[str, Tensor]:
    ids = small.tokens(2, length)
    model.zero_grad()
    loss = called(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return {**found, "loss": loss.detach()}


@pytest.mark.slow
def test_a_whole_model_is_compiled_twice_whatever_the_lengths() -> None:
    model = small.model(num_hidden_layers=1, fused_loss=True)
    backend = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for length in (7, 9, 12):
        found, expected = gradients(model, compiled, length), gradients(model, model, length)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert backend.frame_count == 2  # for one length, and for all


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's, while it traces
def test_blocks_are_compiled_once_for_all() -> None:
    model, plain = small.model(), small.model()
    backend = CompileCounterWithBackend("eager")
    for layer in model.model.layers:
        layer.compile(fullgraph=True, backend=backend)
    for length in (7, 9, 12):
        found, expected = gradients(model, model, length), gradients(plain, plain, length)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert backend.frame_count == 2


def test_a_learned_curvature_is_compiled_with_dynamic_numbers() -> None:
    curvature = Curvature(0.5)
    space = Lorentz(curvature)

    def radius(x: Tensor) -> Tensor:
        return space.radius_like(x) * x

    compiled = torch.compile(radius, fullgraph=True, dynamic=True, backend="aot_eager")
    for size in (3, 5):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), radius(x))
    compiled(x).sum().backward()
    assert curvature.raw.grad is not None


@pytest.mark.slow
def test_decoding_with_a_static_cache_is_compiled() -> None:
    model = small.model()
    ids = small.tokens()
    options: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 4,
        "do_sample": False,
        "eos_token_id": None,
    }
    expected = model.generate(ids, **options)
    compile_config = CompileConfig(backend="aot_eager", mode=None, fullgraph=True)
    compile_config._compile_all_devices = True
    counters.clear()
    found = model.generate(
        ids, cache_implementation="static", compile_config=compile_config, **options
    )
    assert torch.equal(found, expected)
    assert counters["stats"]["unique_graphs"] > 0
