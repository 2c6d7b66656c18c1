"""Collecting what is wrong, so that one test tells of all failing cases at once."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import pytest

_SHOWN_CASES = 25
_SHOWN_EACH = 3


class Failures:
    """Messages by case; `check` fails the test when there are any."""

    def __init__(self) -> None:
        self.messages: dict[str, list[str]] = {}
        self.checked = 0

    def add(self, case: object, message: str) -> None:
        """Note a failure."""
        self.messages.setdefault(str(case), []).append(message)

    def expect(self, case: object, holds: bool, message: str) -> None:
        """Note a failure unless something holds."""
        self.checked += 1
        if not holds:
            self.add(case, message)

    @contextlib.contextmanager
    def of(self, case: object) -> Iterator[None]:
        """An exception inside is a failure of the case, and ends only that."""
        self.checked += 1
        try:
            yield
        except Exception as problem:
            frame = traceback.extract_tb(problem.__traceback__)[-1]
            self.add(case, f"{type(problem).__name__}: {problem} ({frame.filename}:{frame.lineno})"[:800])

    def check(self) -> None:
        """Fail the test with all messages, unless there are none.

        A test that has checked nothing fails as well.
        """
        if not self.messages:
            if not self.checked:
                pytest.fail("nothing was checked", pytrace=False)
            return
        lines = [f"{len(self.messages)} cases fail"]
        for case, messages in list(self.messages.items())[:_SHOWN_CASES]:
            lines.append(f"  {case}: {len(messages)} times")
            lines += [f"    {message}" for message in messages[:_SHOWN_EACH]]
        pytest.fail("\n".join(lines), pytrace=False)
