"""The Trainer glue: optimiser, clipping, logs, resuming, and the stop at the first NaN."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import SequentialSampler

pytest.importorskip("transformers", reason='needs transformers: pip install "beltrami[llm]"')
pytest.importorskip("accelerate", reason='needs accelerate: pip install "beltrami[llm]"')

from transformers import Trainer, TrainerCallback, TrainingArguments

import beltrami.nn as bnn
from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Sphere,
    Stereographic,
)
from beltrami.optim import (
    RiemannianAdamW,
    RiemannianSGD,
    clip_grad_norm_,
    create_optimizer,
    grad_norm,
)
from beltrami.optim.metrics import geometry_metrics
from beltrami.train.finite import NonFiniteLossError, steps
from beltrami.train.trainer import RiemannianTrainer, RiemannianTrainerMixin, options
from tests.optim.launched import shard_on_cpu
from tests.optim.processes import together


def in_processes(test: Any) -> Any:
    """Marks of tests that start processes."""
    reason = "torch without torch.distributed"
    return pytest.mark.slow(pytest.mark.skipif(not dist.is_available(), reason=reason)(test))


TOKENS, CLASSES = 12, 3
POISON = 11  # the token that a faulty layer cannot bear


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """TrainingArguments tells accelerate of precision and compilation through the environment."""
    with mock.patch.dict(os.environ):
        yield


class Model(nn.Module):
    """Tokens to points, a layer, something that may go wrong, and a classifier."""

    def __init__(self, fault: nn.Module | None = None, space: type[Manifold] = Lorentz) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.curvature = Curvature(1.0, bounds=(0.5, 2.0))
        H = space(self.curvature) if space is not Euclidean else Euclidean()  # type: ignore[call-arg]
        self.embed = bnn.Embedding(TOKENS, 4, manifold=H)
        self.layer = bnn.Linear(4, 4, manifold=H)
        self.fault = fault or Fine()
        self.head = bnn.MLR(4, CLASSES, manifold=H)

    def forward(self, ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        x = self.fault(self.layer(self.embed(ids)), ids)
        logits = self.head(x).mean(-2)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class WithScale(Model):
    """A model that learns the logarithm of a scale too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = bnn.Linear(4, 4, manifold=self.embed.manifold, form="hybonet")


class Fine(nn.Module):
    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return x


class BadForward(nn.Module):
    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return x / (ids != POISON).to(x).unsqueeze(-1)


class BadBackward(nn.Module):
    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        fine = (ids != POISON).to(x).unsqueeze(-1)
        return x + ((x * 0).square() + fine).sqrt()


class Ordered(RiemannianTrainer):
    """Takes the data in its order, so that a test knows what comes when."""

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        return SequentialSampler(self.train_dataset)


def samples(count: int, poison: int | None = None) -> list[dict[str, Tensor]]:
    """Samples 0, 1, ...; the one called `poison` has the token a faulty layer cannot bear."""
    draw = torch.Generator().manual_seed(0)
    out = []
    for i in range(count):
        ids = torch.randint(0, POISON, (3,), generator=draw)
        if i == poison:
            ids[1] = POISON
        out.append({"ids": ids, "labels": ids[0] % CLASSES})
    return out


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "per_device_train_batch_size": 2,
        "max_steps": 4,
        "learning_rate": 0.05,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**{**defaults, **options})


def trainer(
    folder: Path,
    model: nn.Module | None = None,
    data: list[dict[str, Tensor]] | None = None,
    kind: type[Any] = Ordered,
    extra: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    return kind(
        model or Model(),
        arguments(folder, **options),
        train_dataset=data or samples(8),
        **(extra or {}),
    )


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], **options: Any) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=lambda m, n=name: f"{n}: {m}", **options)


# --- optimiser ------------------------------------------------------------------------------------


def test_the_optimiser_of_the_arguments(tmp_path: Path) -> None:
    built = trainer(
        tmp_path,
        WithScale(),
        extra={
            "point_lr": 0.2,
            "curvature_lr": 0.3,
            "scale_lr": 0.4,
            "point_weight_decay": 0.01,
        },
        weight_decay=0.1,
        adam_beta1=0.8,
        adam_beta2=0.95,
        adam_epsilon=1e-6,
    ).create_optimizer()
    assert isinstance(built, RiemannianAdamW)
    groups = {group["kind"]: group for group in built.param_groups}
    assert groups.keys() == {"points", "curvature", "log_scale", "decay", "no_decay"}
    rates = {kind: group["lr"] for kind, group in groups.items()}
    assert rates == {
        "points": 0.2, "curvature": 0.3, "log_scale": 0.4, "decay": 0.05, "no_decay": 0.05,
    }  # fmt: skip
    assert [groups[k]["weight_decay"] for k in ("points", "curvature", "decay")] == [0.01, 0, 0.1]
    assert all(g["betas"] == (0.8, 0.95) and g["eps"] == 1e-6 for g in built.param_groups)


def test_fused_is_for_plain_parameters_and_points_have_their_own(tmp_path: Path) -> None:
    """Trainer's default asks for torch's fused AdamW, which knows nothing of points."""
    for optim, fused in (("adamw_torch", None), ("adamw_torch_fused", True)):
        groups = trainer(tmp_path, optim=optim).create_optimizer().param_groups
        expected = {group["kind"]: None if group["kind"] == "points" else fused for group in groups}
        assert {group["kind"]: group["fused"] for group in groups} == expected


