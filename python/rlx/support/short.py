"""Shortened text for prompts and messages."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any

from rlx.support.printable import printable

_PARTS, _LENGTH = 8, 200
_LINE, _END = 1000, 200  # maximum characters of a line, and of the end that is kept of a longer one
_VALUE = 120  # characters of a value in a message
_BITS = 256  # maximum bits of an integer that is printed


class _Look(reprlib.Repr):
    """A `repr` that reads only the beginning of a container."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = (
            self.maxarray
        ) = 12
        self.maxstring = self.maxother = _VALUE

    def repr_int(self, x: int, level: int) -> str:
        """Describe a large integer by its bits: Python does not print integers of thousands of digits."""
        return repr(x) if x.bit_length() <= _BITS else f"an integer of {x.bit_length()} bits"


_LOOK = _Look()


def short_repr(value: object) -> str:
    """Return the `repr` of a user's value for a message, with the middle of a long one left out."""
    return _LOOK.repr(value)


def source_text(value: Any, name: str) -> str:
    """Return the source text of a number, a string or a few of them; for other values, return `name`."""
    from rlx.support.guards import is_sequence  # it imports NumPy, which not every user of errors does

    parts: list[Any] = list(value) if is_sequence(value) else [value]
    is_plain = len(parts) <= _PARTS and all(p is None or type(p) in (bool, int, float, str) for p in parts)
    return _LOOK.repr(value) if is_plain else name


def shorten_lines(text: str) -> str:
    """Return text whose long lines are shortened to their beginning and end."""
    if len(text) <= _LINE:
        return text
    lines = (
        line if len(line) <= _LINE else f"{line[: _LINE - _END]} … of {len(line)} characters … {line[-_END:]}"
        for line in text.split("\n")
    )
    return "\n".join(lines)


def join_names(parts: Iterable[str], most: int = _PARTS) -> str:
    """Join entries with commas. If there are many, only the first ones are listed, with the number of the others."""
    every = list(parts)
    short_repr = every if len(every) <= most else [*every[: most - 1], f"… {len(every) - most + 1} more"]
    return ", ".join(short_repr)


def report_repr(report: object, summary: str) -> str:
    """Return the `repr` of a report: its class and one line, shortened if it is long."""
    line = printable(summary.split("\n", 1)[0], keep="")
    shortened = line if len(line) <= _LENGTH else f"{line[: _LENGTH - 1]}…"
    return f"<{type(report).__name__}: {shortened}>"
