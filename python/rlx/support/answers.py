"""Access to `rlx.answers`, which knows the names, keywords and calls of other libraries."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from rlx.parts import ANSWERS


def answers() -> ModuleType:
    """Import and return `rlx.answers`. Only code that makes an error calls this function."""
    return import_module(ANSWERS)
