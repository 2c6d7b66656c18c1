"""Conversion of operands from users to tensors: scalars, arrays, axes, mixed dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeGuard, TypeVar

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, dtype
from rlx.ir.fitting import as_array_of, holds_number
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.promotion import beside, promote, weak
from rlx.ir.python_values import tensor_hint
from rlx.ir.shape import Shape
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer, is_iterable, is_real, is_tuple
from rlx.support.short import short_repr

Scalar = (bool, int, float, complex)

F = TypeVar("F", bound=Callable[..., Any])


def constant_scalar(b: Builder, value: object, kind: DType) -> Tensor:
    """Return a rank-0 constant.

    Raises:
        Error: The dtype cannot represent the value.
    """
    return b.emit("constant", (), value=as_array_of(value, kind))


def tensor_like(b: Builder, value: object, like: DType) -> Tensor:
    """Return a tensor, array or Python scalar as a tensor. Python scalars are weak: they take their dtype from `like`."""
    if isinstance(value, Tensor):
        if value.builder is not b:
            problem, hint = value.elsewhere
            raise ShapeError(f"{short_repr(value)} {problem}", hint=hint)
        return value
    if isinstance(value, Scalar):
        return constant_scalar(b, value, weak(value, like))
    if isinstance(value, (np.ndarray, np.generic)):
        return b.emit("constant", (), value=as_array(value, "an operand"))  # pyright: ignore[reportUnknownArgumentType]
    raise _no_operand(value)


def _no_operand(value: object) -> ShapeError:
    """Return the error for a value that is not an operand: `torch.Tensor` is not the `Tensor` of a graph."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    hint = "np.asarray(value) makes an array, which becomes a constant" if hasattr(value, "__array__") else None
    hint = hint or tensor_hint(value)
    return ShapeError(f"expected a tensor, an array or a number, got {name}", hint=hint)


def cast(b: Builder, x: Tensor, kind: DType) -> Tensor:
    """Return `x` in another dtype, with an explicit `rlx.cast` where it differs."""
    return x if x.dtype is kind else b.emit("cast", (x,), dtype=kind)


def _is_storage_float(x: object, b: Builder) -> TypeGuard[Tensor]:
    return isinstance(x, Tensor) and x.builder is b and x.dtype.storage and x.dtype.is_float


def in_compute(function: F) -> F:
    """Decorate a function of a builder and tensors so that storage floats are computed in their compute dtype.

    Results are rounded once, to the dtype that all tensors have. Intermediate values need not be representable in that
    dtype.
    """

    @wraps(function)
    def computed(b: Builder, *args: Any, **options: Any) -> Any:
        values = (*args, *options.values())
        if not any(_is_storage_float(x, b) for x in values):
            return function(b, *args, **options)
        kinds = {x.dtype for x in values if isinstance(x, Tensor) and x.builder is b}

        def widened(x: object) -> object:
            return cast(b, x, x.dtype.compute) if _is_storage_float(x, b) else x

        def rounded(x: Tensor) -> Tensor:
            (kind,) = kinds
            return cast(b, x, kind) if x.dtype is kind.compute else x

        results = function(b, *map(widened, args), **{name: widened(x) for name, x in options.items()})
        if len(kinds) > 1:
            return results
        return tuple(map(rounded, results)) if is_tuple(results) else rounded(results)

    return computed  # pyright: ignore[reportReturnType]


def inexact(b: Builder, x: Tensor) -> Tensor:
    """Return floats and complex numbers unchanged, integers and bools as f32, i64 and u64 as f64."""
    return x if x.dtype.is_inexact else cast(b, x, x.dtype.complex.part)


def common(b: Builder, *values: object) -> list[Tensor]:
    """Return tensors of one dtype. Mixed dtypes promote through an explicit `rlx.cast`; Python scalars are weak.

    Raises:
        ShapeError: None of the values is a tensor or an array.
    """
    same = [v for v in values if isinstance(v, Tensor) and v.builder is b and v.beside is None and v.number is None]
    if same and len(same) == len(values) and all(v.dtype is same[0].dtype for v in same):
        return same
    for value in values:
        if not isinstance(value, (Tensor, np.ndarray, np.generic, *Scalar)):
            raise _no_operand(value)
    numbers = [v if isinstance(v, Scalar) else v.number if isinstance(v, Tensor) else None for v in values]
    typed: list[Any] = [v for v, number in zip(values, numbers, strict=True) if number is None]
    if any(isinstance(v, Tensor) and v.beside is None for v in typed):  # there is another operand to promote with
        strong = [_dtype_beside(v) for v in typed]
    else:
        strong = [dtype_of(v) for v in typed]
    if not strong:
        strong = [v.dtype for v in values if isinstance(v, Tensor)]
    if not strong:
        raise ShapeError("at least one operand must be a tensor")
    kind = strong[0]
    for operand_dtype in strong[1:]:
        kind = promote(kind, operand_dtype)
    for number in numbers:
        if number is not None:
            kind = promote(kind, weak(number, kind))
    return [
        constant_scalar(b, v, kind) if isinstance(v, Scalar) else cast(b, tensor_like(b, v, kind).towards(kind), kind)
        for v in values
    ]


