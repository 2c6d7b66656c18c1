"""The table of lowering rules to linalg: a function for each primitive op and for composite ops with an efficient lowering.

Unsigned integers are stored signless. The shape of a `Lowered` has their dtype.
"""

from __future__ import annotations

from rlx.targets.linalg.kernel_call import call_kernel
from rlx.targets.lowering.table import Lowered, LoweringTable, Region

TABLE = LoweringTable("linalg", call_kernel)
RULES = TABLE.rules
lowers, claimed_ops = TABLE.lowers, TABLE.claimed

__all__ = ["RULES", "TABLE", "Lowered", "Region", "claimed_ops", "lowers"]
