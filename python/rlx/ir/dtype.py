"""`DType`, made from the table of dtypes: NumPy and MLIR forms, promotion, the dtype of a Python scalar beside a tensor."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from rlx.dialect.dtypes import GROUPS, ROWS, DTypeRow, FloatFormat, Kind, listed
from rlx.ir.cached_property import cached_property
from rlx.ir.errors import Error
from rlx.ir.packages import required
from rlx.ir.short import shown
from rlx.ir.suggestions import suggestion


@dataclass(frozen=True, eq=False, repr=False)
class DType:
    """An element type. There is one instance for each row of the table, compared by identity: ``a is b``, ``a == b``.

    As NumPy's it is also equal to what means the same to NumPy, ``np.float32`` or ``np.dtype("f4")``, and to its names,
    ``"f32"`` and ``"float32"``; and NumPy takes it for a dtype: ``np.zeros(x.shape, x.dtype)``.

    Attributes:
        name: The name in RLX: ``"f32"``, ``"bool"``.
        kind: The family that it belongs to.
        bits: Bits of one element. Dtypes of less than 8 bits are packed in files and parameters.
        itemsize: Bytes per element in an array of NumPy's; at least 1.
        mlir: Text of the MLIR element type. ``c64`` is a pair of f32.
        numpy_name: The name in NumPy (or ml_dtypes).
        storage: Whether it only stores numbers: arithmetic is done in `compute`, between casts.
        float_format: The bits of a float; None for other kinds.
        safetensors: The name in files of safetensors; empty if that format lacks the dtype.
        dlpack: DLPack's code of a float that is none of IEEE 754's.
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
        """The dtype that a row of the table describes."""
        own = {field.name: getattr(row, field.name) for field in fields(cls) if field.name != "itemsize"}
        return cls(itemsize=max(1, row.bits // 8), **own)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; those that NumPy lacks come from ml_dtypes."""
        if self.is_numpys_own:
            return np.dtype(self.numpy_name)
        return np.dtype(getattr(required("ml_dtypes", self.name), self.numpy_name))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype, under the name by which NumPy asks for it."""
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
        """The dtype in which arithmetic on it is done: f32 for narrower floats, i8 or u8 for narrower integers, else itself."""
        return _BY_NAME[_COMPUTE[self.name] or self.name]

    @property
    def packed(self) -> bool:
        """Whether files and parameters hold several elements in a byte."""
        return self.bits < 8

    def nbytes(self, count: int) -> int:
        """The bytes that `count` elements take in files and parameters."""
        return -(-count * self.bits // 8)

    @property
    def has_zero(self) -> bool:
        """Whether 0 is one of its values: it is in all dtypes but floats that are powers of two."""
        return self.float_format is None or self.float_format.has_zero

    @property
    def part(self) -> DType:
        """The dtype of the real and the imaginary part of a complex dtype; other dtypes are their own part."""
        return _BY_MLIR[self.mlir.removeprefix("complex<").removesuffix(">")]

    @property
    def complex(self) -> DType:
        """The complex dtype that holds this one's numbers: c128 for f64, i64, u64 and c128, else c64."""
        return c128 if self in _WIDE else c64

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_integer(self) -> bool:
        """Whether signed or unsigned; bool is neither."""
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
        """Whether float or complex: values that can be differentiated."""
        return self.kind in ("float", "complex")

    @cached_property
    def min(self) -> int | float:
        """The least finite value; 0 for bool. Raises `Error` for complex dtypes, which have no order."""
        return self._limits[0]

    @cached_property
    def max(self) -> int | float:
        """The greatest finite value; 1 for bool. Raises `Error` for complex dtypes, which have no order."""
        return self._limits[1]

    @cached_property
    def eps(self) -> float:
        """The gap between 1 and the next value; complex dtypes have that of their parts. Raises `Error` if not inexact."""
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
    return required("ml_dtypes", x.name).finfo(x.numpy)


DTYPES: tuple[DType, ...] = tuple(DType.of(row) for row in ROWS)
_COMPUTE: dict[str, str] = {row.name: row.compute for row in ROWS}

BY_NUMPY_NAME: dict[str, DType] = {d.numpy_name: d for d in DTYPES}
_BY_NAME: dict[str, DType] = {d.name: d for d in DTYPES} | BY_NUMPY_NAME
_BY_NAME["bool_"] = _BY_NAME["bool"]
_BY_MLIR: dict[str, DType] = {d.mlir: d for d in DTYPES}
assert len(_BY_MLIR) == len(BY_NUMPY_NAME) == len(DTYPES), "two dtypes have the same name"

# Those that the code names. `__getattr__` gives all others by their names.
f32, f16, bf16, f64 = (_BY_NAME[name] for name in ("f32", "f16", "bf16", "f64"))
i8, i16, i32, i64 = (_BY_NAME[name] for name in ("i8", "i16", "i32", "i64"))
u8, u16, u32, u64 = (_BY_NAME[name] for name in ("u8", "u16", "u32", "u64"))
bool_, c64, c128 = (_BY_NAME[name] for name in ("bool", "c64", "c128"))


def __getattr__(name: str) -> DType:
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


# Names of dtypes by group, for samples of ops.
FLOATS, INTEGERS, COMPLEXES, STORAGE = (GROUPS[group] for group in ("floats", "integers", "complexes", "storage"))
REAL = (*FLOATS, *INTEGERS)
NUMBERS = (*REAL, *COMPLEXES)
ARITHMETIC = (*NUMBERS, "bool")
EVERY = (*ARITHMETIC, *STORAGE)
WITH_ZERO = tuple(name for name in EVERY if _BY_NAME[name].has_zero)

_WIDE = frozenset({f64, i64, u64, c128})  # numbers of which f32 loses digits that a wider float keeps
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
    """The `DType` that `x` names.

    Args:
        x: A `DType`; a name such as ``"f32"``, ``"float32"`` or ``"bool"``; an `np.dtype` in native byte
            order; a dtype of PyTorch; a scalar class of NumPy, ml_dtypes or JAX; or Python's ``bool``, ``int``, ``float`` or
            ``complex``, which are ``bool``, ``i32``, ``f32`` and ``c64``.

    Raises:
        Error: `x` is none of these; the hint says what to cast to.
    """
    if isinstance(x, DType):
        return x
    name = _name_of(x)
    if name is not None and name in _BY_NAME:
        return _BY_NAME[name]
    described = f"{shown(name)}" if name is not None else f"{shown(x)} of type {type(x).__name__}"
    prefixes, hint = next(entry for entry in _HINTS if (name or "").startswith(entry[0]))
    meant = "" if any(prefixes) else suggestion(name, _BY_NAME)
    raise Error(f"{described} is not one of the dtypes {listed(d.name for d in DTYPES)}{meant}", hint=hint)


def family(array_dtype: np.dtype[Any]) -> str:
    """The `DType.kind` of a dtype of an array, empty for strings, objects and records.

    NumPy's own `kind` is "V" for nearly all dtypes of ml_dtypes, and "f" for one.
    """
    known = BY_NUMPY_NAME.get(array_dtype.name)
    return known.kind if known is not None else {"f": "float", "c": "complex"}.get(array_dtype.kind, "")


def _name_of(x: object) -> str | None:
    """The name of a dtype, as in NumPy, that a user gives in any form; None if it is nothing of that kind."""
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
    """Whether a class is a dtype. np.dtype gives `object` for other classes, and some default for abstract ones."""
    return kind not in _ABSTRACT and (issubclass(kind, np.generic) or kind.__module__ == "ml_dtypes")


# By prefixes of the name in NumPy; the first entry with a matching prefix applies.
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
    """The dtype whose MLIR element type is `text`, such as ``"ui8"``, ``"i1"`` or ``"complex<f32>"``.

    Raises `Error` for any other type.
    """
    result = _BY_MLIR.get(text)
    if result is None:
        raise Error(
            f"MLIR type {text} is not an element type of RLX",
            hint=f"use one of {listed((d.name for d in DTYPES), mlir=True)}",
        )
    return result


# Promotion


def promote(a: object, b: object) -> DType:
    """The common dtype of operands of dtypes `a` and `b`, which may be anything that `dtype` accepts.

    ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====
    ..    bool  u8    i8    u16   i16   u32   i32   u64   i64   f16   bf16  f32   f64   c64   c128
    ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====
    bool  bool  u8    i8    u16   i16   u32   i32   u64   i64   f16   bf16  f32   f64   c64   c128
    u8    u8    u8    i16   u16   i16   u32   i32   u64   i64   f32   f32   f32   f64   c64   c128
    i8    i8    i16   i8    i32   i16   i64   i32   f64   i64   f32   f32   f32   f64   c64   c128
    u16   u16   u16   i32   u16   i32   u32   i32   u64   i64   f32   f32   f32   f64   c64   c128
    i16   i16   i16   i16   i32   i16   i64   i32   f64   i64   f32   f32   f32   f64   c64   c128
    u32   u32   u32   i64   u32   i64   u32   i64   u64   i64   f32   f32   f32   f64   c64   c128
    i32   i32   i32   i32   i32   i32   i64   i32   f64   i64   f32   f32   f32   f64   c64   c128
    u64   u64   u64   f64   u64   f64   u64   f64   u64   f64   f64   f64   f64   f64   c128  c128
    i64   i64   i64   i64   i64   i64   i64   i64   f64   i64   f64   f64   f64   f64   c128  c128
    f16   f16   f32   f32   f32   f32   f32   f32   f64   f64   f16   f32   f32   f64   c64   c128
    bf16  bf16  f32   f32   f32   f32   f32   f32   f64   f64   f32   bf16  f32   f64   c64   c128
    f32   f32   f32   f32   f32   f32   f32   f32   f64   f64   f32   f32   f32   f64   c64   c128
    f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   f64   c128  c128
    c64   c64   c64   c64   c64   c64   c64   c64   c128  c128  c64   c64   c64   c128  c64   c128
    c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128  c128
    ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====  ====

    Commutative and idempotent. Two integers give the narrowest integer that holds both ranges; where none does, u64 with a
    signed one, f64. Two floats give the one that holds all numbers of the other, else f32; two floats that are storage
    dtypes give f32. An integer with a float gives f32, or f64 if one of the two is i64, u64 or f64; complex dtypes follow
    the same rule. Of the dtypes with arithmetic, associative except for u32 with a signed integer narrower than i64 and a
    float narrower than f64 or c64: the two integers give i64, which with a float gives f64, but either integer with the
    float gives f32.
    """
    result = _PROMOTIONS.get((a, b)) if isinstance(a, DType) and isinstance(b, DType) else None
    return result if result is not None else _PROMOTIONS[dtype(a), dtype(b)]


def _promote(a: DType, b: DType) -> DType:
    if a is b or b.is_bool:
        return a
    if a.is_bool:
        return b
    if a.is_complex or b.is_complex:
        return c128 if _WIDE & {a, b} else c64
    if a.is_float and b.is_float:
        return next((wide for wide, other in ((a, b), (b, a)) if holds(wide, other)), f32)
    if a.is_float or b.is_float:
        return f64 if _WIDE & {a, b} else f32
    low, high = min(a.min, b.min), max(a.max, b.max)
    fitting = [d for d in DTYPES if d.is_integer and d.min <= low and high <= d.max]
    return min(
        fitting, key=lambda d: d.bits, default=f64
    )  # no integer holds u64 and negative numbers: f64, as in NumPy


def holds(wide: DType, other: DType) -> bool:
    """Whether every value of the float dtype `other` is one of `wide`; False if that is a storage dtype."""
    return not wide.storage and all(x >= y for x, y in zip(_reach(wide), _reach(other), strict=True))


def _reach(x: DType) -> tuple[int, ...]:
    """Of a float dtype the bits of precision, how small and how large exponents get, and whether it has a sign."""
    layout = x.float_format
    assert layout is not None
    ones_are_numbers = layout.special != "ieee" and layout.mantissa
    top = (1 << layout.exponent) - (1 if ones_are_numbers else 2)
    return layout.mantissa, layout.bias + layout.mantissa - 1, top - layout.bias, int(layout.signed)


_PROMOTIONS = {(a, b): _promote(a, b) for a in DTYPES for b in DTYPES}


def weak(value: bool | int | float | complex, other: DType) -> DType:
    """The dtype that a Python scalar takes next to a tensor of dtype `other`.

    The scalar takes the tensor's dtype if that is of the same kind or a higher one, so ``x + 1`` and ``x *
    0.5`` keep an f16 tensor f16. Otherwise its own kind decides: an int next to bool is i32, a float next
    to bool or integers is f32 (f64 next to i64 and u64), a complex number is c64 (c128 next to these, f64
    and c128). NumPy's float64 and complex128 scalars are subclasses of Python's float and complex, and are
    treated as these.

    Raises:
        Error: `value` is an int that does not fit the dtype, or it is not a Python scalar.
    """
    if isinstance(value, bool):
        return other
    if isinstance(value, int):
        result = i32 if other.is_bool else other
        low, high = (f64.min, f64.max) if result.is_complex else (result.min, result.max)
        if not low <= value <= high:
            raise Error(
                f"the integer {shown_number(value)} beside a tensor of dtype {other.name} has to be {result.name}, "
                f"and lies outside {low} to {high}",
                hint="cast the tensor to a wider dtype first",
            )
        return result
    if isinstance(value, float):
        return other if other.is_inexact else promote(f32, other)
    if isinstance(value, complex):
        return promote(c64, other)
    raise Error(f"expected a Python bool, int, float or complex, not {shown(value)} of type {type(value).__name__}")


# Values


def beside(array: np.ndarray | np.generic) -> DType:
    """The dtype that an array of NumPy's counts as beside tensors of other dtypes.

    f64, c128 and i64 are what NumPy makes of numbers that are written without a dtype, so that they do not widen f32, c64 and
    i32: they count as these, as in JAX, i64 where all numbers fit. Beside f64, c128 and i64 they keep all digits.
    """
    own = dtype(array.dtype)
    if own is f64:
        return f32
    if own is c128:
        return c64
    if own is i64 and (not array.size or (i32.min <= array.min() and array.max() <= i32.max)):
        return i32
    return own


def shown_number(value: object) -> str:
    """A number for messages, shortened where it has many digits."""
    if isinstance(value, int) and abs(value) >= 10**1000:  # Python refuses to print integers of some thousand digits
        return "an integer of more than 1000 digits"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:30]}… of {len(text)} digits"
