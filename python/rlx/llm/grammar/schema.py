"""Checks of JSON schemas: every keyword is one that `llguidance` enforces, or an annotation."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from rlx.llm.grammar.finite_parts import FiniteParts
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import unique_names
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion

_LARGEST, _DEEPEST, _MOST_SCHEMAS = 1 << 18, 60, 20_000
# Keywords that do not change which values are valid. They are left out.
_ANNOTATIONS = frozenset(
    (
        *("title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "$comment"),
        *("discriminator", "$anchor"),
    )
)
_ROOT_ANNOTATIONS = frozenset(("$schema", "$id", "id"))
# Keywords by the kind of their value: a schema, a list of schemas, an object of schemas, another value.
_SCHEMAS = frozenset(("items", "additionalItems", "additionalProperties"))
_LISTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_OBJECTS = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_VALUES = frozenset(
    (
        *("type", "const", "enum", "$ref", "required", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("minLength", "maxLength", "pattern", "format"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    )
)
_KNOWN = _ANNOTATIONS | _SCHEMAS | _LISTS | _OBJECTS | _VALUES
# White space between the parts of JSON is bounded: a model that repeats spaces would not come to an end. Escapes by
# number are left out, because a property could be repeated under an escaped name, with a value of another type.
_OPTIONS = {"whitespace_pattern": r" |\n[ \t]{0,32}", "json_allowed_escapes": 'nrbtf\\"'}
_WITH_NUMBERS = frozenset(("const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_LARGEST_NUMBER = 2**53


def checked_schema(schema: Any) -> str:
    """Return a JSON schema as JSON text for `llguidance`.

    Args:
        schema: A dictionary, True for any value, or JSON text of one of them.

    Raises:
        Error: The schema is not valid, too large or too deep, or no value is valid.
        UnsupportedError: A keyword cannot be enforced.
    """
    value = _parsed(schema) if isinstance(schema, str) else schema
    if value is True:
        value = {}
    if not isinstance(value, Mapping):
        what = "no value is valid" if value is False else f"expected a JSON object or True, got {short_repr(schema)}"
        raise Error(f"schema: {what}")
    root = _SchemaChecker(value).root
    try:
        text = json.dumps(root | {"x-guidance": _OPTIONS}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Error(f"schema is not valid JSON: {problem}") from None
    if len(text) > _LARGEST:
        raise Error(f"schema has {len(text)} characters, and at most {_LARGEST} are supported")
    return text


def embedded_schema(schema: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """Return a JSON schema in the form that it has as a part of another one.

    Annotations that only a root may have are left out. References to the root become references to the part.

    Args:
        schema: The schema, which is not checked.
        pointer: The JSON pointer to its place in the other schema, such as `"#/properties/arguments"`.
    """
    return _embedded({k: v for k, v in schema.items() if k not in _ROOT_ANNOTATIONS}, pointer)


def _embedded(schema: Any, pointer: str) -> Any:
    """Return a subschema of an embedded schema. Keywords whose values are not schemas are not changed."""
    if not isinstance(schema, Mapping):
        return schema
    result = dict(schema)
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            result[key] = f"{pointer}{value[1:]}"
        elif key in _OBJECTS and isinstance(value, Mapping):
            result[key] = {name: _embedded(entry, pointer) for name, entry in value.items()}
        elif key in _SCHEMAS | _LISTS and isinstance(value, (list, tuple)):
            result[key] = [_embedded(entry, pointer) for entry in value]
        elif key in _SCHEMAS:
            result[key] = _embedded(value, pointer)
    return result


def _parsed(text: str) -> Any:
    if len(text) > _LARGEST:
        raise Error(f"schema has {len(text)} characters, and at most {_LARGEST} are supported")
    try:
        return json.loads(text, object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as problem:
        raise Error(f"schema is not valid JSON: {problem}") from None


class _SchemaChecker:
    """Checks a schema.

    Attributes:
        root: The schema without annotations.
    """

    def __init__(self, schema: Mapping[str, Any]):
        self._references: dict[str, str] = {}  # the first pointer to each reference
        self._schemas = set[int]()
        self.root = self._schema({k: v for k, v in schema.items() if k not in _ROOT_ANNOTATIONS}, "#", 0)
        targets = {reference: self._target(reference, pointer) for reference, pointer in self._references.items()}
        _check_finite(self.root, targets)

    def _schema(self, schema: Any, pointer: str, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise Error(f"schema {pointer}: expected an object, True or False, got {short_repr(schema)}")
        if depth > _DEEPEST or len(self._schemas) >= _MOST_SCHEMAS:
            limit = f"{_DEEPEST} levels" if depth > _DEEPEST else f"{_MOST_SCHEMAS} subschemas"
            raise Error(f"schema {pointer}: more than {limit}")
        result: dict[str, Any] = {}
        self._schemas.add(id(result))
        for key, value in schema.items():
            if not self._is_left_out(key, value, pointer):
                result[key] = self._value(key, value, f"{pointer}/{key}", depth + 1)
        _check_least_properties(result, pointer)
        _check_bounds(result, pointer)
        return result

    def _is_left_out(self, key: Any, value: Any, pointer: str) -> bool:
        is_extension = isinstance(key, str) and key.startswith("x-") and key != "x-guidance"
        if key in _ANNOTATIONS or is_extension or (key == "uniqueItems" and value is False):
            return True
        if key not in _KNOWN:
            hint = suggestion(str(key), sorted(_KNOWN))
            raise UnsupportedError(f"schema {pointer}: the keyword {short_repr(key)} cannot be enforced{hint}")
        return False

    def _value(self, key: str, value: Any, pointer: str, depth: int) -> Any:
        if key in _LISTS or (key == "items" and isinstance(value, (list, tuple))):
            if not isinstance(value, (list, tuple)):
                raise Error(f"schema {pointer}: expected a list of schemas, got {short_repr(value)}")
            return [self._schema(entry, f"{pointer}/{i}", depth) for i, entry in enumerate(value)]
        if key in _SCHEMAS:
            return self._schema(value, pointer, depth)
        if key in _OBJECTS:
            if not isinstance(value, Mapping):
                raise Error(f"schema {pointer}: expected an object of schemas, got {short_repr(value)}")
            return {name: self._schema(entry, f"{pointer}/{name}", depth) for name, entry in value.items()}
        if key == "$ref":
            if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
                raise UnsupportedError(
                    f"schema {pointer}: expected a reference into the schema itself, such as '#/$defs/name',"
                    f" got {short_repr(value)}"
                )
            self._references.setdefault(value, pointer)
        elif key in _WITH_NUMBERS:
            _check_numbers(value, pointer)
        elif key == "required" and not (isinstance(value, (list, tuple)) and all(isinstance(n, str) for n in value)):
            raise Error(f"schema {pointer}: expected a list of names, got {short_repr(value)}")
        return value

    def _target(self, reference: str, pointer: str) -> Any:
        """Return the schema that a reference names."""
        value: Any = self.root
        for part in unquote(reference[1:]).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            is_index = isinstance(value, list) and name.isdecimal() and len(name) < 9 and int(name) < len(value)
            if is_index:
                value = value[int(name)]
            elif isinstance(value, dict) and name in value:
                value = value[name]
            else:
                raise Error(f"schema {pointer}: the schema has no {short_repr(reference)}")
        if not isinstance(value, bool) and id(value) not in self._schemas:
            raise Error(f"schema {pointer}: {short_repr(reference)} is not a schema")
        return value


def _check_numbers(value: Any, pointer: str) -> None:
    """Refuse numbers that the library (1.9.1) rounds: it computes with f64."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, (list, tuple)):
            waiting += part
        elif isinstance(part, (int, float)) and _LARGEST_NUMBER <= abs(part) < math.inf:
            raise UnsupportedError(
                f"schema {pointer}: numbers of 2^53 and above cannot be enforced, got {short_repr(part)}"
            )


