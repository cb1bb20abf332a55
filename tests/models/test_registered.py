"""One suite over all models: a new system joins by its rows in `SYSTEMS`.

Each row says how a model is built, what it is given and what it is trained on; the tests are those
that every model must pass. What is special to one is tested in its own folder.
"""

from __future__ import annotations

import copy
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional as F

import beltrami.models
from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, Product
from beltrami.losses import ranking_loss
from beltrami.models.graph import GraphConfig, LinkPredictor, NodeClassifier
from beltrami.models.hierarchy import ConeEmbedding, cone_loss
from beltrami.models.hierarchy.table import PointTable
from beltrami.models.knowledge_graph import KnowledgeGraphConfig, KnowledgeGraphModel
from beltrami.models.level_classifier import LevelClassifier, LevelConfig, level_loss
from beltrami.models.superposition import ToyAutoencoder, ToyStack
from beltrami.optim import create_optimizer

NODES, FEATURES, CLASSES = 12, 6, 3
# Without a forward: its gradient is written out, for many `ToyAutoencoder`s at once.
WITHOUT_FORWARD = {ToyStack}
# Models of transformers, whose inputs and outputs are others: tests/models/helm is their suite.
WITH_OWN_SUITE = {"beltrami.models.helm"}


@dataclass(frozen=True)
class System:
    """A model as the suite sees it.

    Args:
        build: the untrained model, from torch's seed.
        inputs: of its forward.
        shapes: of its outputs.
        loss: of the model and its inputs, a scalar.
    """

    build: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    shapes: tuple[tuple[int, ...], ...]
    loss: Callable[..., Tensor]


def _edges() -> Tensor:
    """A ring, in both directions."""
    nodes = torch.arange(NODES)
    one_way = torch.stack([nodes, (nodes + 1) % NODES])
    return torch.cat([one_way, one_way.flip(0)], 1)


def _features(rows: int = NODES) -> Tensor:
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(7))


LABELS = torch.arange(NODES) % CLASSES
PAIRS = torch.tensor([[0, 1, 2, 3], [1, 2, 7, 9]])
TRIPLES = torch.tensor([[0, 0, 1], [1, 1, 2], [3, 2, 4], [5, 3, 0]])


def _node_classifier(**settings: Any) -> System:
    config = GraphConfig(FEATURES, (8, 4), heads=2, **settings)
    return System(
        lambda: NodeClassifier(config, CLASSES),
        (_features(), _edges()),
        ((NODES, CLASSES),),
        lambda model, *inputs: F.cross_entropy(model(*inputs).float(), LABELS),
    )


def _link_predictor(**settings: Any) -> System:
    config = GraphConfig(FEATURES, (8, 4), **settings)
    truth = torch.tensor([1.0, 1.0, 0.0, 0.0])
    return System(
        lambda: LinkPredictor(config),
        (_features(), _edges(), PAIRS),
        ((PAIRS.shape[1],),),
        lambda model, *inputs: F.binary_cross_entropy_with_logits(model(*inputs).float(), truth),
    )


def _level_classifier(**settings: Any) -> System:
    config = LevelConfig(FEATURES, (2, CLASSES), (8, 4), **settings)
    targets = torch.stack([LABELS % 2, LABELS], 1)
    return System(
        lambda: LevelClassifier(config),
        (_features(),),
        ((NODES, 2), (NODES, CLASSES)),
        lambda model, features: level_loss([s.float() for s in model(features)], targets),
    )


def _knowledge_graph(variant: str) -> System:
    config = KnowledgeGraphConfig(NODES, 2, variant, dim=6, init_scale=0.1)
    return System(
        lambda: KnowledgeGraphModel(config),
        (TRIPLES,),
        ((len(TRIPLES),),),
        lambda model, triples: model.softmax_loss(triples),
    )


def _cones(manifold: Manifold) -> System:
    true, false = PAIRS.T, PAIRS.T.flip(1).unsqueeze(1)
    return System(
        lambda: ConeEmbedding(manifold.exp0(torch.randn(NODES, 4)), manifold=manifold),
        (torch.arange(NODES),),
        ((NODES, 4),),
        lambda model, nodes: cone_loss(model, true, false),
    )


def _point_table(manifold: Manifold) -> System:
    def loss(model: nn.Module, nodes: Tensor) -> Tensor:
        points = model(nodes)
        return ranking_loss(manifold.dist(points[:, None], points.roll(-1, 0)[None])[:, :4])

    return System(
        lambda: PointTable(NODES, 5, manifold, radius=0.5, seed=torch.initial_seed()),
        (torch.arange(NODES),),
        ((NODES, 5),),
        loss,
    )


def _autoencoder(readout: Any) -> System:
    x = _features().relu()
    return System(
        lambda: ToyAutoencoder(FEATURES, 3, readout=readout),
        (x,),
        ((NODES, FEATURES),),
        lambda model, x: F.mse_loss(model(x).float(), x),
    )


