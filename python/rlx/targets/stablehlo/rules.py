"""The table of lowering rules to StableHLO: one function for each primitive op. Every size is static."""

from __future__ import annotations

from rlx.targets.lowering.table import Lowered, LoweringTable, Region
from rlx.targets.stablehlo.lapack import call_lapack

TABLE = LoweringTable("StableHLO", call_lapack)
RULES = TABLE.rules
lowers, claimed_ops = TABLE.lowers, TABLE.claimed

__all__ = ["RULES", "TABLE", "Lowered", "Region", "claimed_ops", "lowers"]
