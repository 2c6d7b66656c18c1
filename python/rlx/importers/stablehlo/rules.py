"""The table of rules of StableHLO, by op name without prefix.

A rule takes the op's attributes by keyword, as Python values (axes and sizes as tuples, enums as strings). If its
signature names them, it also gets these values:

- `results`: the shapes of the op's results
- `regions`: its regions as functions of tensors (`Body`)
- `largest_literal`: the largest number of elements of a constant that does not become a parameter
"""

from __future__ import annotations

from rlx.importers.table import ImportTable

imports = ImportTable("StableHLO")
