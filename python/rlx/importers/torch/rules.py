"""The table of rules for PyTorch operators, and shared helpers: dtypes, mixed operands, positions of axes.

A rule has the signature of the operator, as printed by `torch.ops.aten.add.Tensor._schema`. Arguments before the `*`
are positional, arguments after it are keywords. Tensors are tensors of the graph, numbers are Python numbers, sizes are
integers or symbolic dimensions, and dtypes are PyTorch's. If its signature names `results`, a rule also gets the result
shapes from PyTorch.

A rule named `add` applies to all overloads of `aten::add` without a rule of their own, such as `add.Scalar`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx.importers.table import ImportTable
from rlx.ir.arrays import torch_hint
from rlx.ir.dims.dim import Dim, DimExpr
from rlx.ir.dtype import DType, bool_, c64, dtype, f32, i64
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.promotion import promote
from rlx.ir.shape import Shape
from rlx.support.errors import Error, UnsupportedError

imports = ImportTable("PyTorch")

Number = bool | int | float | complex
Operand = Tensor | Number | DimExpr
Results = Sequence[Shape]


def aten(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the rule of operators of the library `aten`."""
    return imports(*(f"aten.{op}" for op in ops))


@cache
def _dtype_named(name: str) -> DType:
    plain = name.removeprefix("torch.")
    try:
        return dtype(plain)
    except Error:
        raise UnsupportedError(f"{name} is no dtype of RLX", hint=torch_hint(plain)) from None


def dtype_of(kind: object) -> DType:
    """Return RLX's dtype for a PyTorch dtype.

    Raises:
        UnsupportedError: RLX does not have it.
    """
    return _dtype_named(str(kind))


def as_tensor(g: Graph, value: Operand, kind: DType) -> Tensor:
    """Return a tensor or a number as a tensor of a dtype. Numbers wrap as in PyTorch: -1 is 255 in u8."""
    if isinstance(value, Tensor):
        return value if value.dtype == kind else g.cast(value, kind)
    if isinstance(value, DimExpr):
        return g.cast(g.dim_size(value), kind)
    with np.errstate(all="ignore"):
        return g.constant(np.asarray(value).astype(kind.numpy))


def as_tensors(g: Graph, kind: DType, *values: Operand) -> list[Tensor]:
    """Return tensors and numbers as tensors of one dtype."""
    return [as_tensor(g, v, kind) for v in values]


def _category(kind: DType) -> int:
    return 3 if kind.is_complex else 2 if kind.is_float else 0 if kind.is_bool else 1


def _kind_of(value: Operand) -> DType:
    """Return the dtype of an operand. For a number, it is PyTorch's default for its kind."""
    if isinstance(value, Tensor):
        return value.dtype
    return {bool: bool_, float: f32, complex: c64}.get(type(value), i64)


def _combined(one: DType, two: DType) -> DType:
    """Return `torch.promote_types` of two dtypes: a float combined with an integer keeps its size."""
    if _category(one) != _category(two):
        one, two = sorted((one, two), key=_category)
        return c64 if two.is_complex else two
    return promote(one, two)


def common_dtype(*values: Operand) -> DType:
    """Return `torch.result_type` of the operands.

    A tensor of rank 0 affects the result only if its category is above that of the tensors with axes. A number affects
    it only if its category is above that of all tensors.
    """
    found: DType | None = None
    for group in (_with_axes, _without_axes, _plain):
        kinds = [_kind_of(v) for v in values if group(v)]
        if not kinds:
            continue
        here = kinds[0]
        for kind in kinds[1:]:
            here = _combined(here, kind)
        found = here if found is None else _combined(found, here) if _category(here) > _category(found) else found
    assert found is not None
    return found


def _with_axes(value: Operand) -> bool:
    return isinstance(value, Tensor) and value.rank > 0


def _without_axes(value: Operand) -> bool:
    return isinstance(value, Tensor) and value.rank == 0


def _plain(value: Operand) -> bool:
    return not isinstance(value, Tensor)


def axis_of(axis: int, rank: int) -> int:
    """Return a position counted from the start. A tensor of rank 0 is treated as having one axis."""
    return axis % max(rank, 1)


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return positions counted from the start. None or an empty list means all axes."""
    if axes is None or (not isinstance(axes, int) and not axes):
        return tuple(range(rank))
    return tuple(axis_of(a, rank) for a in ((axes,) if isinstance(axes, int) else axes)) if rank else ()


def each(values: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return one number for each spatial axis. A single number applies to all."""
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * count if len(values) == 1 else values


def static_size(x: Tensor, axis: int) -> int:
    """Return the size of an axis, which must be known.

    Raises:
        UnsupportedError: It is symbolic.
    """
    return known_size(x.shape.dims[axis], f"size of axis {axis}")


def known_size(size: Dim, what: str) -> int:
    """Return a size that must be known.

    Raises:
        UnsupportedError: It is symbolic.
    """
    if isinstance(size, DimExpr):
        raise UnsupportedError(f"whose {what} is '{size}' cannot be imported; it has to be a number")
    return operator.index(size)


def elements(x: Tensor) -> int:
    """Return the number of elements of a tensor, which must be known."""
    return math.prod(static_size(x, a) for a in range(x.rank))
