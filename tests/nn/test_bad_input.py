"""What layers say to wrong input: early, naming what was given and what would fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall, Product, Sphere
from beltrami.nn import KVCache
from tests.nn.layers import CASES, Case, build, feed

H = Lorentz(1.0)


def says(error: type[Exception], *parts: str) -> object:
    """An error whose message has all the parts, in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, parts)))


# --- shapes of points -----------------------------------------------------------------------------

# Layers that take points of any size.
ANY_SIZE = {
    bnn.Activation,
    bnn.Dropout,
    bnn.Residual,
    bnn.Pool,
    bnn.ChangeCurvature,
    bnn.Embedding,
    bnn.GraphAggregate,
    bnn.TangentConv,
}


def of_each_layer(keep: Callable[[Case], bool]) -> list[object]:
    """The first row of each layer on each kind of manifold."""
    rows = {(c.layer, kind): c for c in reversed(CASES) if keep(c) for kind in c.kinds}
    return [
        pytest.param(case, kind, id=f"{layer.__name__}-{kind}")
        for (layer, kind), case in reversed(rows.items())
    ]


@pytest.mark.parametrize(("case", "kind"), of_each_layer(lambda case: case.layer not in ANY_SIZE))
@pytest.mark.parametrize("more", [-1, 1, 3])
def test_last_dimension(case: Case, kind: str, more: int) -> None:
    model = build(case, kind)
    inputs = feed(case, model)
    for name in ("x", "memory", "input", "images"):
        if name not in inputs:
            continue
        good = inputs[name]
        bad = torch.zeros(*good.shape[:-1], good.shape[-1] + more)
        takes = "(B, 2, 8, 6)" if name == "images" else f"{good.shape[-1]})"
        with says(ValueError, takes, f"got {tuple(bad.shape)}") as error:
            model(**{**inputs, name: bad})
        first = model.layer[0] if isinstance(model.layer, nn.Sequential) else model.layer
        assert type(first).__name__ in str(error.value)
        lorentz = isinstance(getattr(first, "manifold", None), Lorentz)
        assert ("x[..., 1:]" in str(error.value)) == (lorentz and more == 1)


@pytest.mark.parametrize(("case", "kind"), of_each_layer(lambda case: case.layer not in ANY_SIZE))
def test_a_number_is_no_point(case: Case, kind: str) -> None:
    model = build(case, kind)
    inputs = feed(case, model)
    name = next(n for n in ("x", "input", "images") if n in inputs)
    with says(ValueError, "got ()"):
        model(**{**inputs, name: torch.tensor(1.0)})


def test_residual_names_both_sides() -> None:
    for other in ((2, 5), (3, 4), (2, 1), ()):
        with says(ValueError, "Residual on Lorentz(c=1.0)", "(2, 4)", str(other)):
            bnn.Residual(manifold=H)(torch.zeros(2, 4), torch.zeros(other))


@pytest.mark.parametrize("shape", [(8,), (5, 8), (2, 3, 5, 8)])
@pytest.mark.parametrize("make", [bnn.Attention, bnn.LinearAttention, bnn.TransformerBlock])
def test_attention_wants_a_batch_of_sequences(
    make: Callable[..., nn.Module], shape: tuple[int, ...]
) -> None:
    with says(ValueError, "(B, T, size)", str(shape)):
        make(8, 2, manifold=H)(torch.zeros(shape))


# --- manifolds ------------------------------------------------------------------------------------

ON_A_MANIFOLD = [
    pytest.param(case, id=case.layer.__name__)
    for case in {c.layer: c for c in reversed(CASES)}.values()
    if issubclass(case.layer, bnn.Layer)
]


@pytest.mark.parametrize("case", ON_A_MANIFOLD)
@pytest.mark.parametrize("wrong", [None, 1.0, "lorentz", Curvature(1.0), nn.Identity()], ids=repr)
def test_no_manifold(case: Case, wrong: Manifold) -> None:
    with says(TypeError, f"{case.layer.__name__}", "Lorentz", type(wrong).__name__):
        case.make(wrong)


@pytest.mark.parametrize("case", ON_A_MANIFOLD)
def test_a_class_instead_of_an_object(case: Case) -> None:
    with says(TypeError, "must be an object, not a class", "Lorentz()"):
        case.make(Lorentz)


