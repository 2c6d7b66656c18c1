"""Tensor creation from sizes and numbers: NumPy's `zeros`, `arange`, `eye`, `diag` and others."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.functions.shape.arrange import moveaxis
from rlx.ir.dims.dim import Dim, DimExpr, dim, minimum
from rlx.ir.dtype import DType, f32, i32
from rlx.ir.dtype import dtype as dtype_of
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, ShapeLike, Size, TensorLike
from rlx.ir.promotion import weak
from rlx.ops.lift import axis_of, cast, constant_scalar, size_of, tensor_like
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer


def _dims(shape: ShapeLike) -> list[Dim]:
    return [dim(d) for d in ((shape,) if isinstance(shape, (int, str, np.integer, DimExpr)) else shape)]


def _kind(dtype: DTypeLike | None, default: DType = f32) -> DType:
    if isinstance(dtype, int):
        raise ShapeError(f"{dtype} is no dtype", hint="the sizes of a shape come in one tuple: zeros((2, 3))")
    return default if dtype is None else dtype_of(dtype)


@helper
def full(b: Builder, shape: ShapeLike, fill_value: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """NumPy's `full`: one value everywhere. `dtype` defaults to that of the value; a Python number is f32, i32 or bool.

    Raises:
        Error: The dtype cannot represent the value.
    """
    if isinstance(fill_value, (bool, int, float, complex)):
        default = f32 if isinstance(fill_value, (float, complex)) else i32
        value = constant_scalar(b, fill_value, weak(fill_value, default) if dtype is None else _kind(dtype))
    else:
        value = tensor_like(b, fill_value, f32)
        value = value if dtype is None else cast(b, value, dtype_of(dtype))
    return b.expand(value, _dims(shape))


@helper
def zeros(b: Builder, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """NumPy's `zeros`, by default f32."""
    return full(b, shape, 0, _kind(dtype))


@helper
def ones(b: Builder, shape: ShapeLike, dtype: DTypeLike | None = None) -> Tensor:
    """NumPy's `ones`, by default f32."""
    return full(b, shape, 1, _kind(dtype))


