"""Packages that some tests need, and that may not be imported to find out: CIRCT shares no process with IREE's compiler."""

from __future__ import annotations

import importlib.util

import pytest


def needs_package(name: str, extra: str) -> pytest.MarkDecorator:
    """The mark of tests that are skipped where a package is not installed.

    Args:
        name: Of the module.
        extra: The extra of RLX that has it.
    """
    is_absent = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(is_absent, reason=f"{name} is not installed: pip install 'rlx[{extra}]'")
