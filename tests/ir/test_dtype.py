from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx.dialect.dtypes import ROWS, dtype_families
from rlx.ir.dtype import (
    DTYPES,
    DType,
    bf16,
    bool_,
    c64,
    c128,
    dtype,
    f4e2m1fn,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0fnu,
    f16,
    f32,
    f64,
    from_mlir,
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
from rlx.support.errors import Error

INTEGERS = [d for d in DTYPES if d.is_integer]
each_dtype = pytest.mark.parametrize("d", DTYPES, ids=str)


# Dtypes


@pytest.mark.parametrize(
    ("d", "name", "numpy", "mlir", "traits"),
    [
        (f32, "f32", np.float32, "f32", "float signed inexact"),
        (f16, "f16", np.float16, "f16", "float signed inexact"),
        (bf16, "bf16", ml_dtypes.bfloat16, "bf16", "float signed inexact"),
        (f64, "f64", np.float64, "f64", "float signed inexact"),
        (i8, "i8", np.int8, "i8", "integer signed"),
        (i16, "i16", np.int16, "i16", "integer signed"),
        (i32, "i32", np.int32, "i32", "integer signed"),
        (i64, "i64", np.int64, "i64", "integer signed"),
        (u8, "u8", np.uint8, "ui8", "integer"),
        (u32, "u32", np.uint32, "ui32", "integer"),
        (bool_, "bool", np.bool_, "i1", "bool"),
        (c64, "c64", np.complex64, "complex<f32>", "complex signed inexact"),
        (u16, "u16", np.uint16, "ui16", "integer"),
        (u64, "u64", np.uint64, "ui64", "integer"),
        (c128, "c128", np.complex128, "complex<f64>", "complex signed inexact"),
        (f8e4m3fn, "f8e4m3fn", ml_dtypes.float8_e4m3fn, "f8E4M3FN", "float signed inexact"),
        (f8e5m2, "f8e5m2", ml_dtypes.float8_e5m2, "f8E5M2", "float signed inexact"),
        (f8e4m3fnuz, "f8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, "f8E4M3FNUZ", "float signed inexact"),
        (f8e5m2fnuz, "f8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, "f8E5M2FNUZ", "float signed inexact"),
        (f8e8m0fnu, "f8e8m0fnu", ml_dtypes.float8_e8m0fnu, "f8E8M0FNU", "float signed inexact"),
        (f4e2m1fn, "f4e2m1fn", ml_dtypes.float4_e2m1fn, "f4E2M1FN", "float signed inexact"),
        (i4, "i4", ml_dtypes.int4, "i4", "integer signed"),
        (u4, "u4", ml_dtypes.uint4, "ui4", "integer"),
        (i2, "i2", ml_dtypes.int2, "i2", "integer signed"),
        (u2, "u2", ml_dtypes.uint2, "ui2", "integer"),
    ],
)
def test_dtype(d: DType, name: str, numpy: Any, mlir: str, traits: str):
    assert d.name == str(d) == name
    assert d.numpy == np.dtype(numpy)
    assert d.itemsize == np.dtype(numpy).itemsize
    assert d.mlir == mlir
    kinds = ("float", "integer", "signed", "complex", "bool", "inexact")
    assert {kind for kind in kinds if getattr(d, f"is_{kind}")} == set(traits.split())


def test_names_are_distinct():
    assert len(set(DTYPES)) == len(ROWS)
    for attribute in ("name", "mlir", "numpy_name"):
        assert len({getattr(d, attribute) for d in DTYPES}) == len(ROWS)


@each_dtype
def test_bits_are_those_of_the_peers(d: DType):
    """Bits, limits and bytes in files agree with NumPy and ml_dtypes."""
    if d.kind == "float":
        assert d.bits == ml_dtypes.finfo(d.numpy).bits
        layout = d.float_format
        assert layout is not None
        assert (layout.mantissa, layout.exponent) == (ml_dtypes.finfo(d.numpy).nmant, ml_dtypes.finfo(d.numpy).nexp)
        assert layout.exponent + layout.mantissa + layout.signed == d.bits
    elif d.is_integer:
        assert (d.min, d.max) == (ml_dtypes.iinfo(d.numpy).min, ml_dtypes.iinfo(d.numpy).max)
    elif d.kind != "bool":
        assert d.bits == 8 * d.itemsize
    assert d.nbytes(3) == (3 * d.itemsize if d.bits >= 8 else -(-3 * d.bits // 8))


@pytest.mark.parametrize("d", [d for d in DTYPES if d.is_float and d.bits <= 16], ids=str)
def test_the_float_format_decodes_every_bit_pattern(d: DType):
    """`FloatFormat`, the source of cast arithmetic in lowerings, agrees with NumPy and ml_dtypes."""
    layout = d.float_format
    assert layout is not None
    bits = np.arange(1 << d.bits, dtype=f"u{d.itemsize}")
    with np.errstate(invalid="ignore"):
        expected = bits.view(d.numpy).astype(np.float64)
    sign = np.where(layout.signed & (bits >> (d.bits - 1)) != 0, -1.0, 1.0)
    exponent = (bits >> layout.mantissa) & ((1 << layout.exponent) - 1)
    fraction = (bits & ((1 << layout.mantissa) - 1)).astype(np.float64) / (1 << layout.mantissa)
    normal = (exponent > 0) | (layout.mantissa == 0)
    e = np.where(normal, exponent, 1).astype(np.int64)
    decoded = sign * np.ldexp(fraction + normal, e - layout.bias)
    finite = np.isfinite(expected)
    assert np.array_equal(decoded[finite], expected[finite])
    infinite = np.isinf(expected)
    assert infinite.any() == (layout.special == "ieee")
    assert np.isnan(expected).any() == (layout.special != "finite")
    assert (np.signbit(expected) & (expected == 0)).any() == (layout.special != "fnuz" and layout.signed)


@pytest.mark.parametrize("d", [d for d in DTYPES if d.is_float and d.bits <= 16], ids=str)
def test_the_codes_of_a_format_are_those_of_the_peers(d: DType):
    layout, limits = d.float_format, (np if d.is_numpys_own else ml_dtypes).finfo(d.numpy)
    assert layout is not None

    def value(code: int) -> float:
        return float(np.array([code], f"u{d.itemsize}").view(d.numpy)[0])

    largest = float(limits.max)
    assert value(layout.largest_code) == largest
    assert layout.smallest_normal == float(limits.smallest_normal)
    assert 2.0**layout.largest_exponent <= largest < 2.0 ** (layout.largest_exponent + 1)
    if layout.special == "ieee":
        assert value(layout.infinity_code) == np.inf
    if layout.special != "finite":
        assert np.isnan(value(layout.nan_code))


def test_words_have_as_many_bits():
    for d in DTYPES:
        if d.bits > 64:
            with pytest.raises(Error, match="no signed integer of 128 bits"):
                _ = d.signed_word
            continue
        assert (d.signed_word.name, d.unsigned_word.name) == (f"i{d.bits}", f"u{d.bits}")


@each_dtype
def test_limits(d: DType):
    if d.is_complex:
        with pytest.raises(Error, match="order"):
            _ = d.min
        with pytest.raises(Error, match="order"):
            _ = d.max
    elif d.is_bool:
        assert (d.min, d.max) == (0, 1)
    elif d.is_integer:
        assert (d.min, d.max) == (ml_dtypes.iinfo(d.numpy).min, ml_dtypes.iinfo(d.numpy).max)
        assert type(d.min) is type(d.max) is int
    else:
        largest = np.asarray(d.max).astype(d.numpy)
        assert np.isfinite(largest) and float(largest) == d.max
        every = np.arange(1 << d.bits, dtype=f"u{d.itemsize}").view(d.numpy) if d.bits <= 16 else largest
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = every[np.isfinite(every)].astype(np.float64)
            assert (d.min, d.max) == (numbers.min(), numbers.max()) if d.bits <= 16 else d.min == -d.max


@each_dtype
def test_eps(d: DType):
    if not d.is_inexact:
        with pytest.raises(Error, match="eps"):
            _ = d.eps
        return
    one = np.ones((), d.part.numpy)
    assert d.eps == float(np.nextafter(one, one + one) - one)
    assert type(d.eps) is float


@each_dtype
def test_there_is_one_instance(d: DType):
    assert copy.copy(d) is copy.deepcopy(d) is pickle.loads(pickle.dumps(d)) is d
    with pytest.raises(AttributeError):
        d.name = "f8"  # type: ignore[misc]


def test_bfloat16_is_loaded_only_when_used():
    code = (
        "import sys; from rlx.ir import dtype as m, promotion; promotion.promote(m.bf16, m.f16); m.dtype('bf16');"
        "assert 'ml_dtypes' not in sys.modules; assert m.bf16.numpy.itemsize == 2;"
        "assert 'ml_dtypes' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Names of dtypes


@each_dtype
def test_every_name_of_a_dtype(d: DType):
    names = [d, d.name, d.numpy, d.numpy.name, d.numpy.type, np.zeros(1, d.numpy).dtype]
    assert all(dtype(name) is d for name in names)
    assert from_mlir(d.mlir) is d


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (bool, bool_),
        (int, i32),
        (float, f32),
        (complex, c64),
        ("bool_", bool_),
        ("float32", f32),
        ("bfloat16", bf16),
        ("complex64", c64),
        ("uint8", u8),
        (ml_dtypes.bfloat16, bf16),
        (np.dtype("int64"), i64),
        (np.longlong, i64),
    ],
)
def test_other_names(name: Any, expected: DType):
    assert dtype(name) is expected


@pytest.mark.parametrize("library", ["jax.numpy", "torch"])
def test_dtypes_of_other_libraries(library: str):
    module = pytest.importorskip(library)
    for d in DTYPES:
        if hasattr(module, d.numpy_name):
            assert dtype(getattr(module, d.numpy_name)) is d
    with pytest.raises(Error, match="is not one of the dtypes"):
        dtype(module.zeros(3) if library == "torch" else module.zeros)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (ml_dtypes.float6_e2m3fn, "f16, bf16 or f32"),
        ("uint1", "u2 or bool"),
        ("complex256", "c128"),
        (np.dtype(np.longdouble) if np.dtype(np.longdouble).name != "float64" else "float128", "f64"),
        (np.dtype("f4").newbyteorder(), "byte order"),
        (str, "strings"),
        ("text", "strings"),
        (np.dtype("U3"), "strings"),
        (object, "objects"),
        (np.floating, "objects"),
        (type("float32", (), {}), "objects"),
        (None, "objects"),
        (32, "objects"),
        (np.zeros(2), "objects"),
        ("F32", "objects"),
        ("", "objects"),
    ],
)
def test_anything_else_is_refused(name: Any, hint: str):
    with pytest.raises(Error) as caught:
        dtype(name)
    assert dtype_families(d.name for d in DTYPES) in caught.value.message
    assert caught.value.hint is not None and hint in caught.value.hint


@pytest.mark.parametrize("text", ["index", "ui128", "i3", "f80", "complex<f16>", "tensor<2xf32>", "bool", ""])
def test_other_mlir_types_are_refused(text: str):
    with pytest.raises(Error, match=r"complex<f32>"):
        from_mlir(text)


@pytest.mark.parametrize("d", DTYPES)
def test_numpy_takes_a_dtype_and_is_equal_to_it(d: DType) -> None:
    numpy: Any = d.numpy
    assert np.dtype(d) == numpy and np.zeros(2, d).dtype == numpy and np.asarray([0, 1]).astype(d).dtype == numpy
    for same in (numpy, numpy.type, d.name, numpy.name):
        assert d == same and not d != same  # noqa: SIM202
    assert [other for other in DTYPES if other == d.numpy] == [d] and [other for other in DTYPES if other == d] == [d]
    for other in (None, 0, "f8", str, object, numpy.newbyteorder() if d.itemsize > 1 else list):
        assert d != other and not d == other  # noqa: SIM201
