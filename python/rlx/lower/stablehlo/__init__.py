"""rlx to StableHLO: for XLA, and for every other tool that reads portable artifacts."""

from __future__ import annotations

from rlx.lower.stablehlo import (
    complex,
    contraction,
    control,
    convolution,
    elementwise,
    fft,
    index,
    leaf,
    order,
    pool,
    random,
    reduce,
    scan,
    scatter,
    shape,
)
from rlx.lower.stablehlo.function import lower_module
from rlx.lower.stablehlo.rules import claimed_ops, lowers

__all__ = [
    "claimed_ops",
    "complex",
    "contraction",
    "control",
    "convolution",
    "elementwise",
    "fft",
    "index",
    "leaf",
    "lower_module",
    "lowers",
    "order",
    "pool",
    "random",
    "reduce",
    "scan",
    "scatter",
    "shape",
]
