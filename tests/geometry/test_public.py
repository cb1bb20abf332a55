"""Manners of every public function of `beltrami.geometry`, from one table of example arguments.

A function that is missing from `EXAMPLES` fails: whoever adds one adds its line here and gets it
checked for docstring, types, compile, vmap, empty batches, half precision, autocast and bad input.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from beltrami.geometry import (
    Euclidean,
    Lorentz,
    Sphere,
    cones,
    hyperplane,
    klein,
    lorentz,
    plane_frame,
    poincare,
    product,
    radial,
    solvable,
    sphere,
    stereographic,
)

D, N, C = 4, 5, 0.7  # dimension, points in a set, curvature
FACTORS = product.blocks([(Lorentz(C), D, 2), (Sphere(C), D), (Euclidean(), 1)])
WIDTH = sum(b.size * b.count for b in FACTORS)

# --- what the words of a line stand for -----------------------------------------------------------

Make = Callable[[tuple[int, ...], torch.Generator], Any]


def normal(*size: int, std: float = 0.2) -> Make:
    """Random rows with the batch's dimensions in front."""
    return lambda batch, g: std * torch.randn(*batch, *size, dtype=torch.float64, generator=g)


def shared(*size: int, std: float = 0.5) -> Make:
    """A random tensor without batch dimensions."""
    return lambda batch, g: Shared(std * torch.randn(*size, dtype=torch.float64, generator=g))


def positive(*size: int) -> Make:
    return lambda batch, g: 0.1 + 0.8 * torch.rand(*batch, *size, dtype=torch.float64, generator=g)


def orthogonal(rows: int, d: int) -> Make:
    def make(batch: tuple[int, ...], g: torch.Generator) -> Shared:
        return Shared(torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=g)).Q[:rows])

    return make


def constant(value: Any) -> Make:
    return lambda batch, g: value


def on_sphere(*size: int) -> Make:
    def make(batch: tuple[int, ...], g: torch.Generator) -> Tensor:
        return sphere.uniform(*batch, *size, c=C, dtype=torch.float64, generator=g)

    return make


def in_product(*size: int) -> Make:
    def make(batch: tuple[int, ...], g: torch.Generator) -> Tensor:
        v = 0.2 * torch.randn(*batch, *size, WIDTH - 1, dtype=torch.float64, generator=g)
        return product.exp0(v, FACTORS)

    return make


class Shared(NamedTuple):
    tensor: Tensor


WORDS: dict[str, Make] = {
    "point": normal(D),
    "vector": normal(D),
    "set": normal(N, D),
    "weights": positive(N),
    "fraction": positive(1),
    "std": constant(0.3),
    "rotation": orthogonal(D, D),
    "rotation3": orthogonal(D - 1, D - 1),
    "directions": orthogonal(2, D),
    "normals": shared(3, D),
    "offsets": shared(3),
    "scalar": normal(1),
    "matrix": shared(6, D),
    "matrix3": shared(5, D - 1),
    "bias5": shared(5),
    "vector3": normal(D - 1),
    "half_space": positive(D),
    "functional_w": shared(3, D - 1, std=2.0),
    "functional_a": shared(3, std=0.1),
    "squares": positive(),
    "path": normal(N, D),
    "ones": constant(3),
    "c": constant(C),
    "new_c": constant(0.3),
    "kappa": constant(-C),
    "negative": constant(-C),
    "sphere_point": on_sphere(D),
    "factors": constant(FACTORS),
    "distances": positive(6),
    "p": constant(1.5),
    "size": constant(D),
}
ON_SPHERE = {"point": on_sphere(D), "set": on_sphere(N, D)}
IN_PRODUCT = {
    "point": in_product(),
    "set": in_product(N),
    "vector": normal(WIDTH),
    "vector3": normal(WIDTH - 1),
}

# --- the table ------------------------------------------------------------------------------------
# arguments -> result: "row" comes back in the input's dtype, "scalar" in float32 at least, "other"
# is not checked. Marks: !random (no values to compare), !sync (reads the device: no compile, no
# vmap), !amp (documented to multiply in the autocast dtype), !plain (no checks of its own), !still
# (no batch dimension), !float32 (has no half precision version).

