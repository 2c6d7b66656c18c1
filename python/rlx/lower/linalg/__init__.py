"""rlx to linalg, tensor and arith: the common lowering of every back end that compiles loops. Each file registers its rules."""

from __future__ import annotations

from rlx.lower.linalg.function import lower_module
from rlx.lower.linalg.rules import claimed_ops, lowers
from rlx.support.submodules import import_all

import_all(__name__)

__all__ = ["claimed_ops", "lower_module", "lowers"]
