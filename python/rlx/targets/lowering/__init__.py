"""What the lowerings to all dialects and languages share: tables of rules, and names."""

# Whole before its parts: see passes/__init__.py.
import rlx.blocks  # noqa: F401  # pyright: ignore[reportUnusedImport]
