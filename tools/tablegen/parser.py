"""Parsing of TableGen text to a tree: the statements of a file and of its included files, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tools.tablegen import syntax
from tools.tablegen.lexer import Lexer, Place, Token, refuse, text_of

# Syntax of LLVM that this reader does not support. The dialect does not need it, and an error message reports it.
_ABSENT = {
    "assert",
    "defm",
    "defset",
    "deftype",
    "dump",
    "else",
    "field",
    "foreach",
    "if",
    "in",
    "let",
    "multiclass",
    "then",
}
_TYPES = {"bit", "code", "dag", "int", "string"}
_HINT = "write it out, or teach it to tools/tablegen"
_DEEPEST = 64  # nested files, and nested brackets

Parsed = TypeVar("Parsed")


def parse(root: Path, include_dirs: Sequence[Path], base: Path) -> Iterator[syntax.Statement]:
    """Yield the statements of a file and of its included files, in order.

    Args:
        root: The file.
        include_dirs: The folders to search for included files.
        base: The folder that paths in messages are relative to.

    Raises:
        ParseError: A file is missing, or is outside of the supported subset of TableGen.
    """
    yield from _Files(include_dirs, base).statements(root, None, 0)


class _Files:
    """The files of one run: the search folders, and the macros defined so far."""

    def __init__(self, include_dirs: Sequence[Path], base: Path):
        self._include_dirs, self._base = include_dirs, base
        self._macros: set[str] = set()

    def statements(self, path: Path, asked_at: Place | None, depth: int) -> Iterator[syntax.Statement]:
        if asked_at is not None and depth > _DEEPEST:
            raise refuse(asked_at, f"files include each other more than {_DEEPEST} deep")
        shown = path.relative_to(self._base) if path.is_relative_to(self._base) else path
        parser = _Parser(Lexer(text_of(path, asked_at), shown.as_posix(), self._macros).tokens())
        while not parser.at_end():
            include = parser.include()
            if include is None:
                yield parser.statement()
            else:
                yield from self.statements(self._find(include), include.place, depth + 1)

    def _find(self, include: Token) -> Path:
        for folder in self._include_dirs:
            if (folder / include.text).is_file():
                return folder / include.text
        raise refuse(
            include.place,
            f"there is no file '{include.text}' to include",
            "of MLIR's files, tools/tablegen/include has those that the dialect uses",
        )


class _Parser:
    """A recursive descent parser with one token of lookahead."""

    def __init__(self, tokens: Iterator[Token]):
        self._tokens = tokens
        self._next = next(tokens)
        self._depth = 0

    def at_end(self) -> bool:
        return self._next.kind == "end"

    def _take(self) -> Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _is(self, *texts: str) -> bool:
        return self._next.kind in ("mark", "word") and self._next.text in texts

    def _skip(self, text: str) -> bool:
        if self._is(text):
            self._take()
            return True
        return False

    def _expect(self, text: str, where: str) -> Token:
        if not self._is(text):
            raise refuse(self._next.place, f"expected '{text}' {where}, got {self._next}")
        return self._take()

    def _expect_kind(self, kind: str, what: str) -> Token:
        if self._next.kind != kind:
            raise refuse(self._next.place, f"expected {what}, got {self._next}")
        return self._take()

    # --- statements -----------------------------------------------------------------------------

    def include(self) -> Token | None:
        """Return the name of the file to include here; None for another statement."""
        if not self._skip("include"):
            return None
        return self._expect_kind("string", "the name of a file in quotes after 'include'")

    def statement(self) -> syntax.Statement:
        word = self._next
        if self._skip("class"):
            name = self._expect_kind("word", "the name of the class")
            parameters = self._parameters(name.text) if self._is("<") else ()
            return syntax.Class(name.place, name.text, parameters, self._parents(), self._body(name.text))
        if self._skip("def"):
            name = self._expect_kind("word", "the name of the record")
            return syntax.Def(name.place, name.text, self._parents(), self._body(name.text))
        if self._skip("defvar"):
            name = self._expect_kind("word", "the name of the variable")
            self._expect("=", f"after '{name.text}'")
            value = self._value()
            self._expect(";", f"after the value of '{name.text}'")
            return syntax.Defvar(name.place, name.text, value)
        if word.kind == "word" and word.text in _ABSENT:
            raise refuse(word.place, f"'{word.text}' is not in the part of TableGen that is read here", _HINT)
        raise refuse(word.place, f"expected 'include', 'class', 'def' or 'defvar', got {word}")

    def _parameters(self, owner: str) -> tuple[syntax.Field, ...]:
        self._expect("<", f"after '{owner}'")
        parameters = []
        while not parameters or self._skip(","):
            type_ = self._type()
            name = self._expect_kind("word", f"the name of a parameter of '{owner}'")
            parameters.append(
                syntax.Field(name.place, type_, name.text, self._value() if self._skip("=") else None),
            )
        self._expect(">", f"or ',' after a parameter of '{owner}'")
        return tuple(parameters)

    def _parents(self) -> tuple[syntax.Instance, ...]:
        parents: list[syntax.Instance] = []
        if self._skip(":"):
            while not parents or self._skip(","):
                name = self._expect_kind("word", "the name of a class")
                parents.append(self._instance(name))
        return tuple(parents)

    def _body(self, owner: str) -> tuple[syntax.Field | syntax.Let, ...]:
        if self._skip(";"):
            return ()
        start = self._expect("{", f"or ';' after the head of '{owner}'")
        items: list[syntax.Field | syntax.Let] = []
        while not self._skip("}"):
            if self.at_end():
                raise refuse(start.place, f"the body of '{owner}' has no '}}'")
            items.append(self._let() if self._skip("let") else self._field())
        return tuple(items)

    def _let(self) -> syntax.Let:
        name = self._expect_kind("word", "the name of a field after 'let'")
        self._expect("=", f"after 'let {name.text}'")
        value = self._value()
        self._expect(";", f"after the value of '{name.text}'")
        return syntax.Let(name.place, name.text, value)

    def _field(self) -> syntax.Field:
        if self._next.kind == "word" and self._next.text in _ABSENT | {"defvar"}:
            raise refuse(self._next.place, f"'{self._next.text}' in a body is not read here", _HINT)
        type_ = self._type()
        name = self._expect_kind("word", f"the name of a field after its type '{type_}'")
        value = self._value() if self._skip("=") else syntax.Literal(name.place, None)
        self._expect(";", f"after the field '{name.text}'")
        return syntax.Field(name.place, type_, name.text, value)

    def _type(self) -> syntax.Type:
        name = self._expect_kind("word", "a type: string, code, int, bit, dag, list<…> or a class")
        if name.text != "list":
            if name.text == "bits":
                raise refuse(name.place, "'bits' is not in the part of TableGen that is read here", _HINT)
            return syntax.Type(name.place, name.text)
        self._expect("<", "after 'list'")
        element = self._nested(self._type)
        self._expect(">", f"after 'list<{element}'")
        return syntax.Type(name.place, name.text, element)

    # --- values ---------------------------------------------------------------------------------

    def _nested(self, parse_one: Callable[[], Parsed]) -> Parsed:
        """Parse with a function, with a limit on the nesting depth."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise refuse(self._next.place, f"brackets are more than {_DEEPEST} deep here")
        result = parse_one()
        self._depth -= 1
        return result

    def _value(self) -> syntax.Value:
        left = self._nested(self._operand)
        while self._is("#"):
            place = self._take().place
            left = syntax.Paste(place, left, self._nested(self._operand))
        return left

    def _operand(self) -> syntax.Value:
        value = self._simple()
        while self._is(".", "["):
            if self._take().text == ".":
                name = self._expect_kind("word", "the name of a field after '.'")
                value = syntax.Member(name.place, value, name.text)
                continue
            index = self._expect_kind("integer", "the index of an element: a number")
            self._expect("]", "after the index")
            value = syntax.Element(index.place, value, int(index.text, 0))
        return value

    def _simple(self) -> syntax.Value:
        token = self._take()
        if token.kind == "string":
            text = token.text
            while self._next.kind == "string":  # adjacent strings are concatenated
                text += self._take().text
            return syntax.Literal(token.place, text)
        if token.kind == "code":
            return syntax.Literal(token.place, token.text)
        if token.kind == "integer":
            return syntax.Literal(token.place, int(token.text, 0))
        if token.kind == "bang":
            self._expect("(", f"after '{token.text}'")
            return syntax.Bang(token.place, token.text, self._items(")", token.text))
        if token.kind == "word" and token.text in ("true", "false"):
            return syntax.Literal(token.place, int(token.text == "true"))
        if token.kind == "word" and token.text not in _ABSENT | _TYPES:
            return self._instance(token) if self._is("<") else syntax.Name(token.place, token.text)
        if token.kind == "mark" and token.text == "?":
            return syntax.Literal(token.place, None)
        if token.kind == "mark" and token.text == "[":
            return syntax.ListOf(token.place, self._items("]", "the list"))
        if token.kind == "mark" and token.text == "(":
            return self._dag(token.place)
        raise refuse(token.place, f"expected a value, got {token}")

    def _instance(self, name: Token) -> syntax.Instance:
        arguments = self._items(">", name.text) if self._skip("<") else ()
        return syntax.Instance(name.place, name.text, arguments)

    def _items(self, end: str, owner: str) -> tuple[syntax.Value, ...]:
        """Return values separated by commas, up to the closing mark."""
        items: list[syntax.Value] = []
        while not self._skip(end):
            if items:
                self._expect(",", f"or '{end}' in {owner}")
            items.append(self._value())
        return tuple(items)

    def _dag(self, place: Place) -> syntax.DagOf:
        operator = self._value()
        arguments: list[tuple[syntax.Value, str]] = []
        while not self._skip(")"):
            if arguments:
                self._expect(",", "or ')' in the dag")
            value = self._value()
            name = self._expect_kind("variable", "a name like '$x' after ':'").text[1:] if self._skip(":") else ""
            arguments.append((value, name))
        return syntax.DagOf(place, operator, tuple(arguments))
