"""The table from PyTorch's operators to what they are in RLX, and what its entries are made of.

An entry is a function `(g, *args, **kwargs)` of a graph and the arguments of PyTorch's function, with tensors of the graph
in the place of PyTorch's. It writes what a user of RLX would write, and gives one tensor or several; None stands for a result
that RLX does not have. `Unsaid` is raised for arguments without a meaning in RLX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import rlx

Expression = Callable[..., Any]


class Unsaid(Exception):
    """These arguments have no meaning in RLX; the message says why."""


@dataclass(frozen=True)
class Entry:
    """How one of PyTorch's operators is written.

    Attributes:
        function: Builds it.
        differentiable: Whether its derivative is compared as well.
        finite: Whether it is only the same on finite numbers: a composition that takes the difference of two of its parts.
        tolerance: Multiplies what rounding may do.
        mixes: Whether every element depends on all: then rounding the largest may move each, also where all cancel.
    """

    function: Expression
    differentiable: bool = True
    finite: bool = False
    tolerance: float = 1.0
    mixes: bool = False


TABLE: dict[str, Entry] = {}


def says(*names: str, **properties: Any) -> Callable[[Expression], Expression]:
    """Enter a function under the names of the operators that it is, with the properties of an `Entry`."""

    def entered(function: Expression) -> Expression:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = Entry(function, **properties)
        return function

    return entered


def axes_list(x: Any, dim: Any) -> list[int]:
    """PyTorch's `dim`, where neither nothing nor an empty list means all axes, as sorted axes that are not negative."""
    if dim is None or (isinstance(dim, Iterable) and not list(dim)):
        return list(range(x.rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted({d % max(x.rank, 1) for d in dims} if x.rank else set())


def sizes(x: Any) -> tuple[int, ...]:
    """The static sizes of a tensor."""
    return tuple(x.shape.dims)


def count(x: Any, axes: Sequence[int]) -> int:
    """How many elements a reduction makes one of."""
    number = 1
    for axis in axes:
        number *= sizes(x)[axis]
    return number


def flat(g: Any, x: Any) -> Any:
    """All elements on one axis."""
    return g.reshape(x, (count(x, range(x.rank)),))


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor of the graph."""
    return isinstance(value, rlx.Tensor)


def to_float(g: Any, x: Any) -> Any:
    """Integers and bools as f32, as PyTorch's functions of floats take them."""
    return x if x.dtype.is_inexact else g.cast(x, "f32")


def at_least(g: Any, x: Any, rank: int) -> Any:
    """A tensor with axes of size 1 in front."""
    return g.reshape(x, (1,) * (rank - x.rank) + sizes(x)) if x.rank < rank else x


def moved(g: Any, x: Any, source: int, target: int) -> Any:
    """A tensor with one axis at another place."""
    order = [i for i in range(x.rank) if i != source % x.rank]
    order.insert(target % x.rank, source % x.rank)
    return g.transpose(x, order)


def common_dtype(*tensors: Any) -> Any:
    """The dtype in which tensors meet."""
    kind = tensors[0].dtype
    for other in tensors[1:]:
        kind = rlx.promote(kind, other.dtype)
    return kind


def cast_all(g: Any, *tensors: Any) -> list[Any]:
    """Tensors in the dtype in which they meet."""
    kind = common_dtype(*tensors)
    return [g.cast(t, kind) for t in tensors]


def needs(holds: Any, reason: str) -> None:
    """Raise `Unsaid` unless something holds."""
    if not holds:
        raise Unsaid(reason)


def rlx_dtype(kind: Any) -> rlx.DType:
    """PyTorch's dtype as RLX's."""
    name = str(kind).removeprefix("torch.")
    found = {"bfloat16": "bf16"}.get(name, name)
    try:
        return rlx.dtype(found)
    except rlx.Error:
        raise Unsaid(f"RLX has no {name}") from None