@pytest.mark.parametrize("case", ON_A_MANIFOLD)
@pytest.mark.parametrize("other", [Sphere(1.0), Product([(H, 6)])], ids=["sphere", "product"])
def test_another_manifold(case: Case, other: Manifold) -> None:
    if isinstance(other, case.layer.accepts):
        case.make(other)
        return
    with says(TypeError, f"{case.layer.__name__} works on Lorentz", repr(other)):
        case.make(other)


@pytest.mark.parametrize("case", ON_A_MANIFOLD)
def test_the_manifold_is_named(case: Case) -> None:
    """A keyword that must be given."""
    parameter = inspect.signature(case.layer).parameters["manifold"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default is inspect.Parameter.empty


# --- arguments of constructors --------------------------------------------------------------------

SIZES: dict[str, Callable[[int], nn.Module]] = {
    "Linear in_features": lambda n: bnn.Linear(n, 4, manifold=H),
    "Linear out_features": lambda n: bnn.Linear(4, n, manifold=H),
    "Attention size": lambda n: bnn.Attention(n, 2, manifold=H),
    "Attention heads": lambda n: bnn.Attention(8, n, manifold=H),
    "Attention kv_heads": lambda n: bnn.Attention(8, 2, manifold=H, kv_heads=n),
    "Attention head_size": lambda n: bnn.Attention(8, 2, manifold=H, head_size=n),
    "LinearAttention size": lambda n: bnn.LinearAttention(n, 2, manifold=H),
    "LinearAttention heads": lambda n: bnn.LinearAttention(8, n, manifold=H),
    "MLP size": lambda n: bnn.MLP(n, 4, manifold=H),
    "MLP hidden": lambda n: bnn.MLP(4, n, manifold=H),
    "TransformerBlock size": lambda n: bnn.TransformerBlock(n, 2, manifold=H),
    "TransformerBlock heads": lambda n: bnn.TransformerBlock(8, n, manifold=H),
    "TransformerBlock hidden": lambda n: bnn.TransformerBlock(8, 2, manifold=H, hidden=n),
    "RMSNorm size": lambda n: bnn.RMSNorm(n, manifold=H),
    "LayerNorm size": lambda n: bnn.LayerNorm(n, manifold=H),
    "BatchNorm size": lambda n: bnn.BatchNorm(n, manifold=H),
    "Embedding num": lambda n: bnn.Embedding(n, 4, manifold=H),
    "Embedding size": lambda n: bnn.Embedding(4, n, manifold=H),
    "LearnedPositions length": lambda n: bnn.LearnedPositions(n, 4, manifold=H),
    "LearnedPositions size": lambda n: bnn.LearnedPositions(4, n, manifold=H),
    "Rotary size": lambda n: bnn.Rotary(n),
    "MLR size": lambda n: bnn.MLR(n, 4, manifold=H),
    "MLR classes": lambda n: bnn.MLR(4, n, manifold=H),
    "DistanceClassifier size": lambda n: bnn.DistanceClassifier(n, 4, manifold=H),
    "DistanceClassifier classes": lambda n: bnn.DistanceClassifier(4, n, manifold=H),
    "Conv1d in_channels": lambda n: bnn.Conv1d(n, 4, 3, manifold=H),
    "Conv2d out_channels": lambda n: bnn.Conv2d(4, n, 3, manifold=H),
    "Conv2d kernel_size": lambda n: bnn.Conv2d(4, 4, (3, n), manifold=H),
    "Conv1d stride": lambda n: bnn.Conv1d(4, 4, 3, manifold=H, stride=n),
    "Conv1d dilation": lambda n: bnn.Conv1d(4, 4, 3, manifold=H, dilation=n),
    "PatchEmbedding image_size": lambda n: bnn.PatchEmbedding(n, 4, 3, 8, manifold=H),
    "PatchEmbedding patch_size": lambda n: bnn.PatchEmbedding(8, n, 3, 8, manifold=H),
    "PatchEmbedding channels": lambda n: bnn.PatchEmbedding(8, 4, n, 8, manifold=H),
    "PatchEmbedding size": lambda n: bnn.PatchEmbedding(8, 4, 3, n, manifold=H),
    "Pool dims": lambda n: bnn.Pool(manifold=H, dims=n),
    "GraphAttention in_features": lambda n: bnn.GraphAttention(n, 4, manifold=H),
    "GraphAttention out_features": lambda n: bnn.GraphAttention(4, n, manifold=H),
    "GraphAttention heads": lambda n: bnn.GraphAttention(4, 4, n, manifold=H),
    "GraphAttention head_size": lambda n: bnn.GraphAttention(4, 4, manifold=H, head_size=n),
    "Lift size": lambda n: bnn.Lift(n, manifold=H),
    "Lower size": lambda n: bnn.Lower(n, manifold=H),
}


@pytest.mark.parametrize(("name", "make"), SIZES.items(), ids=SIZES)
def test_sizes(name: str, make: Callable[[int], nn.Module]) -> None:
    layer, argument = name.split()
    for wrong in (0, -3):
        with says(ValueError, f"{argument} must be at least 1, got {wrong}") as error:
            make(wrong)
        if layer != "TransformerBlock" or argument == "size":  # its parts speak for it
            assert str(error.value).startswith(layer)
    for wrong in ("4", 4.0, None):
        if wrong is None and argument in ("kv_heads", "head_size", "hidden"):
            continue
        with says(TypeError, argument):
            make(wrong)


CHOICES: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "Linear": (lambda: bnn.Linear(4, 4, manifold=H, form="affine"), ("form", "htc", "'affine'")),
    "Linear in the ball": (
        lambda: bnn.Linear(4, 4, manifold=PoincareBall(1.0), form="htc"),
        ("PoincareBall(c=1.0)", "hnnpp", "'htc'"),
    ),
    "MLR": (lambda: bnn.MLR(4, 4, manifold=H, form="hnnpp"), ("MLR", "lorentz", "'hnnpp'")),
    "Conv1d": (
        lambda: bnn.Conv1d(4, 4, 3, manifold=H, form="hnnpp"),
        ("Conv1d", "htc", "'hnnpp'"),
    ),
    "Conv2d padding": (
        lambda: bnn.Conv2d(4, 4, 3, manifold=H, padding="full"),
        ("Conv2d", "padding", "'same', 'valid'", "'full'"),
    ),
    "DistanceClassifier": (
        lambda: bnn.DistanceClassifier(4, 4, manifold=H, form="dot"),
        ("DistanceClassifier", "'geodesic', 'chord'", "'dot'"),
    ),
    "Residual": (
        lambda: bnn.Residual(manifold=H, form="sum"),
        ("Residual", "'manifold', 'boost', 'euclidean'", "'sum'"),
    ),
    "Attention score": (
        lambda: bnn.Attention(8, 2, manifold=H, score="cosine"),
        ("Attention", "score", "'distance', 'dot'", "'cosine'"),
    ),
    "Attention aggregate": (
        lambda: bnn.Attention(8, 2, manifold=H, aggregate="sum"),
        ("Attention", "aggregate", "'centroid', 'mean'", "'sum'"),
    ),
    "MLP": (
        lambda: bnn.MLP(4, 8, manifold=H, activation="softmax"),
        ("MLP", "activation", "swiglu", "gelu", "'softmax'"),
    ),
    "Activation": (
        lambda: bnn.Activation("softmax", manifold=H),
        ("Activation", "relu", "'softmax'"),
    ),
    "TransformerBlock norm": (
        lambda: bnn.TransformerBlock(8, 2, manifold=H, norm="batch"),
        ("TransformerBlock", "norm", "'rms', 'layer'", "'batch'"),
    ),
    "TransformerBlock residual": (
        lambda: bnn.TransformerBlock(8, 2, manifold=H, residual="none"),
        ("'manifold', 'boost', 'euclidean'", "'none'"),
    ),
    "Lift": (lambda: bnn.Lift(4, manifold=H, form="log0"), ("Lift", "'exp0', 'space'", "'log0'")),
    "Lower in the ball": (
        lambda: bnn.Lower(4, manifold=PoincareBall(1.0), form="space"),
        ("Lower", "log0", "'space'"),
    ),
}


