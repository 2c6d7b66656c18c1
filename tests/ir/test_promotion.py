from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx.ir.dtype import (
    DTYPES,
    DType,
    bf16,
    bool_,
    c64,
    c128,
    dtype,
    f8e4m3fn,
    f8e5m2,
    f8e8m0fnu,
    f16,
    f32,
    f64,
    i2,
    i4,
    i8,
    i16,
    i32,
    i64,
    u2,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from rlx.ir.promotion import promote, weak
from rlx.support.errors import Error

INTEGERS = [d for d in DTYPES if d.is_integer]


def documented_promotions() -> dict[tuple[DType, DType], DType]:
    """Return the table in the docstring of `promote`."""
    rows = [line.split() for line in (promote.__doc__ or "").splitlines() if line.split()]
    start = next(i for i, row in enumerate(rows) if row[0] == "..")
    columns = list(map(dtype, rows[start][1:]))
    table = {}
    for row in itertools.takewhile(lambda row: not row[0].startswith("="), rows[start + 2 :]):
        table |= {(dtype(row[0]), column): dtype(cell) for column, cell in zip(columns, row[1:], strict=True)}
    return table


def test_the_documented_table_is_complete_and_true():
    table = documented_promotions()
    arithmetic = [d for d in DTYPES if not d.storage]
    assert len(table) == len(arithmetic) ** 2
    assert table == {(a, b): promote(a, b) for a in arithmetic for b in arithmetic}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (f16, bf16, f32),
        (f16, f32, f32),
        (bf16, f64, f64),
        (i8, f16, f32),
        (u32, bf16, f32),
        (i64, f16, f64),
        (i64, f32, f64),
        (i32, f64, f64),
        (u8, i8, i16),
        (u8, i16, i16),
        (u8, i32, i32),
        (u8, u32, u32),
        (i8, u32, i64),
        (i16, u32, i64),
        (i32, u32, i64),
        (u32, i64, i64),
        (bool_, u8, u8),
        (bool_, bf16, bf16),
        (c64, f64, c128),
        (c64, i64, c128),
        (c64, u64, c128),
        (c128, f16, c128),
        (u16, i16, i32),
        (u16, u8, u16),
        (u64, u32, u64),
        (u64, i8, f64),
        (u64, f16, f64),
        (f8e4m3fn, f16, f16),
        (f8e4m3fn, f8e5m2, f32),
        (f8e8m0fnu, bf16, bf16),
        (f8e8m0fnu, f16, f32),
        (f8e5m2, i8, f32),
        (i4, u4, i8),
        (i4, i8, i8),
        (i4, f32, f32),
        (u2, i2, i4),
        (c64, bool_, c64),
    ],
)
def test_promotions_that_are_decided(a: DType, b: DType, expected: DType):
    assert promote(a, b) is promote(b, a) is expected


def test_promotion_is_commutative_and_idempotent():
    for a, b in itertools.product(DTYPES, DTYPES):
        assert promote(a, b) is promote(b, a)
        assert promote(a, promote(a, b)) is promote(a, b)
    assert all(promote(d, d) is d for d in DTYPES)


def test_promotion_is_associative_but_for_the_documented_triples():
    exceptions = {
        frozenset((a, b, c))
        for a, b, c in itertools.product([d for d in DTYPES if not d.storage], repeat=3)
        if promote(promote(a, b), c) is not promote(a, promote(b, c))
    }
    assert exceptions == {
        frozenset((u32, integer, floating)) for integer in (i8, i16, i32) for floating in (f16, bf16, f32, c64)
    }


def test_no_range_of_an_integer_is_lost():
    for a, b in itertools.product(INTEGERS, INTEGERS):
        met = promote(a, b)
        if not met.is_integer:
            assert met is f64 and u64 in (a, b) and min(a.min, b.min) < 0
            continue
        assert met.min <= min(a.min, b.min) and met.max >= max(a.max, b.max)
        narrower = [d for d in INTEGERS if d.bits < met.bits]
        assert not any(d.min <= min(a.min, b.min) and d.max >= max(a.max, b.max) for d in narrower)


def test_no_value_of_a_float_is_lost():
    """Converting to the common dtype and back is exact for both floats."""
    floats = [d for d in DTYPES if d.is_float]
    for a, b in itertools.product(floats, floats):
        met = promote(a, b)
        for value in (a.max, a.min, 1 + a.eps, float(np.finfo(np.float16).tiny)):
            exact = np.asarray(value).astype(a.numpy)
            assert exact.astype(met.numpy).astype(a.numpy) == exact


# Python scalars


@pytest.mark.parametrize(
    ("value", "other", "expected"),
    [
        (True, f16, f16),
        (True, i8, i8),
        (False, bool_, bool_),
        (1, f16, f16),
        (1, u8, u8),
        (1, c64, c64),
        (1, bool_, i32),
        (1.5, bf16, bf16),
        (1.5, f64, f64),
        (1.5, c64, c64),
        (1.5, i8, f32),
        (1.5, u32, f32),
        (1.5, i64, f64),
        (1.5, bool_, f32),
        (1j, f32, c64),
        (1j, f64, c128),
        (1j, i64, c128),
        (1j, c64, c64),
        (np.float64(1.5), f16, f16),
        (10**30, f32, f32),
    ],
)
def test_weak(value: Any, other: DType, expected: DType):
    assert weak(value, other) is expected


@given(st.sampled_from(INTEGERS), st.integers(-(2**70), 2**70) | st.integers(-300, 300))
def test_an_integer_has_to_fit(d: DType, value: int):
    if d.min <= value <= d.max:
        assert weak(value, d) is d
    else:
        with pytest.raises(Error, match=f"{value} .*{d.name}"):
            weak(value, d)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (256, u8),
        (-1, u8),
        (-1, u32),
        (128, i8),
        (2**31, bool_),
        (2**63, i64),
        (10**39, f32),
        (10**5, f16),
        (10**400, c64),
    ],
)
def test_an_integer_that_does_not_fit(value: int, other: DType):
    with pytest.raises(Error, match="cast the tensor"):
        weak(value, other)


@pytest.mark.parametrize("value", ["1", None, np.float32(1), np.zeros(()), [1]])
def test_only_python_scalars_are_weak(value: Any):
    with pytest.raises(Error, match=type(value).__name__):
        weak(value, f32)
