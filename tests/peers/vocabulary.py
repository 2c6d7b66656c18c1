"""The table from PyTorch's operators to RLX, and helpers for its entries.

An entry is a function `(g, *args, **kwargs)` of a graph and the arguments of PyTorch's function, with tensors of the
graph instead of PyTorch's. It uses RLX's public functions, and returns one tensor or several. None represents a result
that RLX does not have. `Unsaid` is raised for arguments that RLX does not support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlx

Expression = Callable[..., Any]


class Unsaid(Exception):
    """RLX does not support these arguments; the message has the reason."""


@dataclass(frozen=True)
class Entry:
    """An entry of the table: a PyTorch operator in terms of RLX.

    Attributes:
        function: Builds it.
        differentiable: Whether its derivative is compared too.
        finite: Whether it is equal only for finite numbers, because it computes the difference of two of its parts.
        tolerance: The factor of the rounding tolerance.
        mixes: Whether every element depends on all elements. Then rounding of the largest may change each of them, even
            after cancellation.
        formula: PyTorch's own formula, if it cancels where RLX's does not. PyTorch computes f64 and c128 in no wider
            dtype, so the rounding errors of this formula are allowed there.
    """

    function: Expression
    differentiable: bool = True
    finite: bool = False
    tolerance: float = 1.0
    mixes: bool = False
    formula: Expression | None = None


TABLE: dict[str, Entry] = {}


def says(*names: str, **properties: Any) -> Callable[[Expression], Expression]:
    """Register a function for operators by their names, with the properties of an `Entry`."""

    def entered(function: Expression) -> Expression:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = Entry(function, **properties)
        return function

    return entered


def axes_list(x: Any, dim: Any) -> list[int]:
    """Return PyTorch's `dim` as sorted non-negative axes. None or an empty list means all axes."""
    if dim is None or (isinstance(dim, Iterable) and not list(dim)):
        return list(range(x.rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted({d % max(x.rank, 1) for d in dims} if x.rank else set())


def sizes(x: Any) -> tuple[int, ...]:
    """Return the static sizes of a tensor."""
    return tuple(x.shape.dims)


def count(x: Any, axes: Sequence[int]) -> int:
    """Return the number of elements that a reduction combines."""
    number = 1
    for axis in axes:
        number *= sizes(x)[axis]
    return number


def flat(g: Any, x: Any) -> Any:
    """Return all elements on one axis."""
    return g.reshape(x, (count(x, range(x.rank)),))


def is_tensor(value: Any) -> bool:
    """Return whether an argument is a tensor of the graph."""
    return isinstance(value, rlx.Tensor)


def to_float(g: Any, x: Any) -> Any:
    """Return integers and bools as f32, as in PyTorch's float functions."""
    return x if x.dtype.is_inexact else g.cast(x, "f32")


def constant_of(g: Any, value: Any, dtype: Any) -> Any:
    """Return a Python number as a constant, converted to a dtype once: `g.constant(value)` rounds floats to f32."""
    return g.constant(np.asarray(value).astype(dtype.numpy))


def at_least(g: Any, x: Any, rank: int) -> Any:
    """Return a tensor with axes of size 1 prepended."""
    return g.reshape(x, (1,) * (rank - x.rank) + sizes(x)) if x.rank < rank else x


def moved(g: Any, x: Any, source: int, target: int) -> Any:
    """Return a tensor with one axis moved."""
    order = [i for i in range(x.rank) if i != source % x.rank]
    order.insert(target % x.rank, source % x.rank)
    return g.transpose(x, order)


def common_dtype(*tensors: Any) -> Any:
    """Return the common dtype of tensors."""
    kind = tensors[0].dtype
    for other in tensors[1:]:
        kind = rlx.promote(kind, other.dtype)
    return kind


def cast_all(g: Any, *tensors: Any) -> list[Any]:
    """Return tensors in their common dtype."""
    kind = common_dtype(*tensors)
    return [g.cast(t, kind) for t in tensors]


def needs(holds: Any, reason: str) -> None:
    """Raise `Unsaid` unless a condition holds."""
    if not holds:
        raise Unsaid(reason)


def rlx_dtype(kind: Any) -> rlx.DType:
    """Return PyTorch's dtype as RLX's."""
    name = str(kind).removeprefix("torch.")
    found = {"bfloat16": "bf16"}.get(name, name)
    try:
        return rlx.dtype(found)
    except rlx.Error:
        raise Unsaid(f"RLX has no {name}") from None