def test_sgd_and_its_options(tmp_path: Path) -> None:
    options = "momentum=0.9, nesterov=True"
    built = trainer(tmp_path, optim="sgd", optim_args=options).create_optimizer()
    assert isinstance(built, RiemannianSGD)
    assert all(g["momentum"] == 0.9 and g["nesterov"] is True for g in built.param_groups)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"optim": "adafactor"},
            "optim='adafactor' has no Riemannian form: use one of adamw_torch",
        ),
        ({"optim": "adamw_8bit"}, "adamw_8bit"),
        ({"optim": "sgd", "optim_args": "amsgrad=true"}, "one can set momentum.*not 'amsgrad'"),
        ({"optim": "sgd", "optim_args": "momentum=fast"}, "momentum must be a number, got 'fast'"),
        ({"optim": "sgd", "optim_args": "nesterov=1"}, "nesterov must be true or false, got '1'"),
        ({"optim": "sgd", "optim_args": "momentum=-1"}, "momentum must be at least 0, got -1"),
        ({"optim_target_modules": ["layer"]}, "optim_target_modules=.* leave it at None"),
        ({"learning_rate": -0.1}, "learning_rate must be at least 0, got -0.1"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0, got -0.1"),
    ],
)
def test_arguments_without_a_meaning(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, **options)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("point_lr", "points"),
        ("curvature_lr", "curvatures"),
        ("scale_lr", "logarithms of scales"),
        ("point_weight_decay", "points"),
    ],
)
def test_rates_of_what_is_not_there(tmp_path: Path, name: str, what: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
        trainer(tmp_path, extra={name: -1.0})
    frozen = WithScale()
    for frozen_parameter in (frozen.embed.weight, frozen.curvature.raw, frozen.layer.log_scale):
        frozen_parameter.requires_grad_(False)
    with pytest.raises(ValueError, match=f"{name}=0.5 would be ignored: WithScale has no {what}"):
        trainer(tmp_path, frozen, extra={name: 0.5})
    plain = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=f"{name}=0.5 would be ignored: Linear has no {what}"):
        trainer(tmp_path, plain, extra={name: 0.5})


class OnManifold(nn.Module):
    def __init__(self, manifold: Manifold) -> None:
        super().__init__()
        self.points = nn.Parameter(manifold.random(3, 4))
        self.manifold_of = {"points": manifold}


@pytest.mark.parametrize(
    "manifold", [PoincareBall(1.0), Sphere(1.0), Product([(Lorentz(1.0), 2), (Sphere(1.0), 2)])]
)
def test_a_flat_optimiser_that_would_lose_the_points(tmp_path: Path, manifold: Manifold) -> None:
    model = OnManifold(manifold)
    flat = torch.optim.SGD(model.parameters())
    with pytest.raises(
        ValueError, match=r"torch\.optim\.sgd\.SGD, for which points is flat: .*leave"
    ):
        trainer(tmp_path, model, extra={"optimizers": (flat, None)})


def test_a_flat_optimiser_that_cannot_is_warned_of(tmp_path: Path) -> None:
    class Mine(torch.optim.SGD):
        pass

    ball = OnManifold(PoincareBall(1.0))
    for model, kind, heard in (
        (Model(), torch.optim.AdamW, True),
        (Model(), lambda p: RiemannianSGD(p, manifold=Lorentz(1.0)), False),
        (Model(space=Euclidean), torch.optim.AdamW, False),
        (ball, Mine, True),  # it may know more than its groups say
    ):
        with mock.patch.object(options._logger, "warning") as warning:
            trainer(tmp_path, model, extra={"optimizers": (kind(model.parameters()), None)})
        assert warning.called == heard
        if heard:
            assert "its steps are not those of" in warning.call_args[0][0]
    assert options._logger.parent.name == "transformers"


def test_a_curvature_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    model = Model()
    model.curvature = nn.Identity()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="whose Curvature no module of the model has registered"):
        trainer(tmp_path, model)


def test_an_optimiser_of_the_users(tmp_path: Path) -> None:
    model = Model()
    own = create_optimizer(model, "sgd", lr=0.1)
    given = trainer(tmp_path, model, extra={"optimizers": (own, None)}, optim="adafactor")
    assert given.create_optimizer() is own
    given.train()
    with pytest.raises(ValueError, match=r"point_lr is for .* optimizers= brings"):
        trainer(tmp_path, model, extra={"optimizers": (own, None), "point_lr": 0.1})
    with pytest.raises(ValueError, match="optimizer_cls_and_kwargs names SGD"):
        trainer(tmp_path, extra={"optimizer_cls_and_kwargs": (torch.optim.SGD, {})})


@pytest.mark.parametrize(
    ("flag", "name"), [("is_deepspeed_enabled", "DeepSpeed"), ("is_fsdp_enabled", "FSDP1")]
)
def test_engines_that_flatten_points_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, name: str
) -> None:
    curved, twin = trainer(tmp_path), trainer(tmp_path, Model(space=Euclidean))
    plugin = SimpleNamespace(fsdp_version=1)
    monkeypatch.setattr(curved.accelerator.state, "fsdp_plugin", plugin, raising=False)
    setattr(curved, flag, True)
    with pytest.raises(ValueError, match=f"{name} flattens .* rows of embed.weight .* use FSDP2"):
        curved.create_optimizer()
    setattr(twin, flag, True)
    twin.create_optimizer()
    if flag == "is_fsdp_enabled":
        plugin.fsdp_version = 2
        curved.create_optimizer()


