"""Texts of bounded length, for prompts: `repr` says what something is, `print` shows all of it."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any

from rlx.support.printable import printable

_PARTS, _LENGTH = 8, 200
_LINE, _END = 1000, 200  # characters of a line that is not cut, and of the end of one that is
_VALUE = 120  # characters of a value in a message
_BITS = 256  # of an integer that is written


class _Look(reprlib.Repr):
    """Looks at the beginning of a container alone."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = (
            self.maxarray
        ) = 12
        self.maxstring = self.maxother = _VALUE

    def repr_int(self, x: int, level: int) -> str:
        """Python writes no number of thousands of digits."""
        return repr(x) if x.bit_length() <= _BITS else f"an integer of {x.bit_length()} bits"


_LOOK = _Look()


def shown(value: object) -> str:
    """A value that a user passed, for a message: its `repr`, of which the middle is left out where it is long."""
    return _LOOK.repr(value)


def written(value: Any, name: str) -> str:
    """A number, a text, or a few of them, as in a call; another value by the name that is given for it."""
    from rlx.support.guards import is_sequence  # it loads NumPy, which not all that has errors does

    parts: list[Any] = list(value) if is_sequence(value) else [value]
    is_plain = len(parts) <= _PARTS and all(p is None or type(p) in (bool, int, float, str) for p in parts)
    return _LOOK.repr(value) if is_plain else name


def cut(text: str) -> str:
    """Text whose lines are of bounded length: of a longer one the beginning and the end."""
    if len(text) <= _LINE:
        return text
    lines = (
        line if len(line) <= _LINE else f"{line[: _LINE - _END]} … of {len(line)} characters … {line[-_END:]}"
        for line in text.split("\n")
    )
    return "\n".join(lines)


def listed(parts: Iterable[str], most: int = _PARTS) -> str:
    """Parts with commas between them; of many the first ones, and how many follow."""
    every = list(parts)
    shown = every if len(every) <= most else [*every[: most - 1], f"… {len(every) - most + 1} more"]
    return ", ".join(shown)


def report_repr(report: object, summary: str) -> str:
    """The `repr` of a report: its class and one line, cut where it is long."""
    line = printable(summary.split("\n", 1)[0], keep="")
    cut = line if len(line) <= _LENGTH else f"{line[: _LENGTH - 1]}…"
    return f"<{type(report).__name__}: {cut}>"
