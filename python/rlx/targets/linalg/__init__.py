"""rlx to linalg, tensor and arith: the common lowering of all back ends that compile loops. Each file registers its rules."""

from __future__ import annotations

from rlx.support.submodules import import_all
from rlx.targets.linalg.function import lower_module
from rlx.targets.linalg.rules import claimed_ops, lowers

import_all(__name__)

__all__ = ["claimed_ops", "lower_module", "lowers"]
