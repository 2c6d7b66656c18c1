"""Detection of the ends of parts of rlx ops: dictionaries, types, lists."""

from __future__ import annotations

import re
from typing import NoReturn

from rlx.ir.text.assembly.grammar import COMMENT, SPACE, STRING, TYPE, TYPE_NAME, TYPES, split_types
from rlx.ir.text.assembly.positions import GenericText
from rlx.support.cached_property import cached_property
from rlx.support.errors import ParseError

Span = tuple[int, int]

_ATTRIBUTES = re.compile(rf'\{{(?:[^{{}}"/]++|{STRING})*+\}}')
_BRACKET = re.compile(rf"{STRING}|//[^\n]*+|->|[(){{}}\[\]<>]")
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_COMMA = re.compile(rf"{STRING}|->|[,(){{}}\[\]<>]")
_ALIAS = re.compile(rf"^[ \t]*+(![\w$.]++)[ \t]*+=[ \t]*+({TYPE.pattern})", re.MULTILINE | re.ASCII)


class Scanner:
    """A text with a name. All methods take and return offsets into the text."""

    def __init__(self, text: str, name: str):
        self.text = text
        self.name = name

    def fail(self, place: int, message: str, hint: str | None = None) -> NoReturn:
        line, column = GenericText(self.text, self.name, [self.text], [0], False).place_of(place)
        raise ParseError(message, location=f"{self.name}:{line}:{column}", hint=hint)

    def space(self, position: int) -> int:
        match = SPACE.match(self.text, position)
        return position if match is None else match.end()

    def dictionary(self, start: int) -> int:
        """Return the end of an attribute dictionary."""
        match = _ATTRIBUTES.match(self.text, start)
        return self.balanced(start) if match is None else match.end()

    def balanced(self, start: int) -> int:
        """Return the end of a text in brackets. Angle brackets count only in types, because attributes may contain `>=`."""
        opened: list[int] = []
        angles = self.text[start] == "<"
        for match in _BRACKET.finditer(self.text, start):
            bracket = match[0]
            if bracket in "([{" or (angles and bracket == "<"):
                opened.append(match.start())
            elif bracket in ")]}" or (angles and bracket == ">"):
                if CLOSING[self.text[opened[-1]]] != bracket:
                    break
                opened.pop()
                if not opened:
                    return match.end()
        self.fail(opened[-1], f"'{self.text[opened[-1]]}' is not closed")

    def parentheses(self, start: int) -> int:
        match = TYPES.match(self.text, start)
        return self.balanced(start) if match is None else match.end()

    def type(self, start: int) -> int:
        match = TYPE.match(self.text, start)
        if match is not None:
            return match.end()
        name = TYPE_NAME.match(self.text, start)
        if name is None:
            self.fail(start, "expected a type")
        return self.balanced(name.end()) if self.text.startswith("<", name.end()) else name.end()

    def list(self, span: Span) -> list[str]:
        """Return the types of a list, each as MLIR would print it, so that equal types have equal text."""
        text = self.text[slice(*span)]
        types = split_types(text)
        if types is None:
            types, start, depth = list[str](), 0, 0
            text = " ".join(COMMENT.sub(lambda m: "" if m[1] else m[0], text).split())
            for match in _COMMA.finditer(text):
                depth += (match[0] in "(<[{") - (match[0] in ")>]}")
                if match[0] == "," and not depth:
                    types.append(text[start : match.start()].strip())
                    start = match.end()
            types += [text[start:].strip()] if text[start:].strip() else []
        return [self.aliases.get(t, t) for t in types] if "!" in text else types

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The type that each type alias represents."""
        return {match[1]: match[2] for match in _ALIAS.finditer(self.text)}
