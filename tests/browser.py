"""Chromium without a window, for tests of pages. Tests are skipped where it is not installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser, for the time of the context."""
    api = pytest.importorskip("playwright.sync_api")
    program = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as playwright:
        # A user root cannot have the browser's sandbox. The pages are those of these tests.
        yield playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
