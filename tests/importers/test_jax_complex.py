"""`rlx.from_jax` of functions of complex numbers over extremes in each part: JAX's numbers, or limits where it has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax

import rlx
from tests.importers.modules import values

KINDS = ("c64", "c128")


@pytest.fixture(scope="module", autouse=True)
def wide_numbers() -> Iterator[None]:
    with jax.enable_x64(True), np.errstate(all="ignore"):
        yield


def grid(kind: str) -> np.ndarray:
    """Every extreme of both signs as a real part beside every one as an imaginary part."""
    part = rlx.dtype(kind).part
    tiny = float(np.finfo(part.numpy).tiny)
    sizes = [0.0, tiny, tiny**0.5, 0.3, 1.0, 3.0, 88.0, 800.0, part.max**0.5 * 1.5, part.max, np.inf]
    parts = [*sizes, *(-s for s in sizes), np.nan]
    return np.array([complex(x, y) for x in parts for y in parts], rlx.dtype(kind).numpy)


def imported(function: Any, *arrays: np.ndarray) -> np.ndarray:
    return values(rlx.from_jax(function, *arrays), *arrays)[0]


def assert_close(found: np.ndarray, wanted: np.ndarray, z: np.ndarray) -> None:
    """Relative to the size; a part that is tiny beside the other may be 0."""
    assert found.dtype == wanted.dtype
    limits = np.finfo(np.real(found).dtype)
    size = np.where(np.isfinite(wanted), np.abs(wanted), 0)
    for a, b in ((np.real(found), np.real(wanted)), (np.imag(found), np.imag(wanted))):
        close = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= 8 * limits.eps * size + 2 * limits.tiny)
        at = np.flatnonzero(~close)[:4]
        assert close.all(), [(z[i], found[i], wanted[i]) for i in at]


def exact(function: Any, z: np.ndarray) -> np.ndarray:
    with mpmath.workprec(3000):  # 1 + exp(-z) keeps both
        return np.array([complex(function(mpmath.mpc(v.real, v.imag))) for v in z.tolist()], z.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_the_logistic_function(kind: str) -> None:
    """JAX's is NaN where exp(-z) overflows to infinities in both parts."""
    z = grid(kind)
    found = imported(lax.logistic, z)
    finite = np.isfinite(z) & ((np.abs(np.real(z)) < 1e3) & (np.abs(np.imag(z)) < 1e3))
    assert_close(found[finite], exact(lambda v: 1 / (1 + mpmath.exp(-v)), z[finite]), z[finite])
    far = (np.abs(np.real(z)) > 1e3) & (np.isfinite(z) | np.isinf(np.real(z)))
    assert_close(found[far], (np.real(z[far]) > 0).astype(z.dtype), z[far])
    unknown = np.isfinite(np.real(z)) & ~np.isfinite(np.imag(z)) | np.isnan(np.real(z))
    assert np.isnan(found[unknown]).all()
    assert imported(lax.logistic, np.array(-800 + 1j, z.dtype)) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exponent", [-0.5, -1, -2, -3])
def test_negative_powers_vanish_at_infinities(exponent: float, kind: str) -> None:
    z = grid(kind)
    z = z[np.isinf(z)]
    function: Any = lax.rsqrt if exponent == -0.5 else lambda x: lax.integer_pow(x, int(exponent))
    found = imported(function, z)
    assert (found == 0).all()
    wanted = np.asarray(jax.jit(function)(z))  # NaN where a product on the way is in both parts
    assert (wanted[~np.isnan(wanted)] == 0).all() and (~np.isnan(wanted)).sum() > len(z) / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exponent", [-3, -2, -1, 0, 1, 2, 3, 5])
def test_whole_powers_are_those_of_jax(exponent: int, kind: str) -> None:
    z = grid(kind)
    size = np.abs(z)
    z = z[(size > 1e-4) & (size < 1e4)]
    assert_close(
        imported(lambda x: lax.integer_pow(x, exponent), z),
        np.asarray(z.astype(np.complex128) ** exponent).astype(z.dtype),
        z,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(3,), (3, 5), (16,), (2, 33)])
def test_running_logarithms_of_sums(shape: tuple[int, ...], reverse: bool, kind: str) -> None:
    """A window with several paddings was NaN: the function that joins two elements is, of minus infinity twice."""
    rng = np.random.default_rng(0)
    z = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(rlx.dtype(kind).numpy)
    last = len(shape) - 1
    found = imported(lambda x: lax.cumlogsumexp(x, last, reverse=reverse), z)
    wide = np.flip(z, last) if reverse else z
    wanted = np.log(np.cumsum(np.exp(wide.astype(np.complex128)), last))
    wanted = np.flip(wanted, last) if reverse else wanted
    # Logarithms are the same up to a turn.
    np.testing.assert_allclose(np.exp(found), np.exp(wanted), rtol=3e-6 if kind == "c64" else 1e-14)
    np.testing.assert_allclose(found, np.asarray(lax.cumlogsumexp(jnp.asarray(z), last, reverse=reverse)), rtol=3e-6)


def test_windows_of_any_function_with_paddings_and_holes() -> None:
    """A product of complex numbers by its parts, which is no op that is known."""

    def product(a: Any, b: Any) -> Any:
        x, y, u, v = lax.real(a), lax.imag(a), lax.real(b), lax.imag(b)
        return lax.complex(x * u - y * v, x * v + y * u)

    z = (np.arange(1, 13).reshape(3, 4) * (1 + 0.5j)).astype(np.complex64)

    def windows(x: Any) -> Any:
        return lax.reduce_window(
            x, np.complex64(1), product, (2, 3), (1, 2), ((1, 0), (2, 1)), base_dilation=(2, 1), window_dilation=(1, 2)
        )

    np.testing.assert_allclose(imported(windows, z), np.asarray(jax.jit(windows)(z)), rtol=1e-5)
