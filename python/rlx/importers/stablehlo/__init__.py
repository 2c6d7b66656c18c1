"""Import of StableHLO modules from JAX, PyTorch/XLA and TensorFlow: text, bytecode or portable artifacts."""

from __future__ import annotations

from rlx.importers.stablehlo.function import from_module, from_stablehlo, is_stablehlo, parsed
from rlx.importers.stablehlo.large import of_content
from rlx.importers.stablehlo.rules import imports
from rlx.support.submodules import import_all

import_all(__name__)

__all__ = ["from_module", "from_stablehlo", "imports", "is_stablehlo", "of_content", "parsed"]
