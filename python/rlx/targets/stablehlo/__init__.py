"""rlx to StableHLO, for XLA and all other tools that read portable artifacts. Each file registers its rules."""

from __future__ import annotations

from rlx.support.submodules import import_all
from rlx.targets.stablehlo.function import lower_module
from rlx.targets.stablehlo.rules import claimed_ops, lowers

import_all(__name__)

__all__ = ["claimed_ops", "lower_module", "lowers"]
