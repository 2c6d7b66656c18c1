"""Errors for the messages of `llguidance`: what is wrong, and where in the schema or in the grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlx.support.errors import Error
from rlx.support.short import short_repr

_LONGEST = 300
_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_SCHEMA = "failed to compile JSON schema: "
_REGEX = re.compile(
    r"(?:invalid regex .*?: )?regex parse error:\n    (?P<regex>.*)\n.*\nerror: (?P<reason>.*)", re.DOTALL
)
# Messages about schemas, the keyword that is meant if the message does not name it, and RLX's words.
_SCHEMA_REASONS = tuple(
    (re.compile(pattern), key, words)
    for pattern, key, words in (
        (
            r"(?P<key>\w+) \((?P<value>[^)]*)\) is greater than (?P<other>\w+) \((?P<most>[^)]*)\)",
            "",
            "no value is valid: {key} is {value}, and {other} is {most}",
        ),
        (r"Expected (?P<kind>.*) for '(?P<key>\w+)', got (?P<value>.*)", "", "expected a {kind}, got {value}"),
        (r"Unknown format: (?P<value>.*)", "format", "the format '{value}' is not known, and cannot be enforced"),
        (r"Invalid type: (?P<value>.*)", "type", "expected a type of JSON, got '{value}'"),
        (
            r"oneOf constraints are not",
            "oneOf",
            "oneOf with alternatives that are not clearly exclusive is not supported",
        ),
        (r"invalid multiple of", "multipleOf", "expected a positive number"),
        (r"enum must be an array", "enum", "expected a list of values"),
        (r"anyOf is empty", "enum", "no value is valid: the list is empty"),
        (r"type must be a string", "type", "expected the name of a type of JSON, or a list of names"),
        (
            r"required property '(?P<value>.*)' is unsatisfiable",
            "required",
            "no value of the required property '{value}' is valid",
        ),
        (r"required item is unsatisfiable", "minItems", "no value of a required item is valid"),
        (r"incompatible types", "", "no value is valid: the conditions on its type contradict each other"),
        (r"Regex is empty\b", "", "no value is valid: the conditions contradict each other"),
    )
)
# Messages about grammars, and RLX's words for them.
_REASONS = tuple(
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (r'unknown name: "(.*?)"', "there is no rule or terminal {0}"),
        (r"Unknown common regex: ([^;]*);", "there is nothing called {0} to import"),
        (r'unknown special token: "(.*?)"', "there is no control token {0}"),
        (r'duplicate (?:rule|token): "(.*?)"', "{0} is defined twice"),
        (r'circular reference in token "(.*?)"', "the terminal {0} contains itself"),
        (r"unknown grammar @?(\S*)", "grammars by name are not supported, and {0} is one"),
        (r"range end must be >= start.*", "a repetition has a largest count below its least one"),
        (r"error parsing signed integer.*", "a count of a repetition is too large"),
        (r"lexer error.*", "a text, a regular expression or a name is expected"),
        (r"Expected token (.*?), found '(.*?)' \(.*", "expected {0}, got {1}"),
        (r"Expected value \(at \"(.*?)\".*", "expected a rule, a terminal, a text or a regular expression, got {0}"),
        (r"NoExtension\w*.*", "no text is complete"),
    )
)


def library_error(message: str, source: str, name: str, *, has_places: bool) -> Error:
    """Return the error for a message of the library about a grammar that it does not compile.

    Args:
        message: The message.
        source: The grammar in Lark.
        name: The option that the grammar is from: `"schema"` or `"grammar"`.
        has_places: Whether lines of the source are those of the option.
    """
    place, text = _PLACE.match(message), message
    if place is not None:
        text = message[place.end() :]
    if text.startswith(_SCHEMA):
        pointer, reason = _schema_reason(text.removeprefix(_SCHEMA), _schemas(source))
        where = f" {pointer}" if name == "schema" else f": in the schema after %json, {pointer}"
        return Error(f"{name}{where}: {reason}")
    if place is not None and has_places:
        return Error(f"grammar is not valid in line {place[1]}, column {place[2]}: {grammar_reason(text)}")
    return Error(f"{name} is not valid: {grammar_reason(text)}")


def grammar_reason(message: str) -> str:
    """Return what a message of the library says, without the source that it quotes."""
    if regex := _REGEX.match(message):
        return _regex_reason(regex)
    for pattern, words in _REASONS:
        if found := pattern.match(message):
            return words.format(*map(short_repr, found.groups()))
    first = message.removesuffix("<non-verbose/>").strip().partition("\n")[0]
    return f"llguidance reports {short_repr(first[:_LONGEST])}"


def _regex_reason(found: re.Match[str]) -> str:
    reason = found["reason"].partition("\n")[0]
    return f"{short_repr(found['regex'])} is not a regular expression that can be enforced: {reason}"


def _schemas(source: str) -> list[Any]:
    """Return the schemas of a grammar."""
    result: list[Any] = []
    for start in re.finditer(r"%json\s*(?=\{)", source):
        try:
            result.append(json.JSONDecoder().raw_decode(source, start.end())[0])
        except (ValueError, RecursionError):
            continue
    return result


def _schema_reason(message: str, schemas: list[Any]) -> tuple[str, str]:
    """Return the place of a problem in a schema as a pointer, and what it is."""
    if found := _REGEX.match(message):
        regex = found["regex"]
        return _place(schemas, lambda place, key, value: _is_pattern(place, key, value, regex)), _regex_reason(found)
    reason = message.partition("\n")[0]
    text = reason.removeprefix("Unsatisfiable schema: ")
    for pattern, key, words in _SCHEMA_REASONS:
        if found := pattern.match(text):
            parts = {name: value[:_LONGEST] for name, value in found.groupdict().items()}
            entry = _NamedEntry(parts.get("key", key), found.groupdict().get("value"))
            return _place(schemas, entry.is_meant), words.format(**parts).replace("a f64", "a number")
    return "#", grammar_reason(text) if text == reason else f"no value is valid: {text[:_LONGEST]}"


def _place(schemas: list[Any], is_meant: Callable[[str, str, Any], bool]) -> str:
    """Return the pointer of the first entry that is meant; that of the whole schema if there is none."""
    for schema in schemas:
        for place, key, value in _entries(schema, "#"):
            if is_meant(place, key, value):
                return f"{place}/{_escaped(key)}"
    return "#"


def _is_pattern(place: str, key: str, value: Any, regex: str) -> bool:
    return regex == (key if place.endswith("/patternProperties") else value if key == "pattern" else None)


@dataclass(frozen=True)
class _NamedEntry:
    """An entry of a schema in a message, which names its keyword, and quotes its value or says that it has a wrong type."""

    keyword: str
    text: str | None

    def is_meant(self, place: str, key: str, value: Any) -> bool:
        """Return whether this entry of a schema is the one of the message."""
        if key != self.keyword:
            return False
        if self.text is not None:
            values = value if isinstance(value, list) else [value]
            return any(self.text in (each, json.dumps(each)) or _is_number(each, self.text) for each in values)
        if key == "multipleOf":
            return not isinstance(value, (int, float)) or value <= 0
        wrong = {"enum": not isinstance(value, list) or not value, "type": not isinstance(value, (str, list))}
        return wrong.get(key, True)


def _is_number(value: Any, text: str) -> bool:
    try:
        return isinstance(value, (int, float)) and float(value) == float(text)
    except (ValueError, OverflowError):
        return False


def _entries(value: Any, pointer: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the pointer of each object of a schema with its names and values, outer objects first."""
    waiting = [(pointer, value)]
    for place, part in waiting:
        named = list(part.items()) if isinstance(part, dict) else []
        yield from ((place, key, child) for key, child in named)
        children = named or (enumerate(part) if isinstance(part, list) else ())
        waiting += [
            (f"{place}/{_escaped(str(key))}", child) for key, child in children if isinstance(child, (dict, list))
        ]


def _escaped(key: str) -> str:
    """Return a name as part of a JSON pointer (RFC 6901), with control characters escaped."""
    return key.replace("~", "~0").replace("/", "~1").encode("unicode_escape").decode("ascii")[:_LONGEST]
