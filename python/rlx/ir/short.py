"""Texts of bounded length, for prompts: `repr` says what something is, `print` shows all of it."""

from __future__ import annotations

from collections.abc import Iterable

_PARTS, _LENGTH = 8, 200


def listed(parts: Iterable[str], most: int = _PARTS) -> str:
    """Parts with commas between them; of many the first ones, and how many follow."""
    every = list(parts)
    shown = every if len(every) <= most else [*every[: most - 1], f"… {len(every) - most + 1} more"]
    return ", ".join(shown)


def report_repr(report: object, summary: str) -> str:
    """The `repr` of a report: its class and one line, cut where it is long."""
    line = summary.split("\n", 1)[0]
    cut = line if len(line) <= _LENGTH else f"{line[: _LENGTH - 1]}…"
    return f"<{type(report).__name__}: {cut}>"
