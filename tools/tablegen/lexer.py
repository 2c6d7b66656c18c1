"""Conversion of TableGen text to tokens with source locations, including preprocessing (`#ifdef` etc.)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlx.support.errors import ParseError

# The kinds of tokens: `end` is the end of a file, `mark` is punctuation, `bang` an operator such as `!listconcat`.
_TOKEN = re.compile(
    r"""
    (?P<space> [ \t\r\f]+ | //[^\n]* )
  | (?P<newline> \n )
  | (?P<comment> /\* )
  | (?P<code> \[\{ (?P<code_text> .*? ) \}\] )
  | (?P<string> " (?P<string_text> (?: [^"\\\n] | \\[^\n] )* ) " )
  | (?P<integer> (?: 0x[0-9a-fA-F]+ | 0b[01]+ | [+-]?[0-9]+ ) (?! \w ) )
  | (?P<bang> !\w+ )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<variable> \$ [A-Za-z_]\w* )
  | (?P<mark> \[ (?! \{ ) | [:;,.<>\]{}()=?\#] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_DIRECTIVE = re.compile(r"[ \t]*#(ifdef|ifndef|else|endif|define)\b[ \t]*(\w*)[ \t]*([^\n]*)", re.ASCII)
_UNFINISHED = {
    '"': "a string must end with '\"' on its line",
    "[": "a code block must end with '}]'",
}
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Place:
    """A location in a file. Lines and columns start at 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its kind, its text (the content of a string or code block), and its location."""

    kind: str
    text: str
    place: Place

    def __str__(self) -> str:
        names = {"end": "the end of the file", "string": "a string", "code": "a code block"}
        return names.get(self.kind, f"'{self.text}'")


def refuse(place: Place, message: str, hint: str | None = None) -> ParseError:
    """Return the error for a location."""
    return ParseError(message, location=str(place), hint=hint)


def text_of(path: Path, asked_at: Place | None = None) -> str:
    """Return the text of a file.

    Raises:
        ParseError: It cannot be read, or is not UTF-8.
    """
    place = asked_at or Place(str(path), 1, 1)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise refuse(place, f"cannot read '{path}': {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise refuse(place, f"'{path}' is not UTF-8 at byte {problem.start}") from None


class Lexer:
    """The tokens of one file.

    Args:
        text: The file's text.
        path: Its name, for messages.
        macros: The names that `#define` has defined; those of this file are added.
    """

    def __init__(self, text: str, path: str, macros: set[str]):
        self._text, self._path, self._macros = text, path, macros
        self._at = 0
        self._line, self._line_start = 1, 0
        self._open: list[tuple[Place, str]] = []  # each `#ifdef` without its `#endif` so far

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens, the last one of the kind `end`.

        Raises:
            ParseError: Some text is not a token, or is not closed.
        """
        while self._at < len(self._text):
            if self._at == self._line_start and self._directive():
                continue
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                raise self._no_token()
            place, kind = self._place(), str(match.lastgroup).removesuffix("_text")
            if kind == "comment":
                self._comment(place)
                continue
            self._move(match.end())
            if kind == "string":
                yield Token(kind, _unescaped(match["string_text"], place), place)
            elif kind == "code":
                yield Token(kind, match["code_text"], place)
            elif kind not in ("space", "newline"):
                yield Token(kind, match[kind], place)
        if self._open:
            place, word = self._open[-1]
            raise refuse(place, f"'#{word}' has no '#endif'")
        yield Token("end", "", self._place())

    def _place(self) -> Place:
        return Place(self._path, self._line, self._at - self._line_start + 1)

    def _move(self, end: int) -> None:
        """Advance past the text that has been read."""
        lines = self._text.count("\n", self._at, end)
        if lines:
            self._line += lines
            self._line_start = self._text.rindex("\n", self._at, end) + 1
        self._at = end

    def _no_token(self) -> ParseError:
        character = self._text[self._at]
        what = _UNFINISHED.get(character, f"there is no token that begins with {character!r}")
        return refuse(self._place(), what)

    def _comment(self, place: Place) -> None:
        """Skip a comment. Comments can be nested."""
        depth = 0
        for match in re.compile(r"/\*|\*/").finditer(self._text, self._at):
            depth += 1 if match[0] == "/*" else -1
            if not depth:
                self._move(match.end())
                return
        raise refuse(place, "a comment must end with '*/'")

    def _directive(self) -> bool:
        """Process the directive on this line, if there is one."""
        match = _DIRECTIVE.match(self._text, self._at)
        if match is None:
            return False
        place, (word, name, rest) = self._place(), match.groups()
        rest = rest.strip()
        if (rest and not rest.startswith(("//", "/*"))) or bool(name) != (word not in ("else", "endif")):
            wanted = "nothing" if word in ("else", "endif") else "one name"
            raise refuse(place, f"expected {wanted} after '#{word}'")
        self._move(match.end())
        if word == "define":
            self._macros.add(name)
        elif word in ("ifdef", "ifndef"):
            self._open.append((place, word))
            if (name in self._macros) != (word == "ifdef"):
                self._skip()
        elif not self._open or (word == "else" and self._open[-1][1] == "else"):
            raise refuse(place, f"'#{word}' without an '#ifdef' or '#ifndef' before it")
        elif word == "endif":
            self._open.pop()
        else:  # the part before `#else` was read, so this part is skipped
            self._open[-1] = (place, word)
            self._skip()
        return True

    def _skip(self) -> None:
        """Advance to the `#else` or `#endif` of the last directive."""
        depth, place = 0, self._open[-1][0]
        while True:
            end = self._text.find("\n", self._at)
            if end < 0:
                raise refuse(place, f"'#{self._open[-1][1]}' has no '#endif'")
            self._move(end + 1)
            match = _DIRECTIVE.match(self._text, self._at)
            word = match[1] if match else ""
            if word in ("ifdef", "ifndef"):
                depth += 1
            elif word == "endif":
                if not depth:
                    return
                depth -= 1
            elif word == "else" and not depth and self._open[-1][1] != "else":
                self._open[-1] = (self._place(), "else")
                self._move(match.end() if match else self._at)
                return


def _unescaped(text: str, place: Place) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise refuse(place, f"a string may not have '{match[0]}'", "the escapes are \\n \\t \\\" \\' \\\\")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", character, text)
