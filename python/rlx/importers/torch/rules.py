"""The table of rules of PyTorch's operators, and what rules share: dtypes, numbers beside tensors, positions of axes.

A rule has the signature of the operator, as `torch.ops.aten.add.Tensor._schema` prints it: what stands before the `*` comes by
position, what stands behind it by keyword. Tensors are tensors of the graph, numbers Python's, sizes integers or symbolic
dimensions, dtypes PyTorch's. If a rule names them it also gets `results`, the shapes of the results, as PyTorch has found them.

A rule named `add` is for all overloads of `aten::add` that have no rule of their own, as `add.Scalar` would be.
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


def dtype_of(kind: Any) -> DType:
    """The dtype of RLX for one of PyTorch's.

    Raises:
        UnsupportedError: RLX does not have it.
    """
    return _dtype_named(str(kind))


def as_tensor(g: Any, value: Operand, kind: DType) -> Tensor:
    """A tensor or a number as a tensor of a dtype. Numbers wrap as PyTorch's do: -1 is 255 in u8."""
    if isinstance(value, Tensor):
        return value if value.dtype == kind else g.cast(value, kind)
    if isinstance(value, DimExpr):
        return g.cast(g.dim_size(value), kind)
    with np.errstate(all="ignore"):
        return g.constant(np.asarray(value).astype(kind.numpy))


def as_tensors(g: Any, kind: DType, *values: Operand) -> list[Tensor]:
    """Tensors and numbers as tensors of one dtype."""
    return [as_tensor(g, v, kind) for v in values]


def _category(kind: DType) -> int:
    return 3 if kind.is_complex else 2 if kind.is_float else 0 if kind.is_bool else 1


def _kind_of(value: Operand) -> DType:
    """The dtype of an operand; of a number, PyTorch's default for its kind."""
    if isinstance(value, Tensor):
        return value.dtype
    return {bool: bool_, float: f32, complex: c64}.get(type(value), i64)


def _combined(one: DType, two: DType) -> DType:
    """`torch.promote_types`: a float beside an integer keeps its size."""
    if _category(one) != _category(two):
        one, two = sorted((one, two), key=_category)
        return c64 if two.is_complex else two
    return promote(one, two)


def common_dtype(*values: Operand) -> DType:
    """`torch.result_type`: tensors of rank 0 count only beside those of a lower category, numbers only beside both."""
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
    """A position counted from the start; a tensor of rank 0 has an axis of size 1 for this."""
    return axis % max(rank, 1)


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Positions counted from the start; none or an empty list means all."""
    if axes is None or (not isinstance(axes, int) and not axes):
        return tuple(range(rank))
    return tuple(axis_of(a, rank) for a in ((axes,) if isinstance(axes, int) else axes)) if rank else ()


def each(values: int | Sequence[int], count: int) -> tuple[int, ...]:
    """One number for each spatial axis, where one may be given for all."""
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * count if len(values) == 1 else values


def static_size(x: Tensor, axis: int) -> int:
    """The size of an axis, which has to be known.

    Raises:
        UnsupportedError: It is symbolic.
    """
    return known(x.shape.dims[axis], f"size of axis {axis}")


def known(size: Dim, what: str) -> int:
    """A size that has to be known.

    Raises:
        UnsupportedError: It is symbolic.
    """
    if isinstance(size, DimExpr):
        raise UnsupportedError(f"whose {what} is '{size}' cannot be imported; it has to be a number")
    return operator.index(size)


def elements(x: Tensor) -> int:
    """The number of elements of a tensor, which has to be known."""
    return math.prod(static_size(x, a) for a in range(x.rank))
