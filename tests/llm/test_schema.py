"""Texts that follow a JSON schema: random ones are validated by the package `jsonschema`."""

from __future__ import annotations

import contextlib
import json
import re
import time
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.llm.grammar import GrammarConstraint, constraint_source
from rlx.llm.tokenizer import Tokenizer, tokenizer_from_gguf
from tests.llm.tokenizer import samples

_PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
_TREE = {"type": "object", "properties": {"v": {"type": "boolean"}, "next": {"$ref": "#"}}, "required": ["v"]}
_SHORT = {"type": "string", "maxLength": 5}
_SCHEMAS: dict[str, Any] = {
    "person": _PERSON,
    "tree": _TREE | {"additionalProperties": False},
    "any": True,
    "object": {"type": "object"},
    "additional": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "null"},
    },
    "open": {"properties": {"a": {"type": "integer"}, "t\n": {"type": "null"}}, "type": "object"},
    "patterns": {"type": "object", "patternProperties": {"^x[0-9]": _SHORT}, "additionalProperties": False},
    "tuple": {"type": "array", "prefixItems": [_SHORT, {"type": "number"}], "minItems": 2, "items": False},
    "old tuple": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [_SHORT, _SHORT]},
    "numbers": {"type": "array", "items": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 7}, "minItems": 3},
    "multiples": {"type": "array", "items": {"type": "integer", "multipleOf": 7}, "minItems": 3, "maxItems": 9},
    "union": {"anyOf": [{"type": "null"}, {"type": "integer"}, _SHORT]},
    "types": {"type": ["string", "null", "array"], "maxLength": 4, "maxItems": 1},
    "tagged": {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": k}, "v": {"type": t}}, "required": ["k", "v"]}
            for k, t in (("a", "integer"), ("b", "boolean"))
        ]
    },
    "intersection": {
        "allOf": [
            {"type": "object", "properties": {"a": _SHORT}, "required": ["a"]},
            {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    "definitions": {
        "$defs": {
            "a/b": {"type": "array", "items": {"$ref": "#/$defs/c"}, "minItems": 1},
            "c": {"enum": [1, None, "x"]},
        },
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/a~1b"}},
        "required": ["p"],
        "additionalProperties": False,
    },
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3}$"},
    "search": {"type": "string", "pattern": "b|c$", "maxLength": 6},
    "format": {
        "type": "array",
        "prefixItems": [{"format": "date", "type": "string"}, {"format": "uuid", "type": "string"}],
    },
    "lengths": {"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 4}, "minItems": 2},
    "constant": {"const": {"a": [1, {"é": "\n"}], "b": None}},
    "counts": {"type": "object", "required": ["a", "b"], "minProperties": 2, "maxProperties": 3},
    "sibling": {"$ref": "#/$defs/n", "minimum": 5, "$defs": {"n": {"type": "integer", "maximum": 9}}},
}


def _validate(text: str, schema: Any) -> Any:
    """Return the value of a text. It is valid JSON without repeated properties of the schema, and valid for the schema."""
    jsonschema = pytest.importorskip("jsonschema")
    value = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    jsonschema.validate(value, schema)
    return value


def _walk(source: str, tokenizer: Tokenizer, seed: int) -> str | None:
    """Return a text of random allowed tokens, which ends when it can; None for a long one."""
    rng, tokens = np.random.default_rng(seed), list[int]()
    constraint = GrammarConstraint(source, tokenizer, tokenizer.vocab_size)
    ends = sorted(tokenizer.eos_token_ids)
    closing = np.array([any(c in tokenizer.token(i) for c in '"}]:,') for i in range(tokenizer.vocab_size)])
    for _ in range(300):
        if constraint.is_complete:
            return tokenizer.decode(tokens)
        allowed = constraint.allowed()
        if allowed[ends].any() and (rng.random() < 0.5 or allowed.sum() == len(ends)):
            return tokenizer.decode(tokens)
        weights = allowed * np.where(closing, 8.0, 1.0)
        weights[ends] = 0
        tokens.append(int(rng.choice(len(weights), p=weights / weights.sum())))
        constraint.accept(tokens[-1])
    return None


@pytest.mark.parametrize("name", _SCHEMAS)
def test_random_texts_are_valid(name: str, seed: int) -> None:
    tokenizer = tokenizer_from_gguf(samples.byte_level_metadata("gpt-2"), "t")
    source = constraint_source(_SCHEMAS[name], None)
    assert source is not None and source == constraint_source(json.dumps(_SCHEMAS[name]), None)
    texts = [text for i in range(40) if (text := _walk(source, tokenizer, seed * 100 + i)) is not None]
    assert len(texts) > 15
    for text in texts:
        _validate(text, _SCHEMAS[name])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_generations_are_valid(model: rlx.llm.LLM, temperature: float, seed: int) -> None:
    options: dict[str, Any] = {"schema": _PERSON, "temperature": temperature, "max_tokens": 90, "seed": seed}
    completions = model.generate("the man", n=5, **options)
    assert any(completion.finish_reason == "stop" for completion in completions)
    for completion in completions:
        if completion.finish_reason == "stop":
            value = _validate(completion.text, _PERSON)
            assert isinstance(value["age"], int)
    stream = "".join(chunk.text for chunk in model.stream("the man", **options))
    assert stream == completions[0].text
    answer = model.chat([{"role": "user", "content": "a"}], schema={"enum": ["x", 5]})
    assert answer.text in ('"x"', "5")


def _deep(count: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(count):
        schema = {"type": "array", "items": schema}
    return schema


def _chain(count: int, depth: int) -> dict[str, Any]:
    links = {}
    for i in range(count):
        inner: dict[str, Any] = {"$ref": f"#/$defs/a{i + 1}"}
        for _ in range(depth):
            inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
        links[f"a{i}"] = inner
    return {"$ref": "#/$defs/a0", "$defs": {**links, f"a{count}": {"type": "null"}}}


def _cycle(count: int) -> dict[str, Any]:
    links: dict[str, Any] = _chain(count, 1)["$defs"]
    return links | {f"a{count}": {"$ref": "#/$defs/a0"}}


_LOOP: dict[str, Any] = {"type": "object"}
_LOOP["properties"] = {"a": _LOOP}
_REFUSED: dict[str, tuple[Any, str]] = {
    **{
        keyword: ({keyword: value}, rf"'{re.escape(keyword)}' cannot be enforced")
        for keyword, value in {
            "not": {},
            "if": {},
            "uniqueItems": True,
            "contains": {},
            "propertyNames": {},
            "dependentRequired": {},
            "unevaluatedProperties": False,
            "contentEncoding": "base64",
            "nullable": True,
            "$dynamicRef": "#a",
            "x-guidance": {"lenient": True},
        }.items()
    },
    "misspelt": ({"type": "object", "propertis": {}}, "did you mean 'properties'"),
    "nested": ({"anyOf": [{"items": {"not": {}}}]}, "#/anyOf/0/items: the keyword 'not'"),
    "nested id": ({"items": {"$id": "http://a"}}, r"'\$id' cannot be enforced"),
    "format": ({"type": "string", "format": "no such"}, "#/format: the format .no such. is not known"),
    "exclusive choice": ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
    "count": ({"type": "object", "minProperties": 2}, "minProperties"),
    "zero": ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.1}, "nearer than 1"),
    "combined zero": ({"type": "number", "allOf": [{"exclusiveMaximum": 0}], "minimum": -0.5}, "nearer than 1"),
    "URL": ({"$ref": "http://localhost/a"}, "a reference into the schema itself"),
    "file": ({"$ref": "file:///etc/passwd"}, "a reference into the schema itself"),
    "missing": ({"$ref": "#/$defs/a"}, "the schema has no"),
    "reference to data": ({"$ref": "#/enum/0", "enum": [{}]}, "is not a schema"),
    "type": ({"type": "objekt"}, "#/type: expected a type of JSON"),
    "value": ({"minimum": "a"}, '#/minimum: expected a number, got "a"'),
    "properties": ({"properties": []}, "expected an object of schemas"),
    "list": ({"anyOf": {}}, "expected a list of schemas"),
    "names": ({"required": "a"}, "expected a list of names"),
    "schema": ({"items": 5}, "expected an object, True or False"),
    "nothing": (False, "no value is valid"),
    "impossible": ({"type": "object", "required": ["a"], "properties": {"a": False}}, "infinitely large|nsatisfiable"),
    "number": (5, "expected a JSON object or True"),
    "text": ("{", "not valid JSON"),
    "twice": ('{"type": "string", "type": "null"}', "occurs twice"),
    "infinity": ({"minimum": float("inf")}, "not valid JSON"),
    "object": ({"const": object()}, "not valid JSON"),
    "requires itself": ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "infinitely large"),
    "is itself": ({"$ref": "#"}, "infinitely large"),
    "array of itself": ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "infinitely large"),
    "long chain": (_chain(4000, 1) | {"items": {"$ref": "#"}}, "too complex|at most"),
    "long cycle": (_chain(2000, 1) | {"$ref": "#/$defs/a2000", "$defs": _cycle(2000)}, "infinitely large|at most"),
    "deep": (_deep(3000), "levels"),
    "Python's own loop": (_LOOP, "levels"),
    "deep text": ('{"items":' * 9000 + "true" + "}" * 9000, "levels|not valid JSON"),
    "large": ({"enum": ["x" * 300_000]}, "at most 262144"),
    "chain": (_chain(60, 50), "too complex"),
    "patterns": (
        {"type": "string", "allOf": [{"pattern": f"a{i}"} for i in range(60)]},
        "too complex|no value is valid",
    ),
    "exponential": (
        {"type": "object", "allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(20)]},
        "too large",
    ),
    "lookahead": (
        {"type": "string", "pattern": "(?!a)b"},
        "#/pattern: '.*' is not a regular expression that can be enforced: look-around",
    ),
    "nested pattern": ({"items": {"properties": {"a/b": {"pattern": "("}}}}, "#/items/properties/a~1b/pattern: "),
    "pattern of names": ({"patternProperties": {"[b-a]": {}}}, r"#/patternProperties/\[b-a\]: "),
    "crossed lengths": (
        {"type": "string", "minLength": 5, "maxLength": 2},
        "#/minLength: no value is valid: minLength is 5, and maxLength is 2",
    ),
    "required property": (
        {"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]},
        "#/required: no value of the required property 'a' is valid",
    ),
    "negative length": ({"minLength": -1}, "#/minLength: expected a positive integer, got -1"),
    "empty list": ({"enum": []}, "#/enum: no value is valid: the list is empty"),
    "contradiction": ({"type": "string", "const": 3}, "schema #: no value is valid: the conditions on its type"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_refused(model: rlx.llm.LLM, case: str) -> None:
    schema, message = _REFUSED[case]
    start = time.monotonic()
    with pytest.raises(rlx.Error, match=message):
        model.stream("a", schema=schema, max_tokens=2)
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "null"}, "minItems": 10**9},
        {"type": "string", "minLength": 10**8, "maxLength": 10**9},
        {"type": "string", "pattern": "^((a{1,999}){1,999}){1,999}$"},
        {"type": "string", "pattern": "(.*a){30}.*b.*(.*c){30}"},
        {"enum": [f"x{i}" for i in range(10_000)]},
        {"type": "object", "properties": {f"a{i}": {"type": "null"} for i in range(1000)}},
        {"type": "array", "$defs": {f"a{i}": {"prefixItems": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(30)}}
        | {"items": {"$ref": "#/$defs/a0"}, "definitions": {}},
    ],
)
def test_large_schemas_take_bounded_time(model: rlx.llm.LLM, schema: dict[str, Any]) -> None:
    start = time.monotonic()
    with contextlib.suppress(rlx.Error):
        model.generate("a", schema=schema, max_tokens=20, temperature=1.0, seed=0)
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 10**19, "maximum": 10**19 + 9},
        {"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 1},
        {"type": "integer", "exclusiveMinimum": -(2**53)},
        {"const": {"a": [2**63]}},
        {"enum": [1, 2**53 + 1]},
        {"type": "number", "minimum": 2.0**53},
    ],
)
def test_numbers_that_would_be_rounded_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(rlx.Error, match=r"numbers of 2\^53 and above cannot be enforced"):
        constraint_source(schema, None)
