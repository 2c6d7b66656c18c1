"""`rlx-fuse-conv-bias-act`: fusion of a convolution, a bias for each channel, and an activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import Shape, shape_of
from rlx.passes.fusion.base import ELSEWHERE, USE_RESULT, Fusion, operand_pairs
from rlx.passes.pattern import Rewriter, feeder, pattern, producer


@pattern
def conv_bias(op: views.Binary, rewriter: Rewriter) -> Any:
    """`conv(x, w) + bias`, with a bias that varies along the channels only."""
    if op.kind != "add" or not shape_of(op.result).dtype.is_float:
        return None
    for value, bias in operand_pairs(op):
        conv = producer(value, views.Conv)
        if conv is None:
            continue
        if not varies_by_channel(bias, shape_of(value)):
            if shape_of(bias).dims != shape_of(value).dims:
                rewriter.miss("the bias does not vary along the channels alone", "give it the shape [O, 1, …]")
            continue
        if feeder(op, value, views.Conv) is None:
            return rewriter.miss(f"the convolution, or {ELSEWHERE}", USE_RESULT)
        rewriter.locate(conv)
        operands = [conv.x, conv.w, _vector(rewriter, bias)]
        return rewriter.emit("fused_conv_bias_act", operands, **conv.attributes, activation=None)
    return None


def varies_by_channel(value: mlir.Value, result: Shape) -> bool:
    """Whether a value broadcasts to `[N, C, spatial…]` and varies only along the channels, with one number for each."""
    dims = shape_of(value).dims
    padded = (1,) * (result.rank - len(dims)) + dims
    return padded == (1, result.dims[1], *(1,) * (result.rank - 2))


def _vector(rewriter: Rewriter, bias: mlir.Value) -> Any:
    """Return a bias for each channel as a vector."""
    channels = max(shape_of(bias).dims, key=lambda d: d != 1)
    source = producer(bias, views.Reshape)
    if source is not None and shape_of(source.x).dims == (channels,):
        return source.x
    return bias if shape_of(bias).rank == 1 else rewriter.emit("reshape", [bias], shape=(channels,))


@pattern
def biased_conv_activation(op: views.Activation, rewriter: Rewriter) -> Any:
    """An activation of a convolution with bias."""
    inner = producer(op.x, views.FusedConvBiasAct)
    if inner is None:
        if feeder(op, op.x, views.Conv) is not None and shape_of(op.x).dtype.is_float:
            rewriter.miss(f"no bias is added between the convolution and {op.kind}", "add a bias, which may be zero")
        return None
    if inner.activation is not None:
        return None
    if feeder(op, op.x, views.FusedConvBiasAct) is None:
        return rewriter.miss(f"what {op.kind} takes is read elsewhere too", USE_RESULT)
    rewriter.locate(inner)
    return rewriter.emit("fused_conv_bias_act", inner.operands, **{**inner.attributes, "activation": op.kind})


@dataclass(frozen=True)
class FuseConvBiasAct(Fusion, name="rlx-fuse-conv-bias-act"):
    """Create `fused_conv_bias_act` from a convolution whose only use is a bias addition, and an optional activation."""

    makes = "fused_conv_bias_act"
    patterns = (conv_bias, biased_conv_activation)
