"""Quantised numbers: an op computes of the numbers, and the nearest ones that can be stored are kept."""

from __future__ import annotations

from typing import Any

from rlx.importers.stablehlo.rules import imports
from rlx.ir.graph.builder import Tensor


@imports("uniform_quantize", "uniform_dequantize")
def uniform(g: Any, x: Tensor) -> Tensor:
    return x  # operands come as numbers, and results are stored: see `held`
