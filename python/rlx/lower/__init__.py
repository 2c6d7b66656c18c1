"""Lowerings: rlx ops into the dialects that back ends take."""

import rlx.blocks  # noqa: F401  (whole before its parts: see passes/__init__.py)
