"""Collection of failures, so that one test reports all failing cases at once."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import pytest

_SHOWN_CASES = 25
_SHOWN_EACH = 3


class Failures:
    """Messages by case. `check` fails the test if there are any."""

    def __init__(self) -> None:
        self.messages: dict[str, list[str]] = {}
        self.checked = 0

    def add(self, case: object, message: str) -> None:
        """Record a failure."""
        self.messages.setdefault(str(case), []).append(message)

    def expect(self, case: object, holds: bool, message: str) -> None:
        """Record a failure unless a condition holds."""
        self.checked += 1
        if not holds:
            self.add(case, message)

    @contextlib.contextmanager
    def of(self, case: object) -> Iterator[None]:
        """Return a context in which an exception is a failure of the case and ends only that case."""
        self.checked += 1
        try:
            yield
        except Exception as problem:
            frame = traceback.extract_tb(problem.__traceback__)[-1]
            self.add(case, f"{type(problem).__name__}: {problem} ({frame.filename}:{frame.lineno})"[:800])

    def check(self) -> None:
        """Fail the test with all messages, if there are any.

        A test that has checked nothing also fails.
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
