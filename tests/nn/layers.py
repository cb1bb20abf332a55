"""Every layer of `beltrami.nn` in a table: how to build it, what to feed it, what comes out.

`test_layers` puts every row through the same checks. A new layer, or a new form of one, is a new
row; `test_every_layer_is_in_the_table` notices a class that has none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall

Inputs = dict[str, Tensor]

# The manifolds a layer is tried on, by name; `c` is the curvature at the start.
KINDS: dict[str, Callable[[float], Manifold]] = {
    "lorentz": Lorentz,
    "lorentz-learnable": lambda c: Lorentz(Curvature(c)),
    "ball": PoincareBall,
    "ball-learnable": lambda c: PoincareBall(Curvature(c)),
    "euclidean": lambda c: Euclidean(),
}
LORENTZ = ("lorentz", "lorentz-learnable")
BALL = ("ball", "ball-learnable")
FLAT = ("euclidean",)
ALL = (*LORENTZ, *BALL, *FLAT)


@dataclass
class Draw:
    """Random inputs of a layer, the same for the same seed on every manifold.

    Points are exp0 of tangent vectors that do not depend on the manifold.
    """

    manifold: Manifold
    batch: tuple[int, ...]
    dtype: torch.dtype
    generator: torch.Generator

    def points(self, *tail: int) -> Tensor:
        """Points (*batch, *tail), each coordinate of log0 of standard deviation 0.4."""
        return self.manifold.random(
            *self.batch, *tail, std=0.4, dtype=self.dtype, generator=self.generator
        )

    def numbers(self, *tail: int) -> Tensor:
        """Standard normal numbers (*batch, *tail)."""
        return torch.randn(*self.batch, *tail, dtype=self.dtype, generator=self.generator)

    def positive(self, *tail: int) -> Tensor:
        """Numbers above 0, (*batch, *tail)."""
        return self.numbers(*tail).exp()

    def ids(self, high: int, *tail: int) -> Tensor:
        """Integers below `high`, (*batch, *tail)."""
        return torch.randint(high, (*self.batch, *tail), generator=self.generator)

    def keep(self, *tail: int) -> Tensor:
        """Bools (*batch, *tail), the first of each row true."""
        keep = torch.rand(*self.batch, *tail, generator=self.generator) < 0.6
        keep[..., 0] = True
        return keep


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Args:
        name: of the case, after that of the layer.
        layer: the class.
        make: the layer on a manifold.
        inputs: keyword arguments of a call.
        out: shape of the output after the batch dimensions.
        kinds: of `KINDS`.
        lead: how many batch dimensions a call may have; None for any number.
        shared: inputs without batch dimensions.
        rowwise: whether rows of the batch do not see each other.
        random: whether the output is drawn anew at each call.
        training: the mode it is tried in.
        rate: the error against the Euclidean twin is O(c^rate); None if there is no twin.
        free: kinds on which the curvature does not enter at all.
        coarse: whether parts run in float32 whatever the dtype.
        steep: whether the formula amplifies rounding (a direction of features that may be near 0).
    """

    name: str
    layer: type[nn.Module]
    make: Callable[[Manifold], nn.Module]
    inputs: Callable[[Draw], Inputs]
    out: tuple[int, ...]
    kinds: tuple[str, ...] = ALL
    lead: int | None = None
    shared: tuple[str, ...] = ()
    rowwise: bool = True
    random: bool = False
    training: bool = False
    rate: float | None = 1.0
    free: tuple[str, ...] = ()
    coarse: bool = False
    steep: bool = False

    @property
    def batches(self) -> list[tuple[int, ...]]:
        """Batch shapes that a call may have."""
        return [(3,)] if self.lead == 1 else [(), (3,), (2, 3), (1, 2, 1, 3)]

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch shape that most checks use."""
        return (3,) if self.lead == 1 else (2, 3)


class Model(nn.Module):
    """A layer and the curvature of its manifold, registered once, as in a user's model."""

    def __init__(self, case: Case, manifold: Manifold) -> None:
        super().__init__()
        self.manifold = manifold
        self.curvature = getattr(manifold, "curvature", None)
        self.layer = case.make(manifold)
        self.train(case.training)

    def forward(self, **inputs: Tensor) -> Tensor:
        """The layer's output."""
        out: Tensor = self.layer(**inputs)
        return out

    @property
    def source(self) -> Manifold:
        """The manifold of the input."""
        first = self.layer[0] if isinstance(self.layer, nn.Sequential) else self.layer
        return getattr(first, "manifold", self.manifold)

    @property
    def target(self) -> Manifold:
        """The manifold of the output."""
        last = self.layer[-1] if isinstance(self.layer, nn.Sequential) else self.layer
        return getattr(last, "manifold_out", self.manifold)

    def points(self) -> Iterator[tuple[str, Manifold]]:
        """Names of the parameters and buffers that are points, and where they live."""
        for prefix, module in self.named_modules():
            if isinstance(module, bnn.Layer):
                names = dict(module.manifold_of)
                if isinstance(module, bnn.BatchNorm) and module.running_mean is not None:
                    names["running_mean"] = module.manifold
                yield from ((f"{prefix}.{name}", manifold) for name, manifold in names.items())