def _check_least_properties(schema: Mapping[str, Any], pointer: str) -> None:
    """Refuse a count of properties that repeated names could reach: the grammar does not exclude those."""
    least = schema.get("minProperties", 0)
    if isinstance(least, (int, float)) and least > max(1, len(set(schema.get("required", ())))):
        raise UnsupportedError(
            f"schema {pointer}: minProperties above the number of required properties cannot be enforced",
            hint="list the properties in 'required'",
        )


def _check_bounds(schema: Mapping[str, Any], pointer: str) -> None:
    """Refuse numbers between 0, which is excluded, and a number nearer than 1: the library (1.9.1) does not exclude 0."""
    if schema.get("type") == "integer":
        return
    for excluded, others, sign in (
        ("exclusiveMinimum", ("maximum", "exclusiveMaximum"), 1),
        ("exclusiveMaximum", ("minimum", "exclusiveMinimum"), -1),
    ):
        limits = [value * sign for name in others for value in _numbers(schema, name)]
        if 0 in _numbers(schema, excluded) and any(0 < limit < 1 for limit in limits):
            bounds = f"'{excluded}' 0 with another bound nearer than 1"
            raise UnsupportedError(f"schema {pointer}: {bounds} cannot be enforced for numbers")


def _numbers(schema: Any, name: str) -> list[float]:
    """Return the values of a keyword in a schema, and in the schemas that are combined with it."""
    if not isinstance(schema, Mapping):
        return []
    value = schema.get(name)
    own = [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []
    combined = (part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key, ()))
    return [*own, *(number for part in combined for number in _numbers(part, name))]


def _check_finite(root: Mapping[str, Any], targets: Mapping[str, Any]) -> None:
    """Check that a value of finite size can be valid: no schema requires itself."""
    parts, numbers, waiting = FiniteParts(), dict[int, int](), list[Mapping[str, Any]]()
    valid, invalid = parts.new(), parts.new(1)

    def number(schema: Any) -> int:
        if isinstance(schema, bool):
            return valid if schema else invalid
        if id(schema) not in numbers:
            numbers[id(schema)] = parts.new()
            waiting.append(schema)
        return numbers[id(schema)]

    number(root)
    while waiting:
        schema = waiting.pop()
        for alternatives in _needed(schema, targets):
            parts.use_one(numbers[id(schema)], [number(alternative) for alternative in alternatives])
    parts.solve()
    if not parts.is_finite(number(root)):
        raise Error("schema: every valid value is infinitely large, because the schema requires itself")


def _needed(schema: Mapping[str, Any], targets: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the schemas that values of a schema need: one of each sequence."""
    if "$ref" in schema:
        yield [targets[schema["$ref"]]]
    for part in schema.get("allOf", ()):
        yield [part]
    for name in ("anyOf", "oneOf"):
        if name in schema:
            yield schema[name]
    kind = schema.get("type")
    if kind in ("object", ["object"]):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            yield [properties.get(name, others)]
    least = schema.get("minItems", 0)
    if kind in ("array", ["array"]) and isinstance(least, (int, float)) and least > 0:
        first = schema.get("prefixItems", ())
        for place, part in enumerate(first):
            if place < least:
                yield [part]
        if least > len(first) and not isinstance(schema.get("items"), list):
            yield [schema.get("items", True)]
