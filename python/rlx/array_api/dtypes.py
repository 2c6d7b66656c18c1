"""The dtypes of the array API, and functions that describe them."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from functools import reduce

from rlx import ops
from rlx.array_api.arrays import devices_of
from rlx.ir.dtype import DTYPES, DType, bool_, c64, c128, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from rlx.ir.dtype import dtype as dtype_named
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import DTypeLike
from rlx.ir.promotion import promote, weak
from rlx.support.errors import Error

__all__ = [
    "__array_namespace_info__",
    "astype",
    "bool",
    "can_cast",
    "complex64",
    "complex128",
    "finfo",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

bool = bool_
int8, int16, int32, int64 = i8, i16, i32, i64
uint8, uint16, uint32, uint64 = u8, u16, u32, u64
float32, float64, complex64, complex128 = f32, f64, c64, c128

# The dtypes of the standard. It lacks half precision and storage dtypes.
_STANDARD = {d.numpy_name: d for d in DTYPES if not d.storage and (d.bits != 16 or d.is_integer)}


@dataclass(frozen=True)
class _FloatLimits:
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class _IntegerLimits:
    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(x: Tensor | DTypeLike) -> DType:
    return x.dtype if isinstance(x, Tensor) else dtype_named(x)


def finfo(type: Tensor | DTypeLike) -> _FloatLimits:
    """The limits of a float dtype, of the parts of a complex dtype, or of the dtype of a tensor."""
    kind = _dtype_of(type)
    part = kind.part
    if not part.is_float:
        raise Error(f"{kind.name} is no float dtype")
    layout = part.float_format
    assert layout is not None
    return _FloatLimits(part.bits, part.eps, float(part.max), float(part.min), layout.smallest_normal, part)


def iinfo(type: Tensor | DTypeLike) -> _IntegerLimits:
    """The limits of an integer dtype, or of the dtype of a tensor."""
    kind = _dtype_of(type)
    if not kind.is_integer:
        raise Error(f"{kind.name} is no integer dtype")
    return _IntegerLimits(kind.bits, int(kind.max), int(kind.min), kind)


def astype(x: Tensor, dtype: DTypeLike, /, *, copy: builtins.bool | None = True, device: str | None = None) -> Tensor:
    """A tensor in another dtype."""
    kind = dtype_named(dtype)
    if x.dtype.is_complex and not kind.is_complex:
        raise TypeError(f"complex numbers do not become {kind.name}: take their real part")
    return ops.cast(x, kind)


def can_cast(from_: Tensor | DTypeLike, to: DTypeLike, /) -> builtins.bool:
    """Whether a dtype, or the dtype of a tensor, promotes to another dtype, which then represents all of its values."""
    return promote(_dtype_of(from_), dtype_named(to)) is dtype_named(to)


def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> builtins.bool:
    """Whether a dtype equals another or is of a kind.

    Kinds are "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric",
    or a tuple of these.
    """
    own = dtype_named(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(own, k) for k in kind)
    kinds = {
        "bool": own.is_bool,
        "signed integer": own.is_integer and own.is_signed,
        "unsigned integer": own.is_integer and not own.is_signed,
        "integral": own.is_integer,
        "real floating": own.is_float,
        "complex floating": own.is_complex,
        "numeric": not own.is_bool,
    }
    return kinds[kind] if isinstance(kind, str) and kind in kinds else own is dtype_named(kind)


def result_type(*arrays_and_dtypes: Tensor | DTypeLike | complex) -> DType:
    """The dtype that tensors, dtypes and Python numbers promote to."""
    numbers = [v for v in arrays_and_dtypes if isinstance(v, (int, float, complex))]
    strong = [_dtype_of(v) for v in arrays_and_dtypes if not isinstance(v, (int, float, complex))]
    if not strong:
        raise TypeError("result_type needs a tensor or a dtype")
    kind = reduce(promote, strong)
    return reduce(lambda known, number: promote(known, weak(number, known)), numbers, kind)


class _Info:
    """The result of `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, builtins.bool | None]:
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": None}

    def default_device(self) -> str:
        return devices_of()[0]

    def devices(self) -> tuple[str, ...]:
        return devices_of()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        return {"real floating": f32, "complex floating": c64, "integral": i32, "indexing": i32}

    def dtypes(
        self, *, device: str | None = None, kind: DTypeLike | tuple[DTypeLike, ...] | None = None
    ) -> dict[str, DType]:
        return {name: d for name, d in _STANDARD.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> _Info:
    """Capabilities, devices and dtypes of this namespace."""
    return _Info()
