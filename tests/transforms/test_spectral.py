"""Derivatives of Fourier transforms and complex numbers compared with JAX, whose gradients are the conjugates of ours."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.ops.references import random
from tests.transforms.against_jax import check, graph_of

NORMS = ("backward", "ortho", "forward")
# For f32, where RLX and JAX both sum up to 20 terms.
CLOSE = 2e-6


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_transforms(n: int, norm: str) -> None:
    z, x, half = random("c64", (3, n)), random("f32", (2, n, 3)), random("c64", (2, n // 2 + 1), seed=1)
    for inverse, function in ((False, jnp.fft.fft), (True, jnp.fft.ifft)):
        check(
            lambda g, v, inverse=inverse: g.fft(v, inverse=inverse, norm=norm),
            lambda v, function=function: function(v, norm=norm),
            z,
            tolerance=CLOSE,
        )
    check(lambda g, v: g.rfft(v, 1, norm=norm), lambda v: jnp.fft.rfft(v, axis=1, norm=norm), x, tolerance=CLOSE)
    check(lambda g, v: g.irfft(v, n, norm=norm), lambda v: jnp.fft.irfft(v, n, norm=norm), half, tolerance=CLOSE)


@pytest.mark.parametrize(
    ("build", "formula"),
    [
        (lambda g, z: g.fftn(z, (0, 2)), lambda z: jnp.fft.fftn(z, axes=(0, 2))),
        (lambda g, z: g.fftshift(g.fft(z, 1), 1), lambda z: jnp.fft.fftshift(jnp.fft.fft(z, axis=1), 1)),
        (lambda g, z: g.psd(z), lambda z: jnp.abs(jnp.fft.fft(z)) ** 2 / 5),
        (lambda g, z: g.fft_conv1d(z, np.array([1, 2j, 3], np.complex64)), lambda z: _convolved(z)),
    ],
)
def test_what_is_made_of_transforms(build: Any, formula: Any) -> None:
    check(build, formula, random("c64", (2, 3, 5)), tolerance=4 * CLOSE)


def _convolved(z: Any) -> Any:
    padded = jnp.pad(z, [(0, 0), (0, 0), (2, 2)])
    return padded[..., 2:] + 2j * padded[..., 1:-1] + 3 * padded[..., :-2]


@pytest.mark.parametrize("n", [6, 7])
def test_transforms_of_real_numbers(n: int) -> None:
    x, window = random("f32", (2, 20)), np.hanning(6).astype(np.float32)
    frames = np.arange(0, 15, 3)[:, None] + np.arange(6)
    check(lambda g, v: g.stft(v, 6, 3, window), lambda v: jnp.fft.rfft(v[:, frames] * window), x, tolerance=4 * CLOSE)
    signal = random("f32", (2, n))
    check(lambda g, v: g.fft_real(v), jnp.fft.fft, signal, tolerance=CLOSE)
    counts = np.array([1] + [2] * ((n - 1) // 2) + [1] * (n % 2 == 0))
    check(
        lambda g, v: g.psd_real(v),
        lambda v: (jnp.abs(jnp.fft.rfft(v)) ** 2 * counts / n).astype(v.dtype),
        signal,
        tolerance=4 * CLOSE,
    )


@pytest.mark.parametrize(
    ("build", "formula"),
    [
        (lambda g, z: g.real(z), jnp.real),
        (lambda g, z: g.imag(z), jnp.imag),
        (lambda g, z: g.conjugate(z), jnp.conj),
        (lambda g, z: g.complex_norm_sq(z), lambda z: jnp.real(z * jnp.conj(z))),
        (lambda g, z: g.exp(g.conjugate(z) * 0.3j) * z, lambda z: jnp.exp(jnp.conj(z) * 0.3j) * z),
        (lambda g, z: g.complex(g.imag(z), g.real(z)) / z, lambda z: (jnp.imag(z) + 1j * jnp.real(z)) / z),
    ],
)
def test_complex_numbers(build: Any, formula: Any) -> None:
    check(build, formula, random("c64", (4, 3)), tolerance=CLOSE)


def test_parts_broadcast() -> None:
    re, im = random("f32", (3, 1, 2)), random("f32", (4, 1))
    check(lambda g, a, b: g.complex(a, b), lambda a, b: a + 1j * b, re, im, tolerance=CLOSE)


def test_the_gradient_of_a_modulus_points_along_the_number() -> None:
    """Also compared with JAX's conjugated gradient: steps against the gradient lead to 0."""
    z = random("c64", (5,))
    pulled = rlx.vjp(graph_of(lambda g, v: g.complex_norm_sq(v), (z,)), ["x0"])
    got = rlx.evaluate(pulled, {"x0": z, pulled.arguments[-1].name: np.ones(5, np.float32)})[1]
    np.testing.assert_allclose(got, 2 * z, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_lengths_may_be_symbols(n: int) -> None:
    x, half = random("f32", (3, n)), random("c64", (3, n // 2 + 1))
    for shape, dtype, arrays, build in (
        ((3, "n"), "f32", (x, half), lambda g, v: g.rfft(v)),
        ((3, "n//2+1"), "c64", (half, x), lambda g, v: g.irfft(v, "n")),
    ):
        graph = rlx.Graph()
        graph.input("size", ("n",), "f32")
        graph.set_outputs([build(graph, graph.input("x", shape, dtype))])
        pulled = rlx.vjp(graph, ["x"])
        values = {"size": np.zeros(n, np.float32), "x": arrays[0], pulled.arguments[-1].name: arrays[1]}
        got = rlx.evaluate(pulled, values)[1]
        counts = np.array([1 if 2 * k % n == 0 else 2 for k in range(n // 2 + 1)])
        expected = np.fft.irfft(half / counts, n) * n if dtype == "f32" else np.fft.rfft(x) * counts / n
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
