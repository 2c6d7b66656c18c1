"""Linear operators of the solvers: matrices, sparse matrices and functions of a tensor, with their adjoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.current import builder_of, current_builder
from rlx.ir.promotion import promote
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import tensor_like
from rlx.sparse.array import as_container
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_integer, is_real
from rlx.support.short import short_repr

Apply = Callable[[Tensor], Tensor]
_FORMS = "a matrix, a sparse matrix or a function of a tensor"


def builder_for(*values: object) -> Builder:
    """Return the builder of the tensors among the values, or the current one.

    Raises:
        Error: No value is a tensor, and no function is traced or evaluated.
    """
    builder = builder_of([*values, *(getattr(v, "data", None) for v in values)]) or current_builder()
    if builder is None:
        hint = "call it in a function under rlx.jit, or inside of `with rlx.eager():` to compute with arrays"
        raise Error("expected tensors of a graph; none was given", hint=hint)
    return builder


@dataclass(frozen=True)
class Operator:
    """A linear map of tensors.

    Attributes:
        dtype: The dtype of its entries; None if it is a function, which decides for each argument.
        shape: The numbers of rows and columns; None for a function.
        apply: The map.
        adjoint: The map of the conjugate transpose; None if there is none.
    """

    dtype: DType | None
    shape: tuple[Dim, Dim] | None
    apply: Apply
    adjoint: Apply | None


def conjugate(x: Tensor) -> Tensor:
    """Return the complex conjugate; a real tensor itself."""
    return x.builder.conjugate(x) if x.dtype.is_complex else x


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the inner product of two tensors, linear in the second, as a scalar."""
    return x.builder.sum(conjugate(x) * y)