EXAMPLES: dict[ModuleType, dict[str, str]] = {
    lorentz: {
        "boost": "point point c -> row",
        "centroid": "set weights c -> row",
        "change_curvature": "point c new_c -> row",
        "chord_sq": "point point c -> scalar",
        "dist": "point point c -> scalar",
        "dist0": "point c -> scalar",
        "dist_sq": "point point c -> scalar",
        "excess_time": "point c -> scalar",
        "exp": "point vector c -> row",
        "exp0": "vector c -> row",
        "frechet_mean": "set weights c -> row !sync",
        "geodesic": "point point fraction c -> row",
        "inner": "point vector vector c -> scalar",
        "log": "point point c -> row",
        "log0": "point c -> row",
        "midpoint": "point point c -> row",
        "minkowski": "point point c -> scalar",
        "norm": "point vector c -> scalar",
        "pairwise_dist": "set set c -> scalar",
        "riemannian_grad": "point vector c -> row",
        "rotate": "point rotation -> row",
        "time": "point c -> scalar",
        "transport": "point point vector c -> row",
        "transport_from0": "point vector c -> row",
        "transport_to0": "point vector c -> row",
        "uniform_ball": "ones size -> other !random !still",
        "wrapped_normal": "point std c -> row !random",
        "wrapped_normal_log_prob": "point point std c -> scalar",
    },
    sphere: {
        "centroid": "set weights c -> row",
        "dist": "point point c -> scalar",
        "dist0": "point c -> scalar",
        "dist_sq": "point point c -> scalar",
        "exp": "point vector c -> row",
        "exp0": "vector3 c -> row",
        "geodesic": "point point fraction c -> row",
        "inner": "point vector vector c -> scalar",
        "log": "point point c -> row",
        "log0": "point c -> row",
        "midpoint": "point point c -> row",
        "norm": "point vector c -> scalar",
        "origin": "ones size -> other !still",
        "pairwise_dist": "set set c -> scalar",
        "project": "vector c -> row",
        "project_tangent": "point vector c -> row",
        "random_tangent": "point std c -> row !random",
        "riemannian_grad": "point vector c -> row",
        "rotate": "point rotation -> row",
        "transport": "point point vector c -> row",
        "transport_from0": "point vector3 c -> row",
        "transport_to0": "point vector c -> row",
        "uniform": "ones size -> other !random !still",
        "wrapped_normal": "point std c -> row !random",
    },
    product: {
        "blocks": "factors -> other !still !sync",
        "centroid": "set weights factors -> row",
        "combine": "distances p -> scalar",
        "dist": "point point factors -> scalar",
        "dist0": "point factors -> scalar",
        "dist_sq": "point point factors -> scalar",
        "exp": "point vector factors -> row",
        "exp0": "vector3 factors -> row",
        "geodesic": "point point fraction factors -> row",
        "inner": "point vector vector factors -> scalar",
        "log": "point point factors -> row",
        "log0": "point factors -> row",
        "midpoint": "point point factors -> row",
        "norm": "point vector factors -> scalar",
        "pairwise_dist": "set set factors -> scalar",
        "project": "point factors -> row",
        "project_tangent": "point vector factors -> row",
        "retract": "point vector factors -> row",
        "riemannian_grad": "point vector factors -> row",
        "split": "point factors -> row",
        "transport": "point point vector factors -> row",
        "transport_from0": "point vector3 factors -> row",
        "transport_to0": "point vector factors -> row",
    },
    cones: {
        "contains": "point point c -> other",
        "entailment_energy": "point point c -> scalar",
        "euclidean_entailment_energy": "point point point -> scalar",
        "euclidean_exterior_angle": "point point point -> scalar",
        "euclidean_half_aperture": "point point -> scalar",
        "exterior_angle": "point point c -> scalar",
        "half_aperture": "point c -> scalar",
        "path_angles": "path point -> scalar",
        "poincare_contains": "point point c -> other",
        "poincare_entailment_energy": "point point c -> scalar",
        "poincare_exterior_angle": "point point c -> scalar",
        "poincare_half_aperture": "point c -> scalar",
    },
    hyperplane: {
        "busemann": "point vector c -> scalar",
        "dist_to_geodesic": "point point point c -> scalar",
        "horospherical_projection": "point directions c -> row",
        "hyperplane_logits": "point normals offsets c -> scalar",
        "logit": "point vector scalar c -> scalar",
        "poincare_busemann": "point vector c -> scalar",
        "poincare_logit": "point vector scalar c -> scalar",
        "poincare_logits": "point normals offsets c -> scalar",
        "poincare_signed_dist": "point point vector c -> scalar",
        "project_to_geodesic": "point point point c -> row",
        "project_to_horosphere": "point vector scalar c -> row",
        "project_to_hyperplane": "point vector scalar c -> row",
        "project_to_subspace": "point directions c -> row",
        "reflect": "point vector scalar c -> row",
        "signed_dist": "point vector scalar c -> scalar",
    },
    plane_frame: {
        "log_light_cone": "scalar vector3 c -> scalar !plain",
        "scaled_asinh": "point c -> row !plain",
        "scaled_sinh": "point c -> row !plain",
    },
    solvable: {
        "centroid": "set weights -> row",
        "dist": "point point c -> scalar",
        "dist0": "point c -> scalar",
        "dist_sq": "point point c -> scalar",
        "exp": "point vector -> row",
        "exp0": "vector c -> row",
        "fiber_rotation": "point vector -> row",
        "from_half_space": "half_space -> row",
        "from_lorentz": "point c -> row",
        "from_poincare": "point c -> row",
        "functional": "point functional_w functional_a functional_a -> scalar",
        "geodesic": "point point fraction -> row",
        "group_exp": "vector -> row",
        "group_log": "point -> row",
        "homomorphism": "point matrix3 bias5 -> row !amp",
        "horosphere": "vector3 c -> row",
        "hyperplane_dist": "point functional_w functional_a functional_a c -> scalar",
        "identity": "size -> other !still",
        "inner": "point vector vector c -> scalar",
        "inverse": "point -> row",
        "left_translate": "point point -> row",
        "log": "point point -> row",
        "log0": "point c -> row",
        "midpoint": "point point -> row",
        "norm": "point vector c -> scalar",
        "paint_rotation": "point rotation3 -> row !amp",
        "pairwise_dist": "set set c -> scalar",
        "product": "point point -> row",
        "relative": "point point -> row",
        "riemannian_grad": "point vector c -> row",
        "to_half_space": "point -> row",
        "to_lorentz": "point c -> row",
        "to_poincare": "point c -> row",
        "transport": "point point vector -> row",
        "transport_from0": "point vector c -> row",
        "transport_to0": "point vector c -> row",
    },
    radial: {
        "asinhc": "squares -> row !plain",
        "asinhc_sq": "squares -> row !plain",
        "asinhc_sq_gain": "squares -> row !plain",
        "asinhc_sq_prime": "squares -> row !plain",
        "atanhc": "squares -> row !plain",
        "atanhc_sq": "squares -> row !plain",
        "atanhc_sq_prime": "squares -> row !plain",
        "cosh_sq": "squares -> row !plain",
        "log_sinhc_sq": "squares -> row !plain",
        "sech_sq": "squares -> row !plain",
        "sinh_ratio": "squares squares -> row !plain",
        "sinhc": "squares -> row !plain",
        "sinhc_sq": "squares -> row !plain",
        "sinhc_sq_prime": "squares -> row !plain",
        "tanhc": "squares -> row !plain",
        "tanhc_sq": "squares -> row !plain",
        "tanhc_sq_prime": "squares -> row !plain",
    },
    poincare: {
        "boost": "point point c -> row",
        "centroid": "set weights c -> row",
        "change_curvature": "point c new_c -> row",
        "conformal_factor": "point c -> scalar",
        "dist": "point point c -> scalar",
        "dist0": "point c -> scalar",
        "dist_sq": "point point c -> scalar",
        "exp": "point vector c -> row",
        "exp0": "vector c -> row",
        "frechet_mean": "set weights c -> row !sync",
        "from_lorentz": "point c -> row",
        "from_lorentz_tangent": "point vector c -> row",
        "geodesic": "point point fraction c -> row",
        "gyration": "point point vector c -> row",
        "gyromidpoint": "set weights c -> row",
        "inner": "point vector vector c -> scalar",
        "log": "point point c -> row",
        "log0": "point c -> row",
        "midpoint": "point point c -> row",
        "mobius_add": "point point c -> row",
        "mobius_matvec": "matrix point c -> row",
        "mobius_scalar": "fraction point c -> row",
        "norm": "point vector c -> scalar",
        "pairwise_dist": "set set c -> scalar",
        "project": "vector c -> row",
        "riemannian_grad": "point vector c -> row",
        "rotate": "point rotation -> row",
        "to_lorentz": "point c -> row",
        "to_lorentz_tangent": "point vector c -> row",
        "transport": "point point vector c -> row",
        "transport_from0": "point vector c -> row",
        "transport_to0": "point vector c -> row",
        "uniform_ball": "ones size -> other !random !still",
        "wrapped_normal": "point std c -> row !random",
        "wrapped_normal_log_prob": "point point std c -> scalar",
    },
    klein: {
        "centroid": "set weights c -> row",
        "dist": "point point c -> scalar",
        "dist0": "point c -> scalar",
        "dist_sq": "point point c -> scalar",
        "einstein_midpoint": "set weights c -> row",
        "exp0": "vector c -> row",
        "from_lorentz": "point c -> row",
        "from_poincare": "point c -> row",
        "geodesic": "point point fraction c -> row",
        "log0": "point c -> row",
        "lorentz_factor": "point c -> scalar",
        "midpoint": "point point c -> row",
        "to_lorentz": "point c -> row",
        "to_poincare": "point c -> row",
    },
    stereographic: {
        "centroid": "set weights kappa -> row",
        "conformal_factor": "point kappa -> scalar",
        "dist": "point point kappa -> scalar",
        "dist0": "point kappa -> scalar",
        "dist_sq": "point point kappa -> scalar",
        "exp": "point vector kappa -> row",
        "exp0": "vector kappa -> row",
        "from_lorentz": "point negative -> row",
        "from_sphere": "sphere_point c -> row",
        "geodesic": "point point fraction kappa -> row",
        "gyration": "point point vector kappa -> row",
        "gyromidpoint": "set weights kappa -> row",
        "inner": "point vector vector kappa -> scalar",
        "log": "point point kappa -> row",
        "log0": "point kappa -> row",
        "midpoint": "point point kappa -> row",
        "mobius_add": "point point kappa -> row",
        "mobius_scalar": "fraction point kappa -> row",
        "norm": "point vector kappa -> scalar",
        "pairwise_dist": "set set kappa -> scalar",
        "project": "vector kappa -> row",
        "riemannian_grad": "point vector kappa -> row",
        "to_lorentz": "point negative -> row",
        "to_sphere": "point c -> row",
        "transport": "point point vector kappa -> row",
        "transport_from0": "point vector kappa -> row",
        "transport_to0": "point vector kappa -> row",
    },
}


