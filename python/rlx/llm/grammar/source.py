"""`constraint_source`: the grammar for `llguidance`, from a JSON schema or from a grammar in GBNF or Lark."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from rlx.llm.grammar.gbnf_lark import lark_of_gbnf
from rlx.llm.grammar.isolation import isolated_problem
from rlx.llm.grammar.schema import checked_schema
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import unique_names
from rlx.support.short import short_repr

_LARGEST = 1 << 16
# All tokens are allowed that can continue a text, and not only those that the tokenizer would choose.
_SETTINGS = '\n%llguidance {"no_forcing": true}\n'
_GBNF_RULE = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)
_LARK_START = re.compile(r"^[ \t]*[?!]*start[ \t]*(\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
_OPTIONS = re.compile(r"%llguidance\b[ \t]*(\{[ \t]*\})?")
_ATTRIBUTES = re.compile(r"^[ \t]*[?!]*[\w-]+[ \t]*\[([^\]]*)\][ \t]*:", re.MULTILINE)
# Attributes of rules that need a sampler or a cache of the library's own.
_UNSUPPORTED_ATTRIBUTE = re.compile(r"\b(temperature|stop|stop_capture)\b\s*=")
_JSON = re.compile(r"%json\s*(?=\{)")


def constraint_source(schema: Any, grammar: str | None) -> str | None:
    """Return the grammar that a JSON schema or a text describes, for `GrammarConstraint`; None if both are None.

    Args:
        schema: A JSON schema: a dictionary, True, or JSON text.
        grammar: A grammar. With a line `root ::= …` it is GBNF, with a line `start: …` it is Lark.

    Raises:
        Error: Both are given, one is not valid, or it takes too much time or memory.
        UnsupportedError: A part of it cannot be enforced.
    """
    if schema is not None and grammar is not None:
        raise Error("a generation has a schema or a grammar, and both are given")
    if schema is not None:
        return _checked(f"start: %json {checked_schema(schema)}\n", "schema")
    if grammar is None:
        return None
    if not isinstance(grammar, str):
        raise Error(f"grammar must be a text, got {short_repr(grammar)}")
    if len(grammar) > _LARGEST:
        raise Error(f"grammar has {len(grammar)} characters, and at most {_LARGEST} are supported")
    try:
        grammar.encode()
    except UnicodeEncodeError as problem:
        raise Error(f"grammar is not valid Unicode: {problem}") from None
    return _checked(_lark(grammar), "grammar", not _GBNF_RULE.search(grammar))


def _lark(grammar: str) -> str:
    if _GBNF_RULE.search(grammar):
        return lark_of_gbnf(grammar)
    if not _LARK_START.search(grammar):
        hint = "for a regular expression, write start: /[a-z]+/"
        raise Error("grammar has neither a line 'root ::= …' (GBNF) nor a line 'start: …' (Lark)", hint=hint)
    for options in _OPTIONS.finditer(grammar):
        if not options[1]:
            raise UnsupportedError("options of %llguidance in a grammar are not supported")
    for attributes in _ATTRIBUTES.finditer(grammar):
        if found := _UNSUPPORTED_ATTRIBUTE.search(attributes[1]):
            raise UnsupportedError(f"the attribute {found[1]}= of a rule is not supported")
    return _OPTIONS.sub("", _with_checked_schemas(grammar))


def _with_checked_schemas(grammar: str) -> str:
    """Return a grammar in Lark whose schemas are checked like others."""
    parts: list[str] = []
    at = 0
    for start in _JSON.finditer(grammar):
        if start.start() < at:
            continue
        try:
            schema, end = json.JSONDecoder(object_pairs_hook=unique_names).raw_decode(grammar, start.end())
        except (ValueError, RecursionError) as problem:
            raise Error(f"a schema after %json in the grammar is not valid JSON: {problem}") from None
        parts += [grammar[at : start.end()], checked_schema(schema)]
        at = end
    return "".join([*parts, grammar[at:]])


def _checked(source: str, name: str, has_lines: bool = False) -> str:
    problem = _problem(source + _SETTINGS, name, has_lines)
    if problem is not None:
        raise problem.moved()
    return source + _SETTINGS


@lru_cache(maxsize=64)
def _problem(source: str, name: str, has_lines: bool) -> Error | None:
    """Return the mistake of a grammar. It is stored too, so that a client that repeats one starts no process each time."""
    return isolated_problem(source, name, has_places=has_lines)