@pytest.mark.parametrize(("make", "parts"), CHOICES.values(), ids=CHOICES)
def test_choices(make: Callable[[], nn.Module], parts: tuple[str, ...]) -> None:
    with says(ValueError, *parts):
        make()


VALUES: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "heads": (lambda: bnn.Attention(10, 4, manifold=H), ("Attention", "heads=4", "size=10")),
    "heads of linear attention": (
        lambda: bnn.LinearAttention(10, 4, manifold=H),
        ("LinearAttention", "heads=4", "size=10"),
    ),
    "kv_heads": (
        lambda: bnn.Attention(12, 6, manifold=H, kv_heads=4),
        ("Attention", "kv_heads=4", "heads=6"),
    ),
    "more kv_heads than heads": (
        lambda: bnn.Attention(8, 2, manifold=H, kv_heads=4),
        ("Attention", "kv_heads=4", "heads=2"),
    ),
    "odd rotary head": (lambda: bnn.Attention(9, 3, manifold=H, rotary=True), ("even", "3")),
    "causal cross": (
        lambda: bnn.Attention(8, 2, manifold=H, cross=True, causal=True),
        ("Attention", "cross", "causal"),
    ),
    "power": (lambda: bnn.LinearAttention(8, 2, manifold=H, power=0.5), ("power", "0.5")),
    "dropout": (lambda: bnn.Dropout(1.5, manifold=H), ("Dropout", "between 0 and 1", "1.5")),
    "eps": (lambda: bnn.RMSNorm(4, manifold=H, eps=0.0), ("RMSNorm", "eps", "0.0")),
    "momentum": (
        lambda: bnn.BatchNorm(4, manifold=H, momentum=2.0),
        ("BatchNorm", "momentum", "2.0"),
    ),
    "weight": (lambda: bnn.Residual(manifold=H, weight=-1.0), ("Residual", "weight", "-1.0")),
    "scale": (
        lambda: bnn.Residual(manifold=PoincareBall(1.0), scale=1.0),
        ("Residual", "scale", "PoincareBall"),
    ),
    "radius": (
        lambda: bnn.Embedding(4, 4, manifold=PoincareBall(4.0), radius=10.0),
        ("Embedding", "PoincareBall(c=4.0)", "15", "radius=10"),
    ),
    "padding_idx": (
        lambda: bnn.Embedding(4, 4, manifold=H, padding_idx=4),
        ("Embedding", "padding_idx", "3", "got 4"),
    ),
    "patches": (
        lambda: bnn.PatchEmbedding(10, 4, 3, 8, manifold=H),
        ("PatchEmbedding", "patch_size=4", "image_size=10"),
    ),
    "product_dtype": (
        lambda: bnn.MLR(4, 4, manifold=H, product_dtype=torch.bfloat16),
        ("MLR", "product_dtype", "torch.bfloat16"),
    ),
    "temperature": (
        lambda: bnn.DistanceClassifier(4, 4, manifold=H, temperature=0.0),
        ("DistanceClassifier", "temperature", "0"),
    ),
}