@helper
def full_like(b: Builder, x: TensorLike, fill_value: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """NumPy's `full_like`: one value in the shape of `x` and, unless `dtype` is given, in its dtype."""
    x = tensor_like(b, x, f32)
    return full(b, x.shape.dims, fill_value, _kind(dtype, x.dtype))


@helper
def zeros_like(b: Builder, x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """NumPy's `zeros_like`."""
    return full_like(b, x, 0, dtype)


@helper
def ones_like(b: Builder, x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """NumPy's `ones_like`."""
    return full_like(b, x, 1, dtype)


@helper
def arange(
    b: Builder, start: Size | float, stop: Size | float | None = None, step: float = 1, dtype: DTypeLike | None = None
) -> Tensor:
    """NumPy's `arange`: the numbers from `start` (default 0) up to `stop` (exclusive); i32, or f32 if one is a float.

    Bounds may be symbolic sizes, with step 1.

    Raises:
        ShapeError: The step is 0, or it is not 1 and a bound is symbolic.
    """
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, (str, DimExpr)) for v in (start, stop)):
        if step != 1:
            raise ShapeError(f"with a symbolic bound the step is 1, not {step!r}")
        first = dim(start)
        counted = b.iota((dim(stop) - first,), dtype="i32")
        return cast(b, counted if first == 0 else counted + size_of(b, first), _kind(dtype, i32))
    for value in (start, stop, step):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise ShapeError(f"bounds and step are numbers, got {value!r}")
    if step == 0:
        raise ShapeError("the step must not be 0")
    arange_of: Callable[..., np.ndarray] = np.arange
    values = arange_of(start, stop, step)
    return b.constant(values, _kind(dtype, f32 if values.dtype.kind == "f" else i32))


@helper
def linspace(
    b: Builder, start: float, stop: float, num: int = 50, endpoint: bool = True, dtype: DTypeLike | None = None
) -> Tensor:
    """NumPy's `linspace`: `num` equally spaced numbers from `start` to `stop`, by default f32."""
    if not is_integer(num) or num < 0:
        raise ShapeError(f"num must be an integer from 0 on, got {num!r}")
    for name, value in (("start", start), ("stop", stop)):
        if not isinstance(value, (int, float, np.integer, np.floating)):
            raise ShapeError(
                f"{name} must be a number, got {value!r:.60}",
                hint="start + (stop - start) * g.linspace(0, 1, num) of tensors",
            )
    return b.constant(np.linspace(start, stop, num, endpoint=endpoint), _kind(dtype))


def _places(b: Builder, rows: Dim, columns: Dim) -> tuple[Tensor, Tensor]:
    """Return row and column of each element of a matrix."""
    return b.iota((rows, columns), axis=0, dtype="i32"), b.iota((rows, columns), axis=1, dtype="i32")


def _offset(k: int) -> int:
    """Return the number of a diagonal, clamped so that its sum with a row number fits into i32.

    A clamped diagonal is outside of any matrix.
    """
    return max(-(2**30), min(int(k), 2**30))


@helper
def eye(b: Builder, n: Size, m: Size | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """NumPy's `eye`: `[n, m]`, 1 on diagonal `k` and 0 elsewhere; by default square and f32."""
    row, column = _places(b, dim(n), dim(n if m is None else m))
    return cast(b, column == row + _offset(k), _kind(dtype))


@helper
def tri(b: Builder, n: Size, m: Size | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """NumPy's `tri`: `[n, m]`, 1 on diagonal `k` and below it; by default square and f32."""
    row, column = _places(b, dim(n), dim(n if m is None else m))
    return cast(b, column <= row + _offset(k), _kind(dtype))


@helper
def tril(b: Builder, x: TensorLike, k: int = 0) -> Tensor:
    """NumPy's `tril`: 0 above diagonal `k` of the matrices `[…, rows, columns]`."""
    return b.triangular(tensor_like(b, x, f32), upper=False, diagonal=k)


@helper
def triu(b: Builder, x: TensorLike, k: int = 0) -> Tensor:
    """NumPy's `triu`: 0 below diagonal `k` of the matrices `[…, rows, columns]`."""
    return b.triangular(tensor_like(b, x, f32), upper=True, diagonal=k)


@helper
def diagonal(b: Builder, x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """NumPy's `diagonal`: the elements of diagonal `offset` of the matrices formed by two axes, as the last axis.

    Raises:
        ShapeError: The two axes are the same, or a size is symbolic and the offset is not 0.
    """
    x = tensor_like(b, x, f32)
    first, second = axis_of(axis1, x.rank, "axis1"), axis_of(axis2, x.rank, "axis2")
    if first == second:
        raise ShapeError(f"axis1 and axis2 are both axis {first}")
    x = moveaxis(b, x, (first, second), (-2, -1))
    *outer, rows, columns = x.shape.dims
    row, column = max(-offset, 0), max(offset, 0)
    if type(rows) is int and type(columns) is int:
        length: Dim = max(0, min(rows - row, columns - column))
    elif rows == columns and not offset:
        length = rows
    elif not offset:
        length = minimum(rows, columns)
    else:
        raise ShapeError(
            f"the length of diagonal {offset} of {x.shape} is not known", hint="take diagonal 0 of a slice"
        )
    flat = b.reshape(x, (*outer, rows * columns))
    places = b.iota((length,), dtype="i32") * size_of(b, columns + 1)
    if offset:
        places = places + size_of(b, row * columns + column)
    return b.gather(flat, places, len(outer))


@helper
def diag(b: Builder, x: TensorLike, k: int = 0) -> Tensor:
    """NumPy's `diag`: the matrix with `x` of rank 1 on diagonal `k`, or diagonal `k` of a matrix.

    Raises:
        ShapeError: The rank is not 1 or 2.
    """
    x = tensor_like(b, x, f32)
    if x.rank == 2:
        return diagonal(b, x, k)
    if x.rank != 1:
        raise ShapeError(f"diag takes rank 1 or 2, not {x.shape}", hint="diagonal takes any rank from 2 on")
    size = x.shape.dims[0] + abs(k)
    padded = b.pad(x, [(0, abs(k))]) if k else x
    values = b.reshape(padded, (size, 1) if k >= 0 else (1, size))
    row, column = _places(b, size, size)
    return b.where(column == row + int(k), values, b.cast(b.constant(0), x.dtype))


@helper
def one_hot(b: Builder, x: TensorLike, num_classes: int, dtype: DTypeLike | None = None, axis: int = -1) -> Tensor:
    """JAX's `one_hot`: 1 at the position given by each integer along a new axis of `num_classes`, else 0; default f32.

    An integer out of range gives zeros.

    Raises:
        ShapeError: `x` does not contain integers.
    """
    x = tensor_like(b, x, i32)
    if not x.dtype.is_integer:
        raise ShapeError(f"one_hot takes integers, not {x.dtype.name}")
    x = cast(b, x, i32) if x.dtype.name in ("i8", "i16", "u8") else x
    place, classes = axis_of(axis, x.rank + 1), dim(num_classes)
    dims = x.shape.dims
    values = b.reshape(x, (*dims[:place], 1, *dims[place:]))
    counted = b.iota((classes, *[1] * (x.rank - place)), dtype=x.dtype)
    return cast(b, values == counted, _kind(dtype))


@helper
def meshgrid(b: Builder, *xs: TensorLike, indexing: str = "xy") -> list[Tensor]:
    """NumPy's `meshgrid`: for each tensor of rank 1 a grid over all of them, which varies along the tensor's own axis.

    Raises:
        ShapeError: A tensor is not of rank 1, or `indexing` is neither `xy` nor `ij`.
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"indexing is 'xy' or 'ij', not {indexing!r}")
    tensors = [tensor_like(b, x, f32) for x in xs]
    if any(t.rank != 1 for t in tensors):
        raise ShapeError(f"meshgrid takes tensors of rank 1, got {', '.join(str(t.shape) for t in tensors)}")
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    sizes = [tensors[i].shape.dims[0] for i in order]
    return [
        b.expand(b.reshape(t, [d if order[a] == i else 1 for a, d in enumerate(sizes)]), sizes)
        for i, t in enumerate(tensors)
    ]


@helper
def outer(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `outer`: the products of all elements of two tensors, `[elements of lhs, elements of rhs]`."""
    lhs, rhs = tensor_like(b, lhs, f32), tensor_like(b, rhs, f32)
    return b.mul(b.reshape(lhs, (lhs.shape.num_elements, 1)), b.reshape(rhs, (1, rhs.shape.num_elements)))
