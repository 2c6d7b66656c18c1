"""Checks of users' names and options."""

from __future__ import annotations

from rlx.support.caller import caller_place
from rlx.support.errors import Error
from rlx.support.short import short_repr


def check_name(name: object, what: str) -> None:
    """Check that a name is text that MLIR and files can store.

    Raises:
        Error: It is not a string, it is empty, or it contains a NUL or half of a surrogate pair.
    """
    if not isinstance(name, str) or not name:
        raise Error(f"{what} is a non-empty string, not {short_repr(name)}", location=caller_place())
    if "\0" in name or not is_unicode(name):
        raise Error(f"{what} is Unicode text without NUL, not {short_repr(name)}", location=caller_place())


def is_unicode(text: str) -> bool:
    """Whether the text can be encoded as UTF-8, that is, has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_string(value: object, what: str) -> None:
    """Check that an option is text.

    Raises:
        Error: It is not text.
    """
    if not isinstance(value, str):
        raise Error(f"{what} must be a string, got {short_repr(value)}")
