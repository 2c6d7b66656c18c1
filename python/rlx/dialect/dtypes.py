"""The table of dtypes: one row for each element type, as plain data.

Everything that depends on an element type is derived from its row: `rlx.DType` and its limits, promotion, the element types
that the records of `dialect/*.td` accept, storage in files and names in other formats. Adding a dtype is adding a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["bool", "signed", "unsigned", "float", "complex"]
# The bit patterns of a float format that are not finite numbers. `ieee` has infinities and NaN as in IEEE 754. `fn` has no
# infinity, and its NaN is the pattern of ones. `fnuz` has neither infinity nor negative zero; the pattern of the latter is NaN.
# `finite` has neither infinity nor NaN.
Special = Literal["ieee", "fn", "fnuz", "finite"]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The layout of a float dtype: a sign bit, unless `signed` is false, then `exponent` bits, then `mantissa` bits.

    A number with the exponent field e > 0 and the mantissa field m is `2**(e - bias) * (1 + m / 2**mantissa)`; with e = 0
    it is `2**(1 - bias) * m / 2**mantissa`. A format without mantissa bits has no zero: e = 0 is `2**-bias`.
    """

    exponent: int
    mantissa: int
    bias: int
    special: Special = "ieee"
    signed: bool = True

    @property
    def has_zero(self) -> bool:
        """Whether the format has a zero. If not, all its numbers are powers of two."""
        return self.mantissa > 0

    @property
    def sign_bit(self) -> int:
        """The bit above the exponent. It is unused in formats without a sign."""
        return 1 << self.exponent + self.mantissa

    @property
    def infinity_code(self) -> int:
        """An exponent field of ones: the bits of positive infinity in a format with infinities."""
        return self.sign_bit - (1 << self.mantissa)

    @property
    def nan_code(self) -> int:
        """The bits of the positive NaN in a format with NaN, which is the only NaN in a format without a negative zero."""
        if self.special == "fnuz":
            return self.sign_bit
        return self.sign_bit - 1 if self.special == "fn" else self.infinity_code | 1 << self.mantissa - 1

    @property
    def largest_code(self) -> int:
        """The bits of the largest finite number."""
        if self.special == "ieee":
            return self.infinity_code - 1
        return self.sign_bit - (2 if self.special == "fn" else 1)

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest finite number, which is less than twice 2 to this power."""
        return (self.largest_code >> self.mantissa) - self.bias

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with all bits of precision."""
        return 2.0 ** (1 - self.bias if self.mantissa else -self.bias)


@dataclass(frozen=True, slots=True)
class DTypeRow:
    """One dtype.

    Attributes:
        name: The name in RLX.
        kind: Its family.
        bits: Bits of one element. Elements of less than 8 bits are packed in files and parameters.
        mlir: Text of the MLIR element type.
        numpy_name: The name in NumPy or ml_dtypes; also in JAX, PyTorch and, in capitals, ONNX.
        compute: The dtype of its arithmetic, if this is another dtype.
        storage: Whether the dtype only stores numbers. Ops that move, select or cast elements accept it, and arithmetic is
            emitted in the dtype `compute`, between casts.
        safetensors: The name in safetensors; empty if that format lacks the dtype.
        float_format: The bits of a float.
        stablehlo: The version of StableHLO that added the dtype; empty if the oldest supported version has it.
        dlpack: DLPack's code of a float that is not in IEEE 754. Other dtypes have the code of their family.

    Raises:
        ValueError: The bits of an element, or of its parts if it is complex, are not a power of two from 2 to 64.
    """

    name: str
    kind: Kind
    bits: int
    mlir: str
    numpy_name: str
    compute: str = ""
    storage: bool = False
    safetensors: str = ""
    float_format: FloatFormat | None = None
    stablehlo: str = ""
    dlpack: int | None = None

    def __post_init__(self) -> None:
        bits = self.bits // 2 if self.kind == "complex" else self.bits
        if bits not in (2, 4, 8, 16, 32, 64):
            raise ValueError(f"{self.name}: numbers of {bits} bits: 2, 4, 8, 16, 32 and 64 are stored")


def _float(
    name: str,
    bits: int,
    numpy_name: str,
    layout: FloatFormat,
    compute: str = "",
    storage: bool = False,
    safetensors: str = "",
    stablehlo: str = "",
    dlpack: int | None = None,
) -> DTypeRow:
    mlir = f"f{name[1:].upper()}" if storage else name
    return DTypeRow(name, "float", bits, mlir, numpy_name, compute, storage, safetensors, layout, stablehlo, dlpack)


