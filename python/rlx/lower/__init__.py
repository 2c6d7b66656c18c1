"""Lowerings: rlx ops into the dialects that back ends take."""

# Whole before its parts: see passes/__init__.py.
import rlx.blocks  # noqa: F401  # pyright: ignore[reportUnusedImport]
