"""`DType`, built from the table of dtypes: NumPy and MLIR forms, limits, names."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from rlx.dialect.dtypes import GROUPS, ROWS, DTypeRow, FloatFormat, Kind, dtype_families
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion


@dataclass(frozen=True, eq=False, repr=False)
class DType:
    """An element type. Each row of the table has one instance, so dtypes may be compared by identity.

    It also equals the corresponding NumPy types, ``np.float32`` or ``np.dtype("f4")``, and its names, ``"f32"`` and
    ``"float32"``. NumPy accepts it as a dtype: ``np.zeros(x.shape, x.dtype)``.

    Attributes:
        name: The name in RLX: ``"f32"``, ``"bool"``.
        kind: The family of the dtype.
        bits: Bits of one element. Dtypes of less than 8 bits are packed in files and parameters.
        itemsize: Bytes per element in a NumPy array; at least 1.
        mlir: Text of the MLIR element type. ``c64`` is a pair of f32.
        numpy_name: The name in NumPy (or ml_dtypes).
        storage: Whether the dtype is used for storage only: arithmetic is done in `compute`, between casts.
        float_format: The bits of a float; None for other kinds.
        safetensors: The name in safetensors files; empty if the format lacks the dtype.
        dlpack: DLPack's code of a float that is not an IEEE 754 format.
    """

    name: str
    kind: Kind
    bits: int
    itemsize: int
    mlir: str
    numpy_name: str
    storage: bool
    float_format: FloatFormat | None
    safetensors: str
    dlpack: int | None

    @classmethod
    def of(cls, row: DTypeRow) -> DType:
        """Return the dtype that a row of the table describes."""
        own = {field.name: getattr(row, field.name) for field in fields(cls) if field.name != "itemsize"}
        return cls(itemsize=max(1, row.bits // 8), **own)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype. Dtypes that NumPy lacks come from ml_dtypes."""
        if self.is_numpys_own:
            return np.dtype(self.numpy_name)
        return np.dtype(getattr(import_package("ml_dtypes", self.name), self.numpy_name))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype, under the attribute name that NumPy looks up."""
        return self.numpy

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other in (self.name, self.numpy_name)
        if isinstance(other, (np.dtype, type)):
            met: np.dtype[Any] = np.dtype(cast(Any, other))
            return met.name == self.numpy_name and met.isnative
        return self is other

    __hash__ = object.__hash__

    @property
    def is_numpys_own(self) -> bool:
        """Whether NumPy has the dtype without ml_dtypes."""
        return hasattr(np, self.numpy_name)

    @property
    def compute(self) -> DType:
        """The dtype of arithmetic: f32 for narrower floats, i8 or u8 for narrower integers, else the dtype itself."""
        return _BY_NAME[_COMPUTE[self.name] or self.name]

    @property
    def packed(self) -> bool:
        """Whether files and parameters hold several elements in a byte."""
        return self.bits < 8

    def nbytes(self, count: int) -> int:
        """Return the bytes of `count` elements in files and parameters."""
        return -(-count * self.bits // 8)

    @property
    def has_zero(self) -> bool:
        """Whether 0 is one of its values. Only floats that are powers of two lack it."""
        return self.float_format is None or self.float_format.has_zero

    @property
    def signed_word(self) -> DType:
        """The signed integer of the same width: i32 for f32 and u32, i4 for f4e2m1fn. Raises `Error` if there is none."""
        return self._word("signed")

    @property
    def unsigned_word(self) -> DType:
        """The unsigned integer of the same width: u32 for f32 and i32. Raises `Error` if there is none."""
        return self._word("unsigned")

    def _word(self, kind: Kind) -> DType:
        word = next((d for d in DTYPES if d.kind == kind and d.bits == self.bits), None)
        if word is None:
            raise Error(f"there is no {kind} integer of {self.bits} bits, as {self.name} has")
        return word

    @property
    def element(self) -> DType:
        """The dtype of its elements in compiled programs.

        For unsigned integers and for storage dtypes, whose codes take at least a byte, this is the signed integer of
        the same number of bytes. Other dtypes are unchanged.
        """
        return _BY_NAME[f"i{8 * self.itemsize}"] if self.storage or self.kind == "unsigned" else self

    @property
    def part(self) -> DType:
        """The dtype of the real and imaginary parts of a complex dtype; other dtypes are unchanged."""
        return _BY_MLIR[self.mlir.removeprefix("complex<").removesuffix(">")]

    @property
    def complex(self) -> DType:
        """The complex dtype that holds the values of this dtype: c128 for f64, i64, u64 and c128, else c64."""
        return c128 if self in WIDE else c64

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer; bool is neither."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_signed(self) -> bool:
        """Whether values may be negative: signed integers, floats and complex numbers."""
        return self.kind in ("signed", "float", "complex")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_inexact(self) -> bool:
        """Whether it is float or complex, so that values can be differentiated."""
        return self.kind in ("float", "complex")

    @cached_property
    def min(self) -> int | float:
        """The smallest finite value; 0 for bool. Raises `Error` for complex dtypes, which have no order."""
        return self._limits[0]

    @cached_property
    def max(self) -> int | float:
        """The largest finite value; 1 for bool. Raises `Error` for complex dtypes, which have no order."""
        return self._limits[1]

    @cached_property
    def eps(self) -> float:
        """The gap between 1 and the next value, of the parts for complex dtypes. Raises `Error` for other dtypes."""
        if not self.is_inexact:
            raise Error(f"{self.name} has no eps: it is not a float or complex dtype")
        return float(_finfo(self).eps)

    @property
    def _limits(self) -> tuple[int | float, int | float]:
        if self.is_complex:
            raise Error(f"{self.name} has no least or greatest value: complex numbers have no order")
        if self.is_bool:
            return 0, 1
        if self.is_integer:
            return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.is_signed else (0, (1 << self.bits) - 1)
        return float(_finfo(self).min), float(_finfo(self).max)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"rlx.{'bool_' if self.is_bool else self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return dtype, (self.name,)  # copies and unpickled values are the same instance


def _finfo(x: DType) -> Any:
    if x.is_numpys_own:
        return np.finfo(x.numpy)
    return import_package("ml_dtypes", x.name).finfo(x.numpy)


DTYPES: tuple[DType, ...] = tuple(DType.of(row) for row in ROWS)
_COMPUTE: dict[str, str] = {row.name: row.compute for row in ROWS}

BY_NUMPY_NAME: dict[str, DType] = {d.numpy_name: d for d in DTYPES}
_BY_NAME: dict[str, DType] = {d.name: d for d in DTYPES} | BY_NUMPY_NAME
_BY_NAME["bool_"] = _BY_NAME["bool"]
_BY_MLIR: dict[str, DType] = {d.mlir: d for d in DTYPES}
assert len(_BY_MLIR) == len(BY_NUMPY_NAME) == len(DTYPES), "two dtypes have the same name"

# Dtypes that the code names. `__getattr__` returns the others by name.
f32, f16, bf16, f64 = (_BY_NAME[name] for name in ("f32", "f16", "bf16", "f64"))
i8, i16, i32, i64 = (_BY_NAME[name] for name in ("i8", "i16", "i32", "i64"))
u8, u16, u32, u64 = (_BY_NAME[name] for name in ("u8", "u16", "u32", "u64"))
bool_, c64, c128 = (_BY_NAME[name] for name in ("bool", "c64", "c128"))


def __getattr__(name: str) -> DType:
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


# Names of dtypes by group, for op samples.
FLOATS, INTEGERS, COMPLEXES, STORAGE = (GROUPS[group] for group in ("floats", "integers", "complexes", "storage"))
REAL = (*FLOATS, *INTEGERS)
NUMBERS = (*REAL, *COMPLEXES)
ARITHMETIC = (*NUMBERS, "bool")
EVERY = (*ARITHMETIC, *STORAGE)
WITH_ZERO = tuple(name for name in EVERY if _BY_NAME[name].has_zero)

WIDE = frozenset({f64, i64, u64, c128})  # their values need more digits than f32 has
_BY_PYTHON_TYPE: dict[type, DType] = {bool: bool_, int: i32, float: f32, complex: c64}
_ABSTRACT: tuple[type, ...] = (
    np.generic,
    np.number,
    np.integer,
    np.signedinteger,
    np.unsignedinteger,
    np.inexact,
    np.floating,
    np.complexfloating,
    np.flexible,
    np.character,
)


def dtype(x: object) -> DType:
    """Return the `DType` that `x` names.

    Args:
        x: A `DType`; a name such as ``"f32"``, ``"float32"`` or ``"bool"``; an `np.dtype` in native byte
            order; a dtype of PyTorch; a scalar class of NumPy, ml_dtypes or JAX; or Python's ``bool``, ``int``,
            ``float`` or ``complex``, which are ``bool``, ``i32``, ``f32`` and ``c64``.

    Raises:
        Error: `x` does not name a dtype; the hint suggests a cast.
    """
    if isinstance(x, DType):
        return x
    name = _name_of(x)
    if name is not None and name in _BY_NAME:
        return _BY_NAME[name]
    described = f"{short_repr(name)}" if name is not None else f"{short_repr(x)} of type {type(x).__name__}"
    prefixes, hint = next(entry for entry in _HINTS if (name or "").startswith(entry[0]))
    meant = "" if any(prefixes) else suggestion(name, _BY_NAME)
    raise Error(f"{described} is not one of the dtypes {dtype_families(d.name for d in DTYPES)}{meant}", hint=hint)


def family(array_dtype: np.dtype[Any]) -> str:
    """Return the `DType.kind` of an array's dtype; empty for strings, objects and records.

    NumPy's own `kind` is "V" for nearly all dtypes of ml_dtypes, and "f" for one.
    """
    known = BY_NUMPY_NAME.get(array_dtype.name)
    return known.kind if known is not None else {"f": "float", "c": "complex"}.get(array_dtype.kind, "")


def _name_of(x: object) -> str | None:
    """Return the NumPy name of a dtype in any form that a user may pass; None for other objects."""
    if isinstance(x, str):
        return x
    if isinstance(x, np.dtype):
        return x.name if x.isnative else x.str
    if (type(x).__module__, type(x).__name__) == ("torch", "dtype"):
        return str(x).removeprefix("torch.")
    if not inspect.isclass(x):
        return None
    if isinstance(of_jax := getattr(x, "dtype", None), np.dtype):
        return of_jax.name
    if x in _BY_PYTHON_TYPE:
        return _BY_PYTHON_TYPE[x].name
    return np.dtype(x).name if _is_concrete(x) else f"class {x.__qualname__}"


def _is_concrete(kind: type) -> bool:
    """Whether a class is a dtype. `np.dtype` returns `object` for other classes, and a default for abstract ones."""
    return kind not in _ABSTRACT and (issubclass(kind, np.generic) or kind.__module__ == "ml_dtypes")


# Keyed by prefix of the NumPy name. The first entry with a matching prefix applies.
_HINTS = (
    (("int128", "uint128"), "cast it to i64 or f64"),
    (("int1",), "cast it to i2 or bool"),
    (("uint1",), "cast it to u2 or bool"),
    (("float128", "float96", "longdouble"), "cast it to f64"),
    (("complex256", "clongdouble"), "cast it to c128"),
    (("float8", "float6", "float4"), "cast it to f16, bf16 or f32"),
    ((">", "<"), "convert it to native byte order: array.astype(array.dtype.newbyteorder('='))"),
    (
        ("",),
        "give one of these, or a NumPy dtype of the same meaning; strings and objects have no dtype here",
    ),
)


def from_mlir(text: str) -> DType:
    """Return the dtype whose MLIR element type is `text`, such as ``"ui8"``, ``"i1"`` or ``"complex<f32>"``.

    Raises `Error` for any other type.
    """
    result = _BY_MLIR.get(text)
    if result is None:
        raise Error(
            f"MLIR type {text} is not an element type of RLX",
            hint=f"use one of {dtype_families((d.name for d in DTYPES), mlir=True)}",
        )
    return result


def shown_number(value: object) -> str:
    """Return a number as text for messages, shortened if it has many digits."""
    if isinstance(value, int) and abs(value) >= 10**1000:  # Python refuses to print integers of some thousand digits
        return "an integer of more than 1000 digits"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:30]}… of {len(text)} digits"
