"""Numbers that become constants: a value that the dtype cannot represent is refused, wherever it is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, DType
from rlx.ir.fitting import as_array_of
from rlx.ir.graph.evaluate import evaluate

NUMBERS: list[Any] = [
    *(sign * n for sign in (1, -1) for n in (0, 1, 2, 127, 128, 255, 256, 65504, 65535, 65536, 2**24 + 1)),
    *(2**e + d for e in (31, 32, 63, 64, 70) for d in (-1, 0, 1)),
    *(-(2**e) + d for e in (31, 63) for d in (-1, 0)),
    *(
        0.5,
        -1.5,
        1.7,
        -0.0,
        3.0,
        255.0,
        256.0,
        65519.0,
        65520.0,
        1e10,
        2.0**31,
        2.0**63,
        -(2.0**63),
        1e38,
        3.5e38,
        1e300,
    ),
    *(
        1e-50,
        math.inf,
        -math.inf,
        math.nan,
        True,
        False,
        1j,
        2 + 0j,
        1e39 + 0j,
        complex(0, math.inf),
        10**400,
        -(10**5000),
    ),
    *(np.float16(7), np.int8(-3), np.uint32(2**32 - 1), np.float32(1.5), np.bool_(True)),
]


def _fits(value: Any, kind: DType) -> bool:
    """Return whether the dtype can represent a value, by exact arithmetic."""
    if isinstance(value, (complex, np.complexfloating)):
        parts = (value.real, value.imag)
        return kind.is_complex and all(_fits(p, kind.part) for p in parts)
    value = value.item() if isinstance(value, np.generic) else value
    part = kind.part
    layout = part.float_format
    if isinstance(value, float) and not math.isfinite(value):
        special = "ieee" if layout is None else layout.special
        return kind.is_inexact and (special == "ieee" or (special != "finite" and math.isnan(value)))
    exact = Fraction(value)
    if kind.is_bool:
        return exact in (0, 1)
    if kind.is_integer:
        return exact.denominator == 1 and kind.min <= exact <= kind.max
    assert layout is not None
    if not layout.signed and exact < Fraction(1, 2 ** (layout.bias + 1)):
        return False
    greatest = Fraction(part.max)
    if layout.special == "finite":
        return abs(exact) <= greatest
    last = Fraction(2) ** (math.frexp(float(part.max))[1] - layout.mantissa - 1)
    if (
        layout.special == "fn" and layout.mantissa
    ):  # the next number after the greatest would be even: the tie stays below
        return abs(exact) <= greatest + last / 2
    return abs(exact) < greatest + last / 2  # otherwise it rounds to infinity, or to NaN if there is none


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_a_constant_is_what_was_written_or_an_error(kind: DType) -> None:
    for value in NUMBERS:
        for written in (value, [1, value] if not isinstance(value, (complex, bool, np.generic)) else value):
            g: Any = rlx.Graph()
            if not _fits(value, kind):
                with pytest.raises(rlx.Error, match=f"does not fit {kind.name}") as caught:
                    g.constant(written, dtype=kind)
                assert "test_constants.py" in (caught.value.location or "")
                continue
            g.set_outputs([g.constant(written, dtype=kind)])
            found = evaluate(g, {})[0].reshape(-1)[-1]
            assert found.dtype == kind.numpy
            if kind.is_inexact:
                wide: Any = np.complex128 if kind.is_complex else np.float64
                near = wide(value) if not isinstance(value, int) else wide(float(value))
                eps = kind.eps
                same = np.isclose(
                    wide(found), near, rtol=eps, atol=1e-6 if kind.name == "f16" else 1e-38, equal_nan=True
                )
                layout = kind.float_format
                signed = not np.isnan(near) and (near != 0 or layout is None or layout.special != "fnuz")
                assert same and (not signed or np.signbit(np.real(wide(found))) == np.signbit(np.real(near))), value
            else:
                assert found == value


def test_what_is_no_number() -> None:
    g: Any = rlx.Graph()
    for value in ("1", None, ["a"], [[1], [1, 2]], {}, [None], np.datetime64("now"), [2**70, "x"]):
        with pytest.raises(rlx.Error, match=r"number|array|dtype"):
            g.constant(value, dtype="f32")
        with pytest.raises(rlx.Error, match=r"number|array|dtype"):
            g.constant(value if not isinstance(value, np.generic) else [value])


def test_numbers_without_a_dtype_are_i32_or_f32() -> None:
    g: Any = rlx.Graph()
    assert [g.constant(v).dtype for v in (1, [1.5, 2], True, [1j], np.int64(3))] == [
        *(rlx.i32, rlx.f32, rlx.bool_, rlx.c64, rlx.i64),
    ]
    for value, name in ((2**40, "i32"), ([1, -(2**31) - 1], "i32"), (2**80, "i32"), (1e39, "f32"), (1e39j, "c64")):
        with pytest.raises(rlx.Error, match=f"does not fit {name}"):
            g.constant(value)


_PLACES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda g, x, v: x + v,
    "radd": lambda g, x, v: v - x,
    "mul": lambda g, x, v: x * v,
    "maximum": lambda g, x, v: g.maximum(v, x),
    "compare": lambda g, x, v: x < v,
    "where": lambda g, x, v: g.where(x == x, x, v),
    "clamp": lambda g, x, v: g.clamp(x, v, v),
    "pad": lambda g, x, v: g.pad(x, 1, value=v),
    "carry": lambda g, x, v: g.scan(lambda c, _: (v, None), g.cast(0.0, x.dtype), x)[0],
    "state": lambda g, x, v: g.state("s", (2,), x.dtype, init=v),
    "matching constant": lambda g, x, v: g.constant(v, dtype=x.dtype) * x,
}


@pytest.mark.parametrize("place", _PLACES)
def test_numbers_beside_a_tensor(place: str) -> None:
    for name, bad, good in (("f16", 1e6, 6e4), ("f16", 70000, 65504), ("bf16", 1e39, 1e38), ("f32", 10**39, 2**60)):
        g: Any = rlx.Graph()
        x = g.input("x", (2,), name)
        _PLACES[place](g, x, good)
        with pytest.raises(rlx.Error, match=f"{name}") as caught:
            _PLACES[place](g, x, bad)
        assert "test_constants.py" in (caught.value.location or "")
    for name, bad in (("u8", -1), ("u8", 256), ("i8", 300), ("u32", 2**32), ("i32", 2**31)):
        g = rlx.Graph()
        with pytest.raises(rlx.Error, match=f"{name}"):
            _PLACES[place](g, g.input("x", (2,), name), bad)


@pytest.mark.parametrize(
    ("kind", "init"),
    [
        ("f32", math.nan),
        ("i32", math.nan),
        ("i32", 0.5),
        ("u8", math.inf),
        ("i64", 2**60 + 1),
        ("f32", [1]),
        ("f32", "1"),
    ],
)
def test_states_start_with_a_number_of_their_dtype(kind: str, init: Any) -> None:
    with pytest.raises(rlx.ShapeError, match="state 's'"):
        rlx.Graph().state("s", (2,), kind, init=init)


def test_a_state_starts_with_negative_zero_if_so_written() -> None:
    g: Any = rlx.Graph()
    g.set_outputs([g.state("s", (1,), init=-0.0) * 1.0])
    assert np.signbit(evaluate(rlx.parse(str(g)), {})[0][0])


def test_fitted_takes_the_floats_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert as_array_of(np.array([1, 2], ml_dtypes.bfloat16), rlx.i32).tolist() == [1, 2]
    with pytest.raises(rlx.Error, match="does not fit f16"):
        as_array_of(np.array([1e20], ml_dtypes.bfloat16), rlx.f16)