def comparable(b: Builder, *values: object) -> list[Tensor]:
    """Like `common`, for numbers that a storage float may lack, for example 0 or an infinity.

    If it lacks a number, the tensor is cast to its compute dtype.
    """
    numbers = [v for v in values if isinstance(v, (int, float))]

    def widened(x: object) -> object:
        if _is_storage_float(x, b) and not all(holds_number(n, x.dtype) for n in numbers):
            return cast(b, x, x.dtype.compute)
        return x

    return common(b, *map(widened, values))


def as_tensors(xs: Any) -> list[Any]:
    """Return the tensors to join.

    Raises:
        ShapeError: There are none, or there is a single tensor. NumPy would join its rows, but probably brackets are
            missing.
    """
    if isinstance(xs, Tensor):
        raise ShapeError("expected a list of tensors, got one", hint="g.concat([a, b]); list(x) for the rows of one")
    tensors = list(xs)
    if not tensors:
        raise ShapeError("expected at least one tensor")
    return tensors


def dtype_of(value: Any) -> DType:
    """Return the dtype of a tensor or an array."""
    return value.dtype if isinstance(value, Tensor) else dtype(value.dtype)


def _dtype_beside(value: Tensor | np.ndarray | np.generic) -> DType:
    """Return the dtype of an operand in promotion: see `beside`."""
    if isinstance(value, Tensor):
        return value.dtype if value.beside is None else value.beside
    return beside(value)


def size_of(b: Builder, d: Dim) -> Any:
    """Return a dimension for arithmetic with i32: an integer if it is static, else an i32 scalar."""
    return d if type(d) is int else b.emit("dim_size", (), size=(d,))


def checked_eps(eps: object) -> float:
    """Return the `eps` of a function that is composed of ops. Ops declare the same range.

    Raises:
        ShapeError: It is negative or not a finite number.
    """
    if not is_real(eps) or not 0 <= eps < np.inf:
        raise ShapeError(f"eps must be a number from 0 on, got {short_repr(eps)}")
    return float(eps)


def axis_of(axis: object, rank: int, name: str = "axis") -> int:
    """Return a canonical axis from one that may be negative.

    Raises:
        ShapeError: It is not an integer or out of range.
    """
    if not is_integer(axis):
        hint = f"tensors come first, {name}= after them" if isinstance(axis, Tensor) else None
        if axis is None:
            hint = "one axis; of all elements, that of g.ravel(x)"
        raise ShapeError(f"{name} must be an integer, got {short_repr(axis)}", hint=hint)
    if not -rank <= axis < rank:
        raise ShapeError(f"{name} {short_repr(axis)} is out of range for rank {rank}")
    return int(axis) % rank


def axes_of(axes: object, rank: int, name: str = "axes") -> tuple[int, ...]:
    """Return sorted distinct canonical axes; None means all.

    Raises:
        ShapeError: An axis is out of range or occurs twice.
    """
    if axes is None:
        return tuple(range(rank))
    if not is_iterable(axes):
        axes = (axes,)
    result = sorted(axis_of(a, rank, name) for a in axes)
    if len(set(result)) != len(result):
        raise ShapeError(f"{name} {tuple(axes)} name an axis twice")
    return tuple(result)


def check_axis(axis: int, rank: int, name: str = "axis") -> None:
    """Check that an axis is canonical, as the IR requires.

    Raises:
        ShapeError: The axis is not in [0, rank).
    """
    if not 0 <= axis < rank:
        raise ShapeError(f"{name} {short_repr(axis)} is out of range for rank {rank}")


def check_axes(axes: Sequence[int], rank: int) -> None:
    """Check that axes are canonical and in order.

    Raises:
        ShapeError: An axis is not in [0, rank), or the axes are not sorted and distinct.
    """
    for axis in axes:
        check_axis(axis, rank)
    if list(axes) != sorted(set(axes)):
        raise ShapeError(f"axes {list(axes)} must be sorted and distinct")


def same_dtype(*shapes: Shape) -> DType:
    """Return the one dtype of several operands.

    Raises:
        ShapeError: The dtypes differ.
    """
    if any(s.dtype is not shapes[0].dtype for s in shapes):
        names = ", ".join(s.dtype.name for s in shapes)
        raise ShapeError(f"operands have different dtypes: {names}")
    return shapes[0].dtype


def broadcast(*shapes: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return the common shape of several shapes, by NumPy's rule. A symbol broadcasts with itself and with 1.

    Raises:
        ShapeError: They do not broadcast.
    """
    all_dims = [tuple(s) for s in shapes]
    if all(dims == all_dims[0] for dims in all_dims):
        return all_dims[0]
    rank = max(map(len, all_dims))
    result: list[Dim] = []
    for axis in range(-rank, 0):
        size: Dim = 1
        for dims in all_dims:
            d = dims[axis] if -axis <= len(dims) else 1
            if d == 1 or d == size:
                continue
            if size != 1:
                text = " and ".join("[" + ", ".join(map(str, dims)) + "]" for dims in all_dims)
                raise ShapeError(f"shapes {text} do not broadcast: {size} against {d} at axis {axis}")
            size = d
        result.append(size)
    return tuple(result)


def broadcasts_to(dims: Sequence[Dim], to: Sequence[Dim]) -> bool:
    """Return whether a shape broadcasts to another by NumPy's rule, without changing the other."""
    tail = to[len(to) - len(dims) :]
    return len(dims) <= len(to) and all(d in (1, size) for d, size in zip(dims, tail, strict=True))


def prefix(shape: Shape, count: int) -> Sequence[Dim]:
    """Return the leading dimensions."""
    return shape.dims[:count]