@pytest.mark.parametrize("given", [False, True])
def test_deepspeed_is_refused_before_it_brings_its_own_optimiser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """Neither an `optimizer` entry in its configuration nor `optimizers=` asks us for one."""
    create = Trainer.create_accelerator_and_postprocess

    def with_deepspeed(self: Any) -> None:
        create(self)
        self.is_deepspeed_enabled = True

    monkeypatch.setattr(Trainer, "create_accelerator_and_postprocess", with_deepspeed)
    model = Model()
    extra = {"optimizers": (create_optimizer(model), None)} if given else {}
    with pytest.raises(ValueError, match=r"DeepSpeed flattens .* rows of embed.weight"):
        trainer(tmp_path, model, extra=extra)


def test_copies_on_several_gpus_are_refused(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    args._n_gpu = 2  # what a process that sees two GPUs finds
    only_curvature = nn.ModuleDict({"curvature": Curvature(1.0, learnable=False)})
    for model in (Model(), OnManifold(Lorentz(1.0)), only_curvature):
        with pytest.raises(ValueError, match=r"2 GPUs.* torchrun --nproc-per-node 2.*VISIBLE"):
            RiemannianTrainer(model, args)
    RiemannianTrainer(nn.Linear(2, 2), args)


def test_the_mixin_comes_first() -> None:
    with pytest.raises(TypeError, match=r"class Wrong\(RiemannianTrainerMixin, Trainer\)"):

        class Wrong(Trainer, RiemannianTrainerMixin):
            pass

    class Other(Trainer):
        pass

    with pytest.raises(TypeError, match="Other comes before RiemannianTrainerMixin"):

        class AlsoWrong(Other, RiemannianTrainer):
            pass

    class Own(RiemannianTrainerMixin):  # a mixin of one's own
        pass

    class Right(Own, Other):
        pass


def test_a_trainer_without_the_methods_we_build_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Trainer, "_maybe_log_save_evaluate")
    with pytest.raises(TypeError, match=r"transformers .* has no _maybe_log_save_evaluate, on"):

        class Lost(RiemannianTrainerMixin, Trainer):
            pass