@pytest.mark.parametrize(("make", "parts"), VALUES.values(), ids=VALUES)
def test_values(make: Callable[[], nn.Module], parts: tuple[str, ...]) -> None:
    with says(ValueError, *parts):
        make()


# --- masks, positions and memory ------------------------------------------------------------------


def sequences(*shape: int) -> Tensor:
    return torch.zeros(*shape or (2, 5, 8))


CALLS: dict[str, tuple[Callable[[], object], type[Exception], tuple[str, ...]]] = {
    "mask of the wrong shape": (
        lambda: bnn.Attention(8, 2, manifold=H)(
            sequences(), mask=torch.ones(5, 4, dtype=torch.bool)
        ),
        ValueError,
        ("mask", "(2, 2, 5, 5)", "(5, 4)"),
    ),
    "mask with too many dimensions": (
        lambda: bnn.Attention(8, 2, manifold=H)(
            sequences(), mask=torch.ones(1, 2, 2, 5, 5, dtype=torch.bool)
        ),
        ValueError,
        ("mask", "(2, 2, 5, 5)", "(1, 2, 2, 5, 5)"),
    ),
    "mask of floats": (
        lambda: bnn.Attention(8, 2, manifold=H)(sequences(), mask=torch.zeros(5, 5)),
        TypeError,
        ("mask", "bool", "float32", "mask.bool()"),
    ),
    "key_mask of integers": (
        lambda: bnn.Attention(8, 2, manifold=H)(
            sequences(), key_mask=torch.ones(2, 5, dtype=torch.long)
        ),
        TypeError,
        ("key_mask", "bool", "int64", "key_mask.bool()"),
    ),
    "key_mask of the wrong shape": (
        lambda: bnn.Attention(8, 2, manifold=H)(
            sequences(), key_mask=torch.ones(2, 4, dtype=torch.bool)
        ),
        ValueError,
        ("key_mask", "(2, 5)", "(2, 4)"),
    ),
    "key_mask of the block": (
        lambda: bnn.TransformerBlock(8, 2, manifold=H)(
            sequences(), key_mask=torch.ones(3, 5, dtype=torch.bool)
        ),
        ValueError,
        ("key_mask", "(2, 5)", "(3, 5)"),
    ),
    "key_mask of linear attention": (
        lambda: bnn.LinearAttention(8, 2, manifold=H)(
            sequences(), key_mask=torch.ones(2, 4, dtype=torch.bool)
        ),
        ValueError,
        ("LinearAttention", "key_mask", "(2, 5)", "(2, 4)"),
    ),
    "positions without rotary": (
        lambda: bnn.Attention(8, 2, manifold=H)(sequences(), positions=torch.arange(5)),
        ValueError,
        ("positions", "rotary=False"),
    ),
    "positions of the wrong length": (
        lambda: bnn.Attention(8, 2, manifold=H, rotary=True)(
            sequences(), positions=torch.arange(4)
        ),
        ValueError,
        ("positions", "5", "(4,)"),
    ),
    "positions that are not integers": (
        lambda: bnn.Attention(8, 2, manifold=H, rotary=True)(
            sequences(), positions=torch.arange(5.0)
        ),
        TypeError,
        ("integer positions", "float32"),
    ),
    "rotation of the wrong length": (
        lambda: bnn.Attention(8, 2, manifold=H)(
            sequences(), rotation=bnn.Rotary(4).cos_sin(torch.arange(4))
        ),
        ValueError,
        ("rotation", "T=5", "(4, 2)"),
    ),
    "rotation of another head": (
        lambda: bnn.TransformerBlock(8, 2, manifold=H)(
            sequences(), rotation=bnn.Rotary(8).cos_sin(torch.arange(5))
        ),
        ValueError,
        ("rotation", "head_size=4", "(5, 4)"),
    ),
    "rotation and positions": (
        lambda: bnn.Attention(8, 2, manifold=H, rotary=True)(
            sequences(),
            positions=torch.arange(5),
            rotation=bnn.Rotary(4).cos_sin(torch.arange(5)),
        ),
        ValueError,
        ("rotation", "positions"),
    ),
    "positions of another batch": (
        lambda: bnn.Attention(8, 2, manifold=H, rotary=True)(
            sequences(), positions=torch.zeros(3, 5, dtype=torch.long)
        ),
        ValueError,
        ("positions", "(3, 5)"),
    ),
    "cross without memory": (
        lambda: bnn.Attention(8, 2, manifold=H, cross=True)(sequences()),
        ValueError,
        ("Attention", "memory is needed"),
    ),
    "cross block without memory": (
        lambda: bnn.TransformerBlock(8, 2, manifold=H, cross=True)(sequences()),
        ValueError,
        ("TransformerBlock", "memory is needed"),
    ),
    "memory without cross": (
        lambda: bnn.Attention(8, 2, manifold=H)(sequences(), sequences()),
        ValueError,
        ("memory was given", "cross=False"),
    ),
    "memory for a block without cross": (
        lambda: bnn.TransformerBlock(8, 2, manifold=H)(sequences(), sequences()),
        ValueError,
        ("TransformerBlock", "memory was given", "cross=False"),
    ),
    "memory_mask for a block without cross": (
        lambda: bnn.TransformerBlock(8, 2, manifold=H)(
            sequences(), memory_mask=torch.ones(2, 5, dtype=torch.bool)
        ),
        ValueError,
        ("TransformerBlock", "cross=False"),
    ),
    "memory of another batch": (
        lambda: bnn.Attention(8, 2, manifold=H, cross=True)(sequences(), sequences(3, 5, 8)),
        ValueError,
        ("memory", "(3, 5, 8)", "(2, 5, 8)"),
    ),
    "memory of another size": (
        lambda: bnn.Attention(8, 2, manifold=H, cross=True)(sequences(), sequences(2, 5, 9)),
        ValueError,
        ("memory", "(..., 8)", "(2, 5, 9)", "time coordinate"),
    ),
    "cross with a cache": (
        lambda: bnn.Attention(8, 2, manifold=H, cross=True)(
            sequences(), sequences(), cache=KVCache()
        ),
        ValueError,
        ("cross", "cache"),
    ),
    "pool mask": (
        lambda: bnn.Pool(manifold=H)(sequences(), mask=torch.ones(2, 4, dtype=torch.bool)),
        ValueError,
        ("Pool", "mask", "(2, 5)", "(2, 4)"),
    ),
    "pool mask of floats": (
        lambda: bnn.Pool(manifold=H)(sequences(), mask=torch.ones(2, 5)),
        TypeError,
        ("Pool", "mask", "bool", "float32"),
    ),
    "pool of a point": (
        lambda: bnn.Pool(manifold=H, dims=2)(sequences(5, 8)),
        ValueError,
        ("Pool", "2 dimensions", "(5, 8)"),
    ),
    "ids that are floats": (
        lambda: bnn.Embedding(4, 4, manifold=H)(torch.zeros(2)),
        TypeError,
        ("Embedding", "int64", "float32"),
    ),
    "ids beyond the table": (
        lambda: bnn.Embedding(4, 4, manifold=H)(torch.tensor([1, 4])),
        IndexError,
        ("Embedding", "0 to 3", "1 to 4"),
    ),
    "more tokens than positions": (
        lambda: bnn.LearnedPositions(4, 8, manifold=H)(sequences()),
        ValueError,
        ("LearnedPositions", "length=4", "5"),
    ),
    "positions of another batch than the tokens": (
        lambda: bnn.LearnedPositions(7, 8, manifold=H)(
            sequences(), torch.zeros(3, 5, dtype=torch.long)
        ),
        ValueError,
        ("LearnedPositions", "T = 5", "(2, 5, 8)", "(3, 5)"),
    ),
    "one position for many tokens": (
        lambda: bnn.LearnedPositions(7, 8, manifold=H)(sequences(), torch.arange(1)),
        ValueError,
        ("LearnedPositions", "T = 5", "(2, 5, 8)", "(1,)"),
    ),
    "learned positions that are not integers": (
        lambda: bnn.LearnedPositions(7, 8, manifold=H)(sequences(), torch.arange(5.0)),
        TypeError,
        ("LearnedPositions", "integer positions", "float32"),
    ),
    "rotary positions of another batch": (
        lambda: bnn.Rotary(4)(torch.zeros(2, 5, 3, 4), torch.zeros(3, 5, dtype=torch.long)),
        ValueError,
        ("Rotary", "T = 5", "(2, 5, 3, 4)", "(3, 5)"),
    ),
    "images of another size": (
        lambda: bnn.PatchEmbedding(8, 4, 3, 8, manifold=H)(torch.zeros(1, 3, 8, 9)),
        ValueError,
        ("PatchEmbedding", "(B, 3, 8, 8)", "(1, 3, 8, 9)"),
    ),
    "a map smaller than the kernel": (
        lambda: bnn.Conv2d(8, 4, 3, manifold=H)(torch.zeros(1, 2, 5, 8)),
        ValueError,
        ("Conv2d", "kernel_size=(3, 3)", "(1, 2, 5, 8)"),
    ),
    "channels first": (
        lambda: bnn.Conv1d(8, 4, 3, manifold=H)(torch.zeros(1, 8, 5)),
        ValueError,
        ("Conv1d", "(..., 8)", "(1, 8, 5)"),
    ),
    "a batch norm of nothing": (
        lambda: bnn.BatchNorm(8, manifold=H)(torch.zeros(0, 8)),
        ValueError,
        ("BatchNorm", "empty", "(0, 8)"),
    ),
}


