"""The LSTM of ONNX Runtime (`com.microsoft`) with 8-bit integer weights."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.importers.onnx.contrib_quantized import dynamic_quantize_matmul
from rlx.importers.onnx.recurrent import Cell, CellAttributes, LstmOperands, run_lstm
from rlx.importers.onnx.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup


@dataclass(frozen=True)
class WeightScales(ArgumentGroup):
    """The scales and the zero points of the weights of a sequence and of states."""

    w_scale: Tensor
    w_zero: Tensor
    r_scale: Tensor
    r_zero: Tensor


class _QuantizedCell(Cell):
    """A cell that quantises the factors of its products. A sequence is quantised as a whole, a state in each step.

    Args:
        g: The graph.
        operands: The operands; weights are `[directions, input, gates]`.
        scales: Those of the weights.
        attributes: The attributes.
    """

    def __init__(self, g: Graph, operands: LstmOperands, scales: WeightScales, attributes: CellAttributes):
        super().__init__(g, operands, attributes, False, hidden_axis=-2)
        self.scales = scales

    def of_inputs(self, d: int) -> Tensor:
        return dynamic_quantize_matmul(self.g, self.x, self.w[d], self.scales.w_scale[d], self.scales.w_zero[d])

    def of_hidden(self, d: int, hidden: Tensor) -> Tensor:
        return dynamic_quantize_matmul(self.g, hidden, self.r[d], self.scales.r_scale[d], self.scales.r_zero[d])


@imports("com.microsoft.DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    g: Graph,
    operands: LstmOperands,
    scales: WeightScales,
    *,
    outputs: int,
    attributes: CellAttributes,
    input_forget: int = 0,
) -> list[Tensor]:
    cell = _QuantizedCell(g, operands, scales, attributes)
    return run_lstm(g, cell, operands.peepholes, attributes, bool(input_forget), outputs)