def test_a_trainer_with_a_step_of_its_own(tmp_path: Path) -> None:
    """TRL's trainers count in `_step`."""

    class Counts(Trainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._step = self._last_step = 0

        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            self._step += 1
            return super().training_step(*args, **kwargs)

    class Both(RiemannianTrainerMixin, Counts):
        pass

    built = trainer(tmp_path, kind=Both)
    ours = vars(built).keys() - vars(trainer(tmp_path, kind=Counts)).keys()
    built.train()
    assert built._step == 4
    assert sorted(ours) == [
        "_beltrami", "curvature_lr", "finite_check", "point_lr", "point_weight_decay", "scale_lr",
    ]  # fmt: skip


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused"])
def test_training_is_the_loop_one_would_write(tmp_path: Path, optim: str) -> None:
    data, model = samples(8), Model()
    other = copy.deepcopy(model)
    built = trainer(
        tmp_path, model, data, extra={"point_lr": 0.2}, optim=optim, max_grad_norm=0.1,
        weight_decay=0.1, lr_scheduler_type="linear", warmup_steps=2,
    )  # fmt: skip
    built.train()

    optimizer = create_optimizer(other, lr=0.05, point_lr=0.2, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(i / 2, (4 - i) / 2))
    norms = []
    for i in range(4):
        batch = data[2 * i : 2 * i + 2]
        ids, labels = (torch.stack([sample[key] for sample in batch]) for key in ("ids", "labels"))
        other(ids, labels)["loss"].backward()
        norms.append(float(clip_grad_norm_(other, 0.1)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    assert_equal(parameters(model), parameters(other), rtol=1e-5, atol=1e-6)
    logged = [log["grad_norm"] for log in built.state.log_history if "loss" in log]
    assert logged == pytest.approx(norms, rel=1e-4)
    assert min(norms) > 0.1  # all were clipped


@pytest.mark.parametrize("max_norm", [0.01, 0.0])
def test_clipping_is_riemannian(tmp_path: Path, max_norm: float) -> None:
    """On the ball the two norms differ; `max_grad_norm` bounds the Riemannian one."""
    seen: dict[str, list[float]] = {"flat": [], "curved": []}

    class Look(TrainerCallback):
        def on_pre_optimizer_step(self, *args: Any, model: nn.Module, **kwargs: Any) -> None:
            seen["curved"].append(float(grad_norm(model)))
            flat = [p.grad for p in model.parameters() if p.grad is not None]
            seen["flat"].append(float(torch.nn.utils.get_total_norm(flat)))

    model = Model(space=PoincareBall)
    built = trainer(
        tmp_path, model, extra={"callbacks": [Look()]}, max_grad_norm=max_norm, max_steps=1
    )
    built.train()
    logged = [log["grad_norm"] for log in built.state.log_history if "grad_norm" in log]
    assert seen["flat"][0] != pytest.approx(seen["curved"][0], rel=1e-2)
    if max_norm:
        assert seen["curved"] == pytest.approx([max_norm], rel=1e-3)
        assert logged[0] > max_norm
    else:
        assert logged in ([], pytest.approx(seen["curved"]))  # transformers 4 then logs none


def test_other_parameters_are_clipped_as_accelerate_does(tmp_path: Path) -> None:
    built = trainer(tmp_path)
    stranger = nn.Parameter(torch.tensor([3.0, 4.0]))
    stranger.grad = torch.tensor([3.0, 4.0])
    assert float(built.accelerator.clip_grad_norm_([stranger], 1.0)) == 5.0
    with pytest.raises(ValueError, match="norm_type 2, got 1"):
        built.accelerator.clip_grad_norm_(built.model.parameters(), 1.0, norm_type=1)


def test_gradient_accumulation_is_a_larger_batch(tmp_path: Path) -> None:
    once, twice = Model(), Model()
    trainer(tmp_path, once, per_device_train_batch_size=4, max_steps=2).train()
    trainer(tmp_path, twice, gradient_accumulation_steps=2, max_steps=2).train()
    assert_equal(parameters(twice), parameters(once), rtol=1e-4, atol=1e-6)


def test_bfloat16_and_evaluation(tmp_path: Path) -> None:
    built = trainer(
        tmp_path, data=samples(16), kind=RiemannianTrainer, extra={"eval_dataset": samples(6)},
        bf16=True, gradient_accumulation_steps=2, max_steps=40,
        eval_strategy="steps", eval_steps=10,
    )  # fmt: skip
    built.train()
    losses = [log["eval_loss"] for log in built.state.log_history if "eval_loss" in log]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def test_resuming_gives_the_uninterrupted_run(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 2, "kind": RiemannianTrainer}
    whole = trainer(tmp_path / "whole", **options)
    whole.train()
    again = trainer(tmp_path / "again", **options)
    again.train(resume_from_checkpoint=str(tmp_path / "whole/checkpoint-2"))
    assert_equal(parameters(again.model), parameters(whole.model), rtol=0, atol=0)
    ours, theirs = again.optimizer.state_dict(), whole.optimizer.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys() != set()
    for key, state in theirs["state"].items():
        assert_equal(ours["state"][key], state, rtol=0, atol=0)
    table = again.optimizer.state[again.model.embed.weight]
    assert table["exp_avg_sq"].shape == (TOKENS, 1)


def test_a_checkpoint_with_rates_of_the_older_unit_is_refused(tmp_path: Path) -> None:
    """Its learning-rate scheduler, which is restored too, would give steps √d times too long."""
    options = {"save_strategy": "steps", "save_steps": 2, "kind": RiemannianTrainer}
    trainer(tmp_path, max_steps=2, **options).train()
    file = tmp_path / "checkpoint-2/optimizer.pt"
    state = torch.load(file, weights_only=True)
    for group in state["param_groups"]:
        del group["rate_unit"]  # version 0.1 did not write it
    torch.save(state, file)
    with pytest.raises(ValueError, match=r"length of a row's step.*point_lr=0.025 for d=4"):
        trainer(tmp_path, **options).train(resume_from_checkpoint=str(file.parent))


# --- logs -----------------------------------------------------------------------------------------


def test_what_is_logged(tmp_path: Path) -> None:
    heard: list[dict[str, float]] = []

    class Report(TrainerCallback):  # what TensorBoard and the others are told
        def on_log(self, *args: Any, logs: dict[str, float], **kwargs: Any) -> None:
            heard.append(dict(logs))

    built = trainer(
        tmp_path,
        extra={"callbacks": [Report()], "eval_dataset": samples(2)},
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=2,
    )
    built.train()
    training = [log for log in heard if "loss" in log]
    assert len(training) == 2
    last, model = training[-1], built.model
    assert last["curvature/curvature"] == pytest.approx(model.curvature.value.item())
    assert last["curvature_at_bound/curvature"] == 0
    radii = model.embed.manifold.dist0(model.embed.weight).detach()
    for label, level in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95)):
        expected = float(torch.quantile(radii, level))
        assert last[f"radius/embed.weight/{label}"] == pytest.approx(expected, rel=1e-5)
    assert last.items() <= built.state.log_history[2].items()
    others = [log for log in heard if "loss" not in log]
    assert len(others) == 3  # two evaluations and the summary
    assert not any(key.startswith(("curvature", "radius")) for log in others for key in log)


def test_metrics_of_several_curvatures() -> None:
    model = nn.Module()
    model.few, model.many = Curvature(1.0, size=2), Curvature(1.0, size=9)
    model.one, model.fixed = Curvature(1.0, bounds=(0.5, 2.0)), Curvature(3.0, learnable=False)
    model.signed = nn.Parameter(torch.tensor([-0.5]))
    model.layer = bnn.Activation(torch.relu, manifold=Lorentz(model.one))
    model.layer.manifold = Stereographic(model.signed)
    with torch.no_grad():
        model.few.raw.copy_(torch.tensor([0.0, 50.0]))
        model.many.raw[3] = 0.5
        model.one.raw.fill_(-50.0)
    found = geometry_metrics(model)
    assert found.keys() == {
        "curvature/few/0", "curvature/few/1", "curvature_at_bound/few",
        "curvature/many/min", "curvature/many/q50", "curvature/many/max",
        "curvature_at_bound/many",
        "curvature/one", "curvature_at_bound/one",
        "curvature/signed",
    }  # fmt: skip
    assert found["curvature_at_bound/few"] == 0.5
    assert found["curvature_at_bound/one"] == 1
    assert found["curvature/many/max"] > found["curvature/many/q50"] == 1
    assert found["curvature/one"] == pytest.approx(0.5, rel=1e-2)
    assert found["curvature/signed"] == -0.5


@pytest.mark.parametrize("rows", [1, 4096, 4097, 100_000])
def test_radii_of_large_tables_are_close(rows: int) -> None:
    table = bnn.Embedding(rows, 3, manifold=Lorentz(2.0), radius=1.5)
    found = geometry_metrics(table)
    radii = table.manifold.dist0(table.weight.detach())
    for label, level in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95)):
        expected = float(torch.quantile(radii, level))
        assert found[f"radius/weight/{label}"] == pytest.approx(expected, rel=0.1)


