import pytest
import torch

import beltrami
from beltrami.geometry import lorentz, poincare

X = torch.zeros(3, 4)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: lorentz.dist(X, torch.zeros(3, 5)), ValueError, r"x and y .*\(3, 4\).*\(3, 5\)"),
        (lambda: lorentz.dist(X, X, 0.0), ValueError, "c must be a positive.*got 0.0"),
        (lambda: lorentz.dist(X, X, -1.0), ValueError, "got -1.0"),
        (lambda: lorentz.dist(X, X, float("nan")), ValueError, "got nan"),
        (lambda: lorentz.dist(X, X, "1"), TypeError, "c must be a float or a tensor, got str"),
        (lambda: lorentz.dist(X, X, True), TypeError, "got bool"),
        (
            lambda: lorentz.dist(X, X, torch.ones(3)),
            ValueError,
            r"last dimension must be 1.*\(3,\)",
        ),
        (lambda: lorentz.dist(X, X, torch.ones(1, dtype=torch.int64)), TypeError, "int64"),
        (lambda: lorentz.dist(X.long(), X), TypeError, "x must be a floating.*int64.*float"),
        (lambda: lorentz.dist([0.0], X), TypeError, "x must be a torch.Tensor, got list"),
        (lambda: lorentz.dist(X, X.to("meta")), ValueError, "x is on cpu but y is on meta"),
        (lambda: lorentz.exp0(X, torch.ones(1, device="meta")), ValueError, "c is on meta"),
        (lambda: lorentz.time(torch.tensor(1.0)), ValueError, "at least one dimension"),
        (lambda: lorentz.rotate(X, torch.eye(3)), ValueError, "same last dimension"),
        (lambda: lorentz.rotate(X, torch.ones(2, 4)), ValueError, r"\(4, 4\) matrix"),
        (lambda: lorentz.centroid(X, torch.ones(2)), ValueError, r"weights .* n = 3.*\(2,\)"),
        (lambda: lorentz.centroid(torch.zeros(4)), ValueError, "next to last"),
        (lambda: lorentz.pairwise_dist(X[0], X), ValueError, "rows of points"),
        (lambda: lorentz.pairwise_dist(X, X, torch.ones(3, 1)), ValueError, "one curvature"),
        (lambda: lorentz.geodesic(X, X, torch.ones(3, 1).long()), TypeError, "t must be"),
        (lambda: lorentz.uniform_ball(5, 2, radius=0.0), ValueError, "radius .* got 0.0"),
        (lambda: lorentz.uniform_ball(), ValueError, "shape"),
        (lambda: lorentz.wrapped_normal(X, -1.0), ValueError, "std .* got -1.0"),
        (lambda: lorentz.change_curvature(X, 1.0, 0.0), ValueError, "new_c"),
    ],
)
def test_bad_input_is_named(call, error, says) -> None:
    with pytest.raises(error, match=says):
        call()


def test_debug_finds_bad_values_and_only_inside() -> None:
    bad = torch.tensor([[0.0, float("nan"), 1.0]])
    lorentz.time(bad)
    with beltrami.debug():
        with pytest.raises(ValueError, match=r"x has 1 entries.*nan at index \(0, 1\)"):
            lorentz.time(bad)
        with pytest.raises(ValueError, match=r"c must be positive, got -2\.0"):
            lorentz.time(X, torch.tensor([-2.0]))
        with pytest.raises(ValueError, match="c has 1 entries that are not finite"):
            lorentz.time(X, torch.tensor([float("inf")]))
        with pytest.raises(ValueError, match="weights has 1 entries"):
            lorentz.centroid(X, torch.tensor([1.0, float("nan"), 1.0]))
    lorentz.time(bad)


def test_debug_nests_and_survives_errors() -> None:
    with beltrami.debug():
        with pytest.raises(ValueError), beltrami.debug():
            lorentz.time(torch.tensor([float("inf")]))
        with pytest.raises(ValueError):
            lorentz.time(torch.tensor([float("inf")]))


def test_dtypes() -> None:
    x, y = torch.rand(3, 4).bfloat16(), torch.rand(3, 4).bfloat16()
    assert lorentz.dist(x, y).dtype == torch.float32
    assert lorentz.exp0(x).dtype == torch.bfloat16
    assert lorentz.dist(x, y.double()).dtype == torch.float64
    torch.testing.assert_close(lorentz.dist(x, y), lorentz.dist(x.float(), y.float()))


def test_float_curvature_is_exact_in_float64() -> None:
    x = torch.tensor([[0.3, 0.4]], dtype=torch.float64)
    expected = torch.asinh(torch.tensor(0.5 * 0.1**0.5, dtype=torch.float64)) / 0.1**0.5
    assert lorentz.dist0(x, 0.1).item() == pytest.approx(expected.item(), rel=1e-15)
    in_float32 = torch.tensor([0.1], dtype=torch.float32)
    assert lorentz.dist0(x, in_float32).dtype == torch.float64


@pytest.mark.parametrize("function", [lorentz.pairwise_dist, poincare.mobius_add])
def test_compiles_when_a_tensor_is_given_twice(function):
    """torch's compiler takes no tensor twice in one autograd Function."""
    x = (0.3 * torch.randn(5, 4)).requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    eager, traced = function(x, x, 0.5), compiled(x, x, 0.5)
    torch.testing.assert_close(traced, eager)
    w = torch.randn_like(eager)
    torch.testing.assert_close(torch.autograd.grad(traced, x, w), torch.autograd.grad(eager, x, w))
