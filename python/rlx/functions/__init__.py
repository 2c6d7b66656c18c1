"""Functions that users know by a name and that emit other ops, in one file or folder per family.

`@helper` of `rlx.ops.surface` makes each of them a method of graphs and a function of `rlx.ops`. `rlx.ops` imports all
files of this package, as its last step.
"""

from __future__ import annotations

# It imports all modules of this package.
import rlx.ops  # noqa: F401 # pyright: ignore[reportUnusedImport]
