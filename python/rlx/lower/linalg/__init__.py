"""rlx to linalg, tensor and arith: the common lowering of every back end that compiles loops."""

from __future__ import annotations

from rlx.lower.linalg import (
    complex,
    contraction,
    control,
    convolution,
    elementwise,
    index,
    order,
    pool,
    random,
    reduce,
    scan,
    scatter,
    shape,
    sorting,
)
from rlx.lower.linalg.function import lower_module
from rlx.lower.linalg.rules import claimed_ops, lowers

__all__ = [
    "claimed_ops",
    "complex",
    "contraction",
    "control",
    "convolution",
    "elementwise",
    "index",
    "lower_module",
    "lowers",
    "order",
    "pool",
    "random",
    "reduce",
    "scan",
    "scatter",
    "shape",
    "sorting",
]
