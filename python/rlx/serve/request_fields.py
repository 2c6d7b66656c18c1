"""`RequestFields`: the parameters of a request, each checked by type and range."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rlx.serve.json_text import type_name
from rlx.serve.request_error import RequestError, invalid
from rlx.support.short import short_repr

_LARGEST = 2**31 - 1


class RequestFields:
    """The parameters of a request or of an object in one. A parameter that is null counts as absent.

    Args:
        values: The object.
        path: Its own name with a dot, as in `messages[0].`; empty for the request itself.
    """

    def __init__(self, values: Mapping[str, Any], path: str = ""):
        self._values, self._path = values, path
        self._known: set[str] = set()

    def path(self, name: str) -> str:
        """Return the name of a parameter in messages."""
        return f"{self._path}{name}"

    def take(self, name: str) -> Any:
        """Return the value of a parameter, or None."""
        self._known.add(name)
        return self._values.get(name)

    def wrong_type(self, name: str, expected: str, value: object) -> RequestError:
        """Return the error for a value of another type."""
        message = f"Invalid type for '{self.path(name)}': expected {expected}, but got {type_name(value)} instead."
        return invalid(message, self.path(name), "invalid_type")

    def unsupported(self, name: str, message: str) -> RequestError:
        """Return the error for a value that this server cannot honour."""
        return invalid(f"Unsupported value for '{self.path(name)}': {message}", self.path(name), "unsupported_value")

    def missing(self, name: str) -> RequestError:
        """Return the error for a parameter that is required."""
        return invalid(
            f"Missing required parameter: '{self.path(name)}'.", self.path(name), "missing_required_parameter"
        )

    def text(self, name: str, *, least: int = 0) -> str | None:
        """Return a text."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong_type(name, "a string", value)
        if value is not None and len(value) < least:
            raise invalid(f"Invalid '{self.path(name)}': it must not be empty.", self.path(name), "empty_string")
        return value

    def required_text(self, name: str) -> str:
        """Return a text that must not be absent or empty."""
        value = self.text(name, least=1)
        if value is None:
            raise self.missing(name)
        return value

    def flag(self, name: str) -> bool | None:
        """Return a boolean."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong_type(name, "a boolean", value)
        return value

    def integer(self, name: str, least: int = 0, most: int = _LARGEST) -> int | None:
        """Return an integer in a range."""
        value = self.take(name)
        if value is not None and type(value) is not int:
            raise self.wrong_type(name, "an integer", value)
        return self._in_range(name, "integer", value, least, most)

    def number(self, name: str, least: float, most: float) -> float | None:
        """Return a number in a range."""
        value = self.take(name)
        if value is not None and type(value) not in (int, float):
            raise self.wrong_type(name, "a decimal", value)
        checked = self._in_range(name, "decimal", value, least, most)
        return None if checked is None else float(checked)

    def _in_range(self, name: str, kind: str, value: Any, least: float, most: float) -> Any:
        if value is None or least <= value <= most:
            return value
        is_low = value < least
        side, sign, limit = ("below minimum", ">=", least) if is_low else ("above maximum", "<=", most)
        code = f"{kind}_{'below_min' if is_low else 'above_max'}_value"
        expected = f"Expected a value {sign} {limit}, but got {short_repr(value)} instead."
        raise invalid(f"Invalid '{self.path(name)}': {kind} {side} value. {expected}", self.path(name), code)

    def choice(self, name: str, among: Collection[str]) -> str | None:
        """Return one of some texts."""
        value = self.text(name)
        if value is not None and value not in among:
            supported = ", ".join(f"'{entry}'" for entry in among)
            message = f"Invalid value: {short_repr(value)}. Supported values are: {supported}."
            raise invalid(message, self.path(name), "invalid_value")
        return value

    def array(self, name: str, *, least: int = 0, most: int = _LARGEST) -> list[Any] | None:
        """Return an array."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong_type(name, "an array", value)
        if len(value) < least:
            message = f"Invalid '{self.path(name)}': empty array. Expected an array with at least {least} entries."
            raise invalid(message, self.path(name), "empty_array")
        if len(value) > most:
            message = f"Invalid '{self.path(name)}': array too long. Expected at most {most} entries, got {len(value)}."
            raise invalid(message, self.path(name), "array_above_max_length")
        return value

    def inner(self, name: str) -> RequestFields | None:
        """Return an object."""
        value = self.take(name)
        return None if value is None else self.entry(name, value)

    def entry(self, name: str, value: object) -> RequestFields:
        """Return an object that is an entry of an array, such as `messages[0]`."""
        if not isinstance(value, dict):
            raise self.wrong_type(name, "an object", value)
        return RequestFields(value, f"{self.path(name)}.")

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return an object as it is."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong_type(name, "an object", value)
        return value

    def ignore(self, *names: str) -> None:
        """Accept parameters that do not change the result."""
        self._known.update(names)

    def refuse(self, reason: str, *names: str) -> None:
        """Refuse parameters that this server cannot honour, unless they are absent, false or empty."""
        for name in names:
            value = self.take(name)
            if value is not None and value is not False and value not in ("", [], {}):
                raise self.unsupported(name, reason)

    def check_unknown(self) -> None:
        """Refuse parameters that have not been read, as OpenAI does."""
        for name in self._values:
            if name not in self._known:
                shown = self.path(name if len(name) <= 100 else f"{name[:100]}…")
                raise invalid(f"Unknown parameter: '{shown}'.", shown, "unknown_parameter")
