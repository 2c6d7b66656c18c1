"""Gradients of the normalisations, against JAX and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.formulas import group_norm, layer_norm, rms_norm
from tests.ops.gradients import check_rounded_once, check_twice
from tests.ops.references import random, run

NARROW = ("f32", "f16", "bf16")
EPS = 1e-3
OPERANDS = {"input": 0, "gamma": 1, "beta": 2}


def _operands(name: str, shape: tuple[int, ...], axis: int) -> tuple[np.ndarray, ...]:
    """Return x, scale, bias and dy."""
    weight = (shape[axis],)
    return (
        random(name, shape, low=-2, high=4),
        random(name, weight, seed=1),
        random(name, weight, seed=2),
        random(name, shape, seed=3),
    )


def _taken(op: str, operands: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Return those of the four operands that a gradient op has."""
    x, scale, bias, dy = operands
    if op.startswith("rms") or op == "group_norm_backward_input":
        return x, scale, bias, dy
    return (x, scale, dy) if op == "layer_norm_backward_input" else (x, dy)


_AXES = [((4, 16), 1), ((2, 6, 5), 1), ((7, 3), 0), ((0, 8), 1)]


@pytest.mark.parametrize("wrt", ["input", "gamma"])
@pytest.mark.parametrize(("shape", "axis"), _AXES)
def test_layer_norm_backward(shape: tuple[int, ...], axis: int, wrt: str) -> None:
    *operands, dy = _operands("f64", shape, axis)
    op = f"layer_norm_backward_{wrt}"
    got = run(op, *_taken(op, (*operands, dy)), axis=axis, eps=EPS)
    check_twice(got, "layer_norm", layer_norm(axis, EPS), operands, dy, OPERANDS[wrt], axis=axis, eps=EPS)


@pytest.mark.parametrize("wrt", ["input", "gamma", "beta"])
@pytest.mark.parametrize(("shape", "axis"), _AXES)
def test_rms_norm_backward(shape: tuple[int, ...], axis: int, wrt: str) -> None:
    *operands, dy = _operands("f64", shape, axis)
    got = run(f"rms_norm_backward_{wrt}", *operands, dy, axis=axis, eps=EPS)
    check_twice(got, "rms_norm", rms_norm(axis, EPS), operands, dy, OPERANDS[wrt], axis=axis, eps=EPS)


@pytest.mark.parametrize("wrt", ["input", "gamma"])
def test_rms_norm_backward_without_bias(wrt: str) -> None:
    x, scale, bias, dy = _operands("f64", (4, 6), 1)
    with_bias = run(f"rms_norm_backward_{wrt}", x, scale, bias, dy, axis=1, eps=EPS)
    assert np.array_equal(run(f"rms_norm_backward_{wrt}", x, scale, None, dy, axis=1, eps=EPS), with_bias)


@pytest.mark.parametrize("wrt", ["input", "gamma", "beta"])
@pytest.mark.parametrize(("shape", "groups"), [((2, 6, 4, 3), 3), ((3, 4, 9), 1), ((3, 4), 2), ((2, 4, 5), 4)])
def test_group_norm_backward(shape: tuple[int, ...], groups: int, wrt: str) -> None:
    *operands, dy = _operands("f64", shape, 1)
    op = f"group_norm_backward_{wrt}"
    got = run(op, *_taken(op, (*operands, dy)), num_groups=groups, eps=EPS)
    check_twice(got, "group_norm", group_norm(groups, EPS), operands, dy, OPERANDS[wrt], num_groups=groups, eps=EPS)


_OPS = [f"{norm}_norm_backward_{wrt}" for norm in ("layer", "rms", "group") for wrt in OPERANDS]
_OPS.remove("layer_norm_backward_beta")  # a sum, which has no op


def _attributes(op: str) -> dict[str, Any]:
    return {"num_groups": 2, "eps": EPS} if op.startswith("group") else {"axis": 1, "eps": EPS}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("op", _OPS)
def test_narrow_floats_are_computed_wide(op: str, name: str) -> None:
    operands = _taken(op, _operands(name, (5, 8), 1))
    check_rounded_once(op, *operands, factor=4, **_attributes(op))


@pytest.mark.parametrize("norm", ["layer", "rms", "group"])
def test_constant_rows(norm: str) -> None:
    """Without variance, only eps keeps the gradient finite."""
    _, scale, bias, dy = _operands("f64", (2, 8), 1)
    x = np.zeros((2, 8))
    op = f"{norm}_norm_backward_input"
    got = run(op, *_taken(op, (x, scale, bias, dy)), **_attributes(op))
    w = dy * scale
    means = {"layer": w.mean(1, keepdims=True), "rms": 0, "group": np.repeat(w.reshape(2, 2, 4).mean(2), 4, 1)}
    assert np.allclose(got, (w - means[norm]) / np.sqrt(EPS), rtol=1e-13)


@pytest.mark.parametrize("norm", ["layer", "rms", "group"])
def test_special_values_stay_in_their_row(norm: str) -> None:
    x, scale, bias, dy = _operands("f32", (4, 6), 1)
    x[1, 2], dy[2, 3] = np.nan, np.inf
    op = f"{norm}_norm_backward_input"
    got = run(op, *_taken(op, (x, scale, bias, dy)), **_attributes(op))
    clean = run(op, *_taken(op, (x[[0, 3]], scale, bias, dy[[0, 3]])), **_attributes(op))
    assert not np.isfinite(got[1:3]).all(1).any() and np.array_equal(got[[0, 3]], clean)


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_the_input_s_gradient_adds_up_to_nothing(norm: str) -> None:
    """A shift of the input changes nothing: the gradient includes the derivative of the means."""
    operands = _operands("f64", (3, 8), 1)
    op = f"{norm}_norm_backward_input"
    got = run(op, *_taken(op, operands), **_attributes(op))
    assert np.abs(got.sum(1)).max() < 1e-12 * np.abs(got).max()
