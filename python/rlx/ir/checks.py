"""Checks of what users hand over beside arrays: names, options."""

from __future__ import annotations

from rlx.ir.errors import Error


def check_name(name: object, what: str) -> None:
    """A name is text that MLIR and files can hold.

    Raises:
        Error: It is no string, empty, or has a NUL or half a character in it.
    """
    if not isinstance(name, str) or not name:
        raise Error(f"{what} is a non-empty string, not {name!r:.60}", location=_place())
    if "\0" in name or not is_unicode(name):
        raise Error(f"{what} is Unicode text without NUL, not {name!r:.60}", location=_place())


def _place() -> str | None:
    """The user's line."""
    from rlx.ir.location import caller_location, describe  # imports MLIR

    return describe(caller_location())


def is_unicode(text: str) -> bool:
    """Whether text can be written as UTF-8: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_string(value: object, what: str) -> None:
    """An option that is text.

    Raises:
        Error: It is something else.
    """
    if not isinstance(value, str):
        raise Error(f"{what} must be a string, got {value!r:.60}")
