"""`rlx-quantize-boundary`: integer inputs and outputs of a function, with their scales."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlx import mlir
from rlx.ir.dtype import i8
from rlx.ir.op import opview, views
from rlx.ir.op.quantization import quantization_of, record_quantization
from rlx.ir.op.signature import bodies, read_arguments, read_outputs, sign_function
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass
from rlx.passes.integer.operands import Goal, Integers
from rlx.passes.rewrite import erase_dead


@dataclass(frozen=True)
class QuantizeBoundary(Pass, name="rlx-quantize-boundary", idempotent=True):
    """Convert inputs that are only quantised, and outputs that are only dequantised, to i8.

    Integer inputs that are cast to floats before they are quantised are converted as well.

    The function attribute `rlx.quantized` has the scale and zero point of each, which represents `(value -
    zero_point)·scale`.
    """

    preserves_results = False  # the dtypes of inputs and outputs change

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            _strip(function)


def _strip(function: mlir.FuncOp) -> None:
    arguments, outputs, block = read_arguments(function), read_outputs(function), function.entry_block
    known = dict(quantization_of(function))
    for value, (i, argument) in zip(block.arguments, enumerate(arguments), strict=True):
        readers = _readers(value)
        goals = [Goal.of(views.Quantize(op)) if op.name == "rlx.quantize" else None for op in readers]
        first = goals[0] if goals else None
        same = first is not None and all(
            g is not None and (g.scale, g.zero) == (first.scale, first.zero) for g in goals
        )
        if argument.kind != "input" or first is None or not same:
            continue
        known[argument.name] = first.scale, first.zero
        arguments[i] = replace(argument, shape=argument.shape.with_dtype(i8))
        for op in readers:
            value.set_type(op.results[0].type)
            op.results[0].replace_all_uses_with(value)
            erase_dead([op])
    end = block.operations[len(block.operations) - 1].operation
    for i, value in enumerate(end.operands):
        x = Integers.of(value)
        if x is not None and outputs[i].updates is None:
            known[outputs[i].name] = float(x.scale), x.zero
            end.operands[i] = x.value
            outputs[i] = replace(outputs[i], shape=shape_of(x.value))
            erase_dead([value.owner.operation])
    sign_function(function, arguments, outputs)
    record_quantization(function, known)


def _readers(value: mlir.Value) -> list[mlir.Operation]:
    """Return the ops that read an input; for an integer input, the ops after its casts to floats."""
    users = [use.owner.operation for use in value.uses]
    if not shape_of(value).dtype.is_integer or any(op.name != "rlx.cast" for op in users):
        return users
    return [use.owner.operation for op in users for use in op.results[0].uses]


def leftovers(function: mlir.FuncOp) -> list[mlir.Operation]:
    """Return the ops of a function that still compute with floats, except conversions of inputs and outputs."""
    return [
        op
        for op in opview.operations(function.entry_block)
        if op.name not in opview.TERMINATORS
        and any(shape_of(v).dtype.is_inexact for v in (*op.operands, *op.results))
        and op.name != "rlx.constant"
    ]
