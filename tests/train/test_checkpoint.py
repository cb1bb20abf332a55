from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import lr_scheduler

from beltrami.geometry import Lorentz
from beltrami.models.hierarchy.table import PointTable
from beltrami.optim import RiemannianAdam, RiemannianSGD
from beltrami.train.checkpoint import load_checkpoint, save_checkpoint


class Box:
    """A part whose state is whatever is put into it."""

    def __init__(self, content: Any = None) -> None:
        self.content = content

    def state_dict(self) -> dict[str, Any]:
        return {"content": self.content}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.content = state_dict["content"]


def assert_equal(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert torch.equal(a, b) or bool((a.isnan() == b.isnan()).all())
    elif isinstance(a, dict):
        assert list(a) == list(b)
        assert list(map(type, a)) == list(map(type, b))
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b or (math.isnan(a) and math.isnan(b))


def there_and_back(content: Any, path: Path) -> Any:
    save_checkpoint(path, {"box": Box(content)}, {})
    box = Box()
    assert load_checkpoint(path, {"box": box}) == {}
    return box.content


tensors = st.builds(
    lambda shape, dtype: torch.randn(shape).mul(3).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64]),
)
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | tensors
# Names that could be taken for the format's own, and paths that read the same ("a.b", a: {b}).
keys = st.sampled_from(["tensor", "dict", "tuple", "a", "b", "a.b", ""]) | st.integers(-1, 3)
states = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=60)
@given(states)
def test_any_state_comes_back(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    path = tmp_path_factory.mktemp("c") / "c.safetensors"
    assert_equal(there_and_back(content, path), content)


def test_what_is_awkward_comes_back(tmp_path: Path) -> None:
    strided = torch.arange(6.0).view(2, 3).t()
    shared = torch.arange(4.0)
    content = {"t": strided, "a": shared, "b": shared, "half": shared[2:], 0: torch.empty(0, 3)}
    found = there_and_back(content, tmp_path / "c")
    assert_equal(found, content)
    found["a"][0] = 7.0  # what was shared is not any more, and may be written to
    assert found["b"][0] == 0.0
    counted = there_and_back(Counter([3, 3, 5]), tmp_path / "c")
    assert counted == Counter([3, 3, 5])
    assert isinstance(counted, Counter)
    assert there_and_back({}, tmp_path / "c") == {}


def test_no_parts_at_all(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", {}, {"step": 3, "far": math.inf})
    assert load_checkpoint(tmp_path / "c", {}) == {"step": 3, "far": math.inf}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"inner": [1, {2}]}, "box.content.inner.1 in a checkpoint: set"),
        (print, "builtin_function_or_method"),
        ({(1, 2): 3}, "a key of it is tuple"),
        (torch.ones(2, dtype=torch.complex64), "complex64"),
        (torch.ones(2, 2).to_sparse(), "sparse"),
    ],
)
def test_what_cannot_be_kept_is_named(content: Any, named: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"cannot keep box\.content") as error:
        save_checkpoint(tmp_path / "c", {"box": Box(content)}, {})
    assert named in str(error.value)
    assert list(tmp_path.iterdir()) == []


class Training:
    """A module, an optimiser, a scheduler and a generator, and a step with all of them."""

    def __init__(self, kind: str) -> None:
        self.draws = torch.Generator().manual_seed(1)
        self.model: nn.Module
        if kind in ("rsgd", "radam"):
            self.model = PointTable(5, 3, Lorentz(1.0), radius=0.1, seed=0)
        else:
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
            self.model[2].weight = self.model[0].weight
        self.optimizer: torch.optim.Optimizer = {
            "rsgd": lambda m: RiemannianSGD(m, lr=0.1, momentum=0.9),
            "radam": lambda m: RiemannianAdam(m, lr=0.1),
            "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
            "adam": lambda m: torch.optim.AdamW(m.parameters(), lr=0.1, amsgrad=True),
        }[kind](self.model)
        first = lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=2)
        steps = lr_scheduler.MultiStepLR(self.optimizer, [1, 2, 2], gamma=0.5)
        self.scheduler = lr_scheduler.SequentialLR(self.optimizer, [first, steps], [2])
        self.parts = {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "draws": self.draws,
        }

    def step(self) -> None:
        self.optimizer.zero_grad()
        x = torch.randn(4, 3, generator=self.draws)
        if isinstance(self.model, PointTable):
            points = self.model(torch.randint(5, (4,), generator=self.draws))
            self.model.manifold.dist(points, x.to(points.dtype)).sum().backward()
        else:
            self.model(x).square().sum().backward()
        self.optimizer.step()
        self.scheduler.step()


@pytest.mark.parametrize("kind", ["rsgd", "radam", "sgd", "adam"])
def test_a_training_goes_on_as_if_nothing_had_happened(kind: str, tmp_path: Path) -> None:
    whole, killed = Training(kind), Training(kind)
    for _ in range(3):
        whole.step()
        killed.step()
    save_checkpoint(tmp_path / "c", killed.parts, {})
    resumed = Training(kind)
    assert load_checkpoint(tmp_path / "c", resumed.parts) is not None
    for _ in range(3):
        whole.step()
        resumed.step()
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.optimizer.param_groups[0]["lr"] == resumed.optimizer.param_groups[0]["lr"]
    assert torch.equal(whole.draws.get_state(), resumed.draws.get_state())


def test_a_refused_checkpoint_changes_nothing(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", {"a": Box(1), "b": Box(2)}, {"of": "another"})
    a, b = Box(10), Box(20)
    parts = {"a": a, "b": b}
    assert load_checkpoint(tmp_path / "c", parts, lambda facts: facts["of"] == "this") is None
    assert load_checkpoint(tmp_path / "c", {"a": a}) is None
    assert load_checkpoint(tmp_path / "c", parts, lambda facts: facts["missing"]) is None
    assert (a.content, b.content) == (10, 20)


def test_parts_of_another_shape_stay_as_they_were(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", {"a": Box(1), "model": nn.Linear(2, 2)}, {})
    box, model = Box(10), nn.Linear(3, 2)
    before = model.weight.detach().clone()
    assert load_checkpoint(tmp_path / "c", {"a": box, "model": model}) is None
    assert box.content == 10
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise", "foreign", "document"])
def test_a_damaged_checkpoint_is_none(damage: str, tmp_path: Path) -> None:
    from safetensors.torch import save

    path = tmp_path / "c"
    save_checkpoint(path, {"model": nn.Linear(2, 2)}, {})
    whole = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(
            {
                "empty": b"",
                "cut": whole[:-5],
                "noise": bytes(range(256)),
                "foreign": save({"weight": torch.ones(2)}),
                "document": save(
                    {}, metadata={"beltrami": '{"facts": {}, "states": {"model": 3}}'}
                ),
            }[damage]
        )
    assert load_checkpoint(path, {"model": nn.Linear(2, 2)}) is None
