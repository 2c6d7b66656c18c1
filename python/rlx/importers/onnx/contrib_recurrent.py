"""The LSTM of ONNX Runtime (`com.microsoft`) with 8-bit integer weights."""

from __future__ import annotations

from typing import Any

from rlx.importers.onnx.contrib_quantized import dynamic_quantize_matmul
from rlx.importers.onnx.recurrent import Cell, run_lstm
from rlx.importers.onnx.rules import imports
from rlx.ir.graph.builder import Tensor


class _QuantizedCell(Cell):
    """A cell that quantises the factors of its products. A sequence is quantised as a whole, a state in each step.

    Args:
        g: The graph.
        operands: As for `Cell`. Weights are `[directions, input, gates]`.
        scales: The scales and zero points of the input weights, then those of the state weights.
        attributes: As for `Cell`.
    """

    def __init__(self, g: Any, operands: Any, scales: Any, attributes: dict[str, Any]):
        super().__init__(g, operands, 4, 2, {**attributes, "layout": 0, "hidden_axis": -2})
        self.w_scale, self.w_zero, self.r_scale, self.r_zero = scales
        self.sequences = [
            dynamic_quantize_matmul(g, self.x, self.w[d], self.w_scale[d], self.w_zero[d])
            for d in range(self.directions)
        ]

    def of_input(self, d: int, now: Tensor) -> Tensor:
        return now

    def of_hidden(self, d: int, hidden: Tensor) -> Tensor:
        return dynamic_quantize_matmul(self.g, hidden, self.r[d], self.r_scale[d], self.r_zero[d])


@imports("com.microsoft.DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    g: Any,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    peepholes: Tensor | None,
    w_scale: Tensor,
    w_zero: Tensor,
    r_scale: Tensor,
    r_zero: Tensor,
    *,
    outputs: int,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> list[Tensor]:
    scales = (w_scale, w_zero, r_scale, r_zero)
    cell = _QuantizedCell(g, (x, w, r, b, lengths, h, c), scales, {"direction": direction, "clip": clip})
    return run_lstm(g, cell, peepholes, (activations, activation_alpha, activation_beta), bool(input_forget), outputs)
