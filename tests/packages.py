"""Optional packages of tests, found without importing them: CIRCT cannot share a process with IREE's compiler."""

from __future__ import annotations

import importlib.util

import pytest


def needs_package(name: str, extra: str) -> pytest.MarkDecorator:
    """Return the mark that skips tests if a package is not installed.

    Args:
        name: The name of the module.
        extra: The extra of RLX that has it.
    """
    is_absent = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(is_absent, reason=f"{name} is not installed: pip install 'rlx[{extra}]'")
