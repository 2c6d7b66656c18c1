"""Names that a user may have meant, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(name: object, known: Iterable[object]) -> str:
    """` (did you mean 'x'?)` when a known name is similar, else an empty string."""
    close = similar(name, known)
    return f" (did you mean '{close}'?)" if close else ""


def similar(name: object, known: Iterable[object]) -> str:
    """The known name that is most similar, empty if there is none."""
    if not isinstance(name, str):
        return ""
    names = [k for k in known if isinstance(k, str)]
    folded = [k for k in names if k.casefold() == name.casefold()]  # `X` for `x`: no letter in common
    return next(iter(folded or get_close_matches(name, names, 1)), "")
