"""`rlx-record-quantization`: the scales of integer inputs and outputs of a function, from the ops that use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.op.quantization import quantization_of, record_quantization
from rlx.ir.op.signature import bodies, read_arguments, read_outputs
from rlx.passes.base import Pass
from rlx.passes.integer.operands import constant
from rlx.passes.pattern import producer


@dataclass(frozen=True)
class RecordQuantization(Pass, name="rlx-record-quantization", exact=True, idempotent=True):
    """Record the scale and zero point of integer inputs that are only dequantised, and of outputs that are quantised.

    They become entries of the function attribute `rlx.quantized`, which decompositions keep. Ops are not changed. Several
    scales for one input, or one for each channel, are not recorded.
    """

    edits_ops = False

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            known = quantization_of(function)
            found = _inputs(function) | _outputs(function) | known
            if found != known:
                record_quantization(function, found)


def _inputs(function: mlir.FuncOp) -> dict[str, tuple[float, int]]:
    found: dict[str, tuple[float, int]] = {}
    for argument, value in zip(read_arguments(function), function.entry_block.arguments, strict=True):
        users = [use.owner.operation for use in value.uses]
        if argument.kind != "input" or not users or any(op.name != "rlx.dequantize" for op in users):
            continue
        scales = {_scale(views.Dequantize(op)) for op in users}
        if len(scales) == 1 and (scale := scales.pop()) is not None:
            found[argument.name] = scale
    return found


def _outputs(function: mlir.FuncOp) -> dict[str, tuple[float, int]]:
    block = function.entry_block
    end = block.operations[len(block.operations) - 1].operation
    found: dict[str, tuple[float, int]] = {}
    for output, value in zip(read_outputs(function), end.operands, strict=True):
        op = producer(value, views.Quantize)
        if op is not None and output.updates is None and (scale := _scale(op)) is not None:
            found[output.name] = scale
    return found


def _scale(op: Any) -> tuple[float, int] | None:
    """The scale and zero point of an op that quantises or dequantises; None if there is not exactly one of each."""
    scale, zero = constant(op.scale), constant(op.zero_point)
    if op.axis is not None or scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    return float(scale.reshape(())), int(zero.reshape(()))
