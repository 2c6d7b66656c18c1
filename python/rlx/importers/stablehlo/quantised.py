"""Quantised numbers. An op computes on dequantised numbers; the nearest representable numbers are stored."""

from __future__ import annotations

from rlx.importers.stablehlo.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph


@imports("uniform_quantize", "uniform_dequantize")
def uniform(g: Graph, x: Tensor) -> Tensor:
    return x  # operands come as numbers, and results are stored: see `held`
