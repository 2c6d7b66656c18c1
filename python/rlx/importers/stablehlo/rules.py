"""The table of rules of StableHLO, whose names come without prefix.

A rule takes by keyword the op's attributes as Python values (axes and sizes as tuples, enums as strings), and if it names
them `results`, the shapes of the op's results, `regions`, its regions as functions of tensors (`Body`), and
`largest_literal`, the number of elements up to which a constant does not become a parameter.
"""

from __future__ import annotations

from rlx.importers.table import ImportTable

imports = ImportTable("StableHLO")