SYSTEMS: dict[str, System] = {
    "nodes-lorentz": _node_classifier(),
    "nodes-attention": _node_classifier(layer="attention"),
    "nodes-ball": _node_classifier(layer="hgcn", geometry="ball"),
    "nodes-euclidean": _node_classifier(geometry="euclidean"),
    "links-lorentz": _link_predictor(),
    "links-euclidean": _link_predictor(geometry="euclidean"),
    "levels-lorentz": _level_classifier(),
    "levels-ball": _level_classifier(geometry="ball", head="distance"),
    "levels-euclidean": _level_classifier(geometry="euclidean"),
    "rotation-hyperbolic": _knowledge_graph("RotH"),
    "attention-hyperbolic": _knowledge_graph("AttH"),
    "attention-euclidean": _knowledge_graph("AttE"),
    "cones-lorentz": _cones(Lorentz(1.0)),
    "cones-euclidean": _cones(Euclidean()),
    "table-lorentz": _point_table(Lorentz(1.0)),
    "table-ball": _point_table(PoincareBall(1.0)),
    "table-product": _point_table(Product([(Lorentz(1.0), 3), (Lorentz(2.0), 2)])),
    "autoencoder": _autoencoder("linear"),
    "autoencoder-distance": _autoencoder("distance"),
}
every_system = pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)


def _build(system: System, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return system.build().eval()


def _outputs(model: nn.Module, *inputs: Tensor) -> tuple[Tensor, ...]:
    result = model(*inputs)
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _cast(inputs: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


@every_system
def test_forward(system: System) -> None:
    model = _build(system)
    outputs = _outputs(model, *system.inputs)
    assert tuple(tuple(x.shape) for x in outputs) == system.shapes
    assert all(x.isfinite().all() for x in outputs)
    for x, again in zip(outputs, _outputs(model, *system.inputs), strict=True):
        assert torch.equal(x, again)


@every_system
def test_save_and_load(system: System) -> None:
    model, other = _build(system), _build(system, seed=1)
    expected = _outputs(model, *system.inputs)
    assert not all(map(torch.equal, expected, _outputs(other, *system.inputs)))
    other.load_state_dict(load(save(model.state_dict())))
    for x, y in zip(_outputs(other, *system.inputs), expected, strict=True):
        assert torch.equal(x, y)


@every_system
def test_copies_are_independent(system: System) -> None:
    model = _build(system)
    expected = _outputs(model, *system.inputs)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    for x, y in zip(_outputs(other, *system.inputs), expected, strict=True):
        assert torch.equal(x, y)


@every_system
def test_a_training_step_lowers_the_loss(system: System) -> None:
    model = _build(system).train()
    optimizer = create_optimizer(model, "adamw", lr=1e-3)
    before = system.loss(model, *system.inputs)
    before.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no part in the loss"
        assert parameter.grad.isfinite().all(), name
    optimizer.step()
    assert system.loss(model, *system.inputs) < before


@every_system
def test_float64_agrees_with_float32(system: System) -> None:
    model = _build(system).float()
    outputs = _outputs(model, *_cast(system.inputs, torch.float32))
    model.double()
    for x, y in zip(outputs, _outputs(model, *_cast(system.inputs, torch.float64)), strict=True):
        assert x.dtype == torch.float32
        assert y.dtype == torch.float64
        torch.testing.assert_close(x.double(), y, rtol=1e-4, atol=1e-5)


@every_system
@pytest.mark.parametrize("way", ["autocast", "parameters"])
def test_bfloat16(system: System, way: str) -> None:
    model, inputs = _build(system).float(), _cast(system.inputs, torch.float32)
    expected = _outputs(model, *inputs)
    if way == "parameters":
        model, inputs = model.bfloat16(), _cast(inputs, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
        outputs = _outputs(model, *inputs)
    for x, y in zip(outputs, expected, strict=True):
        torch.testing.assert_close(x.float(), y, rtol=0.1, atol=0.1)


@every_system
def test_moves_to_the_meta_device(system: System) -> None:
    model = _build(system).to("meta")
    outputs = _outputs(model, *(x.to("meta") for x in system.inputs))
    assert tuple(tuple(x.shape) for x in outputs) == system.shapes
    assert all(x.device.type == "meta" for x in outputs)


@pytest.mark.gpu
@every_system
def test_moves_to_the_gpu(system: System) -> None:
    model = _build(system)
    expected = _outputs(model, *system.inputs)
    outputs = _outputs(model.cuda(), *(x.cuda() for x in system.inputs))
    for x, y in zip(outputs, expected, strict=True):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-4, atol=1e-5)


def _models() -> Iterator[type[nn.Module]]:
    """What the packages of `beltrami.models` export that is a module."""
    for package in pkgutil.iter_modules(beltrami.models.__path__, "beltrami.models."):
        if package.name in WITH_OWN_SUITE:
            continue
        module = importlib.import_module(package.name)
        for name in getattr(module, "__all__", []):
            kind = getattr(module, name)
            if isinstance(kind, type) and issubclass(kind, nn.Module):
                yield kind


def test_every_model_takes_part() -> None:
    tested = {type(part) for system in SYSTEMS.values() for part in system.build().modules()}
    missing = set(_models()) - tested - WITHOUT_FORWARD
    assert not missing, f"add rows to SYSTEMS for {sorted(kind.__name__ for kind in missing)}"
