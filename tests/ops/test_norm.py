"""Normalisations against NumPy's statistics, JAX and, where it is installed, PyTorch."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from rlx.ir.dtype import dtype
from tests.ops.references import FLOATS, agree, in_jax, random, run

LONG = np.longdouble


def _weights(name: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    return random(name, (size,), seed=2), random(name, (size,), seed=3)


def _room(name: str, expected: np.ndarray, *terms: np.ndarray) -> Any:
    """Return the ulps of the summed terms, because the sum may be smaller."""
    eps = np.finfo(np.float64).eps if name == "f64" else np.finfo(np.float32).eps
    return 4 * eps * sum(np.abs(t.astype(np.float64)) for t in terms) + 0 * expected


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("shape", "axis"), [((4, 16), 1), ((2, 6, 5), 1), ((7, 3), 0), ((0, 8), 1)])
def test_layer_norm(shape: tuple[int, ...], axis: int, name: str) -> None:
    x, (scale, bias) = random(name, shape, low=-3, high=7), _weights(name, shape[axis])
    wide = x.astype(LONG)
    tail = (-1,) + (1,) * (len(shape) - 1 - axis)
    normal = (wide - wide.mean(axis, keepdims=True)) / np.sqrt(wide.var(axis, keepdims=True) + LONG(1e-3))
    scaled = normal * scale.astype(LONG).reshape(tail)
    expected = (scaled + bias.astype(LONG).reshape(tail)).astype(x.dtype)
    got = run("layer_norm", x, scale, bias, axis=axis, eps=1e-3)
    agree(got, expected, factor=0.5, noise=_room(name, expected, scaled, bias.reshape(tail)))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("with_bias", [True, False])
def test_rms_norm(with_bias: bool, name: str) -> None:
    x, (scale, bias) = random(name, (5, 12)), _weights(name, 12)
    wide = x.astype(LONG)
    scaled = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + LONG(1e-6)) * scale.astype(LONG)
    expected = (scaled + (bias.astype(LONG) if with_bias else 0)).astype(x.dtype)
    got = run("rms_norm", x, scale, bias if with_bias else None, axis=1, eps=1e-6)
    agree(got, expected, factor=0.5, noise=_room(name, expected, scaled, bias))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("shape", "groups"), [((2, 6, 4, 3), 3), ((3, 4, 9), 1), ((3, 4), 2), ((2, 4, 5), 4)])
def test_group_norm(shape: tuple[int, ...], groups: int, name: str) -> None:
    x, (scale, bias) = random(name, shape), _weights(name, shape[1])
    wide = x.astype(LONG).reshape(shape[0], groups, -1)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + LONG(1e-5))
    tail = (-1,) + (1,) * (len(shape) - 2)
    scaled = normal.reshape(shape) * scale.astype(LONG).reshape(tail)
    expected = (scaled + bias.astype(LONG).reshape(tail)).astype(x.dtype)
    got = run("group_norm", x, scale, bias, num_groups=groups, eps=1e-5)
    agree(got, expected, factor=0.5, noise=_room(name, expected, scaled, bias.reshape(tail)))


@pytest.mark.parametrize("name", FLOATS)
def test_layer_norm2d(name: str) -> None:
    x, (scale, bias) = random(name, (2, 6, 3, 4)), _weights(name, 6)
    wide = x.astype(LONG)
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + LONG(1e-3))
    scaled = normal * scale.astype(LONG)[:, None, None]
    expected = (scaled + bias.astype(LONG)[:, None, None]).astype(x.dtype)
    got = run("layer_norm2d", x, scale, bias, eps=1e-3)
    agree(got, expected, factor=0.5, noise=_room(name, expected, scaled, bias[:, None, None]))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("shape", [(2, 6, 3, 4), (3, 4), (2, 5, 7), (1, 2, 2, 3, 2), (0, 3, 2)])
def test_batch_norm_inference(shape: tuple[int, ...], name: str) -> None:
    x, (scale, bias), mean = random(name, shape), _weights(name, shape[1]), random(name, (shape[1],), seed=4)
    variance = random(name, (shape[1],), low=0, high=3, seed=5)
    s, b, m, v = (w.astype(LONG).reshape(-1, *(1,) * (len(shape) - 2)) for w in (scale, bias, mean, variance))
    scaled = (x.astype(LONG) - m) / np.sqrt(v + LONG(1e-2)) * s
    got = run("batch_norm_inference", x, scale, bias, mean, variance, eps=1e-2)
    agree(got, (scaled + b).astype(x.dtype), factor=0.5, noise=_room(name, scaled, scaled, b))


def test_layer_norm_is_jaxs_standardize() -> None:
    x = random("f32", (6, 40), low=10, high=12)
    one, zero = np.ones(40, np.float32), np.zeros(40, np.float32)
    reference = in_jax(lambda v: jax.nn.standardize(v, axis=-1, epsilon=1e-5), x.astype(np.float64))
    agree(run("layer_norm", x, one, zero, axis=1, eps=1e-5), reference.astype(np.float32), factor=2)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_special_values_stay_in_their_row(op: str) -> None:
    x = random("f32", (4, 6))
    x[1, 2], x[2, 3] = np.nan, np.inf
    scale, bias = _weights("f32", 6)
    got = run(op, x, scale, bias, axis=1, eps=1e-5)
    assert np.isnan(got[1]).all() and np.isnan(got[2]).any()
    clean = run(op, x[[0, 3]], scale, bias, axis=1, eps=1e-5)
    assert np.array_equal(got[[0, 3]], clean)


@pytest.mark.parametrize("name", FLOATS)
def test_constant_rows(name: str) -> None:
    """Without variance, only eps keeps the quotient finite."""
    x, (scale, bias) = np.full((2, 8), 3, dtype(name).numpy), _weights(name, 8)
    agree(run("layer_norm", x, scale, bias, axis=1, eps=1e-5), np.tile(bias, (2, 1)))
    zero = np.zeros((2, 8), dtype(name).numpy)
    agree(run("rms_norm", zero, scale, bias, axis=1, eps=1e-5), np.tile(bias, (2, 1)))
