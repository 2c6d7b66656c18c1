"""Shared helpers for the lowerings to all dialects and languages: tables of rules, and names."""

# The package is imported before its modules: see passes/__init__.py.
import rlx.blocks  # noqa: F401  # pyright: ignore[reportUnusedImport]