def test_metrics_of_points_with_a_curvature_each_and_of_a_plain_model() -> None:
    module = nn.Module()
    module.curvature = Curvature(1.0, size=2)
    module.points = nn.Parameter(torch.ones(5, 2, 3))
    module.manifold_of = {"points": Lorentz(module.curvature)}
    with torch.no_grad():
        module.curvature.raw[1] = 1.0
    radii = module.manifold_of["points"].dist0(module.points).detach()
    found = geometry_metrics(module)
    assert found["radius/points/q05"] == pytest.approx(float(radii.min()), rel=1e-5)
    assert found["radius/points/q95"] == pytest.approx(float(radii.max()), rel=1e-5)
    assert geometry_metrics(nn.Linear(2, 2)) == {}


def test_a_row_of_nan_shows() -> None:
    table = bnn.Embedding(5, 3, manifold=Lorentz(1.0))
    with torch.no_grad():
        table.weight[2] = torch.nan
    assert all(math.isnan(value) for value in geometry_metrics(table).values())
    empty = OnManifold(Lorentz(1.0))
    empty.points = nn.Parameter(torch.empty(0, 3))
    assert geometry_metrics(empty) == {}


@pytest.mark.gpu
def test_metrics_wait_for_the_device_once() -> None:
    curvature = Curvature(1.0)
    tables = [bnn.Embedding(9, 3, manifold=Lorentz(curvature)) for _ in range(3)]
    model = nn.ModuleList([curvature, *tables]).cuda()
    geometry_metrics(model)
    with synchronisations() as found:
        geometry_metrics(model)
    assert len(found) == 1


@contextmanager
def synchronisations() -> Iterator[list[str]]:
    """What torch says of the times it waits for the device."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found += [str(w.message) for w in caught if "synchronizing CUDA" in str(w.message)]


# --- the stop -------------------------------------------------------------------------------------


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("fault", [BadForward, BadBackward])
def test_a_run_stops_before_nan_touches_anything(
    tmp_path: Path, fault: type[nn.Module], filtered: bool
) -> None:
    model = Model(fault())
    built = trainer(
        tmp_path, model, samples(8, poison=5), save_strategy="steps", save_steps=1,
        logging_nan_inf_filter=filtered,
    )  # fmt: skip
    with pytest.raises(NonFiniteLossError) as caught:
        built.train()
    error = caught.value
    assert (error.step, built.state.global_step) == (3, 2)
    assert error.origin is not None
    assert (error.origin.module, error.origin.kind) == ("fault", fault.__name__)
    forward = fault is BadForward
    assert error.origin.cause == ("forward" if forward else "backward")
    what = "the loss is" if forward else "the norm of the gradients is"
    assert f"training stopped at step 3: {what} not finite." in str(error)
    assert f"fault ({fault.__name__})" in str(error)
    assert f"the last checkpoint is {tmp_path / 'checkpoint-2'}" in str(error)
    assert sorted(p.name for p in tmp_path.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]
    saved = trainer(tmp_path, Model(Fine()))
    saved._load_from_checkpoint(str(tmp_path / "checkpoint-2"))
    assert_equal(parameters(model), parameters(saved.model), rtol=0, atol=0)
    assert not any(module._forward_hooks for module in model.modules())


def test_the_bad_batch_of_an_accumulated_step_is_named(tmp_path: Path) -> None:
    built = trainer(
        tmp_path, Model(BadForward()), samples(8, poison=6), gradient_accumulation_steps=2
    )
    with pytest.raises(NonFiniteLossError, match="at step 2, batch 2 of 2: the loss") as caught:
        built.train()
    assert "there is no checkpoint in" in str(caught.value)


def test_bad_gradients_of_an_accumulated_step(tmp_path: Path) -> None:
    built = trainer(
        tmp_path,
        Model(BadBackward()),
        samples(8, poison=7),
        gradient_accumulation_steps=4,
        bf16=True,
    )
    with pytest.raises(NonFiniteLossError, match="step 1, batch 4 of 4: the norm") as caught:
        built.train()
    assert caught.value.origin.module == "fault"


def test_a_bad_parameter_is_named(tmp_path: Path) -> None:
    model = Model()
    with torch.no_grad():
        model.layer.weight[0, 0] = torch.nan
    with pytest.raises(
        NonFiniteLossError, match=r"layer.weight .* was not finite before the forward"
    ):
        trainer(tmp_path, model).train()


def test_the_random_state_of_the_step_is_used(tmp_path: Path) -> None:
    class Unlucky(nn.Module):
        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return F.dropout(x, 0.5) / (torch.rand(()) > 0.2)

    for seed in range(4):
        with pytest.raises(NonFiniteLossError, match="fault"):
            trainer(tmp_path, Model(Unlucky()), seed=seed, max_steps=100).train()


def test_what_cannot_be_repeated_is_said(tmp_path: Path) -> None:
    class Counts(nn.Module):
        calls = 0

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            self.calls += 1
            return x / 0 if self.calls == 2 else x

    with pytest.raises(NonFiniteLossError, match="no layer can be named") as caught:
        trainer(tmp_path, Model(Counts())).train()
    assert caught.value.step == 2
    assert caught.value.origin is None


class FailsAgain(BadForward):
    """Cannot be run a second time, in processes of rank `rank` alone."""

    rank = 0

    def __init__(self) -> None:
        super().__init__()
        self.tripped = False

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        here = not dist.is_initialized() or dist.get_rank() == self.rank
        if self.tripped and here:
            raise torch.OutOfMemoryError("no memory left.")
        self.tripped = bool((ids == POISON).any())
        return super().forward(x, ids)


def test_a_batch_that_cannot_be_run_again(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteLossError) as caught:
        trainer(tmp_path, Model(FailsAgain()), samples(8, poison=3)).train()
    assert (caught.value.step, caught.value.origin) == (2, None)
    says = "the batch could not be run again: OutOfMemoryError: no memory left.\n"
    assert says in str(caught.value)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)


def test_a_large_loss_in_float64_is_finite(tmp_path: Path) -> None:
    class Large(Model):
        def forward(self, ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
            out = super().forward(ids, labels)
            return {**out, "loss": out["loss"].double() + 1e300}

    built = trainer(tmp_path, Large(), gradient_accumulation_steps=2, logging_steps=100)
    built.train()
    assert built.state.global_step == 4


def test_messages_and_checkpoints_that_were_not_finished(tmp_path: Path) -> None:
    class Between(nn.Module):
        """Divides in its own forward, of which the report has a note."""

        def __init__(self) -> None:
            super().__init__()
            self.fault, self.after = BadForward(), nn.Linear(4, 4)

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return self.after(x / (ids != POISON).to(x).unsqueeze(-1))

    options = {"save_strategy": "steps", "save_steps": 1}
    built = trainer(tmp_path, Model(Between()), samples(8, poison=5), **options)
    for name in ("checkpoint-3", "checkpoint-last"):  # the writer was killed, and another's
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "checkpoint-last/trainer_state.json").touch()
    with pytest.raises(NonFiniteLossError) as caught:
        built.train()
    assert f"the last checkpoint is {tmp_path / 'checkpoint-2'}." in str(caught.value)
    assert "It reaches fault.after (Linear) first." in str(caught.value)
    assert ".." not in str(caught.value)


class Late(Ordered):
    """As on a GPU that nobody waits for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._beltrami.knows_at_once = lambda: False


