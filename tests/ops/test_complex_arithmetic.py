"""Quotients and powers of complex numbers with extreme parts: against NumPy, JAX and C99; compiled, against the evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import rlx
from tests.drawing import drawn
from tests.ops.references import run

KINDS = ("c64", "c128")
INF, NAN = np.inf, np.nan


@pytest.fixture(scope="module", autouse=True)
def wide_numbers() -> Iterator[None]:
    with jax.enable_x64(True), np.errstate(all="ignore"):
        yield


def grid(kind: str, *more: float) -> np.ndarray:
    """Return every extreme of both signs as a real part with every one as an imaginary part."""
    part = rlx.dtype(kind).part
    sizes = [0.0, 1e-20, 1.0, 2.5, part.max**0.5 * 1.5, *more]
    parts = np.array([*sizes, *(-s for s in sizes), NAN], part.numpy)
    return np.array([complex(x, y) for x in parts for y in parts], rlx.dtype(kind).numpy)


def pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(left, len(right)), np.tile(right, len(left))


def parts_of(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.real(z), np.imag(z)


def same(found: np.ndarray, wanted: np.ndarray, operands: tuple[np.ndarray, ...], tolerance: float) -> None:
    """Check that parts are equal up to an error proportional to the modulus.

    Exceptions are parts that may be flushed to 0, and a finite part of an infinite number, whose digits are out of
    range.
    """
    tiny = np.finfo(np.real(found).dtype).tiny
    size = np.where(np.isfinite(wanted), np.abs(wanted), 0)
    for a, b in zip(parts_of(found), parts_of(wanted), strict=True):
        allowed = tolerance * np.maximum(size, np.where(np.isfinite(b), np.abs(b), 0)) + 2 * tiny
        close = (
            (a == b)
            | (np.isinf(wanted) & np.isfinite(a) & np.isfinite(b))
            | (np.isnan(a) & np.isnan(b))
            | (np.abs(a - b) <= allowed)
        )
        at = np.flatnonzero(~close)[:4]
        assert close.all(), [(*(x[i] for x in operands), found[i], wanted[i]) for i in at]


@pytest.mark.parametrize("kind", KINDS)
def test_a_quotient_of_a_finite_and_an_infinite_number_is_zero_or_infinite(kind: str) -> None:
    """C99 and JAX agree. NumPy returns NaN for an infinity in both parts, or next to NaN."""
    a, b = pairs(grid(kind, INF), grid(kind, INF))
    found = run("binary", a, b, kind="div")
    vanishes, explodes = np.isfinite(a) & np.isinf(b), np.isinf(a) & np.isfinite(b) & (b != 0)
    assert vanishes.sum() > 1000 and explodes.sum() > 1000
    assert (found[vanishes] == 0).all()
    assert (np.asarray(jax.jit(lax.div)(a, b))[vanishes & ~np.isnan(b)] == 0).all()
    assert np.isinf(found[explodes]).all()
    # The direction is that of the quotient of the signs of infinite parts.
    left, right = a[explodes], b[explodes].astype(np.complex128)
    signs = [np.where(np.isinf(part), np.sign(part), 0) for part in parts_of(left)]
    direction = (signs[0] + 1j * signs[1]) * np.conj(right / np.maximum(np.abs(right.real), np.abs(right.imag)))
    for part, of in zip(parts_of(found[explodes]), parts_of(direction), strict=True):
        known = np.abs(of) > 1e-9
        np.testing.assert_array_equal(part[known], np.copysign(INF, of[known]))
    others = ~vanishes & ~explodes
    wide = np.clongdouble
    same(
        found[others], (a[others].astype(wide) / b[others].astype(wide)).astype(a.dtype), (a[others], b[others]), 1e-15
    )


@pytest.mark.parametrize("kind", KINDS)
def test_powers_of_special_numbers(kind: str) -> None:
    """The results are limits where they exist, even where NumPy's method fails, and NaN otherwise."""
    rows = [
        *[(complex(NAN, 1), 0, 1), (1, complex(INF, NAN), 1), (complex(INF, NAN), 1, complex(INF, NAN)), (0, 0, 1)],
        *[(complex(INF, x), complex(p, 0), 0) for x in (0, 1, -INF) for p in (-0.5, -1, -2, -3)],
        *[(complex(INF, 0), 2, INF), (complex(-INF, 0), 0.25, complex(INF, INF)), (complex(INF, 0), 0.5, INF)],
        *[(complex(INF, INF), 0.5, complex(INF, INF)), (complex(-INF, 1), 0.25, complex(INF, INF))],
        *[(complex(NAN, INF), -2, complex(NAN, NAN)), (2, complex(0, NAN), complex(NAN, NAN)), (0, 3 + 1j, 0)],
        *[(0, -1, complex(NAN, NAN)), (0, 1j, complex(NAN, NAN)), (complex(INF, 1), 1j, complex(NAN, NAN))],
    ]
    dtype = rlx.dtype(kind).numpy
    a, b, wanted = (np.array(column, dtype) for column in zip(*rows, strict=True))
    found = run("binary", a, b, kind="pow")
    for x, y, left, right in zip(*parts_of(found), *parts_of(wanted), strict=True):
        np.testing.assert_array_equal([x, y], [left, right])


# Exponents whose product with a logarithm keeps its digits in the narrowest arithmetic.
EXPONENTS = [
    0,
    1,
    2,
    -1,
    -2,
    0.5,
    -0.5,
    3,
    -3,
    1j,
    1 - 2j,
    -2.5 + 0.5j,
    complex(0, NAN),
    complex(NAN, 1),
    complex(0.5, NAN),
]


def operands(kind: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    exponents = np.array(EXPONENTS, rlx.dtype(kind).numpy)
    a, b = pairs(grid(kind, INF), exponents)
    # The last digit of π determines which infinity a power on an axis is.
    phase = np.real(b) * np.angle(a)
    on_axis = (phase != 0) & (np.minimum(np.abs(np.cos(phase)), np.abs(np.sin(phase))) < 1e-6) & (b != 1)
    certain = ~on_axis | np.isfinite(run("binary", a, b, kind="pow"))
    return {"div": pairs(grid(kind, INF), grid(kind, INF)), "pow": (a[certain], b[certain])}


@pytest.mark.parametrize("kind", KINDS)
@drawn("device", ["cpu", "xla"])
def test_compiled_quotients_and_powers(device: str, kind: str) -> None:
    arrays = operands(kind)
    g: Any = rlx.Graph()
    g.set_outputs(
        [getattr(g, n)(*(g.input(f"{n}{i}", x.shape, kind) for i, x in enumerate(xs))) for n, xs in arrays.items()]
    )
    feeds = {f"{n}{i}": x for n, xs in arrays.items() for i, x in enumerate(xs)}
    results = rlx.Session(device).compile(g).run(feeds)
    for found, wanted, xs in zip(results, rlx.evaluate(g, feeds), arrays.values(), strict=True):
        tolerance = 1e-6 if kind == "c64" else 1e-12
        same(found, wanted, xs, tolerance)
