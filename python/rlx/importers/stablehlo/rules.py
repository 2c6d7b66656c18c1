"""The table of rules of StableHLO, whose names come without prefix.

A rule may ask by keyword for the op's attributes as Python values (axes and sizes as tuples, enums as strings), and for
`results`, the shapes of its results, `regions`, its regions as MLIR has them, and `largest_literal`, the elements that a
constant may have and stay one.
"""

from __future__ import annotations

from rlx.importers.table import Table

imports = Table("StableHLO")