@pytest.mark.parametrize("poison", [3, 7])  # with a step to come, and at the very end
def test_without_waiting_it_stops_a_step_later(tmp_path: Path, poison: int) -> None:
    model = Model(BadForward())
    built = trainer(tmp_path, model, samples(8, poison=poison), kind=Late, logging_steps=100)
    with pytest.raises(NonFiniteLossError) as caught:
        built.train()
    assert caught.value.step == poison // 2 + 1
    assert "was not finite before the forward" in str(caught.value)
    assert "resume with True to learn the layer" in str(caught.value)


def kept(built: Any) -> list[Any]:
    """The batches that a Trainer still holds."""
    check = built._beltrami
    return [*check._step.batches, *check._last_step.batches]


def test_no_batch_is_kept_after_a_run(tmp_path: Path) -> None:
    class Impatient(Late):
        held = 0

        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            self.held = max(self.held, len(kept(self)))
            if self.state.global_step == 3:
                raise KeyboardInterrupt
            return super().training_step(*args, **kwargs)

    built = trainer(tmp_path, kind=Late, logging_steps=100)
    built.train()
    assert kept(built) == []
    broken = trainer(tmp_path, kind=Impatient, logging_steps=100)
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    assert broken.held == 1
    assert kept(broken) == []


def test_the_last_step_is_judged_with_its_own_weights(tmp_path: Path) -> None:
    """Trainer loads the best checkpoint before it says that training has ended."""

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = state.global_step == 4

    built = trainer(
        tmp_path, Model(BadForward()), samples(16, poison=7), kind=Late, max_steps=8,
        extra={"eval_dataset": samples(2), "callbacks": [Stop()]}, logging_steps=100,
        eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=3,
        load_best_model_at_end=True,
    )  # fmt: skip
    with (
        mock.patch.object(built, "_load_best_model") as loaded,
        pytest.raises(NonFiniteLossError) as caught,
    ):
        built.train()
    assert caught.value.step == 4
    assert not loaded.called
    assert "was not finite before the forward" in str(caught.value)


def order_of(built: Any) -> list[str]:
    """When steps are queued, and when something is read from the device, in a run."""
    found: list[str] = []
    step, get = built.training_step, steps.Reading.get

    def train(*args: Any, **kwargs: Any) -> Any:
        loss = step(*args, **kwargs)
        found.append("step")
        return loss

    def read(self: steps.Reading) -> list[float]:
        found.append("read")
        return get(self)

    built.training_step = train
    with mock.patch.object(steps.Reading, "get", read):
        built.train()
    return found


