"""rlx to linalg, tensor and arith: the common lowering of every back end that compiles loops."""

from __future__ import annotations

from rlx.lower.linalg import contraction, convolution, elementwise, index, order, reduce, scan, shape
from rlx.lower.linalg.function import claimed_ops, lower_module

__all__ = [
    "claimed_ops",
    "contraction",
    "convolution",
    "elementwise",
    "index",
    "lower_module",
    "order",
    "reduce",
    "scan",
    "shape",
]
