"""Transforms: derivatives and batching, graph in, graph out. Each is a pass as well.

The engines are `forward`, `reverse` and `batching`; every other file is one transform, named as its pass is.
"""

# Whole before its parts: see passes/__init__.py.
import rlx.blocks  # noqa: F401  # pyright: ignore[reportUnusedImport]
