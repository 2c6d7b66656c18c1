"""Masks of attention in their various forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import operand_pairs
from rlx.passes.origins import Origin, origin_of
from rlx.passes.pattern import producer
from rlx.passes.simplification.values import splat


@dataclass(frozen=True)
class Mask:
    """A mask that hides scores.

    Attributes:
        tensor: The tensor that is added to the scores, or selects scores; it broadcasts to the scores.
        axes: For each axis of the scores, the axis of the product that computes them.
        fill: The value of hidden scores; None if the tensor is added.
        inverted: Whether the tensor selects the hidden scores instead of the visible ones.
    """

    tensor: mlir.Value
    axes: tuple[int | None, ...]
    fill: float | None = None
    inverted: bool = False

    def varies_along(self, axis: int) -> bool:
        """Whether it varies along an axis of the product."""
        dims = shape_of(self.tensor).dims
        shown = origin_of(self.tensor)
        names = self.axes[len(self.axes) - len(dims) :]
        return any(
            name == axis and d != 1 and a is not None for name, d, a in zip(names, dims, shown.axes, strict=True)
        )


def is_causal(mask: Mask, query: int, key: int, ahead: Dim) -> bool:
    """Whether a mask hides exactly the keys after a query's own position, which is its index plus `ahead`."""
    names = mask.axes[len(mask.axes) - shape_of(mask.tensor).rank :]
    compare, shown = _comparison(origin_of(mask.tensor))
    if compare is None or shown is None:
        return False
    kind = _OPPOSITE[compare.kind] if mask.inverted and compare.kind in _OPPOSITE else compare.kind
    left, right = (_position(shown.through(v), names) for v in (compare.lhs, compare.rhs))
    if left is None or right is None:
        return False
    if left[0] == key:  # normalise to a comparison of the query with the key
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    if (left[0], right[0]) != (query, key) or kind not in ("ge", "gt"):
        return False
    # key + right <= query + left, or one less
    return left[1] - right[1] - (kind == "gt") == ahead


_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _comparison(shown: Origin) -> tuple[views.Compare | None, Origin | None]:
    """Return the comparison that computes a bool tensor, also through selects of true and false, and conjunctions with true."""
    while True:
        compare = producer(shown.value, views.Compare)
        if compare is not None:
            return compare, shown
        choice, both = producer(shown.value, views.Where), producer(shown.value, views.Binary)
        x: mlir.Value | None = None
        if choice is not None and splat(choice.on_true) is True and splat(choice.on_false) is False:
            x = choice.condition
        elif both is not None and both.kind in ("min", "mul"):
            x = next((v for v, true in operand_pairs(both) if splat(true) is True), None)
        if x is None or shape_of(x).rank != shape_of(shown.value).rank:
            return None, None
        shown = shown.through(x)


def _position(shown: Origin, names: tuple[int | None, ...]) -> tuple[int | None, Any] | None:
    """Return the axis along which a tensor counts, and the first number."""
    start: Any = 0
    while (op := producer(shown.value, views.Binary)) is not None and op.kind in ("add", "sub"):
        number = splat(op.rhs)
        if number is None or shape_of(op.lhs).rank != shape_of(shown.value).rank:
            return None
        start += int(number) if op.kind == "add" else -int(number)
        shown = shown.through(op.lhs)
    iota = producer(shown.value, views.Iota)
    if iota is None or iota.axis not in shown.axes:
        return None
    return names[shown.axes.index(iota.axis)], start