def build(
    case: Case,
    kind: str,
    *,
    seed: int = 0,
    c: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> Model:
    """A layer of the table with random parameters."""
    model = Model(case, KINDS[kind](c)).to(dtype)
    randomise(model, seed)
    return model


def feed(
    case: Case,
    model: Model,
    *,
    batch: tuple[int, ...] | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Inputs:
    """Random inputs of a model."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return case.inputs(Draw(model.source, case.batch if batch is None else batch, dtype, generator))


@torch.no_grad()
def randomise(model: Model, seed: int = 0) -> None:
    """Every parameter and buffer at random, the same draw for the same name on every manifold.

    Points are drawn on their manifold; variances are positive; the rest is normal, matrices scaled
    so that they keep the length of what they are given, about. Call it once on a fresh model.
    """
    points = dict(model.points())
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        g = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        if not value.is_floating_point():
            continue
        if name in points:
            drawn = points[name].random(*value.shape, std=0.4, dtype=torch.float64, generator=g)
        else:
            drawn = torch.randn(value.shape, dtype=torch.float64, generator=g)
            drawn *= value[0].numel() ** -0.5 if value.ndim > 1 else 0.4
        if name.endswith("running_var"):
            drawn = drawn.exp()
        elif ".log_" in name:  # scales stay near those of the start, whatever they are
            drawn += value
        value.copy_(drawn)


# --- the table ------------------------------------------------------------------------------------

SIZE, OUT, CLASSES = 6, 5, 4
WIDTH, HEADS, TOKENS, OTHERS = 8, 2, 5, 4  # of attention


def row(draw: Draw) -> Inputs:
    """One point."""
    return {"x": draw.points(SIZE)}


def pair(draw: Draw) -> Inputs:
    """Two points."""
    return {"x": draw.points(SIZE), "y": draw.points(SIZE)}


def tokens(draw: Draw) -> Inputs:
    """A sequence."""
    return {"x": draw.points(TOKENS, WIDTH)}


def tokens_and_memory(draw: Draw) -> Inputs:
    """A sequence and another to look at, parts of which are padding."""
    return {
        "x": draw.points(TOKENS, WIDTH),
        "memory": draw.points(OTHERS, WIDTH),
        "key_mask": draw.keep(OTHERS),
    }


def _linear() -> Iterator[Case]:
    forms = {
        "htc": LORENTZ,
        "hyperplane": LORENTZ,
        "hybonet": LORENTZ,
        "tangent": (*LORENTZ, *BALL),
        "mobius": (*LORENTZ, *BALL),
        "hnnpp": (*LORENTZ, *BALL),
    }
    for form, kinds in forms.items():
        for options in ({}, {"bias": False}, {"time": False}):
            timed = form in ("htc", "hybonet")
            if "time" in options and not timed:
                continue
            yield Case(
                name="-".join([form, *(f"no_{key}" for key in options)]),
                layer=bnn.Linear,
                make=lambda m, form=form, options=options: bnn.Linear(
                    SIZE, OUT, manifold=m, form=form, **options
                ),
                inputs=row,
                out=(OUT,),
                kinds=(*kinds, *FLAT),
                rate=0.5 if timed and "time" not in options else 1.0,
                free=kinds
                if (form == "htc" and "time" in options) or (form == "hyperplane" and options)
                else (),
            )


def _pointwise() -> Iterator[Case]:
    def sine(x: Tensor) -> Tensor:
        return torch.sin(x)

    for name, function in (("gelu", "gelu"), ("tanh", "tanh"), ("relu", "relu"), ("own", sine)):
        yield Case(
            name=name,
            layer=bnn.Activation,
            make=lambda m, f=function: bnn.Activation(f, manifold=m),
            inputs=row,
            out=(SIZE,),
            free=LORENTZ,
        )
    for training in (True, False):
        yield Case(
            name="train" if training else "eval",
            layer=bnn.Dropout,
            make=lambda m: bnn.Dropout(0.5, manifold=m),
            inputs=row,
            out=(SIZE,),
            training=training,
            random=training,
            rowwise=not training,
            free=LORENTZ if training else (*LORENTZ, *BALL),
        )


def _norms() -> Iterator[Case]:
    def case(name: str, layer: type[nn.Module], **options: object) -> Case:
        return Case(
            name=name,
            layer=layer,
            make=lambda m: layer(SIZE, manifold=m, **options),
            inputs=row,
            out=(SIZE,),
            free=LORENTZ,
        )

    yield case("weight", bnn.RMSNorm)
    yield case("weight_bias", bnn.LayerNorm)
    yield case("weight", bnn.LayerNorm, bias=False)
    batch = {
        "train": (True, {}),
        "eval": (False, {}),
        "no_affine": (True, {"affine": False}),
        "no_track": (False, {"track_running_stats": False}),
    }
    for name, (training, options) in batch.items():
        yield Case(
            name=name,
            layer=bnn.BatchNorm,
            make=lambda m, options=options: bnn.BatchNorm(SIZE, manifold=m, **options),
            inputs=row,
            out=(SIZE,),
            rowwise=name == "eval",
            training=training,
        )


def _residual() -> Iterator[Case]:
    rows: dict[str, tuple[dict[str, object], tuple[str, ...], float | None, tuple[str, ...]]] = {
        "learnable": ({"weight": 0.7}, ALL, 1.0, ()),
        "fixed": ({"weight": 0.7, "learnable": False}, ALL, 1.0, ()),
        "scale": ({"scale": 1.3}, LORENTZ, None, ()),
        "euclidean": ({"form": "euclidean"}, (*LORENTZ, *FLAT), 1.0, LORENTZ),
    }
    for name, (options, kinds, rate, free) in rows.items():
        yield Case(
            name=name,
            layer=bnn.Residual,
            make=lambda m, options=options: bnn.Residual(manifold=m, **options),
            inputs=pair,
            out=(SIZE,),
            kinds=kinds,
            rate=rate,
            free=free,
        )


def _attention() -> Iterator[Case]:
    def with_mask(draw: Draw) -> Inputs:
        mask = draw.keep(HEADS, TOKENS, TOKENS)
        return {**tokens(draw), "mask": mask, "key_mask": draw.keep(TOKENS)}

    def with_common_mask(draw: Draw) -> Inputs:
        common = Draw(draw.manifold, (), draw.dtype, draw.generator)
        return {**tokens(draw), "mask": common.keep(TOKENS, TOKENS)}

    def with_positions(draw: Draw) -> Inputs:
        return {**tokens(draw), "positions": draw.ids(50, TOKENS)}

    @dataclass
    class Form:
        options: dict[str, object] = field(default_factory=dict)
        inputs: Callable[[Draw], Inputs] = tokens
        shared: tuple[str, ...] = ()

    forms = {
        "full": Form(),
        "causal": Form({"causal": True}),
        "cross": Form({"cross": True}, tokens_and_memory),
        "grouped": Form({"kv_heads": 1, "causal": True}),
        "rotary": Form({"rotary": True, "causal": True}),
        "positions": Form({"rotary": True}, with_positions),
        "mask": Form({}, with_mask),
        "causal-mask": Form({"causal": True}, with_common_mask, ("mask",)),
        "dot": Form({"score": "dot"}),
        "mean": Form({"aggregate": "mean"}),
        "plain": Form({"score": "dot", "aggregate": "mean", "time": False, "causal": True}),
        "head_size": Form({"head_size": 3}),
        "no_bias": Form({"bias": False}),
        "no_time": Form({"time": False}),
    }
    for name, form in forms.items():
        yield Case(
            name=name,
            layer=bnn.Attention,
            make=lambda m, o=form.options: bnn.Attention(WIDTH, HEADS, manifold=m, **o),
            inputs=form.inputs,
            out=(TOKENS, WIDTH),
            kinds=(*LORENTZ, *FLAT),
            lead=1,
            shared=form.shared,
            rate=1.0 if "time" in form.options else 0.5,
            free=LORENTZ if name == "plain" else (),
        )

    def with_key_mask(draw: Draw) -> Inputs:
        return {**tokens(draw), "key_mask": draw.keep(TOKENS)}

    forms = {
        "full": Form(),
        "causal": Form({"causal": True}),
        "key_mask": Form({"power": 3.0}, with_key_mask),
        "causal-key_mask": Form({"causal": True, "bias": False}, with_key_mask),
        "no_time": Form({"time": False}),
    }
    for name, form in forms.items():
        yield Case(
            name=name,
            layer=bnn.LinearAttention,
            make=lambda m, o=form.options: bnn.LinearAttention(WIDTH, HEADS, manifold=m, **o),
            inputs=form.inputs,
            out=(TOKENS, WIDTH),
            kinds=(*LORENTZ, *FLAT),
            lead=1,
            rate=1.0 if "time" in form.options else 0.5,
            free=LORENTZ if "time" in form.options else (),
            steep=True,
        )


def _blocks() -> Iterator[Case]:
    mlps: dict[str, dict[str, object]] = {
        "swiglu": {},
        "gelu": {"activation": "gelu"},
        "no_bias": {"bias": False},
        "no_time": {"time": False},
    }
    for name, options in mlps.items():
        yield Case(
            name=name,
            layer=bnn.MLP,
            make=lambda m, o=options: bnn.MLP(SIZE, 10, manifold=m, **o),
            inputs=row,
            out=(SIZE,),
            kinds=(*LORENTZ, *FLAT),
            rate=1.0 if "time" in options else 0.5,
            free=LORENTZ if "time" in options else (),
        )

    def memory(draw: Draw) -> Inputs:
        given = tokens_and_memory(draw)
        return {"x": given["x"], "memory": given["memory"], "memory_mask": given["key_mask"]}

    plain = {"time": False, "residual": "euclidean", "score": "dot", "aggregate": "mean"}
    blocks: dict[str, tuple[dict[str, object], Callable[[Draw], Inputs]]] = {
        "encoder": ({}, tokens),
        "decoder": ({"causal": True, "rotary": True, "kv_heads": 1}, tokens),
        "cross": ({"causal": True, "cross": True}, memory),
        "layer-gelu": ({"norm": "layer", "activation": "gelu", "learn_residual": False}, tokens),
        "plain": (plain, tokens),
    }
    for name, (options, inputs) in blocks.items():
        yield Case(
            name=name,
            layer=bnn.TransformerBlock,
            make=lambda m, o=options: bnn.TransformerBlock(WIDTH, HEADS, manifold=m, **o),
            inputs=inputs,
            out=(TOKENS, WIDTH),
            kinds=(*LORENTZ, *FLAT),
            lead=1,
            rate=1.0 if "time" in options else 0.5,
            free=LORENTZ if name == "plain" else (),
        )

    yield Case(
        name="block",
        layer=bnn.TransformerBlock,
        make=lambda m: bnn.TransformerBlock(WIDTH, HEADS, manifold=m, dropout=0.3, causal=True),
        inputs=tokens,
        out=(TOKENS, WIDTH),
        kinds=(*LORENTZ, *FLAT),
        lead=1,
        rowwise=False,
        random=True,
        training=True,
        rate=0.5,
    )
    yield Case(
        name="linear-tanh-norm-mlr",
        layer=bnn.Sequential,
        make=lambda m: bnn.Sequential(
            bnn.Linear(SIZE, OUT, manifold=m, form="tangent"),
            bnn.Activation("tanh", manifold=m),
            bnn.RMSNorm(OUT, manifold=m),
            bnn.MLR(OUT, CLASSES, manifold=m, form="busemann"),
        ),
        inputs=lambda draw: {"input": draw.points(SIZE)},
        out=(CLASSES,),
        rate=0.5,
    )


def _classifiers() -> Iterator[Case]:
    forms = {"lorentz": LORENTZ, "hnnpp": BALL, "poincare": BALL, "busemann": (*LORENTZ, *BALL)}
    for form, kinds in forms.items():
        for dtype in (None, torch.float32):
            yield Case(
                name=form if dtype is None else f"{form}-float32",
                layer=bnn.MLR,
                make=lambda m, form=form, dtype=dtype: bnn.MLR(
                    SIZE, CLASSES, manifold=m, form=form, product_dtype=dtype
                ),
                inputs=row,
                out=(CLASSES,),
                kinds=(*kinds, *FLAT) if dtype is None else kinds,
                rate=None if dtype is not None else 0.5 if form == "busemann" else 1.0,
                coarse=dtype is not None,
            )
    for form in ("geodesic", "chord"):
        yield Case(
            name=form,
            layer=bnn.DistanceClassifier,
            make=lambda m, form=form: bnn.DistanceClassifier(SIZE, CLASSES, manifold=m, form=form),
            inputs=row,
            out=(CLASSES,),
        )


def _conv() -> Iterator[Case]:
    forms = {"htc": LORENTZ, "hnnpp": BALL}
    shapes: dict[str, tuple[dict[str, object], int, tuple[int, ...], tuple[int, ...]]] = {
        # options, kernel, places in, places out
        "plain": ({}, 3, (7, 6), (5, 4)),
        "same": ({"padding": "same", "dilation": 2}, 2, (5, 4), (5, 4)),
        "stride": ({"stride": 2, "padding": 1, "bias": False}, 3, (7, 6), (4, 3)),
        "no_time": ({"time": False}, 3, (5, 4), (3, 2)),
    }
    for form, kinds in forms.items():
        for name, (options, kernel, before, after) in shapes.items():
            if name == "no_time" and form == "hnnpp":
                continue
            for layer, dims in ((bnn.Conv1d, 1), (bnn.Conv2d, 2)):
                yield Case(
                    name=f"{form}-{name}",
                    layer=layer,
                    make=lambda m, layer=layer, kernel=kernel, form=form, o=options: layer(
                        SIZE, OUT, kernel, manifold=m, form=form, **o
                    ),
                    inputs=lambda draw, n=before[:dims]: {"x": draw.points(*n, SIZE)},
                    out=(*after[:dims], OUT),
                    kinds=(*kinds, *FLAT),
                    rate=0.5 if form == "htc" and name != "no_time" else 1.0,
                    free=LORENTZ if name == "no_time" else (),
                )


def _tables() -> Iterator[Case]:
    tables: dict[str, dict[str, object]] = {
        "dense": {},
        "padding_idx": {"padding_idx": 0},
        "sparse": {"sparse": True},
    }
    for name, options in tables.items():
        yield Case(
            name=name,
            layer=bnn.Embedding,
            make=lambda m, o=options: bnn.Embedding(9, SIZE, manifold=m, **o),
            # Row 0 may be padding, whose gradient is 0 by order and not by the formula.
            inputs=lambda draw: {"ids": 1 + draw.ids(8, TOKENS)},
            out=(TOKENS, SIZE),
            free=(*LORENTZ, *BALL),
        )
    yield Case(
        name="in_order",
        layer=bnn.LearnedPositions,
        make=lambda m: bnn.LearnedPositions(7, SIZE, manifold=m),
        inputs=lambda draw: {"x": draw.points(TOKENS, SIZE)},
        out=(TOKENS, SIZE),
    )
    yield Case(
        name="given",
        layer=bnn.LearnedPositions,
        make=lambda m: bnn.LearnedPositions(7, SIZE, manifold=m),
        inputs=lambda draw: {"x": draw.points(TOKENS, SIZE), "positions": draw.ids(7, TOKENS)},
        out=(TOKENS, SIZE),
    )
    yield Case(
        name="given",
        layer=bnn.Rotary,
        make=lambda m: bnn.Rotary(SIZE, base=100.0),
        inputs=lambda draw: {
            "x": draw.points(TOKENS, HEADS, SIZE),
            "positions": draw.ids(50, TOKENS),
        },
        out=(TOKENS, HEADS, SIZE),
        free=(*LORENTZ, *BALL),
    )
    yield Case(
        name="bias",
        layer=bnn.PatchEmbedding,
        make=lambda m: bnn.PatchEmbedding((8, 6), (4, 3), 2, SIZE, manifold=m),
        inputs=lambda draw: {"images": draw.numbers(2, 8, 6)},
        out=(4, SIZE),
        lead=1,
        free=LORENTZ,
    )


def _pool() -> Iterator[Case]:
    forms: dict[str, tuple[int, Callable[[Draw], Inputs]]] = {
        "tokens": (1, lambda d: {"x": d.points(TOKENS, SIZE)}),
        "map": (2, lambda d: {"x": d.points(4, 3, SIZE)}),
        "mask": (1, lambda d: {"x": d.points(TOKENS, SIZE), "mask": d.keep(TOKENS)}),
        "weights": (
            2,
            lambda d: {
                "x": d.points(4, 3, SIZE),
                "mask": d.keep(4, 3),
                "weights": d.positive(4, 3),
            },
        ),
    }
    for name, (dims, inputs) in forms.items():
        yield Case(
            name=name,
            layer=bnn.Pool,
            make=lambda m, dims=dims: bnn.Pool(manifold=m, dims=dims),
            inputs=inputs,
            out=(SIZE,),
        )


def _borders() -> Iterator[Case]:
    for layer, radial in ((bnn.Lift, "exp0"), (bnn.Lower, "log0")):
        for form, kinds in ((radial, ALL), ("space", (*LORENTZ, *FLAT))):
            yield Case(
                name=form,
                layer=layer,
                make=lambda m, layer=layer, form=form: layer(
                    SIZE, manifold=m, form=form, scale=0.8
                ),
                inputs=row,
                out=(SIZE,),
                kinds=kinds,
                free=LORENTZ if form == "space" else (),
            )

    def other_model(m: Manifold) -> Manifold:
        if not isinstance(m, Lorentz | PoincareBall):
            return m
        kind = PoincareBall if isinstance(m, Lorentz) else Lorentz
        return kind(m.curvature or m.c)

    def other_curvature(m: Manifold) -> Manifold:
        return Lorentz(2.0) if isinstance(m, Lorentz) else PoincareBall(2.0)

    yield Case(
        name="model",
        layer=bnn.ChangeCurvature,
        make=lambda m: bnn.ChangeCurvature(manifold=m, manifold_out=other_model(m)),
        inputs=row,
        out=(SIZE,),
    )
    yield Case(
        name="curvature",
        layer=bnn.ChangeCurvature,
        make=lambda m: bnn.ChangeCurvature(manifold=m, manifold_out=other_curvature(m)),
        inputs=row,
        out=(SIZE,),
        kinds=(*LORENTZ, *BALL),
        rate=None,
    )


class PlainConv(nn.Module):
    """A graph layer that knows nothing of manifolds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIZE, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """0.3 times the sum over the edges into a node."""
        y = self.linear(x)
        return torch.zeros_like(y).index_add(
            -2, edge_index[1], 0.3 * y.index_select(-2, edge_index[0])
        )


def _graph() -> Iterator[Case]:
    # Node 3 has a loop of its own, node 4 no edge at all, and one edge is there twice.
    edges = torch.tensor([[0, 1, 2, 2, 3, 0, 0], [1, 0, 1, 0, 3, 2, 2]])

    def graph(draw: Draw) -> Inputs:
        return {"x": draw.points(TOKENS, SIZE), "edge_index": edges.clone()}

    def weighted(draw: Draw) -> Inputs:
        common = Draw(draw.manifold, (), draw.dtype, draw.generator)
        return {**graph(draw), "edge_weight": common.positive(edges.shape[1])}

    @dataclass
    class Form:
        layer: type[nn.Module]
        options: dict[str, object] = field(default_factory=dict)
        kinds: tuple[str, ...] = (*LORENTZ, *FLAT)
        inputs: Callable[[Draw], Inputs] = graph
        rate: float = 1.0

    conv, attention, mean = bnn.GraphConv, bnn.GraphAttention, bnn.GraphAggregate
    forms = {
        "htc": Form(conv, {}, rate=0.5),
        "hybonet": Form(conv, {"form": "hybonet", "activation": "gelu"}, rate=0.5),
        "hgcn": Form(conv, {"form": "hgcn", "activation": "tanh"}, ALL),
        "hgcn-symmetric": Form(conv, {"form": "hgcn", "norm": "symmetric"}, ALL, weighted),
        "distance": Form(attention, {}, rate=0.5),
        "plain": Form(attention, {"score": "dot", "aggregate": "mean"}, rate=0.5),
        "weights": Form(attention, {"self_loops": False}, inputs=weighted, rate=0.5),
        "centroid": Form(mean, {}, ALL, weighted),
        "origin": Form(mean, {"form": "origin", "self_loops": False}, ALL),
        "local": Form(mean, {"form": "local", "self_loops": False}, ALL, weighted),
    }
    for name, form in forms.items():
        sizes = (
            () if form.layer is mean else (SIZE, OUT) if form.layer is conv else (SIZE, 6, HEADS)
        )
        yield Case(
            name=name,
            layer=form.layer,
            make=lambda m, form=form, sizes=sizes: form.layer(*sizes, manifold=m, **form.options),
            inputs=form.inputs,
            out=(TOKENS, SIZE if form.layer is mean else sizes[1]),
            kinds=form.kinds,
            shared=("edge_index", "edge_weight"),
            rate=form.rate,
        )
    yield Case(
        name="plain",
        layer=bnn.TangentConv,
        make=lambda m: bnn.TangentConv(PlainConv(), manifold=m),
        inputs=graph,
        out=(TOKENS, OUT),
        shared=("edge_index",),
    )


CASES = [
    *_linear(),
    *_pointwise(),
    *_norms(),
    *_residual(),
    *_attention(),
    *_blocks(),
    *_classifiers(),
    *_conv(),
    *_tables(),
    *_pool(),
    *_graph(),
    *_borders(),
]