def real_dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the real part of the inner product."""
    product = dot(x, y)
    return x.builder.real(product) if product.dtype.is_complex else product


def norm2(x: Tensor) -> Tensor:
    """Return the Euclidean norm of all elements, as a real scalar."""
    return x.builder.sqrt(real_dot(x, x))


def is_finite(x: Tensor) -> Tensor:
    """Return whether a scalar is neither infinite nor NaN."""
    return x.builder.abs(x) < np.inf


def as_matrix(g: Builder, value: Any) -> Any:
    """Return a matrix as a tensor, and a SciPy matrix as a container; other values unchanged."""
    if isinstance(value, (np.ndarray, list)):
        array = np.asarray(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return tensor_like(g, array if array.dtype.kind in "fc" else array.astype(np.float32), f32)
    return as_container(value)


def operator_of(g: Builder, value: Any, name: str = "A", columns: Shape | None = None) -> Operator:
    """Return a matrix, a sparse matrix or a function as an operator.

    Args:
        g: The builder.
        value: The argument of the call.
        name: The name of the parameter, for messages.
        columns: The shape of the argument of a function, which its adjoint needs.

    Raises:
        Error: It is none of these, or a tensor that is not a matrix.
    """
    value = as_matrix(g, value)
    if isinstance(value, Tensor):
        if value.rank != 2:
            hint = "rlx.vmap solves many systems at once"
            raise ShapeError(f"{name} must be a matrix [M, N], got a tensor {value.shape}", hint=hint)
        matrix = value if value.dtype.is_inexact else g.cast(value, f32)
        rows, columns_of = matrix.shape.dims
        return Operator(
            matrix.dtype,
            (rows, columns_of),
            lambda x: _product(g, matrix, x),
            lambda y: conjugate(_product(g, _towards(g, conjugate(y), matrix.dtype), matrix)),
        )
    if hasattr(value, "__matmul__") and hasattr(value, "shape") and hasattr(value, "dtype"):
        rows, columns_of = value.shape
        return Operator(
            value.dtype, (rows, columns_of), lambda x: value @ x, lambda y: conjugate(value.T @ conjugate(y))
        )
    if callable(value):
        function = cast("Apply", value)
        return Operator(None, None, function, _transposed(g, function, columns))
    raise Error(f"{name} must be {_FORMS}, got {short_repr(value)}")


def _product(g: Builder, x: Tensor, y: Tensor) -> Tensor:
    return g.matmul(x, y)


def _towards(g: Builder, x: Tensor, dtype: DType) -> Tensor:
    kind = promote(x.dtype, dtype)
    return x if x.dtype is kind else g.cast(x, kind)


def _transposed(g: Builder, function: Apply, columns: Shape | None) -> Apply | None:
    """Return the adjoint of a linear function of a tensor, by the rules of reverse mode."""
    from rlx.transforms.reverse import adjoint

    if columns is None:
        return None

    def transposed(y: Tensor) -> Tensor:
        with g.scratchpad():
            shape = Shape(columns.dims, y.dtype)
            (result,) = adjoint(g, lambda t: [function(t[0])], [], [shape], [y])
        return rules.or_zeros(g, result, shape)

    return transposed


def preconditioner_of(g: Builder, value: Any, columns: Shape) -> Operator | None:
    """Return an approximate inverse as an operator; None without one.

    Raises:
        Error: It is neither an operator nor an object with a method `solve`.
    """
    if value is None:
        return None
    solve = getattr(value, "solve", None)
    if callable(solve) and not isinstance(value, Tensor):
        return Operator(None, None, cast("Apply", solve), _transposed(g, cast("Apply", solve), columns))
    return operator_of(g, value, "M", columns)


def result_shape(g: Builder, function: Apply, shape: Shape) -> Shape:
    """Return the shape of a function's result.

    Raises:
        Error: It returns something other than one tensor.
    """
    with g.scratchpad():
        results = g.region(function, [shape]).shapes.results
    if len(results) != 1:
        raise ShapeError(f"A must return one tensor, got {len(results)}")
    return results[0]


def system(g: Builder, matrix: Any, side: Any, *others: Any) -> tuple[Operator, Tensor]:
    """Return the operator of a square system and its right-hand side, in the dtype of the solution.

    Raises:
        Error: The shapes do not fit.
    """
    b = tensor_like(g, np.asarray(side) if isinstance(side, (list, tuple)) else side, f32)  # pyright: ignore[reportUnknownArgumentType]
    b = b if b.dtype.is_inexact else g.cast(b, f32)
    if b.dtype.compute is not b.dtype:
        b = g.cast(b, b.dtype.compute)
    operator = operator_of(g, matrix, columns=b.shape)
    if operator.shape is not None:
        rows, columns = operator.shape
        if rows != columns:
            raise ShapeError(f"A must be square, got [{rows}, {columns}]", hint="lsqr and lsmr solve least squares")
        if b.shape.dims != (rows,):
            hint = "rlx.vmap solves for several right-hand sides" if b.rank == 2 else None
            raise ShapeError(f"b must be a vector [{rows}] to go with A [{rows}, {columns}], got {b.shape}", hint=hint)
        assert operator.dtype is not None
        kind = promote(b.dtype, operator.dtype.compute)
    else:
        kind = result_shape(g, operator.apply, b.shape).dtype
    for other in others:
        if isinstance(other, Tensor) and other.dtype.is_inexact:
            kind = promote(kind, other.dtype.compute)
    b = b if b.dtype is kind else g.cast(b, kind)
    if operator.shape is None:
        result = result_shape(g, operator.apply, b.shape)
        if result != b.shape:
            raise ShapeError(f"A maps {b.shape} to {result}; expected a tensor like b")
    return operator, b


def count_of(name: str, value: object, at_least: int = 0) -> int | None:
    """Return a number of iterations; None if it is None.

    Raises:
        Error: It is not an integer, or too small.
    """
    if value is None:
        return None
    if not is_integer(value) or value < at_least:
        raise Error(f"{name} must be an integer from {at_least} on, got {short_repr(value)}")
    return int(value)


def tolerance_of(name: str, value: object) -> float:
    """Return a tolerance.

    Raises:
        Error: It is not a number from 0 on.
    """
    if not is_real(value) or not value >= 0:
        raise Error(f"{name} must be a number from 0 on, got {short_repr(value)}")
    return float(value)


def guess_of(g: Builder, value: Any, like: Shape) -> Tensor | None:
    """Return the first guess in the dtype of the solution; None without one.

    Raises:
        Error: Its shape is not that of the solution.
    """
    if value is None:
        return None
    x = tensor_like(g, np.asarray(value) if isinstance(value, (list, tuple)) else value, like.dtype)  # pyright: ignore[reportUnknownArgumentType]
    if x.shape.dims != like.dims:
        raise ShapeError(f"x0 must be shaped like the solution, {like}, got {x.shape}")
    return x if x.dtype is like.dtype else g.cast(x, like.dtype)


def size_of(dims: Sequence[Dim]) -> Dim:
    """Return the number of elements."""
    total: Dim = 1
    for d in dims:
        total = total * d
    return total