@pytest.mark.parametrize(("call", "error", "parts"), CALLS.values(), ids=CALLS)
def test_calls(call: Callable[[], object], error: type[Exception], parts: tuple[str, ...]) -> None:
    with says(error, *parts):
        call()


# --- the cache ------------------------------------------------------------------------------------


def decoder(**options: int) -> bnn.Attention:
    return bnn.Attention(8, 2, manifold=H, causal=True, **options)


def test_a_cache_is_for_inference() -> None:
    with says(RuntimeError, "KVCache", "torch.no_grad()"):
        decoder()(sequences(), cache=KVCache())


@torch.no_grad()
def test_a_cache_holds_one_batch() -> None:
    layer, cache = decoder(), KVCache()
    layer(sequences(2, 3, 8), cache=cache)
    with says(ValueError, "KVCache", "2", "3"):
        layer(sequences(3, 1, 8), cache=cache)


@torch.no_grad()
def test_a_cache_belongs_to_one_layer() -> None:
    cache = KVCache()
    decoder()(sequences(2, 3, 8), cache=cache)
    with says(ValueError, "KVCache", "(2, 4)", "(1, 4)", "one cache a layer"):
        decoder(kv_heads=1)(sequences(2, 1, 8), cache=cache)
    with says(ValueError, "KVCache", "(2, 4)", "(2, 6)", "one cache a layer"):
        decoder(head_size=6)(sequences(2, 1, 8), cache=cache)
    assert cache.length == 3  # a call that failed leaves no trace


