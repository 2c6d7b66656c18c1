"""`rlx.from_jax` of complex functions at extremes in each part: compared with JAX, or with limits if JAX is undefined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax

import rlx
from rlx.importers.jax.primitives import OF_COMPLEX
from tests.drawing import drawn
from tests.importers.modules import values

KINDS = ("c64", "c128")


@pytest.fixture(scope="module", autouse=True)
def wide_numbers() -> Iterator[None]:
    with jax.enable_x64(True), np.errstate(all="ignore"):
        yield


def grid(kind: str) -> np.ndarray:
    """Return all combinations of extremes of both signs as real and imaginary part."""
    part = rlx.dtype(kind).part
    tiny = float(np.finfo(part.numpy).tiny)
    sizes = [0.0, tiny, tiny**0.5, 0.3, 1.0, 3.0, 88.0, 800.0, part.max**0.5 * 1.5, part.max, np.inf]
    parts = [*sizes, *(-s for s in sizes), np.nan]
    return np.array([complex(x, y) for x in parts for y in parts], rlx.dtype(kind).numpy)


def imported(function: Any, *arrays: np.ndarray) -> np.ndarray:
    return values(rlx.from_jax(function, *arrays), *arrays)[0]


def assert_close(found: np.ndarray, wanted: np.ndarray, z: np.ndarray) -> None:
    """Compare relative to the absolute value. A part that is tiny compared with the other may be 0."""
    assert found.dtype == wanted.dtype
    limits = np.finfo(np.real(found).dtype)
    size = np.where(np.isfinite(wanted), np.abs(wanted), 0)
    for a, b in ((np.real(found), np.real(wanted)), (np.imag(found), np.imag(wanted))):
        close = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= 8 * limits.eps * size + 2 * limits.tiny)
        at = np.flatnonzero(~close)[:4]
        assert close.all(), [(z[i], found[i], wanted[i]) for i in at]


def exact(function: Any, z: np.ndarray) -> np.ndarray:
    with mpmath.workprec(3000):  # 1 + exp(-z) keeps both terms
        return np.array([complex(function(mpmath.mpc(v.real, v.imag))) for v in z.tolist()], z.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_the_logistic_function(kind: str) -> None:
    """JAX's result is NaN where exp(-z) overflows to infinity in both parts."""
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
    wanted = np.asarray(jax.jit(function)(z))  # NaN if an intermediate product is NaN in both parts
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


@drawn("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
@drawn("shape", [(3,), (3, 5), (16,), (2, 33)])
def test_running_logarithms_of_sums(shape: tuple[int, ...], reverse: bool, kind: str) -> None:
    """A window with several padding elements is not NaN, although the join of two minus infinities is."""
    rng = np.random.default_rng(0)
    z = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(rlx.dtype(kind).numpy)
    last = len(shape) - 1
    found = imported(lambda x: lax.cumlogsumexp(x, last, reverse=reverse), z)
    wide = np.flip(z, last) if reverse else z
    wanted = np.log(np.cumsum(np.exp(wide.astype(np.complex128)), last))
    wanted = np.flip(wanted, last) if reverse else wanted
    # Logarithms are equal up to multiples of 2πi.
    np.testing.assert_allclose(np.exp(found), np.exp(wanted), rtol=3e-6 if kind == "c64" else 1e-14)
    np.testing.assert_allclose(found, np.asarray(lax.cumlogsumexp(jnp.asarray(z), last, reverse=reverse)), rtol=3e-6)


def test_windows_of_any_function_with_paddings_and_holes() -> None:
    """The join is a complex product computed from its parts, so that no importer recognises it as an op."""

    def product(a: Any, b: Any) -> Any:
        x, y, u, v = lax.real(a), lax.imag(a), lax.real(b), lax.imag(b)
        return lax.complex(x * u - y * v, x * v + y * u)

    z = (np.arange(1, 13).reshape(3, 4) * (1 + 0.5j)).astype(np.complex64)

    def windows(x: Any) -> Any:
        return lax.reduce_window(
            x, np.complex64(1), product, (2, 3), (1, 2), ((1, 0), (2, 1)), base_dilation=(2, 1), window_dilation=(1, 2)
        )

    np.testing.assert_allclose(imported(windows, z), np.asarray(jax.jit(windows)(z)), rtol=1e-5)


# On the axes, on the diagonals, and with a tiny part. At these points JAX's export chooses between cases.
POINTS = [2, -2, 0.5, 0.5j, -3j, 1 + 1j, -1 + 1j, 1 - 1j, 1e-5 + 1e-5j, 1e-20j, 3 + 0.1j]
# On branch cuts the sign of a zero determines the side of the cut, and JAX ignores it. Left of the imaginary axis, its
# derivative of `acosh` has the opposite sign.
ON_CUTS: dict[str, Callable[[complex], bool]] = {
    **dict.fromkeys(("asin", "acos", "atanh"), lambda z: z.imag == 0 and abs(z.real) > 1),
    **dict.fromkeys(("atan", "asinh"), lambda z: z.real == 0 and abs(z.imag) > 1),
    **dict.fromkeys(("log", "sqrt", "rsqrt"), lambda z: z.imag == 0 and z.real < 0),
    "log1p": lambda z: z.imag == 0 and z.real < -1,
    "acosh": lambda z: z.real <= 0 or (z.imag == 0 and z.real < 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_complex_functions_are_those_of_the_function(kind: str) -> None:
    """The derivatives are not those of the case that JAX's export chooses at a point."""
    dtype = rlx.dtype(kind).numpy
    for name in sorted(OF_COMPLEX):
        function = getattr(lax, name)
        z = np.array([p for p in POINTS if name not in ON_CUTS or not ON_CUTS[name](complex(p))], dtype)
        graph = rlx.vjp(rlx.from_jax(function, z), ["arg0"])
        for cotangent in (1, 1j):
            given = np.full(z.shape, cotangent, dtype)
            found = rlx.evaluate(graph, dict(zip((i.name for i in graph.inputs), (z, given), strict=True)))[-1]
            wide, ones = z.astype(np.complex128), given.astype(np.complex128)  # JAX's own c64 result loses digits
            wanted = np.conj(jax.vjp(function, wide)[1](np.conj(ones))[0])
            np.testing.assert_allclose(found, wanted, rtol=2e-4 if kind == "c64" else 1e-9, err_msg=name)


def test_derivatives_of_real_functions_by_complex_numbers() -> None:
    functions = {
        "exp": (lambda x: jnp.imag(jnp.exp(1j * x)), 0.0),
        "square": (lambda x: jnp.real(jnp.square(x + 1j)), 1.0),
        "sin": (lambda x: jnp.real(jnp.sin(x + 2j)), 0.0),
        "arctan": (lambda x: jnp.real(jnp.arctan(x + 0.5j)), 0.0),
        "in a loop": (lambda x: jnp.imag(lax.fori_loop(0, 2, lambda _, z: jnp.exp(1j * z), x + 0j)), 0.0),
    }
    for name, (function, x) in functions.items():
        graph = rlx.grad(rlx.from_jax(function, np.float64(x)), ["arg0"])
        found = rlx.evaluate(graph, {"arg0": np.float64(x)})[-1]
        np.testing.assert_allclose(found, jax.grad(function)(x), rtol=1e-9, err_msg=name)
