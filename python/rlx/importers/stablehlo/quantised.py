"""Quantised numbers. An op computes on dequantised numbers; the nearest representable numbers are stored."""

from __future__ import annotations

from typing import Any

from rlx.importers.stablehlo.rules import imports
from rlx.ir.graph.builder import Tensor


@imports("uniform_quantize", "uniform_dequantize")
def uniform(g: Any, x: Tensor) -> Tensor:
    return x  # `held` converts operands to numbers and results to the storage type