@torch.no_grad()
def test_a_key_mask_counts_the_cached_tokens() -> None:
    layer, cache = decoder(), KVCache()
    layer(sequences(2, 3, 8), cache=cache)
    with says(ValueError, "key_mask", "(2, 4)", "(2, 1)"):
        layer(sequences(2, 1, 8), key_mask=torch.ones(2, 1, dtype=torch.bool), cache=cache)


@torch.no_grad()
@pytest.mark.parametrize("length", [-1, 4])
def test_a_cache_cannot_be_cropped_to_more_than_it_has(length: int) -> None:
    cache = KVCache()
    decoder()(sequences(2, 3, 8), cache=cache)
    with says(ValueError, "3 tokens", str(length)):
        cache.crop(length)


# --- chains and models ----------------------------------------------------------------------------

CHAINS: dict[str, tuple[Manifold, Manifold]] = {
    "curvatures": (Lorentz(1.0), Lorentz(2.0)),
    "models": (Lorentz(1.0), PoincareBall(1.0)),
    "flat and curved": (Lorentz(1.0), Euclidean()),
    "two learnable curvatures": (Lorentz(Curvature(1.0)), Lorentz(Curvature(1.0))),
    "a fixed and a learnable curvature": (Lorentz(1.0), Lorentz(Curvature(1.0))),
}


