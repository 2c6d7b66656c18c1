"""Transforms: derivatives and batching, from a graph to a new graph. Each is a pass as well.

The engines are `forward`, `reverse` and `batching`. Most other files define one transform, and are named after its pass.
"""

# Import the package completely before its parts: see passes/__init__.py.
import rlx.blocks  # noqa: F401  # pyright: ignore[reportUnusedImport]
