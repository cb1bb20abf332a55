"""The six models: their formulas, their limits, their twins, and that they learn."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from beltrami.data.triples import add_reciprocals
from beltrami.geometry import poincare
from beltrami.models.knowledge_graph import (
    VARIANTS,
    KnowledgeGraphConfig,
    KnowledgeGraphModel,
    evaluate,
)
from beltrami.models.knowledge_graph.model import reflect_pairs, rotate_pairs
from tests.models.knowledge_graph.graphs import (
    ENTITIES,
    RELATIONS,
    random_model,
    random_triples,
    tree_graph,
)

HYPERBOLIC = [name for name in VARIANTS if name.endswith("H")]
ALL_SETTINGS = list(itertools.product(VARIANTS, ("head", "relation"), (False, True)))


def published_scores(model: KnowledgeGraphModel, triples: Tensor) -> Tensor:
    """The paper's formulas, read literally: points and Möbius additions in the Poincaré ball."""
    config = model.config
    heads, relations, tails = triples.unbind(1)
    assert model.curvature is not None
    c = model.curvature.value[relations]
    head = poincare.exp0(model.entity[heads], c)
    translation = poincare.exp0(model.translation[relations], c)
    if config.turn == "rotation":
        turned = rotate_pairs(head, model.rotation[relations])
    elif config.turn == "reflection":
        turned = reflect_pairs(head, model.reflection[relations])
    else:
        pair = [
            poincare.log0(rotate_pairs(head, model.rotation[relations]), c),
            poincare.log0(reflect_pairs(head, model.reflection[relations]), c),
        ]
        context = model.context[relations] / config.dim**0.5
        weights = torch.softmax(torch.stack([(context * x).sum(-1) for x in pair]), 0)
        turned = poincare.exp0(
            sum(w.unsqueeze(-1) * x for w, x in zip(weights, pair, strict=True)), c
        )
    query = poincare.mobius_add(turned, translation, c)
    distance = poincare.dist(query, poincare.exp0(model.entity[tails], c), c)
    return model.bias[heads] + model.bias[tails] - distance.square()


@pytest.mark.parametrize("variant", HYPERBOLIC)
def test_scores_are_the_published_ones(variant: str) -> None:
    model, triples = random_model(variant), random_triples(40)
    torch.testing.assert_close(model(triples), published_scores(model, triples))


@pytest.mark.parametrize(("variant", "order", "pre"), ALL_SETTINGS)
def test_all_scores_agree_with_those_of_triples(variant: str, order: str, pre: bool) -> None:
    model = random_model(variant, order=order, pre_translation=pre)
    triples = random_triples(40)
    heads, relations, tails = triples.unbind(1)
    everything = model.scores(heads, relations)
    assert everything.shape == (40, ENTITIES)
    torch.testing.assert_close(everything.gather(1, tails.unsqueeze(1)).squeeze(1), model(triples))
    loss = model.softmax_loss(triples, smoothing=0.1)
    expected = torch.nn.functional.cross_entropy(everything, tails, label_smoothing=0.1)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    for a, b in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(a, b)
        assert float(a.abs().max()) > 0  # nothing that is trained in vain


@pytest.mark.parametrize(("variant", "order", "pre"), [s for s in ALL_SETTINGS if s[0][-1] == "H"])
def test_small_curvature_is_the_euclidean_twin(variant: str, order: str, pre: bool) -> None:
    triples = random_triples(40)
    errors = []
    for c in (1e-2, 1e-3, 1e-4):
        torch.manual_seed(1)
        model = random_model(
            variant,
            order=order,
            pre_translation=pre,
            curvature=c,
            curvature_bounds=(c, 1.0),
            learn_curvature=False,
        )
        twin = KnowledgeGraphModel(model.config.twin()).double()
        state = {k: v for k, v in model.state_dict().items() if not k.startswith("curvature")}
        twin.load_state_dict(state)
        errors.append(float((model(triples) - twin(triples)).detach().abs().max()))
    assert errors[2] < 1e-3
    assert errors[0] == pytest.approx(10 * errors[1], rel=0.3)  # O(c)
    assert errors[1] == pytest.approx(10 * errors[2], rel=0.1)


@pytest.mark.parametrize("order", ["head", "relation"])
def test_both_orders_land_equally_far_from_the_origin(order: str) -> None:
    """x ⊕ y and y ⊕ x differ by a rotation; only relation ⊕ head moves heads rigidly."""
    torch.manual_seed(1)
    model = random_model("RotH", order=order)
    other = copy.deepcopy(model)
    object.__setattr__(other.config, "order", "relation" if order == "head" else "head")
    heads, relations = torch.arange(ENTITIES), torch.zeros(ENTITIES, dtype=torch.int64)
    ours, theirs = model.queries(heads, relations), other.queries(heads, relations)
    assert float((ours - theirs).detach().abs().max()) > 1e-3
    torch.testing.assert_close(ours.norm(dim=-1), theirs.norm(dim=-1))


