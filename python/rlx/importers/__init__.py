"""Importers: convert models of other formats to graphs with their weights. Each format has a package.

Each format has a table of rules (`table.py`), with one rule for each kind of op. A rule is a function of rlx tensors
decorated with, for example, `@imports("tanh")`.
"""

from __future__ import annotations

# Import the packages to the left in the import order first, and completely: see passes/__init__.py.
import rlx.blocks
import rlx.weights  # noqa: F401