ROWS: tuple[DTypeRow, ...] = (
    _float("f32", 32, "float32", FloatFormat(8, 23, 127), safetensors="F32"),
    _float("f16", 16, "float16", FloatFormat(5, 10, 15), compute="f32", safetensors="F16"),
    _float("bf16", 16, "bfloat16", FloatFormat(8, 7, 127), compute="f32", safetensors="BF16", dlpack=4),
    _float("f64", 64, "float64", FloatFormat(11, 52, 1023), safetensors="F64"),
    DTypeRow("i8", "signed", 8, "i8", "int8", safetensors="I8"),
    DTypeRow("i16", "signed", 16, "i16", "int16", safetensors="I16"),
    DTypeRow("i32", "signed", 32, "i32", "int32", safetensors="I32"),
    DTypeRow("i64", "signed", 64, "i64", "int64", safetensors="I64"),
    DTypeRow("u8", "unsigned", 8, "ui8", "uint8", safetensors="U8"),
    DTypeRow("u16", "unsigned", 16, "ui16", "uint16", safetensors="U16"),
    DTypeRow("u32", "unsigned", 32, "ui32", "uint32", safetensors="U32"),
    DTypeRow("u64", "unsigned", 64, "ui64", "uint64", safetensors="U64"),
    DTypeRow("bool", "bool", 8, "i1", "bool", safetensors="BOOL"),
    DTypeRow("c64", "complex", 64, "complex<f32>", "complex64", safetensors="C64"),
    DTypeRow("c128", "complex", 128, "complex<f64>", "complex128"),
    _float("f8e4m3fn", 8, "float8_e4m3fn", FloatFormat(4, 3, 7, "fn"), "f32", True, "F8_E4M3", dlpack=10),
    _float("f8e5m2", 8, "float8_e5m2", FloatFormat(5, 2, 15), "f32", True, "F8_E5M2", dlpack=12),
    _float("f8e4m3fnuz", 8, "float8_e4m3fnuz", FloatFormat(4, 3, 8, "fnuz"), "f32", True, "F8_E4M3FNUZ", dlpack=11),
    _float("f8e5m2fnuz", 8, "float8_e5m2fnuz", FloatFormat(5, 2, 16, "fnuz"), "f32", True, "F8_E5M2FNUZ", dlpack=13),
    _float("f8e4m3b11fnuz", 8, "float8_e4m3b11fnuz", FloatFormat(4, 3, 11, "fnuz"), "f32", True, dlpack=9),
    _float("f8e4m3", 8, "float8_e4m3", FloatFormat(4, 3, 7), "f32", True, stablehlo="1.7.0", dlpack=8),
    _float("f8e3m4", 8, "float8_e3m4", FloatFormat(3, 4, 3), "f32", True, stablehlo="1.7.0", dlpack=7),
    _float(
        "f8e8m0fnu",
        8,
        "float8_e8m0fnu",
        FloatFormat(8, 0, 127, "fn", signed=False),
        "f32",
        True,
        "F8_E8M0",
        "1.8.0",
        14,
    ),
    _float("f4e2m1fn", 4, "float4_e2m1fn", FloatFormat(2, 1, 1, "finite"), "f32", True, "F4", "1.8.0", 17),
    DTypeRow("i4", "signed", 4, "i4", "int4", "i8", storage=True),
    DTypeRow("u4", "unsigned", 4, "ui4", "uint4", "u8", storage=True),
    DTypeRow("i2", "signed", 2, "i2", "int2", "i8", storage=True),
    DTypeRow("u2", "unsigned", 2, "ui2", "uint2", "u8", storage=True),
)


def _names(*kinds: Kind) -> tuple[str, ...]:
    return tuple(row.name for row in ROWS if row.kind in kinds and not row.storage)


# The groups of dtypes in the records of the dialect.
GROUPS: dict[str, tuple[str, ...]] = {
    "floats": _names("float"),
    "integers": _names("signed", "unsigned"),
    "complexes": _names("complex"),
    "bool": _names("bool"),
    "storage": tuple(row.name for row in ROWS if row.storage),
}


@cache
def members(groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dtypes of groups and of single names, in this order.

    Raises:
        KeyError: A name is neither a group nor a dtype.
    """
    single = {row.name: (row.name,) for row in ROWS}
    return tuple(name for group in groups for name in (GROUPS.get(group) or single[group]))


def grouped(names: Iterable[str]) -> list[str]:
    """Return names of dtypes, sorted, with a complete group replaced by its name."""
    remaining, found = set(names), list[str]()
    for group, dtypes in GROUPS.items():
        if len(dtypes) > 1 and remaining.issuperset(dtypes):
            found.append(group)
            remaining -= set(dtypes)
    return [*sorted(remaining), *found]


# Families that messages abbreviate to their first and last member if they are complete.
_FAMILIES: tuple[tuple[DTypeRow, ...], ...] = (
    tuple(row for row in ROWS if row.kind == "signed" and not row.storage),
    tuple(row for row in ROWS if row.kind == "unsigned" and not row.storage),
    tuple(row for row in ROWS if row.kind == "float" and row.bits == 8),
)


def dtype_families(names: Iterable[str], mlir: bool = False) -> str:
    """Return names of dtypes for a message, in their order. A complete family is one entry: `f32, i8 to i64`.

    Args:
        names: The names in RLX.
        mlir: Whether to return MLIR types instead.
    """
    rows = {row.name: row for row in ROWS}
    remaining = dict.fromkeys(names)
    entries = {name: getattr(rows[name], "mlir" if mlir else "name") for name in remaining}
    for family in _FAMILIES:
        first, *others = (row.name for row in family)
        if remaining.keys() >= {first, *others}:
            formats = f"{len(family)} formats " if family[0].kind == "float" else ""
            entries[first] = f"{formats}{entries[first]} to {entries[others[-1]]}"
            for name in others:
                del entries[name]
    return ", ".join(entries.values())