@pytest.mark.parametrize("variant", HYPERBOLIC)
def test_the_twin_lacks_the_curvatures_and_nothing_else(variant: str) -> None:
    config = KnowledgeGraphConfig(40943, 11, variant=variant)
    with torch.device("meta"):
        model, twin = KnowledgeGraphModel(config), KnowledgeGraphModel(config.twin())
    count = [sum(p.numel() for p in m.parameters()) for m in (model, twin)]
    assert count[0] - count[1] == 2 * config.relations
    assert count[0] / count[1] < 1 + 2e-5


def test_the_parameters_of_roth_are_counted() -> None:
    model = random_model("RotH")
    n, r, d = ENTITIES, 2 * RELATIONS, model.config.dim
    assert sum(p.numel() for p in model.parameters()) == n * (d + 1) + r * (d // 2 + d + 1)


def test_turns_are_orthogonal_and_of_opposite_kind() -> None:
    angle = torch.randn(3, dtype=torch.float64)
    eye = torch.eye(6, dtype=torch.float64)
    rotation, reflection = rotate_pairs(eye, angle), reflect_pairs(eye, angle)
    for matrix, determinant in ((rotation, 1.0), (reflection, -1.0)):
        torch.testing.assert_close(matrix @ matrix.T, eye)
        assert float(torch.linalg.det(matrix)) == pytest.approx(
            determinant
        )  # (−1)³ for reflections
    torch.testing.assert_close(reflection @ reflection, eye)


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_recovers_a_tree(variant: str) -> None:
    torch.manual_seed(0)
    graph = tree_graph(4)
    model = KnowledgeGraphModel(
        KnowledgeGraphConfig(len(graph.entities), 1, variant=variant, dim=8, init_scale=0.1)
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    triples = add_reciprocals(graph.train, 1)
    before = evaluate(model, graph.train, graph.known_tails)["mrr"]
    for _ in range(80):
        optimiser.zero_grad()
        model.softmax_loss(triples).backward()
        optimiser.step()
    assert before < 0.5
    assert evaluate(model, graph.train, graph.known_tails)["mrr"] > 0.95


@pytest.mark.parametrize("variant", ["RotH", "RotE"])
def test_the_loss_compiles_without_graph_breaks(variant: str) -> None:
    model, triples = random_model(variant), random_triples(10)
    compiled = torch.compile(model.softmax_loss, fullgraph=True, backend="aot_eager")
    ours, plain = compiled(triples), model.softmax_loss(triples)
    torch.testing.assert_close(ours, plain)
    for a, b in zip(
        torch.autograd.grad(ours, list(model.parameters())),
        torch.autograd.grad(plain, list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_dropout_is_for_training_alone() -> None:
    model, triples = random_model("RotH", dropout=0.5), random_triples(10)
    assert not torch.equal(model(triples), model(triples))
    model.eval()
    assert torch.equal(model(triples), model(triples))


def test_the_state_dict_goes_through_safetensors() -> None:
    model, triples = random_model("AttH"), random_triples(10)
    other = random_model("AttH")
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(model(triples), other(triples))


def test_autocast_does_not_touch_the_scores() -> None:
    model = random_model("RotH", dtype=torch.float32)
    twin = random_model("RotE", dtype=torch.float32)
    heads, relations, _ = random_triples(10).unbind(1)
    for each in (model, twin):
        plain = each.scores(heads, relations)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(each.scores(heads, relations), plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "TransE"}, "variant must be one of RotE, .*; got 'TransE'"),
        ({"dim": 5}, "dim must be even .* got 5"),
        ({"entities": 0}, "entities must be at least 1, got 0"),
        ({"order": "tail"}, "order must be"),
        ({"init_scale": 0.0}, "init_scale must be positive"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"curvature": 200.0}, r"curvature must lie strictly inside .* \(0.01, 100.0\), got 200.0"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KnowledgeGraphConfig(**({"entities": 5, "relations": 2} | settings))


def test_a_setting_of_the_wrong_type() -> None:
    with pytest.raises(TypeError, match="relations must be an integer, got float"):
        KnowledgeGraphConfig(5, 2.0)  # type: ignore[arg-type]


def test_bad_smoothing() -> None:
    with pytest.raises(ValueError, match=r"smoothing must lie in \[0, 1\), got 1"):
        random_model("RotH").softmax_loss(random_triples(4), smoothing=1)