@pytest.mark.parametrize(("first", "second"), CHAINS.values(), ids=CHAINS)
def test_a_chain_of_two_manifolds(first: Manifold, second: Manifold) -> None:
    layers = (
        bnn.Linear(4, 4, manifold=first),
        nn.Identity(),
        bnn.RMSNorm(4, manifold=second),
    )
    for check in (bnn.Sequential, bnn.check_chain):
        with says(
            ValueError, "layer 0 (Linear)", repr(first), "layer 2 (RMSNorm)", repr(second), "Lift"
        ):
            check(*layers)


def test_scores_are_no_points() -> None:
    with says(ValueError, "layer 0 (MLR)", "Euclidean()", "layer 1 (Linear)", "Lorentz(c=1.0)"):
        bnn.Sequential(bnn.MLR(4, 4, manifold=H), bnn.Linear(4, 4, manifold=H))


def test_borders_join_manifolds() -> None:
    a, b, ball = Lorentz(1.0), Lorentz(Curvature(2.0)), PoincareBall(0.5)
    chain = bnn.Sequential(
        bnn.Lift(4, manifold=a),
        bnn.Linear(4, 4, manifold=a),
        bnn.ChangeCurvature(manifold=a, manifold_out=b),
        bnn.RMSNorm(4, manifold=b),
        bnn.ChangeCurvature(manifold=b, manifold_out=ball),
        bnn.Linear(4, 4, manifold=ball),
        bnn.Lower(4, manifold=ball),
        bnn.Linear(4, 4, manifold=Euclidean()),
    )
    assert chain(torch.randn(2, 4)).shape == (2, 4)
    # A learnable curvature is the same one for two manifolds that hold it.
    curvature = Curvature(1.0)
    bnn.Sequential(
        bnn.Linear(4, 4, manifold=Lorentz(curvature)), bnn.RMSNorm(4, manifold=Lorentz(curvature))
    )


def test_a_curvature_that_no_module_owns() -> None:
    for manifold in (Lorentz(Curvature(1.0)), PoincareBall(Curvature(1.0))):
        model = nn.Module()
        model.inner = nn.Module()
        model.inner.norm = bnn.RMSNorm(4, manifold=manifold)
        with says(ValueError, "inner.norm", repr(manifold), "Curvature", "attribute of the model"):
            bnn.check_model(model)
        model.curvature = manifold.curvature
        bnn.check_model(model)


