"""Contractions against JAX, and exactly against rational and integer arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlx.ir.dtype import dtype
from tests.ops.references import FLOATS, INTEGERS, agree, in_jax, random, run, samples_of

_SHAPES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((5, 3, 4), (5, 4, 2)),
    ((1, 4), (4, 1)),
    ((7, 33), (33, 9)),
    ((0, 3), (3, 2)),
    ((3, 0), (0, 2)),
]


def _room(x: np.ndarray, y: np.ndarray, product: Any) -> np.ndarray:
    """Return the allowed rounding error, proportional to the product of the absolute values."""
    eps = np.finfo(np.float64).eps if x.dtype == np.float64 else np.finfo(np.float32).eps
    return eps * np.asarray(product(np.abs(x).astype(np.float64), np.abs(y).astype(np.float64)))


@pytest.mark.parametrize(
    ("shapes", "name"),
    [(s, "f32") for s in _SHAPES] + [(s, d) for s in _SHAPES[2:4] for d in ("f16", "bf16", "f64", "c64")],
    ids=str,
)
def test_matmul(shapes: Any, name: str) -> None:
    x, y = random(name, shapes[0], seed=1), random(name, shapes[1], seed=2)
    reference = in_jax(lambda a, b: jnp.matmul(a, b, precision="highest", preferred_element_type=_wide(name)), x, y)
    agree(run("matmul", x, y), reference.astype(x.dtype), noise=_room(x, y, np.matmul))


def _wide(name: str) -> Any:
    return jnp.float32 if name in ("f16", "bf16") else dtype(name).numpy


@pytest.mark.parametrize("name", FLOATS)
def test_matmul_is_rounded_once(name: str) -> None:
    x, y = random(name, (6, 9), seed=1), random(name, (9, 7), seed=2)
    exact = [
        [float(sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, col, strict=True))) for col in y.T]
        for row in x
    ]
    room = _room(x.astype(np.float64), y.astype(np.float64), np.matmul)
    agree(run("matmul", x, y), np.array(exact).astype(x.dtype), factor=0.25, noise=room)


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_matmul_wraps(name: str) -> None:
    x, y = (np.resize(v, s) for v, s in ((samples_of(name, seed=1), (7, 40)), (samples_of(name, seed=2), (40, 6))))
    bits = 8 * dtype(name).itemsize
    exact = [[sum(int(a) * int(b) for a, b in zip(row, col, strict=True)) % (1 << bits) for col in y.T] for row in x]
    got = run("matmul", x, y)
    assert [[int(v) % (1 << bits) for v in row] for row in got] == exact
    assert np.array_equal(got, in_jax(lambda a, b: jax.lax.dot(a, b, preferred_element_type=a.dtype), x, y))


_DOTS = [
    ((3, 4), (4, 5), ((1,), (0,)), ((), ())),
    ((2, 3, 4), (4, 2, 5), ((2,), (0,)), ((0,), (1,))),
    ((2, 3, 4, 5), (5, 3, 6, 2), ((1, 3), (1, 0)), ((0,), (3,))),
    ((3,), (4,), ((), ()), ((), ())),
    ((3,), (3,), ((0,), (0,)), ((), ())),
    ((3, 4), (3, 4), ((), ()), ((0, 1), (0, 1))),
    ((2, 0), (0, 3), ((1,), (0,)), ((), ())),
    ((4, 3, 2), (2, 3, 4), ((0, 1, 2), (2, 1, 0)), ((), ())),
    ((2, 5, 3), (3, 2, 4), ((), ()), ((2, 0), (0, 1))),
]


@pytest.mark.parametrize(
    ("case", "name"),
    [(c, "f32") for c in _DOTS] + [(_DOTS[3], d) for d in ("f64", "bf16", "i32", "c64")],
    ids=str,
)
def test_dot_general(case: Any, name: str) -> None:
    left, right, contracting, batch = case
    x, y = random(name, left, seed=1), random(name, right, seed=2)
    numbers = (contracting, batch)
    wide = _wide(name)
    reference = in_jax(
        lambda a, b: jax.lax.dot_general(a, b, numbers, precision="highest", preferred_element_type=wide), x, y
    )
    room = in_jax(lambda a, b: jax.lax.dot_general(a, b, numbers), np.abs(x).astype(float), np.abs(y).astype(float))
    got = run(
        "dot_general",
        x,
        y,
        lhs_contracting=contracting[0],
        rhs_contracting=contracting[1],
        lhs_batch=batch[0],
        rhs_batch=batch[1],
    )
    agree(got, reference.astype(x.dtype), noise=room * np.finfo(np.float32).eps)


def test_products_of_special_values() -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[inf, 1], [nan, 0], [0, 0], [inf, -inf], [3e38, 3e38]], np.float32)
    y = np.array([[1, 0], [1, 1]], np.float32)
    expected = np.array([[inf, nan], [nan, nan], [0, 0], [nan, nan], [inf, 3e38]], np.float32)
    agree(run("matmul", x, y), expected)
    agree(run("matmul", x[2:3], y), expected[2:3], signed_zeros=True)
