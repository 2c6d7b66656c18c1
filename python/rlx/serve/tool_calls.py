"""`ToolCallParser`: finds the calls of tools in a text that arrives in parts."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from rlx.serve.json_text import json_bytes
from rlx.serve.tool_format import ToolFormat

_NAMED = re.compile(r"\s*([a-zA-Z0-9_-]{1,64})\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\])?\s*(?=\{)")
_LONGEST_NAME = 200  # characters between the start of a call and its JSON
_SEPARATORS = " \t\r\n;,"


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool by the model.

    Attributes:
        call_id: The id that the client returns with the result.
        name: The name of the function.
        arguments: Its arguments, as the text of a JSON object.
    """

    call_id: str
    name: str
    arguments: str

    def body(self) -> dict[str, Any]:
        """Return the call as an entry of an answer."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.call_id, "type": "function", "function": function}


class _JsonExtent:
    """Finds the end of a JSON array or object in a text that arrives in parts."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_text = self._is_escape = False

    def end(self, text: str, begin: int) -> int:
        """Return the position after the value, or -1 if the text ends before it. The text is read from `begin` on."""
        for i in range(begin, len(text)):
            c = text[i]
            if self._is_escape:
                self._is_escape = False
            elif self._is_text:
                self._is_escape = c == "\\"
                self._is_text = c != '"'
            elif c == '"':
                self._is_text = True
            elif c in "[{":
                self._depth += 1
            elif c in "]}":
                self._depth -= 1
                if self._depth <= 0:
                    return i + 1
        return -1


class ToolCallParser:
    """Divides the text of a model into content and calls of tools. Text that only resembles a call is content.

    Args:
        form: The form in which the model writes calls.
        names: The names of the tools.

    Attributes:
        count: The number of calls until now.
    """

    def __init__(self, form: ToolFormat, names: Collection[str]):
        self._form, self._names = form, names
        self._held = ""
        self._has_begun = False  # whether there was content
        self._extent: _JsonExtent | None = None  # of the call that is being read
        self._json_begin = self._read = 0
        self.count = 0

    def push(self, text: str) -> Iterator[str | ToolCall]:
        """Yield the content and the calls that are certain after a part of the text."""
        self._held += text
        yield from self._step(is_last=False)

    def flush(self) -> Iterator[str | ToolCall]:
        """Yield the rest, at the end of the text."""
        yield from self._step(is_last=True)
        if self._held:
            yield self._released(len(self._held))

    def _step(self, is_last: bool) -> Iterator[str | ToolCall]:
        while self._held:
            if self._extent is not None:
                end = self._extent.end(self._held, self._read)
                self._read = len(self._held)
                if end < 0:
                    return
                yield from self._finished(end)
                continue
            if self.count and not self._has_begun:
                self._skip_separators(is_last)
            start = self._call_start()
            if start is None:  # what may become a call is held back
                if is_last:
                    return
                keep = self._ambiguous()
                if len(self._held) > keep:
                    yield self._released(len(self._held) - keep)
                return
            at, json_begin = start
            if at:
                yield self._released(at)
                json_begin -= at
            self._extent, self._json_begin, self._read = _JsonExtent(), json_begin, json_begin

    def _released(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        self._has_begun = self._has_begun or bool(text.strip())
        return text

    def _skip_separators(self, is_last: bool) -> None:
        """Forget the text between two calls, and after the last one."""
        rest = self._held.lstrip(_SEPARATORS)
        end = self._form.end
        while end and rest.startswith(end):
            rest = rest[len(end) :].lstrip(_SEPARATORS)
        if is_last and end.startswith(rest):
            rest = ""
        self._held = rest

    def _call_start(self) -> tuple[int, int] | None:
        """Return the positions of the next call and of its JSON, or None if there is not any yet."""
        begin = self._form.begin
        at = self._held.find(begin) if begin else -1
        if at >= 0:
            json_begin = self._json_start(at + len(begin))
            return None if json_begin is None else (at, json_begin)
        if not self._has_begun:
            blank = len(self._held) - len(self._held.lstrip())
            first = self._held[blank : blank + 1]
            if first and first in self._form.opening and not begin.startswith(self._held[blank:]):
                return 0, blank
        return None

    def _json_start(self, after: int) -> int | None:
        """Return the position of the JSON of a call, whose name may be in front of it."""
        rest = self._held[after:]
        blank = len(rest) - len(rest.lstrip())
        if rest[blank : blank + 1] in ("{", "["):
            return after + blank
        found = _NAMED.match(rest)
        return None if found is None else after + found.end()

    def _ambiguous(self) -> int:
        """Return the number of characters at the end that may be the start of a call."""
        begin, held = self._form.begin, self._held
        at = held.find(begin) if begin else -1
        if at >= 0:
            return len(held) - at if len(held) - at < len(begin) + _LONGEST_NAME else 0
        if not self._has_begun and (not held.strip() or (self.count and self._form.end.startswith(held))):
            return len(held)
        for size in range(min(len(held), len(begin) - 1), 0, -1):
            if begin.startswith(held[-size:]):
                return size
        return 0

    def _finished(self, end: int) -> Iterator[str | ToolCall]:
        """Yield the calls of a complete JSON value, or the text itself if it is not one of them."""
        front, text = self._held[: self._json_begin], self._held[self._json_begin : end]
        calls = self._calls(front, text)
        self._extent = None
        if not calls:
            yield self._released(end)
            return
        self._held = self._held[end:]
        self.count += len(calls)
        self._has_begun = False
        yield from calls

    def _calls(self, front: str, text: str) -> list[ToolCall]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return []
        name = _NAMED.match(front.strip().removeprefix(self._form.begin) + "{")
        if name is not None:
            value = {"name": name[1], "arguments": value}
        calls = [self._call(entry) for entry in (value if isinstance(value, list) else [value])]
        return [call for call in calls if call is not None] if all(calls) else []

    def _call(self, value: Any) -> ToolCall | None:
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in self._names:
            return None
        arguments = value.get("arguments", value.get("parameters"))
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError):
                return None
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            return None
        try:
            text = json_bytes(arguments).decode()
        except ValueError:  # NaN, or half of a surrogate pair
            return None
        return ToolCall(self._form.new_id(), name, text)
