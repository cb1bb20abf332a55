"""FSDP2 and tensor parallelism: two processes give what one gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from beltrami.models.helm import HelmForCausalLM
from tests.models.helm import small
from tests.optim.processes import share, together, whole

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed"),
]


def two_steps(model: Any, ids: Tensor) -> dict[str, Tensor]:
    """Loss of the first, its gradients, and the logits after it; all whole."""
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    found = {name: whole(p.grad) for name, p in model.named_parameters()}
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    model.zero_grad()
    return {**found, "loss": loss.detach(), "after": small.logits(model)}


def close(found: dict[str, Tensor], expected: dict[str, Tensor], kind: str) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{kind} {n}: {m}"
        )


# --- FSDP2 ----------------------------------------------------------------------------------------

FSDP = {
    "default": {},
    "fused": {"fused_loss": True, "learn_curvature": "layer"},
    "tied": small.KINDS["tied"],
}
WAYS = [(kind, how) for kind in FSDP for how in ("layers", "plan")]


def sharded() -> dict[tuple[str, str], dict[str, Tensor]]:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    results = {}
    for kind, how in WAYS:
        model = small.model(**FSDP[kind])
        if how == "layers":
            for layer in model.model.layers:
                fully_shard(layer)
            fully_shard(model)
        else:
            by_plan(model)
        assert all(isinstance(p, DTensor) for p in model.parameters())
        result = two_steps(model, share(small.tokens(4)))
        dist.all_reduce(result["loss"])
        result["loss"] /= dist.get_world_size()
        results[kind, how] = result
    return results


def by_plan(model: nn.Module) -> None:
    """As transformers does for `DistributedConfig(fsdp_size=2)`."""
    from transformers.distributed import DistributedConfig
    from transformers.distributed.fsdp import apply_fully_sharded_data_parallelism
    from transformers.distributed.utils import initialize_distributed_mesh

    config = DistributedConfig(fsdp_size=2)
    model.config.distributed_config = config
    apply_fully_sharded_data_parallelism(model, initialize_distributed_mesh(config)[1])


def check_sharded(results: list[Any]) -> None:
    expected = {kind: two_steps(small.model(**FSDP[kind]), small.tokens(4)) for kind in FSDP}
    for found in results:
        for kind, how in WAYS:
            close(found[kind, how], expected[kind], f"{kind} {how}")


# --- tensor parallelism ---------------------------------------------------------------------------

TENSOR_PARALLEL: dict[str, dict[str, Any]] = {
    **small.KINDS,
    "all": {"time_columns": "all", "qk_norm": True, "logits": "linear", "attention_bias": True},
    "hybrid": {"geometry": ["lorentz", "euclidean"], "learn_curvature": "layer", "mlp_bias": True},
    "plain": {"attention_score": "dot", "attention_aggregate": "mean", "radius_input": True},
}
REFUSED: dict[str, dict[str, Any]] = {
    "hyperplane": {"time_columns": "hyperplane"},
    "one head": {"num_key_value_heads": 1},
}
GREEDY: dict[str, Any] = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None}


def split(folder: Path) -> dict[str, Any]:
    from torch.distributed.tensor import DTensor
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    results: dict[str, Any] = {}
    ids = small.tokens()
    for kind in TENSOR_PARALLEL:
        config = DistributedConfig(tp_plan="auto")
        model = AutoModelForCausalLM.from_pretrained(folder / kind, distributed_config=config)
        names = {n for n, p in model.named_parameters() if isinstance(p, DTensor)}
        results[kind] = {"logits": small.logits(model), "split": sorted(names)}
        results[kind]["words"] = model.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        results[kind]["loss"] = loss.detach()
        parameters = [(n, p) for n, p in model.named_parameters() if p.grad is not None]
        results[kind]["grads"] = {n: whole(p.grad) for n, p in parameters}
    model.save_pretrained(folder / "again")
    for name in REFUSED:
        with pytest.raises(ValueError) as caught:
            AutoModelForCausalLM.from_pretrained(folder / name, distributed_config=config)
        results[name] = str(caught.value)
    return results


def check_split(results: list[Any], folder: Path) -> None:
    models = {kind: small.model(**fields) for kind, fields in TENSOR_PARALLEL.items()}
    ids = small.tokens()
    for found in results:
        assert 'time_columns="hyperplane" cannot be split' in found["hyperplane"]
        assert "num_key_value_heads=1 cannot be split over 2 processes" in found["one head"]
        for kind, model in models.items():
            loss = model(input_ids=ids, labels=ids).loss
            model.zero_grad()
            loss.backward()
            result = found[kind]
            assert "model.layers.0.self_attn.o_proj.weight" in result["split"]
            assert "lm_head.weight" in result["split"] or kind == "tied"
            if kind == "mlr":
                assert "word_scores.offset" in result["split"]
                assert "model.layers.0.self_attn.log_scale" in result["split"]
            torch.testing.assert_close(
                result["logits"], small.logits(model), rtol=1e-4, atol=1e-4, msg=kind
            )
            torch.testing.assert_close(result["loss"], loss.detach(), msg=kind)
            grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
            close(result["grads"], grads, kind)
            alone = model.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY)
            assert torch.equal(result["words"], alone), kind
    again = HelmForCausalLM.from_pretrained(folder / "again")
    torch.testing.assert_close(small.logits(again), small.logits(model))


def both(folder: Path) -> tuple[Any, Any]:
    return sharded(), split(folder)


def test_two_processes_are_one(tmp_path: Path) -> None:
    for name, fields in {**TENSOR_PARALLEL, **REFUSED}.items():
        small.model(**fields).save_pretrained(tmp_path / name)
    results = together(2, both, tmp_path, tmp_path)
    check_sharded([found for found, _ in results])
    check_split([found for _, found in results], tmp_path)
