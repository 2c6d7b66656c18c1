"""Derivatives of smooth functions at branch points of their formulas: at 0, on axes, at ties and at grid points.

A formula with `|x|`, a maximum or a choice may have the right value and the wrong derivative at a branch point, or the
right first derivative and the wrong second one. The reference is the central difference: of values for first
derivatives, and of first derivatives for second ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn

Call = Callable[..., Any]
_GRID = [0.0, 1.0, -1.0, 0.5, 2.0, -3.0]
_X, _Y = (np.array(v) for v in zip(*((x, y) for x in _GRID for y in _GRID), strict=True))
_STEP = 1e-5


def _everywhere(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.full(x.shape, True)


def _beside_origin(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x != 0) | (y != 0)


def _rows(g: Any, x: Any, y: Any) -> Any:
    return g.stack([x, y, x * 0.5])


# A function of two numbers, and where its first and second derivatives exist.
SMOOTH: dict[str, tuple[Call, Call, Call]] = {
    "softplus": (lambda g, x, y: g.softplus(x) * g.softplus(y, 2.0), _everywhere, _everywhere),
    "log_sigmoid": (lambda g, x, y: g.log_sigmoid(x) * y, _everywhere, _everywhere),
    "mish": (lambda g, x, y: g.mish(x) * y, _everywhere, _everywhere),
    "gelu": (lambda g, x, y: g.gelu(x) * g.gelu_approx(y) + g.silu(x * y), _everywhere, _everywhere),
    "elu": (lambda g, x, y: g.elu(x) * y, _everywhere, lambda x, y: x != 0),
    "celu": (lambda g, x, y: g.celu(x, 0.7) * y, _everywhere, lambda x, y: x != 0),
    "soft_sign": (lambda g, x, y: g.soft_sign(x) * y, _everywhere, lambda x, y: x != 0),
    "sinc": (lambda g, x, y: g.sinc(x) + g.sinc(x * y), _everywhere, _everywhere),
    "logaddexp": (lambda g, x, y: g.logaddexp(x, y), _everywhere, _everywhere),
    "logsumexp": (lambda g, x, y: g.logsumexp(_rows(g, x, y), axis=0), _everywhere, _everywhere),
    "logcumsumexp": (lambda g, x, y: g.sum(g.logcumsumexp(_rows(g, x, y), 0), 0), _everywhere, _everywhere),
    "softmax": (lambda g, x, y: g.softmax(_rows(g, x, y), 0)[0], _everywhere, _everywhere),
    "hypot": (lambda g, x, y: g.hypot(x, y), _beside_origin, _beside_origin),
    "norm": (lambda g, x, y: g.norm(_rows(g, x, y), axis=0), _beside_origin, _beside_origin),
    "norm of order 4": (lambda g, x, y: g.norm(_rows(g, x, y), 4, axis=0), _beside_origin, _beside_origin),
    "pairwise_distance": (
        lambda g, x, y: g.pairwise_distance(g.stack([x, y], 1), g.stack([y, x * y + 1.0], 1), eps=0.0),
        _everywhere,
        _everywhere,
    ),
    "cosine_similarity": (
        lambda g, x, y: g.cosine_similarity(g.stack([x, y]), g.stack([y, x + 1.0]), axis=0),
        lambda x, y: _beside_origin(x, y) & ((y != 0) | (x != -1)),
        lambda x, y: _beside_origin(x, y) & ((y != 0) | (x != -1)),
    ),
    "power": (lambda g, x, y: (x * x + 1.0) ** y, _everywhere, _everywhere),
    "xlogy": (lambda g, x, y: g.xlogy(x, y * y + 0.5), _everywhere, _everywhere),
    "prod": (
        lambda g, x, y: g.prod(_rows(g, x, y), 0) + g.sum(g.cumprod(_rows(g, x, y), 0), 0),
        _everywhere,
        _everywhere,
    ),
    "bce": (
        lambda g, x, y: g.binary_cross_entropy_with_logits(x, y, reduction="none", pos_weight=3.0),
        _everywhere,
        _everywhere,
    ),
    "soft_margin_loss": (lambda g, x, y: g.soft_margin_loss(x, y, reduction="none"), _everywhere, _everywhere),
    "smooth_l1_loss": (
        lambda g, x, y: g.smooth_l1_loss(x, y, beta=0.3, reduction="none"),
        _everywhere,
        lambda x, y: abs(x - y) != 0.3,
    ),
    "huber_loss": (
        lambda g, x, y: g.huber_loss(x, y, delta=0.3, reduction="none"),
        _everywhere,
        lambda x, y: abs(x - y) != 0.3,
    ),
    "interp": (
        lambda g, x, y: g.interp(x, g.constant(np.arange(-4.0, 4.0)), g.constant(np.arange(-4.0, 4.0))) * y,
        _everywhere,
        _everywhere,
    ),
}


def _derivatives(call: Call, lowered: bool) -> Callable[[np.ndarray, np.ndarray], list[np.ndarray]]:
    """Return a graph of values, first derivatives by both numbers, and those of their weighted sum (all second ones)."""
    g: Any = rlx.Graph()
    x, y = (g.input(name, _X.shape, "f64") for name in "xy")
    values = call(g, x, y)
    g.set_outputs({"loss": g.sum(values), "values": values})
    if lowered:  # into the ops that losses and others consist of
        g = rlx.passes.run(g, "builtin.module(rlx-decompose)")
    first: Any = rlx.grad(g, ["x", "y"])
    slopes = first.output_tensors
    first.set_outputs({"loss": first.sum(slopes[0] + slopes[1] * 0.3), "x": slopes[0], "y": slopes[1]})
    second = rlx.grad(first, ["x", "y"])

    def of(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        values = {"x": x, "y": y}
        return [rlx.evaluate(g, values)[1], *rlx.evaluate(first, values)[1:], *rlx.evaluate(second, values)]

    return of


@drawn("lowered", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_those_of_the_function(name: str, lowered: bool) -> None:
    call, once, twice = SMOOTH[name]
    of = _derivatives(call, lowered)
    _, by_x, by_y, *seconds = of(_X, _Y)
    for axis, (slope, bend) in enumerate(zip((by_x, by_y), seconds, strict=True)):
        shift = [_STEP * (axis == side) for side in (0, 1)]
        ahead, behind = of(_X + shift[0], _Y + shift[1]), of(_X - shift[0], _Y - shift[1])
        rise, rise_x, rise_y = ((a - b) / (2 * _STEP) for a, b in zip(ahead[:3], behind[:3], strict=True))
        chosen = once(_X, _Y)
        np.testing.assert_allclose(slope[chosen], rise[chosen], rtol=2e-5, atol=1e-5, err_msg=f"by {'xy'[axis]}")
        chosen = twice(_X, _Y)
        expected = (rise_x + rise_y * 0.3)[chosen]
        np.testing.assert_allclose(bend[chosen], expected, rtol=1e-5, atol=1e-4, err_msg=f"twice, by {'xy'[axis]}")


def test_scaled_exponentials_take_the_slope_from_below_at_0() -> None:
    # As JAX and PyTorch: at x = 0 the formula for negative numbers applies.
    g: Any = rlx.Graph()
    x = g.input("x", (1,), "f64")
    g.set_outputs({"loss": g.sum(g.selu(x) + g.elu(x, 3.0))})
    (slope,) = rlx.evaluate(rlx.grad(g, "x"), {"x": np.zeros(1)})
    np.testing.assert_allclose(slope, 1.0507009873554805 * 1.6732632423543772 + 3)


def test_a_power_has_finite_derivatives_where_its_base_is_0_or_no_number() -> None:
    g: Any = rlx.Graph()
    x, y = (g.input(name, (4,), "f64") for name in "xy")
    g.set_outputs({"loss": g.sum(x**y)})
    by_x, by_y = rlx.evaluate(rlx.grad(g, ["x", "y"]), {"x": np.array([0.0, 0.0, np.nan, 1e-40]), "y": np.zeros(4)})
    assert by_x.tolist() == [0, 0, 0, 0] and by_y[:2].tolist() == [0, 0]


@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2, 3, "std"])
def test_norms_and_deviations_have_the_derivative_0_where_they_are_0(order: Any) -> None:
    # As PyTorch; also in f16 where a sum of squares exceeds the largest number.
    for x in (np.zeros(3), np.zeros(3, np.float16)):
        g: Any = rlx.Graph()
        given = g.input("x", (3,), rlx.dtype(x.dtype))
        g.set_outputs({"loss": g.std(given) if order == "std" else g.norm(given, order)})
        (slope,) = rlx.evaluate(rlx.grad(g, "x"), {"x": x})
        assert slope.tolist() == [0, 0, 0] and rlx.evaluate(g, {"x": x})[0] == 0
        if order in (2, 3):
            big = np.array([300, 300, 0], x.dtype)
            np.testing.assert_allclose(rlx.evaluate(g, {"x": big})[0], 300 * 2 ** (1 / order), rtol=1e-3)
