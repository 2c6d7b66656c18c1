"""Names that a user may have meant, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(name: object, known: Iterable[object]) -> str:
    """` (did you mean 'x'?)` when a known name is similar, else an empty string."""
    if not isinstance(name, str):
        return ""
    names = [k for k in known if isinstance(k, str)]
    folded = [k for k in names if k.casefold() == name.casefold()]  # `X` for `x`: no letter in common
    close = folded or get_close_matches(name, names, 1)
    return f" (did you mean '{close[0]}'?)" if close else ""
