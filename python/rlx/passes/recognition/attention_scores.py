"""The scores of an attention: matching of a product that is scaled, masked and transposed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import operand_pairs
from rlx.passes.origins import origin_of, without_scale
from rlx.passes.pattern import producer
from rlx.passes.recognition.attention_masks import Mask
from rlx.passes.simplification.values import splat


@dataclass(frozen=True)
class Contraction:
    """A product of two tensors over one axis, from `matmul` or `dot_general`.

    Attributes:
        operands: The two operands.
        contracting: The contracted axis of each operand.
        batch: The batch axes of each operand; they come first in the result.
        result: The result: batch axes, the free axes of the first operand, then those of the second.
    """

    operands: tuple[mlir.Value, mlir.Value]
    contracting: tuple[int, int]
    batch: tuple[tuple[int, ...], tuple[int, ...]]
    result: mlir.Value

    @property
    def num_batch(self) -> int:
        """The number of batch axes."""
        return len(self.batch[0])

    def free_of(self, side: int) -> list[int]:
        """Return the free axes of an operand."""
        rank = shape_of(self.operands[side]).rank
        return [a for a in range(rank) if a != self.contracting[side] and a not in self.batch[side]]

    def free_axes(self, side: int) -> list[int]:
        """Return the positions of the free axes of an operand in the result."""
        start = self.num_batch + (len(self.free_of(0)) if side else 0)
        return list(range(start, start + len(self.free_of(side))))

    def side_of(self, axis: int) -> int | None:
        """Return the operand that an axis of the result comes from; None for a batch axis."""
        return next((side for side in (0, 1) if axis in self.free_axes(side)), None)


def contraction_of(op: views.Matmul | views.DotGeneral) -> Contraction | None:
    """Return a product over one axis as a contraction, if its batch axes do not broadcast."""
    lhs, rhs = op.lhs, op.rhs
    if isinstance(op, views.DotGeneral):
        if len(op.lhs_contracting) != 1:
            return None
        contracting = (op.lhs_contracting[0], op.rhs_contracting[0])
        return Contraction((lhs, rhs), contracting, (tuple(op.lhs_batch), tuple(op.rhs_batch)), op.result)
    left, right = shape_of(lhs).dims, shape_of(rhs).dims
    if len(left) < 2 or left[:-2] != right[:-2]:
        return None
    batch = tuple(range(len(left) - 2))
    return Contraction((lhs, rhs), (len(left) - 1, len(right) - 2), (batch, batch), op.result)


@dataclass(frozen=True)
class Scores:
    """A tensor computed from a product.

    Attributes:
        product: The product.
        axes: For each axis of the tensor, the axis of the product's result; None if it does not vary along it.
        scale: The factor of the product.
        mask: The mask that hides scores, if any.
        softmax_axis: The axis of the tensor along which it is a softmax, if any.
    """

    product: Contraction
    axes: tuple[int | None, ...]
    scale: float = 1.0
    mask: Mask | None = None
    softmax_axis: int | None = None


def scores_of(value: mlir.Value) -> Scores | None:
    """Return the scores if a tensor is their softmax."""
    shown = origin_of(value)
    softmax = producer(shown.value, views.Softmax)
    inner = None if softmax is None else _masked(softmax.x)
    if softmax is None or inner is None or softmax.axis not in shown.axes:
        return None
    axes = tuple(None if a is None else inner.axes[a] for a in shown.axes)
    return replace(inner, axes=axes, softmax_axis=shown.axes.index(softmax.axis))


def _masked(value: mlir.Value) -> Scores | None:
    """Match scores with or without a mask."""
    shown = origin_of(value)
    found = _hidden(shown.value) or _scaled(shown.value)
    return (
        None if found is None else replace(found, axes=tuple(None if a is None else found.axes[a] for a in shown.axes))
    )


def _hidden(value: mlir.Value) -> Scores | None:
    """Match scores with an added mask, or scores that a bool selects."""
    choice, total = producer(value, views.Where), producer(value, views.Binary)
    tried: list[tuple[mlir.Value, Any]] = []
    if choice is not None:
        for x, other, inverted in ((choice.on_true, choice.on_false, False), (choice.on_false, choice.on_true, True)):
            fill = splat(other)
            if fill is not None:
                tried.append((x, {"tensor": choice.condition, "fill": float(fill), "inverted": inverted}))
    elif total is not None and total.kind == "add":
        tried = [(x, {"tensor": other}) for x, other in operand_pairs(total)]
    for x, mask in tried:
        inner = _scaled(x) if x.type == value.type else None
        if inner is not None:
            return replace(inner, mask=Mask(axes=inner.axes, **mask))
    return None


def _scaled(value: mlir.Value) -> Scores | None:
    """Match scores that are multiplied by a number and possibly transposed."""
    shown, scale = origin_of(value), 1.0
    while (inner := without_scale(shown.value)) is not None and inner[0].type == shown.value.type:
        shown, scale = shown.through(inner[0]), scale * inner[1]
    op = producer(shown.value, views.DotGeneral) or producer(shown.value, views.Matmul)
    product = None if op is None else contraction_of(op)
    if product is None:
        return None
    return Scores(product, shown.axes, scale)
