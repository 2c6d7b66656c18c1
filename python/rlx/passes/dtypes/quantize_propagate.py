"""`rlx-quantize-propagate`: motion of quantisation towards producers, and of dequantisation towards users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import opview, views
from rlx.passes.base import Pass
from rlx.passes.pattern import Rewriter, has_one_use, pattern, producer, rewrite
from rlx.passes.simplification.values import splat


def same_number(a: mlir.Value, b: mlir.Value) -> bool:
    """Whether two scalars are the same value, or equal constants."""
    known = splat(a)
    return a == b or (known is not None and known == splat(b))


@pattern
def rounded_twice(op: views.Quantize, rewriter: Rewriter) -> Any:
    """Cancel dequantisation followed by quantisation with the same scale and zero point."""
    inner = producer(op.x, views.Dequantize)
    if inner is None or inner.axis != op.axis or inner.x.type != op.result.type:
        return None
    return inner.x if same_number(inner.scale, op.scale) and same_number(inner.zero_point, op.zero_point) else None


def _rearranged(value: mlir.Value) -> mlir.Operation | None:
    """Return the op of a value, if it only moves elements of one tensor and the value has one use."""
    if not isinstance(value, mlir.ir.OpResult) or not has_one_use(value):
        return None
    op = value.owner.operation
    moves = op.name.startswith("rlx.") and opview.has_trait(op, "rearranges")
    return op if len(op.operands) == 1 and moves else None


@pattern
def rounded_after_moving(op: views.Quantize, rewriter: Rewriter) -> Any:
    """Quantise before a reshape, transpose or slice: fewer bytes are moved, and the producer may absorb the rounding."""
    moved = _rearranged(op.x)
    if moved is None or op.axis is not None:
        return None
    rounded = rewriter.emit("quantize", [moved.operands[0], op.scale, op.zero_point], axis=None, dtype=op.dtype)
    return rewriter.emit(opview.name_of(moved), [rounded], **opview.attributes_of(moved))


@pattern
def rounded_after_joining(op: views.Quantize, rewriter: Rewriter) -> Any:
    """Quantise both operands of a concatenation."""
    joined = producer(op.x, views.Concat)
    if joined is None or op.axis is not None or not has_one_use(op.x):
        return None
    parts = [
        rewriter.emit("quantize", [part, op.scale, op.zero_point], axis=None, dtype=op.dtype)
        for part in (joined.lhs, joined.rhs)
    ]
    return rewriter.emit("concat", parts, axis=joined.axis)


@pattern
def floats_before_moving(op: views.Reshape | views.Transpose | views.Narrow | views.Slice, rewriter: Rewriter) -> Any:
    """Dequantise after a reshape, transpose or slice, so that bytes are moved."""
    inner = producer(op.x, views.Dequantize)
    if inner is None or inner.axis is not None or not has_one_use(op.x):
        return None
    moved = rewriter.emit(op.spec.name, [inner.x], **op.attributes)
    return rewriter.emit("dequantize", [moved, inner.scale, inner.zero_point], axis=None)


@pattern
def fake_twice(op: views.FakeQuantize, rewriter: Rewriter) -> Any:
    """Remove a second fake quantisation with the same scale, also after ops that move elements."""
    if op.scale_mode != "fixed" or op.axis is not None:
        return None
    source = op.x
    while (moved := _rearranged(source)) is not None:
        source = moved.operands[0]
    inner = producer(source, views.FakeQuantize)
    if inner is None or inner.scale_mode != "fixed" or inner.axis is not None or inner.bits != op.bits:
        return None
    if op.state is None or inner.state is None or source != inner.result:
        return None
    return (op.x, op.state) if same_number(inner.state, op.state) else None


@dataclass(frozen=True)
class QuantizePropagate(Pass, name="rlx-quantize-propagate", idempotent=True):
    """Move rlx.quantize up and rlx.dequantize down through ops that move data, and cancel pairs with equal scales.

    Results are bitwise equal. Only ops with one scale for the whole tensor are moved.
    """

    def run(self, module: mlir.Module) -> None:
        patterns = (rounded_twice, rounded_after_moving, rounded_after_joining, floats_before_moving, fake_twice)
        rewrite(module, patterns, self.name)
