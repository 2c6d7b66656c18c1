"""Suggestions of similar names for messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(name: object, known: Iterable[object]) -> str:
    """Return ` (did you mean 'x'?)` if a known name is similar, else an empty string."""
    close = similar(name, known)
    return f" (did you mean '{close}'?)" if close else ""


def similar(name: object, known: Iterable[object]) -> str:
    """Return the most similar known name, or an empty string."""
    if not isinstance(name, str):
        return ""
    names = [k for k in known if isinstance(k, str)]
    folded = [k for k in names if k.casefold() == name.casefold()]  # `X` and `x` have no letter in common
    return next(iter(folded or get_close_matches(name, names, 1)), "")