def test_a_curvature_that_only_the_output_has() -> None:
    target = Lorentz(Curvature(1.0))
    for layer in (
        bnn.Lift(4, manifold=target),
        bnn.ChangeCurvature(manifold=H, manifold_out=target),
    ):
        with says(ValueError, type(layer).__name__, repr(target)):
            bnn.check_model(layer)


def test_a_fixed_curvature_needs_no_owner() -> None:
    bnn.check_model(bnn.Linear(4, 4, manifold=Lorentz(Curvature(1.0, learnable=False))))


def test_change_of_curvature_is_not_a_border() -> None:
    with says(TypeError, "Lorentz(c=1.0)", "Euclidean()", "Lower"):
        bnn.ChangeCurvature(manifold=H, manifold_out=Euclidean())
    with says(TypeError, "Euclidean()", "Lorentz(c=1.0)", "Lift"):
        bnn.ChangeCurvature(manifold=Euclidean(), manifold_out=H)


# --- any shape at all -----------------------------------------------------------------------------

shapes = st.lists(st.integers(0, 6), max_size=5).map(tuple)


@given(
    shape=shapes,
    form=st.sampled_from(["htc", "hyperplane", "hybonet", "tangent", "mobius", "hnnpp"]),
    flat=st.booleans(),
)
@example(shape=(0, 4), form="htc", flat=False)
@example(shape=(0,), form="htc", flat=False)
def test_linear_of_any_shape(shape: tuple[int, ...], form: str, flat: bool) -> None:
    layer = bnn.Linear(4, 3, manifold=Euclidean() if flat else H, form=form)
    x = torch.zeros(shape)
    if shape and shape[-1] == 4:
        assert layer(x).shape == (*shape[:-1], 3)
    else:
        with says(ValueError, "Linear on", "(..., 4)", str(tuple(shape))):
            layer(x)


def near(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes that are right, nearly right, or anything."""
    other = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 9])
    nearly = st.tuples(*(st.one_of(st.just(n), st.just(n), other) for n in shape))
    return st.one_of(st.just(shape), nearly, nearly, shapes)


@given(
    x=near((2, 3, 4)),
    memory=st.none() | near((2, 5, 4)),
    mask=st.none() | near((2, 2, 3, 3)),
    key_mask=st.none() | near((2, 3)),
    positions=st.none() | near((2, 3)),
    causal=st.booleans(),
)
@example(x=(2, 0, 4), memory=None, mask=None, key_mask=None, positions=None, causal=True)
@example(x=(2, 3, 4), memory=None, mask=(2, 1, 3, 1), key_mask=(2, 3), positions=None, causal=True)
@example(x=(2, 3, 4), memory=None, mask=(1,), key_mask=None, positions=(3,), causal=False)
def test_attention_of_any_shape(
    x: tuple[int, ...],
    memory: tuple[int, ...] | None,
    mask: tuple[int, ...] | None,
    key_mask: tuple[int, ...] | None,
    positions: tuple[int, ...] | None,
    causal: bool,
) -> None:
    """What does not fit is a ValueError; what fits gives the shape of x."""
    cross = memory is not None
    layer = (
        bnn.Attention(
            4, 2, manifold=H, cross=cross, causal=causal and not cross, rotary=positions is not None
        )
        if not (cross and positions is not None)
        else bnn.Attention(4, 2, manifold=H, cross=True)
    )
    keys = memory if memory is not None else x
    fits = len(x) == 3 and x[-1] == 4
    if memory is not None:
        fits = fits and len(memory) == 3 and memory[0] == x[0] and memory[-1] == 4
        fits = fits and positions is None
    if fits and mask is not None:
        full = (x[0], 2, x[1], keys[1])
        fits = len(mask) <= 4 and all(
            n in (1, m) for n, m in zip(reversed(mask), reversed(full), strict=False)
        )
    fits = fits and (key_mask is None or key_mask == (x[0], keys[1]))
    if fits and positions is not None:
        fits = positions in ((x[1],), (1, x[1]), (x[0], x[1]))
    arguments = {
        "memory": None if memory is None else torch.zeros(memory),
        "mask": None if mask is None else torch.ones(mask, dtype=torch.bool),
        "key_mask": None if key_mask is None else torch.ones(key_mask, dtype=torch.bool),
        "positions": None if positions is None else torch.zeros(positions, dtype=torch.long),
    }
    if fits:
        assert layer(torch.zeros(x), **arguments).shape == x
    else:
        with pytest.raises(ValueError):
            layer(torch.zeros(x), **arguments)
