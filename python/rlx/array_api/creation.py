"""Creation functions of the array API."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array_api.arrays import builder, check_device
from rlx.array_api.copies import check_copy, copied, refuse, shared
from rlx.ir import dlpack
from rlx.ir.arrays import as_array, as_numbers
from rlx.ir.dtype import DType, bool_, c64, c128, f32, f64, i32, i64, u64
from rlx.ir.dtype import dtype as dtype_named
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import DTypeLike, ShapeLike, TensorLike
from rlx.support.caller import caller_place
from rlx.support.errors import Error
from rlx.support.guards import is_array, is_integer, is_sequence, is_truth_value

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


def _kind(dtype: DTypeLike | None, default: DType = f32) -> DType:
    return default if dtype is None else dtype_named(dtype)


def _default_of(value: Any) -> DType:
    """Return the default dtype of a Python number, or of an array of Python numbers."""
    if is_truth_value(value):
        return bool_
    if is_integer(value):
        return _default_of_integers(int(value), int(value))
    return _default_of_inexact(np.asarray(value))


def _default_of_integers(least: int, greatest: int) -> DType:
    """Return the first of i32, i64 and u64 that can represent integers from `least` to `greatest`; i64 if none can."""
    return next((kind for kind in (i32, i64, u64) if kind.min <= least and greatest <= kind.max), i64)


def _default_of_inexact(array: np.ndarray) -> DType:
    """Return f32, or f64 if a number is beyond f32; c64 or c128 for complex numbers."""
    narrow, wide = (c64, c128) if array.dtype.kind == "c" else (f32, f64)
    parts = np.stack([np.real(array), np.imag(array)])
    with np.errstate(over="ignore"):
        beyond = np.isinf(parts.astype(np.float32)) & np.isfinite(parts)
    return wide if beyond.any() else narrow


def asarray(
    obj: object, /, *, dtype: DTypeLike | None = None, device: str | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor from a number, nested lists of numbers, an array or a tensor.

    With `copy=False` a tensor with a value shares the memory of the array, which must not change while the tensor is
    used.

    Raises:
        Error: It contains no numbers, lists are ragged, or the dtype cannot represent a Python number.
        ValueError: `copy` is False, and a copy is needed: for Python numbers, in a graph, or for a different dtype.
    """
    check_device(device)
    check_copy("asarray", copy)
    if isinstance(obj, Tensor):
        if dtype is not None and dtype_named(dtype) is not obj.dtype:
            if copy is False:
                raise refuse("asarray", f"{obj.dtype} as {dtype_named(dtype)}")
            return obj.builder.cast(obj, dtype_named(dtype))
        return copied(obj) if copy else obj
    if hasattr(obj, "__array__"):
        return _of_array(obj, dtype, copy)
    if copy is False:
        raise refuse("asarray", f"a tensor of a {type(obj).__name__}")
    if is_sequence(obj) and any(isinstance(v, Tensor) for v in obj):
        return asarray(builder(obj).stack([asarray(v) for v in obj]), dtype=dtype)
    try:
        array = as_numbers(obj, "asarray")
    except Error as problem:
        raise Error(problem.message, location=caller_place(), hint=problem.hint) from None
    if dtype is not None:
        kind = dtype_named(dtype)
        array = np.trunc(array) if array.dtype.kind == "f" and kind.is_integer else array
    elif array.dtype.kind in "fc":
        kind = _default_of_inexact(array)
    elif array.dtype.kind in "iuO":  # integers; those of more than 64 bits have dtype object
        kind = _default_of_integers(int(array.min()), int(array.max())) if array.size else i32
    else:
        kind = dtype_named(array.dtype)
    return builder(obj).constant(array, kind)


def _of_array(obj: object, dtype: DTypeLike | None, copy: bool | None) -> Tensor:
    try:
        array = np.asarray(obj, copy=False if copy is False else None)
    except ValueError as problem:
        raise refuse("asarray", f"the {type(obj).__name__} as an array") from problem
    kind = dtype_named(array.dtype if dtype is None else dtype)
    if copy is False:
        if kind.numpy != array.dtype:
            raise refuse("asarray", f"{array.dtype} as {kind}")
        return shared("asarray", array)
    with np.errstate(all="ignore"):
        return builder(obj).constant(array.astype(kind.numpy))


def from_dlpack(x: object, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A constant from an array of another library.

    With `copy=False` a tensor with a value shares the memory of the array, which must not change while the tensor is
    used. By default, and with `copy=True`, it has its own memory.

    Raises:
        Error: The array lacks `__dlpack__`, is not in memory that the CPU can read, or has a dtype that RLX lacks.
        BufferError: `copy` is False, but tensors belong to a graph or the other library has to copy.
    """
    check_device(device)
    check_copy("from_dlpack", copy)
    if isinstance(x, Tensor):
        return copied(x) if copy else x
    if not hasattr(x, "__dlpack__"):
        raise Error(f"from_dlpack needs an object with __dlpack__, got {type(x).__name__}", location=caller_place())
    if copy is False:
        return shared("from_dlpack", x if is_array(x) else dlpack.read(x, "from_dlpack", copy=False))
    return asarray(as_array(x, "from_dlpack"))


def full(
    shape: ShapeLike, fill_value: complex | np.generic, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """A tensor filled with one value."""
    check_device(device)
    return builder(fill_value).full(shape, fill_value, dtype=_kind(dtype, _default_of(fill_value)))


def zeros(shape: ShapeLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros; f32 by default."""
    check_device(device)
    return builder().zeros(shape, dtype=_kind(dtype))


def ones(shape: ShapeLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones; f32 by default."""
    check_device(device)
    return builder().ones(shape, dtype=_kind(dtype))


def empty(shape: ShapeLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros, because tensors are never written to."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: complex | np.generic, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """A tensor filled with one value, in the shape and by default the dtype of another tensor."""
    check_device(device)
    return builder(x).full(x.shape.dims, fill_value, dtype=_kind(dtype, x.dtype))


def zeros_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros in the shape of a tensor."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones in the shape of a tensor."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros in the shape of a tensor."""
    return zeros_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """1 on a diagonal and 0 elsewhere."""
    check_device(device)
    return builder().eye(n_rows, n_cols, k, dtype=_kind(dtype))


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """The numbers from `start` (default 0) up to `stop` (exclusive); i32, or f32 if one is a float."""
    check_device(device)
    if stop is None:
        start, stop = 0, start
    numbers = (start, stop, step)
    kind = _kind(dtype, i32 if all(isinstance(v, int) for v in numbers) else f32)
    if dtype is None and kind is i32 and not all(i32.min <= v <= i32.max for v in numbers):
        kind = i64
    return builder().arange(start, stop, step, dtype=kind)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Equally spaced numbers."""
    check_device(device)
    default = c64 if isinstance(start, complex) or isinstance(stop, complex) else f32
    array = np.linspace(start, stop, num, endpoint=endpoint)
    return builder().constant(np.array(array.astype(_kind(dtype, default).numpy)))


def meshgrid(*arrays: TensorLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid."""
    return tuple(builder(arrays).meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """0 above a diagonal."""
    return builder(x).tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """0 below a diagonal."""
    return builder(x).triu(x, k)
