"""Transforms, which map a graph to a new graph: derivatives and batching. Each is also a pass.

The engines are `forward`, `reverse` and `batching`. Most other files define one transform and are named after its pass.
"""

# Import the package completely before its modules: see passes/__init__.py.
import rlx.blocks  # noqa: F401  # pyright: ignore[reportUnusedImport]
