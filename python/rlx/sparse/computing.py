"""Shared helpers of sparse matrices: the builder of a call, and operations on values that may be arrays or tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from rlx.ir.arrays import as_numbers
from rlx.ir.calls import check_call
from rlx.ir.dtype import DType, dtype, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.current import builder_of, current_builder, emitting_into
from rlx.ir.graph.eager import EAGER
from rlx.ir.pytree import map_leaves
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import tensor_like
from rlx.support.caller import caller_place
from rlx.support.errors import Error

Function = TypeVar("Function", bound=Callable[..., Any])


def located(function: Function) -> Function:
    """Decorate a public function: its errors get the caller's line."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_call(function.__name__, function, args, kwargs)
            raise
        except Error as problem:
            if problem.location is not None:
                raise
            raise problem.moved(f"{function.__name__}: {problem.message}", location=caller_place()) from None

    return cast("Function", call)


def computed(values: Sequence[Any], function: Callable[[Builder], Any]) -> Any:
    """Return `function(builder)`, for the builder of the tensors among the values, or the current one.

    Without tensors, outside of `rlx.jit`, the function is evaluated at once, and the results are arrays.
    """
    builder = builder_of(values) or current_builder()
    if builder is not None:
        return function(builder)
    with emitting_into(EAGER):
        return map_leaves(_as_array, function(cast("Builder", EAGER)))


def _as_array(leaf: Any) -> Any:
    return np.array(leaf) if isinstance(leaf, Tensor) else leaf


def lift(b: Builder, value: Any) -> Tensor:
    """Return an array or a tensor as a tensor."""
    return tensor_like(b, value, f32)


def is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def numbers(value: Any, name: str) -> Any:
    """Return a tensor unchanged, anything else as an array with a dtype of RLX.

    Raises:
        Error: It is neither a tensor nor an array of numbers.
    """
    if isinstance(value, Tensor):
        return value
    array = as_numbers(value, name)
    dtype(array.dtype)
    return array


def dtype_of(value: Any) -> DType:
    """Return the dtype of a tensor or an array."""
    return value.dtype if isinstance(value, Tensor) else dtype(value.dtype)


def take(value: Any, order: Any) -> Any:
    """Return entries of a vector in an order; all if it is None."""
    if order is None:
        return value
    if not isinstance(value, Tensor) and not isinstance(order, Tensor):
        return value[order]

    def gathered(b: Builder) -> Any:
        table, indices = lift(b, value), lift(b, order)
        shape = Shape((*indices.shape.dims, *table.shape.dims[1:]), table.dtype)
        return rules.zeros(b, shape) if 0 in shape.dims else b.gather(table, indices, axis=0)

    return computed([value, order], gathered)


def concatenated(values: Sequence[Any]) -> Any:
    """Return vectors one after another, in their common dtype. Empty ones only count for the dtype."""
    if not any(isinstance(v, Tensor) for v in values):
        return np.concatenate(values)

    def joined(b: Builder) -> Any:
        tensors = [lift(b, v) for v in values]
        return b.concatenate(tensors, axis=0)

    return computed(values, joined)


def sums(data: Any, order: Any, offsets: np.ndarray, width: int) -> Any:
    """Return the sum of each group of rows of `data`.

    Args:
        data: The vector, or rows.
        order: The rows in the order of the groups.
        offsets: The start of each group in `order`, and the end of the last one.
        width: The size of the largest group.
    """

    def added(b: Builder) -> Any:
        table = lift(b, data)
        if 0 in (*table.shape.dims, offsets.size - 1, len(order)):
            return rules.zeros(b, Shape((offsets.size - 1, *table.shape.dims[1:]), table.dtype))
        ones = b.ones((len(order),), dtype=table.dtype)
        return b.csr_matmul(ones, order, offsets, table, width=width)

    return computed([data], added)


def conjugated(value: Any) -> Any:
    """Return the complex conjugate of a tensor or an array."""
    if not dtype_of(value).is_complex:
        return value
    return value.builder.conjugate(value) if isinstance(value, Tensor) else np.conj(value)
