"""Derivatives of normalisations compared with JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.ops.formulas import group_norm, layer_norm, rms_norm
from tests.ops.references import random
from tests.transforms.against_jax import check, check_second, graph_of
from tests.transforms.checks import check_vmap

EPS = 1e-3
NARROW = {"f16": 2e-3, "bf16": 1.6e-2}  # two roundings


def _operands(name: str, shape: tuple[int, ...], axis: int) -> list[np.ndarray]:
    weight = (shape[axis],)
    x = random(name, shape, low=-2, high=4)
    return [x, random(name, weight, seed=1), random(name, weight, seed=2)]


def _norm(norm: str, axis: int, groups: int) -> tuple[Any, Any]:
    """Return the op as a function of a graph, and its formula."""
    if norm == "group":
        return lambda g, *x: g.group_norm(*x, num_groups=groups, eps=EPS), group_norm(groups, EPS)
    formula = layer_norm(axis, EPS) if norm == "layer" else rms_norm(axis, EPS)
    return lambda g, *x: getattr(g, f"{norm}_norm")(*x, axis=axis, eps=EPS), formula


_CASES = [
    ("layer", (4, 16), 1, 0), ("layer", (2, 6, 5), 1, 0), ("layer", (7, 3), 0, 0), ("layer", (0, 8), 1, 0),
    ("rms", (4, 16), 1, 0), ("rms", (2, 6, 5), 1, 0), ("rms", (0, 8), 1, 0),
    ("group", (2, 6, 4, 3), 1, 3), ("group", (3, 4), 1, 2), ("group", (2, 4, 5), 1, 1),
]  # fmt: skip


@pytest.mark.parametrize(("norm", "shape", "axis", "groups"), _CASES)
def test_the_statistics_move_with_the_input(norm: str, shape: tuple[int, ...], axis: int, groups: int) -> None:
    op, formula = _norm(norm, axis, groups)
    check(op, formula, *_operands("f64", shape, axis))


@pytest.mark.parametrize("norm", ["layer", "rms", "group"])
def test_gradients_of_gradients(norm: str) -> None:
    check_second(*_norm(norm, 1, 2), *_operands("f64", (3, 8), 1))


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("norm", ["layer", "rms", "group"])
def test_narrow_floats(norm: str, name: str) -> None:
    op, formula = _norm(norm, 1, 2)
    check(op, formula, *_operands(name, (5, 8), 1), tolerance=NARROW[name])


def test_no_variance() -> None:
    """Only eps keeps the derivatives finite."""
    x, scale, bias = _operands("f64", (2, 8), 1)
    for norm in ("layer", "rms", "group"):
        op, formula = _norm(norm, 1, 2)
        check(op, formula, np.zeros_like(x), scale, bias)


def test_batch_norm_and_layer_norm_of_images() -> None:
    x, scale, bias = _operands("f64", (2, 4, 3, 5), 1)
    mean, variance = random("f64", (4,), seed=4), random("f64", (4,), low=0.1, high=3, seed=5)
    check(lambda g, *given: g.layer_norm2d(*given, eps=EPS), layer_norm(1, EPS), x, scale, bias)

    def formula(x: Any, *weights: Any) -> Any:
        s, b, m, v = (w.reshape(-1, 1, 1) for w in weights)
        return (x - m) / jnp.sqrt(v + EPS) * s + b

    check(lambda g, *given: g.batch_norm_inference(*given, eps=EPS), formula, x, scale, bias, mean, variance)


@pytest.mark.parametrize("norm", ["layer", "rms", "group"])
def test_each_entry_may_have_its_own_weights(norm: str) -> None:
    arrays = _operands("f64", (3, 8), 1)
    graph = graph_of(_norm(norm, 1, 2)[0], arrays)
    values = {f"x{i}": a for i, a in enumerate(arrays)}
    for axes in ({"x0": 0}, {"x0": 2}, {"x1": 0}, {"x2": 1}, {"x1": 1, "x2": 0}, {"x0": 1, "x1": 0}):
        check_vmap(graph, values, axes)


@pytest.mark.parametrize("norm", ["layer", "rms", "group"])
def test_the_statistics_are_computed_once(norm: str) -> None:
    """Forward, and for the gradients of all three operands."""
    arrays = _operands("f32", (3, 8), 1)
    pulled = rlx.vjp(graph_of(_norm(norm, 1, 2)[0], arrays), ["x0", "x1", "x2"])
    decomposed = rlx.passes.run(pulled, "builtin.module(rlx-decompose,canonicalize,cse)")
    assert str(decomposed).count("rsqrt") == 1
