"""`rlx-fuse-swiglu`: fusion of the gating of one half of a tensor by the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import USE_RESULT, Fusion, operand_pairs
from rlx.passes.pattern import Rewriter, feeder, pattern, producer


@pattern
def swiglu_of_halves(op: views.Binary, rewriter: Rewriter) -> Any:
    """`up · silu(gate)`, where `up` and `gate` are the halves of the last axis of one tensor, in either order."""
    if op.kind != "mul":
        return None
    for up, gated in operand_pairs(op):
        silu = producer(gated, views.Activation)
        if silu is None or silu.kind != "silu":
            continue
        (source, gate_start), (other, up_start) = _range(silu.x), _range(up)
        width = shape_of(op.result).dims[-1:]
        if source is None or other is None or source != other or shape_of(up) != shape_of(silu.x):
            continue
        if {gate_start, up_start} != {0, *width} or shape_of(source).dims[-1] != width[0] * 2:
            rewriter.miss("up and gate are not the two halves of the last axis", "give both the same width")
            continue
        if feeder(op, gated, views.Activation) is None:
            return rewriter.miss("the gate is read elsewhere too", USE_RESULT)
        return rewriter.emit("fused_swiglu", [source], gate_first=gate_start == 0)
    return None


def _range(value: mlir.Value) -> tuple[mlir.Value | None, Any]:
    """Return the tensor that a value slices along its last axis, and the start of the slice."""
    op = producer(value, views.Narrow)
    if op is not None:
        return (op.x, op.start[0]) if op.axis == shape_of(op.x).rank - 1 else (None, 0)
    cut = producer(value, views.Slice)
    if cut is None or any(s != 1 for s in cut.strides) or any(s != 0 for s in cut.starts[:-1]):
        return None, 0
    whole = shape_of(cut.x).dims[:-1] == shape_of(value).dims[:-1]
    return (cut.x, cut.starts[-1]) if whole and cut.starts else (None, 0)


@dataclass(frozen=True)
class FuseSwiglu(Fusion, name="rlx-fuse-swiglu"):
    """Create `fused_swiglu` from two halves of a tensor, where one gates the other."""

    makes = "fused_swiglu"
    patterns = (swiglu_of_halves,)
