"""Adapters as people train them: Trainer, checkpointing, compile, autocast, several processes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
import torch
import torch.distributed as dist
from peft import get_peft_model
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from tests.optim.processes import together
from tests.peft import tiny

SETTINGS: list[dict] = [
    {},
    {"variant": "boost"},
    {"curvature": [0.1, 1.0], "learn_curvature": "module"},
    {"learn_curvature": "layer", "norm_source": "residual"},
    {"learn_curvature": "token"},
    {"use_dora": True},
]


def adapted(**settings: object) -> nn.Module:
    return get_peft_model(tiny.llama(), tiny.config(task_type="CAUSAL_LM", **settings))


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_gradient_checkpointing_changes_nothing(settings: dict) -> None:
    ids = tiny.tokens()
    plain, checkpointed = adapted(**settings).train(), adapted(**settings).train()
    checkpointed.load_state_dict(plain.state_dict())
    checkpointed.gradient_checkpointing_enable({"use_reentrant": False})
    checkpointed.enable_input_require_grads()
    for model in (plain, checkpointed):
        model(input_ids=ids, labels=ids).loss.backward()
    expected = gradients(plain)
    found = gradients(checkpointed)
    assert expected.keys() <= found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-8, msg=name)


def same_when_compiled(
    model: nn.Module, *args: Tensor, backend: str = "aot_eager", **kwargs: Tensor
) -> None:
    def loss(module: nn.Module) -> Tensor:
        out = module(*args, **kwargs)
        return out.square().mean() if isinstance(out, Tensor) else out.loss

    loss(model).backward()
    expected = gradients(model)
    model.zero_grad()
    torch._dynamo.reset()  # all of a class share one limit of recompilations
    loss(torch.compile(model, backend=backend, fullgraph=True)).backward()
    assert gradients(model).keys() == expected.keys()
    for name, value in gradients(model).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_compiling_breaks_no_graph(settings: dict) -> None:
    blocks = nn.Sequential(nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 6)))
    model = get_peft_model(blocks, tiny.config(target_modules=["0.1"], **settings))
    same_when_compiled(model.base_model.model, torch.randn(4, 8))


@pytest.mark.slow
@pytest.mark.skipif(which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_computes_the_same() -> None:
    blocks = nn.Sequential(nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 6)))
    model = get_peft_model(blocks, tiny.config(target_modules=["0.1"]))
    same_when_compiled(model.base_model.model, torch.randn(4, 8), backend="inductor")
    with torch.no_grad():
        x = torch.randn(2, 8)
        compiled = torch.compile(model.base_model.model, fullgraph=True)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_compiling_a_whole_model() -> None:
    ids = tiny.tokens()
    same_when_compiled(adapted().base_model.model, input_ids=ids, labels=ids)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_bfloat16_autocast_is_near_float32(settings: dict) -> None:
    ids = tiny.tokens()
    model = adapted(**settings).train()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    expected = gradients(model)
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(input_ids=ids, labels=ids).loss
    rough.backward()
    torch.testing.assert_close(rough, loss, rtol=2e-2, atol=0)
    whole = torch.cat([g.flatten() for g in expected.values()])
    found = torch.cat([g.flatten() for g in gradients(model).values()])
    assert float((found - whole).norm() / whole.norm()) < 0.05


class Sentences(Dataset):
    """Each token is the one before plus 1: learnable in a few steps."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        ids = (torch.arange(8) + 3 * i) % (tiny.VOCABULARY - 3) + 3
        return {"input_ids": ids, "labels": ids}


def test_the_trainer_trains_saves_and_goes_on(tmp_path: Path) -> None:
    def trainer(steps: int) -> Trainer:
        torch.manual_seed(0)
        model = adapted(init_weights=True, learn_curvature="module", alpha=32)
        settings = TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=steps,
            learning_rate=2e-2,
            per_device_train_batch_size=8,
            save_steps=10,
            lr_scheduler_type="constant",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=10,
        )
        return Trainer(model, settings, train_dataset=Sentences())

    first = trainer(20)
    first.train()
    losses = [row["loss"] for row in first.state.log_history if "loss" in row]
    assert losses[-1] < losses[0]
    assert (tmp_path / "checkpoint-20" / "adapter_model.safetensors").exists()
    again = trainer(20)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    for (name, p), q in zip(first.model.named_parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6, msg=name)


# --- several processes ----------------------------------------------------------------------------


def steps(model: nn.Module, ids: Tensor) -> None:
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(2):
        optimiser.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimiser.step()


def trained(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}


def with_ddp(settings: dict) -> dict[str, Tensor]:
    model = nn.parallel.DistributedDataParallel(adapted(**settings))
    steps(model, tiny.tokens(4).chunk(2)[dist.get_rank()])
    return trained(model.module)


def with_fsdp2(settings: dict) -> dict[str, Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = adapted(**settings)
    for block in model.base_model.model.model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    steps(model, tiny.tokens(4).chunk(2)[dist.get_rank()])
    return {n: p.full_tensor() for n, p in trained(model).items()}


def with_zero3(settings: dict) -> dict[str, Tensor]:
    os.environ["DS_ACCELERATOR"] = "cpu"  # before the import, which looks for GPUs
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    deepspeed.init_distributed("gloo")
    model = adapted(**settings)
    told = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        # Every parameter in parts, however small.
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimiser, config=told)
    ids = tiny.tokens(4).chunk(2)[dist.get_rank()]
    for _ in range(2):
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
    named = engine.module.named_parameters()
    return {n: safe_get_full_fp32_param(p).clone() for n, p in named if p.requires_grad}


BY_LAYER = {"learn_curvature": "layer"}
MIXTURE = {"curvature": [0.1, 1.0], "learn_curvature": "module"}
DEEPSPEED = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="needs DeepSpeed: pip install deepspeed"
)


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
@pytest.mark.parametrize(
    ("work", "settings"),
    [
        (with_ddp, BY_LAYER),
        (with_fsdp2, MIXTURE),
        pytest.param(with_zero3, MIXTURE, marks=DEEPSPEED),
    ],
    ids=["ddp", "fsdp2", "zero3"],
)
def test_two_processes_are_one(work, settings: dict, tmp_path: Path) -> None:
    model = adapted(**settings)
    start = {n: p.clone() for n, p in trained(model).items()}
    steps(model, tiny.tokens(4))
    for found in together(2, work, tmp_path, settings):
        for name, value in trained(model).items():
            assert not torch.equal(value, start[name]), f"{name} was not trained"
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)
