"""The table of lowering rules to linalg: one function for each primitive op, and for composites that are better lowered whole.

Unsigned integers are stored signless; the shape of a `Lowered` says which they are.
"""

from __future__ import annotations

from rlx.targets.lowering.table import Lowered, LoweringTable, Region

TABLE = LoweringTable("linalg")
RULES = TABLE.rules
lowers, claimed_ops = TABLE.lowers, TABLE.claimed

__all__ = ["RULES", "TABLE", "Lowered", "Region", "claimed_ops", "lowers"]
