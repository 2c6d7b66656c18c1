"""Parser of GBNF, the grammar format of llama.cpp."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass

from rlx.support.errors import Error, UnsupportedError
from rlx.support.short import short_repr

_WORD = frozenset(string.ascii_letters + string.digits + "-_")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_LARGEST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_DEEPEST, _MOST_MARKS, _MOST_DIGITS = 50, 3, 7


@dataclass(frozen=True, repr=False)
class GbnfCharacters:
    """One character: any of some ranges, or with `is_negated` any other one."""

    ranges: tuple[tuple[int, int], ...]
    is_negated: bool = False


@dataclass(frozen=True, repr=False)
class GbnfReference:
    """The text of a rule."""

    name: str


@dataclass(frozen=True, repr=False)
class GbnfSequence:
    """Texts one after the other; none is the empty text."""

    items: tuple[GbnfNode, ...]


@dataclass(frozen=True, repr=False)
class GbnfChoice:
    """One of some texts."""

    alternatives: tuple[GbnfNode, ...]


@dataclass(frozen=True, repr=False)
class GbnfRepetition:
    """A text from `least` to `most` times; None is any number."""

    item: GbnfNode
    least: int
    most: int | None


GbnfNode = GbnfCharacters | GbnfReference | GbnfSequence | GbnfChoice | GbnfRepetition


def parsed_gbnf(text: str) -> dict[str, GbnfNode]:
    """Return the rules of a grammar by name. Of equal names, the last rule counts, as in llama.cpp.

    Raises:
        Error: The text is not valid GBNF, a rule is missing, or there is no rule `root`.
        UnsupportedError: The grammar names tokens.
    """
    rules = _GbnfParser(text).rules()
    if "root" not in rules:
        raise Error("the grammar has no rule 'root'")
    for name, rule in rules.items():
        for used in references(rule):
            if used not in rules:
                raise Error(f"rule {short_repr(name)} of the grammar uses {short_repr(used)}, which is not defined")
    return rules


def children(node: GbnfNode) -> tuple[GbnfNode, ...]:
    """Return the direct parts of an expression."""
    match node:
        case GbnfSequence(items):
            return items
        case GbnfChoice(alternatives):
            return alternatives
        case GbnfRepetition(item):
            return (item,)
        case _:
            return ()


def references(node: GbnfNode) -> set[str]:
    """Return the names of the rules that an expression uses directly."""
    names, waiting = set[str](), [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, GbnfReference):
            names.add(current.name)
        waiting += children(current)
    return names


class _GbnfParser:
    """A recursive-descent parser."""

    def __init__(self, text: str):
        self._text, self._at, self._depth = text, 0, 0

    def rules(self) -> dict[str, GbnfNode]:
        rules: dict[str, GbnfNode] = {}
        self._skip(newlines=True)
        while self._at < len(self._text):
            name = self._name()
            self._skip(newlines=False)
            self._expect("::=")
            self._skip(newlines=True)
            rules[name] = self._choice(is_nested=False)
            if self._at < len(self._text) and self._peek() not in "\r\n":
                raise self._error("the end of a rule")
            self._skip(newlines=True)
        return rules

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, *, newlines: bool) -> None:
        """Skip spaces and comments, and line breaks where a rule may continue after one."""
        while (character := self._peek()) and (character in " \t#" or (newlines and character in "\r\n")):
            if character == "#":
                ends = [at for end in "\r\n" if (at := self._text.find(end, self._at)) >= 0]
                self._at = min(ends, default=len(self._text))
            else:
                self._at += 1

    def _expect(self, text: str) -> None:
        if not self._text.startswith(text, self._at):
            raise self._error(f"'{text}'")
        self._at += len(text)

    def _error(self, expected: str) -> Error:
        line = self._text.count("\n", 0, self._at) + 1
        found = self._text[self._at : self._at + 20]
        return Error(f"line {line} of the grammar: expected {expected}, got {repr(found) if found else 'its end'}")

    def _while(self, accepts: Callable[[str], bool], expected: str) -> str:
        start = self._at
        while (character := self._peek()) and accepts(character):
            self._at += 1
        if self._at == start:
            raise self._error(expected)
        return self._text[start : self._at]

    def _name(self) -> str:
        return self._while(_WORD.__contains__, "the name of a rule")

    def _choice(self, *, is_nested: bool) -> GbnfNode:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Error(f"the grammar has more than {_DEEPEST} levels of parentheses")
        alternatives = [self._sequence(is_nested)]
        while self._peek() == "|":
            self._at += 1
            self._skip(newlines=True)
            alternatives.append(self._sequence(is_nested))
        self._depth -= 1
        return alternatives[0] if len(alternatives) == 1 else GbnfChoice(tuple(alternatives))

    def _sequence(self, is_nested: bool) -> GbnfNode:
        items: list[GbnfNode] = []
        while (character := self._peek()) and character not in "|)\r\n":
            items.append(self._repeated(self._item(character), is_nested))
        return items[0] if len(items) == 1 else GbnfSequence(tuple(items))

    def _item(self, first: str) -> GbnfNode:
        if first in _WORD:
            return GbnfReference(self._name())
        if first in "<!":
            raise UnsupportedError("tokens in a grammar are not supported", hint="describe their text in quotes")
        self._at += 1
        match first:
            case '"':
                return self._literal()
            case "[":
                return self._class()
            case ".":
                return GbnfCharacters((), is_negated=True)
            case "(":
                self._skip(newlines=True)
                inner = self._choice(is_nested=True)
                self._expect(")")
                return inner
        self._at -= 1
        raise self._error("a text, a class of characters, a rule or a parenthesis")

    def _literal(self) -> GbnfNode:
        characters: list[GbnfNode] = []
        while self._peek() != '"':
            code = self._character("'\"' at the end of a text")
            characters.append(GbnfCharacters(((code, code),)))
        self._at += 1
        return GbnfSequence(tuple(characters))

    def _class(self) -> GbnfNode:
        is_negated = self._peek() == "^"
        self._at += is_negated
        ranges: list[tuple[int, int]] = []
        while self._peek() != "]":
            low = high = self._character("']' at the end of a class of characters")
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._character("the end of a range")
            if high < low:
                raise self._error(f"an end of the range that is not before {chr(low)!r}")
            ranges.append((low, high))
        if not ranges:
            raise self._error("a character in the class")
        self._at += 1
        return GbnfCharacters(tuple(ranges), is_negated)

    def _character(self, expected: str) -> int:
        character = self._peek()
        if not character:
            raise self._error(expected)
        self._at += 1
        if character == "\\":
            kind = self._peek()
            self._at += 1
            if kind in _HEX_ESCAPES:
                return self._hexadecimal(_HEX_ESCAPES[kind])
            if kind not in _ESCAPES:
                self._at -= 2
                raise self._error('one of the escapes \\x \\u \\U \\t \\r \\n \\\\ \\" \\[ \\]')
            character = _ESCAPES[kind]
        return ord(character)

    def _hexadecimal(self, digits: int) -> int:
        text = self._text[self._at : self._at + digits]
        if len(text) < digits or not set(text) <= set(string.hexdigits):
            raise self._error(f"{digits} hexadecimal digits")
        code = int(text, 16)
        if code > _LARGEST_CHARACTER or code in _SURROGATES:
            raise self._error("the number of a character")
        self._at += digits
        return code

    def _repeated(self, item: GbnfNode, is_nested: bool) -> GbnfNode:
        self._skip(newlines=is_nested)
        marks = 0
        while (mark := self._peek()) and mark in "*+?{":
            self._at += 1
            marks += 1
            if marks > _MOST_MARKS:
                raise self._error(f"at most {_MOST_MARKS} marks of repetition")
            if mark == "{":
                least, most = self._counts()
            else:
                least, most = int(mark == "+"), 1 if mark == "?" else None
            item = GbnfRepetition(item, least, most)
            self._skip(newlines=is_nested)
        return item

    def _counts(self) -> tuple[int, int | None]:
        self._skip(newlines=True)
        least = self._count()
        most: int | None = least
        if self._peek() == ",":
            self._at += 1
            self._skip(newlines=True)
            most = None if self._peek() == "}" else self._count()
        self._expect("}")
        if most is not None and most < least:
            raise self._error(f"a largest count of at least {least}")
        return least, most

    def _count(self) -> int:
        digits = self._while(frozenset(string.digits).__contains__, "a count")
        if len(digits) > _MOST_DIGITS:
            raise self._error(f"a count of at most {_MOST_DIGITS} digits")
        self._skip(newlines=True)
        return int(digits)