class Example(NamedTuple):
    module: ModuleType
    name: str
    words: list[str]
    result: str
    marks: set[str]

    @property
    def function(self) -> Callable[..., Any]:
        return getattr(self.module, self.name)

    def arguments(self, *batch: int, dtype: torch.dtype = torch.float64) -> list[Any]:
        """Example arguments; `Shared` ones are unwrapped by `call`."""
        own = {sphere: ON_SPHERE, product: IN_PRODUCT}.get(self.module, {})
        g = torch.Generator().manual_seed(0)
        made = [(own.get(w) or WORDS[w])(batch, g) for w in self.words]
        return [_cast(a, dtype) for a in made]

    def call(self, arguments: list[Any]) -> Any:
        out = self.function(*(a.tensor if isinstance(a, Shared) else a for a in arguments))
        return torch.cat([t.flatten() for t in out]) if isinstance(out, list) else out


def _cast(a: Any, dtype: torch.dtype) -> Any:
    if isinstance(a, Shared):
        return Shared(a.tensor.to(dtype))
    return a.to(dtype) if isinstance(a, Tensor) else a


def _example(module: ModuleType, name: str, line: str) -> Example:
    arguments, rest = line.split(" -> ")
    result, *marks = rest.split()
    return Example(module, name, arguments.split(), result, {m.removeprefix("!") for m in marks})


