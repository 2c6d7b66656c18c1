"""`rlx-fuse-rms-norm-reshape`: motion of a reshape from the result of an RMS norm to its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import USE_RESULT, Fusion
from rlx.passes.pattern import Rewriter, feeder, pattern, producer


@pattern
def rms_norm_reshape(op: views.Reshape, rewriter: Rewriter) -> Any:
    """A reshape of an RMS norm that keeps the last axis becomes the norm of the reshaped input."""
    norm, dims = producer(op.x, views.RmsNorm), shape_of(op.result).dims
    if norm is None or not dims or norm.axis != shape_of(op.x).rank - 1 or dims[-1] != shape_of(op.x).dims[-1]:
        return None
    if feeder(op, op.x, views.RmsNorm) is None:
        return rewriter.miss("the norm is read elsewhere too, before the reshape", USE_RESULT)
    reshaped = rewriter.emit("reshape", [norm.x], shape=dims)
    return rewriter.emit("rms_norm", [reshaped, norm.scale, norm.bias], axis=len(dims) - 1, eps=norm.eps)


@dataclass(frozen=True)
class FuseRmsNormReshape(Fusion, name="rlx-fuse-rms-norm-reshape"):
    """Move a reshape from the result of an RMS norm to its input, so that the norm is next to its users."""

    makes = "rms_norm"
    patterns = (rms_norm_reshape,)
