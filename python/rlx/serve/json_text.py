"""JSON of requests and answers. Requests are read strictly, because they come from anywhere."""

from __future__ import annotations

import json
import math
import sys
from typing import Any, NoReturn

from rlx.serve.request_error import RequestError, invalid
from rlx.support.files import unique_names

_DEEPEST = 100  # arrays and objects inside each other
_LONGEST_NUMBER = 400  # characters
_NUMBER_BYTES = 32  # of memory, and of other values that are neither texts nor arrays nor objects


def json_bytes(value: object) -> bytes:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def event_bytes(value: object) -> bytes:
    """Return a value as one server-sent event. JSON on one line needs no further escapes there."""
    return b"data: " + json_bytes(value) + b"\n\n"


def parse_object(body: bytes) -> tuple[dict[str, Any], int]:
    """Return the object that a body has, and the number of bytes that it takes in memory, approximately.

    Raises:
        RequestError: It is not valid JSON in UTF-8, an object repeats a name, it is nested too deeply, or it has numbers or
            text that JSON cannot represent.
    """
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=unique_names,
            parse_constant=_constant,
            parse_float=_finite,
            parse_int=_limited_integer,
        )
        size = _checked_size(value)
    except RequestError:
        raise
    except RecursionError:
        raise _too_deep() from None
    except ValueError as problem:  # also of decoding
        raise invalid(f"We could not parse the JSON body of your request: {_reason(problem)}") from None
    if not isinstance(value, dict):
        raise invalid(f"The body of a request must be a JSON object, but it is {type_name(value)}.")
    return value, size


def type_name(value: object) -> str:
    """Return the type of a value of JSON with its article, for messages."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "an integer", float: "a decimal", str: "a string", list: "an array"}
    return names.get(type(value), "an object")


def _reason(problem: ValueError) -> str:
    if isinstance(problem, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {problem.start}"
    return str(problem)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _limited_integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _too_deep() -> RequestError:
    return invalid(f"The JSON body has more than {_DEEPEST} arrays and objects inside each other.")


def _checked_size(value: Any) -> int:
    """Return the bytes of a value in memory. Its depth is checked, and that its texts are valid Unicode."""
    level, size = [value] if isinstance(value, (str, list, dict)) else [], 0
    for _ in range(_DEEPEST + 1):
        inner: list[Any] = []
        for entry in level:
            size += sys.getsizeof(entry)
            if isinstance(entry, str):
                _check_text(entry)
                continue
            before, parts = len(inner), entry if isinstance(entry, list) else (*entry, *entry.values())
            inner += (part for part in parts if isinstance(part, (str, list, dict)))
            size += _NUMBER_BYTES * (len(parts) - (len(inner) - before))
        if not inner:
            return size
        level = inner
    raise _too_deep()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise invalid("The JSON body has half of a surrogate pair, which is not a character.") from None