def test_a_step_is_read_once_the_next_is_queued(tmp_path: Path) -> None:
    options = {"logging_steps": 100, "logging_nan_inf_filter": False, "max_steps": 4}
    late = order_of(trainer(tmp_path, kind=Late, **options))
    assert late == ["step", *["step", "read"] * 3, "read"]
    assert order_of(trainer(tmp_path, **options)) == ["step", "read"] * 4  # a CPU knows at once


@pytest.mark.parametrize("due", ["logging", "save", "eval"])
def test_nothing_is_logged_or_saved_before_the_flags_are_read(tmp_path: Path, due: str) -> None:
    options = {"logging_steps": 100, f"{due}_steps": 2, f"{due}_strategy": "steps"}
    built = trainer(
        tmp_path, Model(BadForward()), samples(8, poison=3), kind=Late,
        extra={"eval_dataset": samples(2)}, **options,
    )  # fmt: skip
    with pytest.raises(NonFiniteLossError) as caught:
        built.train()
    assert (caught.value.step, built.state.global_step) == (2, 2)
    assert built.state.log_history == []
    assert not list(tmp_path.glob("checkpoint-*"))


def test_the_check_can_be_left_out_and_leaves_evaluation_alone(tmp_path: Path) -> None:
    unwatched = trainer(
        tmp_path, Model(BadForward()), samples(8, poison=3), extra={"finite_check": False}
    )
    unwatched.train()
    assert unwatched.state.global_step == 4
    assert not any(type(c).__name__ == "FiniteCheck" for c in unwatched.callback_handler.callbacks)
    built = trainer(
        tmp_path, Model(BadForward()), eval_strategy="steps", eval_steps=2,
        extra={"eval_dataset": samples(2, poison=0)},
    )  # fmt: skip
    built.train()
    assert built.state.global_step == 4


class Own(RiemannianTrainerMixin, Trainer):
    """A loss that takes the labels out of the inputs, which nobody has copied for it."""

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        labels = inputs.pop("labels")
        return F.cross_entropy(model(**inputs, labels=labels)["logits"], labels)


class Divides(Own):
    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        fine = (inputs["labels"] != 1).all()
        return super().compute_loss(model, inputs) / fine


def test_a_loss_of_the_users(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteLossError, match="every module's output is finite, the loss"):
        trainer(tmp_path, kind=Divides, max_steps=100).train()
    bad = Model(BadBackward())
    with pytest.raises(NonFiniteLossError, match=r"backward of fault \(BadBackward\)"):
        trainer(tmp_path, bad, samples(8, poison=3), kind=Own, max_steps=100).train()


def test_compiled_models(tmp_path: Path) -> None:
    built = trainer(
        tmp_path, Model(BadForward()), samples(8, poison=3), torch_compile=True,
        torch_compile_backend="eager",
    )  # fmt: skip
    with pytest.raises(NonFiniteLossError, match="fault") as caught:
        built.train()
    assert caught.value.step == 2
    assert caught.value.origin.module == "fault"


def test_training_again_starts_afresh(tmp_path: Path) -> None:
    built = trainer(tmp_path, Model(BadForward()), samples(8, poison=3))
    with pytest.raises(NonFiniteLossError):
        built.train()
    built.train_dataset = samples(8)
    built.train()
    assert built.state.global_step == 4


def test_a_run_that_broke_off_leaves_no_batches_behind(tmp_path: Path) -> None:
    class Breaks(BadForward):
        broken = False

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            if not self.broken and (ids == POISON).any():
                self.broken = True
                raise RuntimeError("out of luck")
            return super().forward(x, ids)

    built = trainer(tmp_path, Model(Breaks()), samples(8, poison=3), gradient_accumulation_steps=2)
    with pytest.raises(RuntimeError, match="out of luck"):
        built.train()
    with pytest.raises(NonFiniteLossError, match="at step 1, batch 2 of 2"):
        built.train()


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("fault", [BadForward, BadBackward])
@pytest.mark.parametrize("filtered", [True, False])
def test_stop_on_a_gpu(tmp_path: Path, fault: type[nn.Module], filtered: bool) -> None:
    model = Model(fault())
    built = trainer(
        tmp_path, model, samples(12, poison=5), use_cpu=False, max_steps=6, logging_steps=100,
        logging_nan_inf_filter=filtered, bf16=True,
    )  # fmt: skip
    with pytest.raises(NonFiniteLossError) as caught:
        built.train()
    assert caught.value.step == 3
    assert caught.value.origin is not None
    if filtered:
        assert built.state.global_step == 2
        assert caught.value.origin.module == "fault"
        assert all(p.isfinite().all() for p in model.parameters())
    else:
        assert built.state.global_step == 3
        assert "resume with True to learn the layer" in str(caught.value)


@pytest.mark.gpu
def test_dropout_on_a_gpu_is_repeated(tmp_path: Path) -> None:
    class Unlucky(nn.Module):
        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return x / (torch.rand((), device=x.device) > 0.2)

    with pytest.raises(NonFiniteLossError, match="fault"):
        trainer(tmp_path, Model(Unlucky()), use_cpu=False, max_steps=100).train()


