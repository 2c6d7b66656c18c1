"""Finding the ends of what rlx ops are made of: dictionaries, types, lists."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NoReturn

from rlx.ir.assembly.grammar import COMMENT, SPACE, STRING, TYPE, TYPE_NAME, TYPES, split_types
from rlx.ir.assembly.positions import Source
from rlx.ir.errors import ParseError

Span = tuple[int, int]

_ATTRIBUTES = re.compile(rf'\{{(?:[^{{}}"/]++|{STRING})*+\}}')
_BRACKET = re.compile(rf"{STRING}|//[^\n]*+|->|[(){{}}\[\]<>]")
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_COMMA = re.compile(rf"{STRING}|->|[,(){{}}\[\]<>]")
_ALIAS = re.compile(rf"^[ \t]*+(![\w$.]++)[ \t]*+=[ \t]*+({TYPE.pattern})", re.MULTILINE | re.ASCII)


class Scanner:
    """Text under a name. All methods take and give places in it."""

    def __init__(self, text: str, name: str):
        self.text = text
        self.name = name

    def fail(self, place: int, message: str, hint: str | None = None) -> NoReturn:
        line, column = Source(self.text, self.name, [self.text], [0], False).place_of(place)
        raise ParseError(message, location=f"{self.name}:{line}:{column}", hint=hint)

    def space(self, position: int) -> int:
        found = SPACE.match(self.text, position)
        return position if found is None else found.end()

    def dictionary(self, start: int) -> int:
        """The end of an attribute dictionary."""
        found = _ATTRIBUTES.match(self.text, start)
        return self.balanced(start) if found is None else found.end()

    def balanced(self, start: int) -> int:
        """The end of what stands in brackets. Angle brackets count only in types: attributes hold `>=`, too."""
        opened: list[int] = []
        angles = self.text[start] == "<"
        for found in _BRACKET.finditer(self.text, start):
            bracket = found[0]
            if bracket in "([{" or (angles and bracket == "<"):
                opened.append(found.start())
            elif bracket in ")]}" or (angles and bracket == ">"):
                if CLOSING[self.text[opened[-1]]] != bracket:
                    break
                opened.pop()
                if not opened:
                    return found.end()
        self.fail(opened[-1], f"'{self.text[opened[-1]]}' is not closed")

    def parentheses(self, start: int) -> int:
        found = TYPES.match(self.text, start)
        return self.balanced(start) if found is None else found.end()

    def type(self, start: int) -> int:
        found = TYPE.match(self.text, start)
        if found is not None:
            return found.end()
        name = TYPE_NAME.match(self.text, start)
        if name is None:
            self.fail(start, "expected a type")
        return self.balanced(name.end()) if self.text.startswith("<", name.end()) else name.end()

    def list(self, span: Span) -> list[str]:
        """The types of a list, each as it would be printed, so that equal ones are equal text."""
        text = self.text[slice(*span)]
        types = split_types(text)
        if types is None:
            types, start, depth = list[str](), 0, 0
            text = " ".join(COMMENT.sub(lambda m: "" if m[1] else m[0], text).split())
            for found in _COMMA.finditer(text):
                depth += (found[0] in "(<[{") - (found[0] in ")>]}")
                if found[0] == "," and not depth:
                    types.append(text[start : found.start()].strip())
                    start = found.end()
            types += [text[start:].strip()] if text[start:].strip() else []
        return [self.aliases.get(t, t) for t in types] if "!" in text else types

    @cached_property
    def aliases(self) -> dict[str, str]:
        """What the aliases of types stand for."""
        return {found[1]: found[2] for found in _ALIAS.finditer(self.text)}
