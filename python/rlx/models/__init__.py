"""Models built from blocks, which load published weights."""

import rlx.blocks  # noqa: F401  (whole before its parts: see passes/__init__.py)
