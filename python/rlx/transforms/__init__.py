"""Transforms: derivatives and batching, graph in, graph out. Each is a pass as well.

The engines are `forward`, `reverse` and `batching`; every other file is one transform, named as its pass is.
"""

import rlx.blocks  # noqa: F401  (whole before its parts: see passes/__init__.py)
