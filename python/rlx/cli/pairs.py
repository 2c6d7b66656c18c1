"""`NAME=VALUE` on the command line. Names may contain `=`."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rlx.support.errors import Error

_MOST_DIGITS = 19  # the digits of 2^63 - 1


def split(text: str, option: str, names: Collection[str], is_value: Callable[[str], bool]) -> tuple[str, str, str]:
    """Return name, `=` and value of a text, as `str.partition` does.

    If no known name matches, the value is the longest suffix with the form of a value.

    Args:
        text: The text.
        option: The option that has it, for messages.
        names: The known names.
        is_value: Whether a text has the form of a value. It is used if several names are possible.

    Raises:
        Error: Several names match.
    """
    everywhere = [i for i, character in enumerate(text) if character == "="]
    ends = [i for i in everywhere if text[:i] in names]
    if not ends:
        ends = [i for i in everywhere if is_value(text[i + 1 :])][:1]
    if len(ends) > 1:
        ends = [i for i in ends if is_value(text[i + 1 :])] or ends
    if len(ends) > 1:
        choices = ", ".join(f"'{text[:i]}' with {text[i + 1 :]!r}" for i in ends)
        raise Error(f"{option}={text} has several meanings: {choices}", hint="give one of these another name")
    if not ends:
        return text.partition("=")
    return text[: ends[0]], "=", text[ends[0] + 1 :]


def size_of(text: str, flag: str) -> int:
    """Return the number for decimal digits.

    Raises:
        Error: It exceeds 64 bits. (Python does not even parse thousands of digits.)
    """
    if len(text) > _MOST_DIGITS:
        raise Error(f"{flag}: a number of {len(text)} digits is too large", hint="numbers end at 2^63 - 1")
    return int(text)
