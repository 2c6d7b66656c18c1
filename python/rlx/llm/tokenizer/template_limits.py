"""Limits of time and memory for the operations of a chat template.

A template is a program from a file that may be hostile. Each operation that can make a large value is checked before
it runs, so that the values of a rendering stay small. An operation on small values is quick, and between two of them
`RenderLimits.tick` checks the time.
"""

from __future__ import annotations

import re
import string
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

SECONDS = 1.0
LONGEST = 1 << 23  # characters of a string
_MOST_VALUES = 300_000  # in a list or dictionary, with those of its elements
_MOST_BYTES = 1 << 29  # of all strings and lists that one rendering makes
_MOST_BITS = 4096  # of an integer
_WIDE = re.compile(r"\d{4}|\*")  # a width of 1000 or more in a format, or one that is an argument
_ITEM, _LONGEST_SPLIT = 64, 1 << 22

Size = tuple[int, int, int]


class LimitError(Exception):
    """A template takes too much time or memory."""


class RenderLimits:
    """The limits of one rendering.

    Args:
        seconds: The time that it may take.
    """

    def __init__(self, seconds: float = SECONDS):
        self._seconds, self._deadline = seconds, time.monotonic() + seconds
        self._bytes = 0
        # The size of each list and dictionary that was measured. The value is kept, so that its id stays its own.
        self._sizes: dict[int, tuple[object, Size]] = {}

    def tick(self) -> None:
        """Check the time.

        Raises:
            LimitError: It is over.
        """
        if time.monotonic() > self._deadline:
            raise LimitError(f"it takes more than {self._seconds:g} seconds")

    def checked(self, value: Any) -> Any:
        """Return a value that the template has computed, after checking its size.

        Raises:
            LimitError: It is too large, or all values together are, or the time is over.
        """
        self.tick()
        if isinstance(value, str):
            check_length(len(value))
            self._spend(sys.getsizeof(value))
        elif isinstance(value, int):
            check_bits(value.bit_length())
        elif isinstance(value, list | tuple | dict | set):
            self._spend(_ITEM * len(value))
            self.size(value)
        return value

    def _spend(self, count: int) -> None:
        self._bytes += count
        if self._bytes > _MOST_BYTES:
            raise LimitError(f"its strings and lists take more than {_MOST_BYTES >> 20} MiB")

    def size(self, value: Any) -> Size:
        """Return the number of values in a value, of their characters, and the depth of lists and dictionaries.

        A list that occurs twice counts twice, because it is printed twice.

        Raises:
            LimitError: A number is too large.
        """
        if isinstance(value, str):
            return 1, len(value), 0
        if not isinstance(value, list | tuple | dict | set):
            return 1, 8, 0
        known = self._sizes.get(id(value))
        if known is not None:
            return known[1]
        values, characters, depth = 1, 0, 0
        for children in (value, value.values() if isinstance(value, dict) else ()):
            for child in children:
                size = self.size(child)
                values, characters, depth = values + size[0], characters + size[1], max(depth, size[2])
                check_values(values, characters)
        self._sizes[id(value)] = value, (values, characters, depth + 1)
        return values, characters, depth + 1

    def added(self, left: Any, right: Any) -> Any:
        """Return `left + right`."""
        if all(isinstance(operand, str) for operand in (left, right)):
            check_length(len(left) + len(right))
        if not all(isinstance(operand, list | tuple) for operand in (left, right)):
            return self.checked(left + right)
        one, other = self.size(left), self.size(right)
        total = one[0] + other[0], one[1] + other[1], max(one[2], other[2])
        check_values(*total[:2])
        self._spend(_ITEM * (len(left) + len(right)))
        result = left + right
        self._sizes[id(result)] = result, total  # so that a list that grows is not measured each time
        self.tick()
        return result

    def multiplied(self, left: Any, right: Any) -> Any:
        """Return `left * right`."""
        for value, count in ((left, right), (right, left)):
            if isinstance(count, int) and isinstance(value, str):
                check_length(len(value) * max(count, 0))
            elif isinstance(count, int) and isinstance(value, list | tuple):
                values, characters, _ = self.size(value)
                check_values(values * max(count, 0), characters * max(count, 0))
            elif isinstance(count, int) and isinstance(value, int):
                check_bits(value.bit_length() + count.bit_length())
        return self.checked(left * right)

    def raised(self, left: Any, right: Any) -> Any:
        """Return `left ** right`."""
        if isinstance(left, int) and isinstance(right, int):
            check_bits(left.bit_length() * abs(right))
        return self.checked(left**right)

    def formatted(self, left: Any, right: Any) -> Any:
        """Return `left % right`, a remainder or a formatted string."""
        if isinstance(left, str):
            self.check_format(left, left.count("%"), right)
        return self.checked(left % right)

    def check_format(self, text: str, fields: int, values: Any) -> None:
        """Check that a format has no wide fields, and that its result is short.

        Args:
            text: The format.
            fields: The number of its fields.
            values: The values that it formats.

        Raises:
            LimitError: The result may be too long.
        """
        if _WIDE.search(text):
            raise LimitError("a format has a width or precision above 999, or one that is an argument")
        items, characters, _ = self.size(values)
        check_length(len(text) + fields * (1000 + characters + 16 * items))

    def joined(self, separator: str, items: Iterable[Any]) -> list[Any]:
        """Return the items to join as a list, checked."""
        if isinstance(items, str):
            check_values(len(items), 0)
        parts = list(items)
        characters = sum(self.size(part)[1] for part in parts)
        check_length(characters + len(separator) * len(parts))
        return parts

    def method_arguments(self, text: str, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of a call of a string's method, checked.

        Raises:
            LimitError: The method is not available in templates, or its result is too large.
        """
        if name not in _METHODS:
            raise LimitError(f"it calls the method '{name}' of a string, which is not available in templates")
        if name == "join" and len(arguments) == 1:
            return (self.joined(text, arguments[0]),)
        if (check := _CHECKS.get(name)) is not None:
            check(text, *arguments)
        return arguments


def check_length(length: int) -> None:
    """Check the length of a string.

    Raises:
        LimitError: It is too long.
    """
    if length > LONGEST:
        raise LimitError(f"a string has more than {LONGEST} characters")


def check_values(values: int, characters: int) -> None:
    """Check the size of a list or dictionary.

    Raises:
        LimitError: It is too large.
    """
    if values > _MOST_VALUES:
        raise LimitError(f"a list has more than {_MOST_VALUES} values")
    check_length(characters)


def check_bits(bits: int) -> None:
    """Check the size of an integer.

    Raises:
        LimitError: It is too large.
    """
    if bits > _MOST_BITS:
        raise LimitError(f"an integer has more than {_MOST_BITS} bits")


def check_width(text: str, width: Any = 0, *_: Any) -> None:
    """Check the result of padding a string.

    Raises:
        LimitError: It is too long.
    """
    if isinstance(width, int):
        check_length(max(len(text), width))


def check_replacement(text: str, old: Any = "", new: Any = "", *_: Any) -> None:
    """Check the result of replacing a part of a string.

    Raises:
        LimitError: It is too long.
    """
    if isinstance(old, str) and isinstance(new, str):
        check_length(len(text) + text.count(old) * (len(new) - len(old)))


def check_parts(text: str, separator: Any = None, *_: Any) -> None:
    """Check the number of parts of a string.

    Raises:
        LimitError: There are too many.
    """
    if isinstance(separator, str) and separator:
        check_values(text.count(separator) + 1, len(text))
    elif len(text) > _LONGEST_SPLIT:
        raise LimitError(f"a string of more than {_LONGEST_SPLIT} characters is split")


def _check_tabs(text: str, width: Any = 8, *_: Any) -> None:
    if isinstance(width, int):
        check_length(len(text) + text.count("\t") * max(width, 0))


def format_fields(text: str) -> int:
    """Return the number of fields of a format for `str.format`.

    Raises:
        LimitError: A field has a format that depends on another one.
    """
    fields = 0
    for _, field, spec, _ in string.Formatter().parse(text):
        fields += field is not None
        if spec and "{" in spec:
            raise LimitError("a format has a width or precision that is an argument")
    return fields


_CHECKS: Mapping[str, Callable[..., None]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), check_width),
    **dict.fromkeys(("split", "rsplit", "splitlines"), check_parts),
    "replace": check_replacement,
    "expandtabs": _check_tabs,
}
_METHODS = frozenset(
    (
        *_CHECKS,
        *[
            "capitalize",
            "casefold",
            "count",
            "endswith",
            "find",
            "format",
            "format_map",
            "index",
            "isalnum",
            "isalpha",
            "isascii",
            "isdecimal",
        ],
        *[
            "isdigit",
            "isidentifier",
            "islower",
            "isnumeric",
            "isprintable",
            "isspace",
            "istitle",
            "isupper",
            "join",
            "lower",
            "lstrip",
            "partition",
        ],
        *[
            "removeprefix",
            "removesuffix",
            "rfind",
            "rindex",
            "rpartition",
            "rstrip",
            "startswith",
            "strip",
            "swapcase",
            "title",
            "upper",
        ],
    )
)
