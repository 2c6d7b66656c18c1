"""Checks of JSON data that may be hostile. Each takes a value and a name for messages, and returns the value or raises.

They are combined into a description of the data: `record({"name": text, "sizes": list_of(integer(0, 9))})`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from rlx.ir.checks import is_unicode
from rlx.support.errors import Error

Check = Callable[[Any, str], Any]

_LONGEST_LIST = 1 << 20
_DEEPEST = 16
_SHOWN = 60


def parse_json(data: bytes, limit: int) -> Any:
    """The value of a JSON text. All numbers must be finite, and no object may have two entries with the same name.

    Raises:
        Error: The text is longer than `limit`, or is not JSON.
    """
    if len(data) > limit:
        raise Error(f"{len(data)} bytes of JSON, expected at most {limit}")
    try:
        value = json.loads(data, parse_float=_finite, parse_constant=_no_number, object_pairs_hook=_no_repetition)
    except RecursionError:
        raise Error("JSON that is nested too deeply") from None
    except ValueError as problem:
        raise Error(f"not JSON: {problem}") from None
    level = [[value]]
    for _ in range(_DEEPEST):
        level = [v for outer in level for v in (outer.values() if isinstance(outer, dict) else outer) if _is_nested(v)]
        if not level:
            return value
    raise Error("JSON that is nested too deeply")


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, dict))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of 64 bits")
    return number


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("an object has two entries of one name")
    return entries


def unexpected_value(what: str, expected: str, value: Any) -> Error:
    """The error for a value that is not as expected."""
    return Error(f"{what}: expected {expected}, got {shown(value)}")


def shown(value: Any) -> str:
    """A value as text for a message, shortened if it is long."""
    if isinstance(value, (list, dict)) and value:  # it may be nested too deeply to print
        return f"a {type(value).__name__} of {len(value)}"
    written = ascii(value)
    return written if len(written) <= _SHOWN else written[:_SHOWN] + "…"


def text(value: Any, what: str) -> str:
    """Text that can be printed."""
    if type(value) is not str or not is_unicode(value):
        raise unexpected_value(what, "text", value)
    return value


def name(value: Any, what: str) -> str:
    """Text that is not empty."""
    if not text(value, what):
        raise unexpected_value(what, "a name", value)
    return value


def boolean(value: Any, what: str) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise unexpected_value(what, "true or false", value)
    return value


def unchanged(value: Any, what: str) -> Any:
    """Any value. It is checked elsewhere."""
    return value


def mapping(value: Any, what: str) -> dict[str, Any]:
    """An object. Its entries are checked elsewhere."""
    if type(value) is not dict:
        raise unexpected_value(what, "an object", value)
    return value


def integer(low: int, high: int) -> Check:
    """An integer from `low` to `high`."""

    def check(value: Any, what: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise unexpected_value(what, f"an integer from {low} to {high}", value)
        return value

    return check


def number(value: Any, what: str) -> float:
    """A number; an infinite number is written as text."""
    if type(value) is str and value in ("inf", "-inf"):
        return float(value)
    if type(value) is float or (type(value) is int and abs(value) < 2**1023):
        return float(value)
    raise unexpected_value(what, 'a number, "inf" or "-inf"', value)


def number_to_json(value: float) -> float | str:
    """A number in the form that `number` reads."""
    return value if math.isfinite(value) else str(float(value))


def one_of(*values: str) -> Check:
    """One of several texts."""

    def check(value: Any, what: str) -> str:
        if type(value) is not str or value not in values:
            raise unexpected_value(what, " or ".join(values), value)
        return value

    return check


def optional(check: Check) -> Check:
    """A value that passes a check, or null."""
    return lambda value, what: None if value is None else check(value, what)


def list_of(check: Check, at_most: int = _LONGEST_LIST) -> Check:
    """A list whose elements all pass a check."""

    def check_all(value: Any, what: str) -> list[Any]:
        if type(value) is not list or len(value) > at_most:
            raise unexpected_value(what, f"a list of at most {at_most}", value)
        return [check(element, f"{what}[{i}]") for i, element in enumerate(value)]

    return check_all


def row(*checks: Check) -> Check:
    """A list with one element for each check, where each element passes its check."""

    def check_all(value: Any, what: str) -> list[Any]:
        if type(value) is not list or len(value) != len(checks):
            raise unexpected_value(what, f"a list of {len(checks)}", value)
        return [check(element, f"{what}[{i}]") for i, (check, element) in enumerate(zip(checks, value, strict=True))]

    return check_all


def record(checks: Mapping[str, Check]) -> Check:
    """An object with exactly these entries. Each entry must pass its check."""

    def check_all(value: Any, what: str) -> dict[str, Any]:
        mapping(value, what)
        for key in checks.keys() - value.keys():
            raise Error(f"{what} has no {key!r}")
        for key in value.keys() - checks.keys():
            raise unexpected_value(what, f"no entries but {', '.join(checks)}", key)
        return {key: check(value[key], f"{what}.{key}") for key, check in checks.items()}

    return check_all
