"""Patterns of `rlx-simplify` for casts."""

from __future__ import annotations

from rlx import mlir
from rlx.ir.dtype import DType
from rlx.ir.op import views
from rlx.ir.promotion import holds
from rlx.ir.shape import shape_of
from rlx.passes.pattern import Rewriter, pattern, producer


def lossless(a: DType, b: DType) -> bool:
    """Whether every value of `a` is a value of `b`."""
    layout = b.part.float_format
    if a is b:
        return True
    if a.is_bool:
        return layout is None or layout.mantissa > 0  # a float without a mantissa has no 0
    if a.is_integer and b.is_integer:
        return b.min <= a.min and a.max <= b.max
    if layout is None or not b.is_inexact or (a.is_complex and not b.is_complex):
        return False
    if a.is_integer:
        return layout.mantissa > 0 and max(a.max, -a.min) <= min(2 ** (layout.mantissa + 1), b.part.max)
    return a.part is b.part or holds(b.part, a.part)


@pattern
def cast_chain(op: views.Cast, rewriter: Rewriter) -> mlir.Value | None:
    """A cast to the same dtype, and a cast of the result of a lossless cast."""
    middle, to = shape_of(op.x).dtype, op.dtype
    if middle is to:
        return op.x
    inner = producer(op.x, views.Cast)
    if inner is None:
        return None
    source = shape_of(inner.x).dtype
    if not lossless(source, middle):
        return None
    # A cast from float to integer saturates; a cast from integer to integer wraps.
    if source.is_integer and middle.is_inexact and to.is_integer and not lossless(source, to):
        return None
    return inner.x if source is to else rewriter.emit("cast", [inner.x], dtype=to)