# Helpers shared between modules, which users do not call.
INTERNAL = {
    "over_or_same",
    "plane_frame",
    "plane_scores",
    "power_series",
    "scores_of_products",
    "split_along",
}


def _public(module: ModuleType) -> set[str]:
    """Names of the functions a module offers: those of `__all__`, or all it defines itself."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            n for n, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__
        ]
    names = [n for n in names if not n.startswith("_") and n not in INTERNAL]
    return {n for n in names if inspect.isfunction(getattr(module, n))}


LINES = [_example(m, name, line) for m, lines in EXAMPLES.items() for name, line in lines.items()]


def examples(*, without: str = "", only: Callable[[Example], bool] = lambda e: True) -> Any:
    """The lines without any of the marks that satisfy `only`."""
    chosen = [e for e in LINES if not e.marks & set(without.split()) and only(e)]
    return pytest.mark.parametrize(
        "example", chosen, ids=[f"{e.module.__name__.split('.')[-1]}.{e.name}" for e in chosen]
    )


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda m: m.__name__)
def test_every_public_function_has_a_line(module: ModuleType) -> None:
    assert set(EXAMPLES[module]) == _public(module)


@examples()
def test_has_a_docstring_and_types(example: Example) -> None:
    function = example.function
    assert function.__doc__
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter
    if "c" in signature.parameters and example.name != "change_curvature":
        assert signature.parameters["c"].default in (1.0, inspect.Parameter.empty)
    if example.result == "scalar" and "keepdim" in signature.parameters:
        assert signature.parameters["keepdim"].kind is inspect.Parameter.KEYWORD_ONLY


@examples(without="sync")
def test_compiles_without_a_graph_break(example: Example) -> None:
    torch.compiler.reset()
    arguments = example.arguments(3)
    tracked = [a.requires_grad_() for a in arguments if isinstance(a, Tensor)]
    compiled = torch.compile(example.call, fullgraph=True, backend="eager")
    out, expected = compiled(arguments), example.call(arguments)
    if "random" in example.marks:
        assert out.shape == expected.shape
        return
    torch.testing.assert_close(out, expected, rtol=1e-13, atol=1e-13)
    assert out.requires_grad == expected.requires_grad
    if expected.requires_grad and tracked:
        grads = [torch.autograd.grad(o.sum(), tracked, allow_unused=True) for o in (out, expected)]
        for ours, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


@examples(without="sync random still", only=lambda e: e.name != "split")
def test_vmap_agrees_with_the_batched_call(example: Example) -> None:
    arguments = example.arguments(3, 2)
    batched = [0 if isinstance(a, Tensor) else None for a in arguments]
    out = torch.vmap(lambda *a: example.call(list(a)), in_dims=tuple(batched))(*arguments)
    torch.testing.assert_close(out, example.call(arguments), rtol=1e-13, atol=1e-13)


@examples(without="still")
def test_empty_batches(example: Example) -> None:
    assert example.call(example.arguments(0)).numel() == 0
    assert example.call(example.arguments(2, 0)).numel() == 0


@examples(without="still plain")
def test_half_precision_is_computed_in_float32(example: Example) -> None:
    half = example.arguments(3, dtype=torch.bfloat16)
    out = example.call(half)
    if example.result != "other":
        assert out.dtype == (torch.float32 if example.result == "scalar" else torch.bfloat16)
    assert bool(torch.isfinite(out).all())
    if "random" not in example.marks:
        expected = example.call([_cast(a, torch.float32) for a in half])
        torch.testing.assert_close(out, expected.to(out.dtype), rtol=1e-6, atol=1e-6)


@examples(without="still random")
def test_autocast_keeps_float32(example: Example) -> None:
    arguments = example.arguments(3, dtype=torch.float32)
    expected = example.call(arguments)
    with torch.autocast("cpu", torch.bfloat16):
        out = example.call(arguments)
    if "amp" in example.marks:
        torch.testing.assert_close(out.float(), expected, rtol=2**-6, atol=2**-6)
    else:
        torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)


@examples(without="still plain")
def test_integers_are_refused(example: Example) -> None:
    with pytest.raises(TypeError, match="float"):
        example.call(example.arguments(3, dtype=torch.long))


@examples(without="plain", only=lambda e: "c" in e.words)
def test_curvature_must_be_positive(example: Example) -> None:
    for bad in (0.0, -1.0, math.nan, math.inf):
        arguments = example.arguments(3)
        arguments[example.words.index("c")] = bad
        with pytest.raises(ValueError, match="c must be a positive finite number"):
            example.call(arguments)
    arguments[example.words.index("c")] = "1.0"
    with pytest.raises(TypeError, match="c must be a float or a tensor"):
        example.call(arguments)


@examples(without="plain sync", only=lambda e: "c" in e.words)
def test_curvature_may_be_a_tensor_and_gets_a_gradient(example: Example) -> None:
    arguments = example.arguments(3)
    expected = example.call(arguments)
    c = torch.tensor([C], dtype=torch.float64, requires_grad=True)
    arguments[example.words.index("c")] = c
    out = example.call(arguments)
    if "random" not in example.marks:
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    if out.requires_grad:  # some functions do not depend on c
        (g,) = torch.autograd.grad(out.sum(), c, allow_unused=True)
        assert g is None or bool(torch.isfinite(g).all())


@examples(without="plain still", only=lambda e: "kappa" in e.words)
def test_kappa_may_have_any_sign_but_not_be_nan(example: Example) -> None:
    position = example.words.index("kappa")
    for kappa in (-C, -1e-9, 0.0, 1e-9, C):
        arguments = example.arguments(3)
        arguments[position] = kappa
        assert bool(torch.isfinite(example.call(arguments)).all())
    arguments[position] = math.nan
    with pytest.raises(ValueError, match="kappa"):
        example.call(arguments)