@pytest.mark.gpu
def test_the_check_waits_for_no_device(tmp_path: Path) -> None:
    """As many synchronisations with it as without, and events are those of the step before."""
    counts = []
    for check in (False, True):
        built = trainer(
            tmp_path, use_cpu=False, max_steps=20, logging_steps=100, logging_nan_inf_filter=False,
            extra={"finite_check": check},
        )  # fmt: skip
        with synchronisations() as found:
            order = order_of(built)
        counts.append(len(found))
        assert order == (["step", *["step", "read"] * 19, "read"] if check else ["step"] * 20)
    assert counts[0] == counts[1]


# --- several processes ----------------------------------------------------------------------------


def _train_together(folder: Path, kind: str, fault: str) -> dict[str, Any]:
    options: dict[str, Any] = {"logging_steps": 2, "ddp_find_unused_parameters": False}
    if kind == "fsdp2":
        shard_on_cpu()
        options["fsdp"] = True
        options["fsdp_config"] = {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "transformer_layer_cls_to_wrap": ["Linear"],
        }
    model = Model({"forward": BadForward(), "backward": BadBackward()}.get(fault))
    # Samples 0, 1 | 2, 3: a batch of each process in turn. Sample 15 is the last of process 1.
    built = trainer(folder, model, samples(16, poison=15), **options)
    try:
        built.train()
    except NonFiniteLossError as error:
        return {"message": str(error), "rank": error.origin.rank, "module": error.origin.module}
    return {**built.state.log_history[-2], "rank": -1}


@in_processes
@pytest.mark.parametrize(("kind", "fault"), [("ddp", "forward"), ("fsdp2", "backward")])
def test_all_processes_stop_and_name_the_same_layer(tmp_path: Path, kind: str, fault: str) -> None:
    one, other = together(2, _train_together, tmp_path, tmp_path / "out", kind, fault)
    assert one == other
    assert (one["rank"], one["module"]) == (1, "fault")
    assert "training stopped at step 4" in one["message"]
    assert "Where (process 1)" in one["message"]


class LastFailsAgain(FailsAgain):
    """In process 1, whose batch of step 4 is the bad one; process 0 has no fault."""

    rank = 1


def _fail_together(folder: Path) -> dict[str, Any]:
    model = Model(LastFailsAgain())
    built = trainer(folder, model, samples(16, poison=15), ddp_find_unused_parameters=False)
    with pytest.raises(NonFiniteLossError) as caught:
        built.train()
    return {"message": str(caught.value), "cause": type(caught.value.__cause__).__name__}


@in_processes
def test_all_processes_stop_if_one_cannot_run_its_batch_again(tmp_path: Path) -> None:
    one, other = together(2, _fail_together, tmp_path, tmp_path / "out")
    assert one["message"] == other["message"]
    says = "the batch could not be run again: process 1: OutOfMemoryError: no memory left."
    assert says in one["message"]
    assert (one["cause"], other["cause"]) == ("NoneType", "OutOfMemoryError")


@in_processes
def test_sharded_parameters_log_what_whole_ones_do(tmp_path: Path) -> None:
    data = samples(16, poison=15)  # as in the processes
    single = trainer(
        tmp_path / "one", Model(), data, logging_steps=2, per_device_train_batch_size=4
    )
    single.train()
    expected = single.state.log_history[-2]
    for found in together(2, _train_together, tmp_path, tmp_path / "out", "fsdp2", "none"):
        logged = {k for k in expected if k.startswith(("curvature", "radius", "loss", "grad_norm"))}
        assert len(logged) == 7
        for key in logged:
            assert found[key] == pytest.approx(expected[key], rel=1e-3), key


def _shard_and_measure(row: int | None = None) -> dict[str, float]:
    from torch.distributed.fsdp import fully_shard

    model = _tables(row)
    fully_shard(model)
    assert all(hasattr(p, "full_tensor") for p in model.parameters())
    return geometry_metrics(model)


def _tables(row: int | None = None) -> nn.Module:
    torch.manual_seed(3)
    model = nn.Module()
    model.curvature = Curvature(1.5)
    H = Lorentz(model.curvature)
    model.large = bnn.Embedding(9001, 3, manifold=H)  # every third row, of 4501 and of 4500
    model.small = bnn.Embedding(3, 4, manifold=H)
    model.point = nn.Parameter(torch.randn(5))
    model.heads = nn.Parameter(torch.randn(3, 2, 4))
    model.each = Curvature(1.0, size=2)
    model.manifold_of = {
        "point": Product([(H, 3), (Euclidean(), 2)]),
        "heads": Lorentz(model.each),
    }
    if row is not None:
        with torch.no_grad():
            model.large.weight[row] = torch.nan
    return model


@in_processes
def test_metrics_of_split_tables_are_those_of_whole_ones(tmp_path: Path) -> None:
    expected = geometry_metrics(_tables())
    assert len(expected) == 4 * 3 + 5
    for found in together(2, _shard_and_measure, tmp_path):
        assert found == pytest.approx(expected, rel=1e-6)
    for found in together(2, _shard_and_measure, tmp_path, 3 * 2999):  # of the second process
        bad = {name for name, value in found.items() if math.isnan(value)}
        assert bad == {f"radius/large.weight/{label}" for label in ("q05", "q50", "q95")}


# --- without transformers -------------------------------------------------------------------------


def test_without_transformers_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['transformers'] = None\n"
        "import beltrami.optim, beltrami.train.finite\n"
        "try:\n    import beltrami.train.trainer\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert 'pip install "beltrami[llm]"' in done.stdout
