"""Running products and maxima against NumPy, JAX and PyTorch."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlx.ir.dtype import dtype
from tests.ops.references import FLOATS, INTEGERS, agree, in_jax, random, run, samples_of

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("name", (*FLOATS, "c64", *INTEGERS))
@pytest.mark.parametrize("axis", [0, 1])
def test_cumprod(name: str, axis: int) -> None:
    is_integer = dtype(name).is_integer
    x = random(name, (9, 40), low=-100 if is_integer else 0.7, high=100 if is_integer else 1.3)
    got = run("cumprod", x, axis=axis)
    if is_integer:
        agree(got, in_jax(lambda v: jnp.cumprod(v, axis=axis, dtype=v.dtype), x), factor=0)  # wraps
    else:
        wide = np.clongdouble if name == "c64" else np.longdouble
        room = np.abs(got.astype(np.complex128)) * 40 * np.finfo(np.float64).eps
        agree(got, np.cumprod(x.astype(wide), axis).astype(x.dtype), factor=0.25, noise=room)
    exclusive = run("cumprod", x, axis=axis, exclusive=True)
    assert (exclusive.take(0, axis) == 1).all()
    assert np.delete(exclusive, 0, axis).tobytes() == np.delete(got, -1, axis).tobytes()


def test_cumprod_is_correctly_rounded() -> None:
    """The reference is exact, in rational numbers: products of rounded f16 products would be far off."""
    x = random("f16", (30,), low=0.8, high=1.2)
    exact, product = [], Fraction(1)
    for factor in map(float, x):
        product *= Fraction(factor)
        exact.append(float(product))
    assert run("cumprod", x, axis=0).tobytes() == np.array(exact).astype(np.float16).tobytes()


def test_cumprod_of_special_values() -> None:
    x = np.array([[2, INF, -1, 0, 1], [1, NAN, 0, 1, 1], [3e38, 10, 0.1, -0.0, 5]], np.float32)
    expected = np.array([[2, INF, -INF, NAN, NAN], [1, NAN, NAN, NAN, NAN], [3e38, INF, 3e38, -0.0, -0.0]], np.float32)
    agree(run("cumprod", x, axis=1), expected, signed_zeros=True)
    agree(run("cumprod", x, axis=1, exclusive=True)[:, 1:], expected[:, :-1])
    for exclusive in (False, True):
        assert run("cumprod", x[:, :0], axis=1, exclusive=exclusive).shape == (3, 0)


@pytest.mark.parametrize("name", (*FLOATS, *INTEGERS))
@pytest.mark.parametrize("axis", [0, 1])
def test_cummax(name: str, axis: int) -> None:
    x = np.resize(samples_of(name), (12, 15))
    x[6:] = random(name, (6, 15), seed=3)
    got = run("cummax", x, axis=axis)
    reference = in_jax(lambda v: jax.lax.cummax(v, axis=axis), x)
    is_float = name in FLOATS
    # Either of two zeros is the larger one; JAX treats denormals as zeros.
    agree(got, reference, factor=1.0 if is_float else 0.0)
    if is_float:
        assert np.isnan(got.astype(np.float64)).any()
