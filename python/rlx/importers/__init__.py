"""Importers: models of other formats as graphs with their weights, a package for each format.

A format is a table of rules (`table.py`), one for each kind of its ops: `@imports("tanh")` above a function of rlx tensors.
"""

from __future__ import annotations

# The packages to the left first, and whole: see passes/__init__.py.
import rlx.blocks
import rlx.weights  # noqa: F401
