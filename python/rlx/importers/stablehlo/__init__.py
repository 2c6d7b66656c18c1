"""StableHLO modules, as JAX, PyTorch/XLA and TensorFlow export them: text, bytecode or portable artifacts."""

from __future__ import annotations

from rlx.importers.stablehlo import contraction, elementwise, leaf, reduce, shape
from rlx.importers.stablehlo.function import from_module, from_stablehlo, is_stablehlo
from rlx.importers.stablehlo.rules import imports

__all__ = [
    "contraction",
    "elementwise",
    "from_module",
    "from_stablehlo",
    "imports",
    "is_stablehlo",
    "leaf",
    "reduce",
    "shape",
]
