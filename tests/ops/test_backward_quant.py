"""Gradients of fake quantisation against straight-through formulas in JAX, and against differences where they exist."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.formulas import lsq, straight_through_factor
from tests.ops.gradients import check_rounded_once, check_with_differences, check_with_jax
from tests.ops.references import agree, in_jax, random, run

ESTIMATORS = ("identity", "clipped_identity", "tanh", "hard_tanh")


# --- with a scale of the tensor itself ----------------------------------------------------------------


@pytest.mark.parametrize("ste", ESTIMATORS)
@pytest.mark.parametrize(("bits", "axis"), [(8, None), (4, 1), (2, 0)])
def test_fake_quantize_backward(bits: int, axis: int | None, ste: str) -> None:
    """The formula has the estimator's derivative: `factor·x` plus a term that does not depend on x."""
    x, dy = random("f64", (4, 3, 5)), random("f64", (4, 3, 5), seed=1)
    others = tuple(i for i in range(3) if i != axis)

    def formula(v: Any) -> Any:
        limit = jnp.abs(v).max(others, keepdims=True)
        return v * jax.lax.stop_gradient(straight_through_factor(ste, v / limit))

    check_with_jax(run("fake_quantize_backward", x, dy, bits=bits, axis=axis, ste=ste), formula, (x,), dy, 0)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "f64"])
def test_the_largest_element_is_within_the_range(name: str) -> None:
    """`qmax·(max|x|/qmax)` rounds to less than `max|x|` for some elements, which must not be clipped."""
    for seed in range(20):
        x = random(name, (50,), seed=seed)
        dy = np.ones_like(x)
        assert run("fake_quantize_backward", x, dy, bits=8, ste="clipped_identity").all()


@pytest.mark.parametrize("ste", ESTIMATORS)
def test_a_tensor_of_zeros_passes_the_gradient(ste: str) -> None:
    x, dy = np.zeros((2, 3), np.float32), random("f32", (2, 3))
    assert np.array_equal(run("fake_quantize_backward", x, dy, bits=4, ste=ste), dy)


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("ste", ESTIMATORS)
def test_narrow_floats_are_computed_wide(ste: str, name: str) -> None:
    check_rounded_once("fake_quantize_backward", random(name, (9,)), random(name, (9,), seed=1), bits=4, ste=ste)


# --- with a learned scale -----------------------------------------------------------------------------


def _learned(axis: int | None, name: str = "f64") -> tuple[np.ndarray, ...]:
    x, dy = random(name, (4, 3, 5)), random(name, (4, 3, 5), seed=1)
    wide = "f64" if name == "f64" else "f32"
    return x, random(wide, () if axis is None else (x.shape[axis],), low=0.3, high=1.5, seed=2), dy


@pytest.mark.parametrize(("bits", "axis"), [(8, None), (4, None), (4, 1), (2, 0), (2, 2)])
def test_fake_quantize_lsq_backward(bits: int, axis: int | None) -> None:
    x, scale, dy = _learned(axis)
    of_x = run("fake_quantize_lsq_backward_x", x, scale, dy, bits=bits, axis=axis)
    of_scale = run("fake_quantize_lsq_backward_scale", x, scale, dy, bits=bits, axis=axis)
    check_with_jax(of_x, lsq(bits, axis), (x, scale), dy, 0)
    check_with_jax(of_scale, lsq(bits, axis), (x, scale), dy, 1, factor=16)


def test_differences_where_all_is_clipped() -> None:
    """If all elements are clipped, the forward op has a derivative: 0 in x, and `±qmax` in the scale."""
    x, dy = random("f64", (4, 6), low=2, high=5) * np.where(np.arange(6) % 2, 1, -1), random("f64", (4, 6), seed=1)
    scale = random("f64", (6,), low=0.5, high=1.5, seed=2)
    attributes: dict[str, Any] = {"bits": 2, "axis": 1}
    of_x = run("fake_quantize_lsq_backward_x", x, scale, dy, **attributes)
    of_scale = run("fake_quantize_lsq_backward_scale", x, scale, dy, **attributes)
    assert not of_x.any() and of_scale.all()
    check_with_differences(of_x, lambda v: run("fake_quantize_lsq", v, scale, **attributes), x, dy)
    check_with_differences(of_scale, lambda s: run("fake_quantize_lsq", x, s, **attributes), scale, dy)


def test_the_edge_of_the_range_counts_as_inside() -> None:
    x = np.array([7.0, 7.25, -7.0, -7.25, 0.5, 1.5])
    dy, scale = np.ones(6), np.array(1.0)
    assert run("fake_quantize_lsq_backward_x", x, scale, dy, bits=4).tolist() == [1, 0, 1, 0, 1, 1]
    each = [run("fake_quantize_lsq_backward_scale", v, scale, dy[:1], bits=4).item() for v in np.split(x, 6)]
    assert each == [0, 7, 0, -7, -0.5, 0.5]  # halves round to even


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_learned_scales_of_narrow_floats(name: str) -> None:
    """The scale and its gradient are f32. x/scale is exact here, so that both round to the same integers."""
    x, dy = random(name, (40,)), random(name, (40,), seed=1)
    scale = np.array(0.5, np.float32)
    of_x = run("fake_quantize_lsq_backward_x", x, scale, dy, bits=4)
    of_scale = run("fake_quantize_lsq_backward_scale", x, scale, dy, bits=4)
    wide = [a.astype(np.float64) for a in (x, scale, dy)]
    formula = lsq(4, None)
    expected = in_jax(lambda v, s, t: jax.vjp(formula, v, s)[1](t), *wide)
    assert of_x.dtype == x.dtype and of_scale.dtype == np.float32
    agree(of_x, expected[0].astype(x.dtype))
    agree(of_scale, expected[1].astype(np.float32), noise=np.array(1e-5))
