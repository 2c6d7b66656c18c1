"""Limits on MLIR text, checked before MLIR parses it.

MLIR's parser is recursive: some thousands of nested brackets overflow the stack of the process, and so do long affine
expressions and chains of aliases. If each of n aliases uses the previous one twice, the printed text has 2^n
characters. Numbers with many digits take quadratic time. `check` reads the text once, without recursion, and rejects
all of these. Text that passes may still be invalid, which MLIR then reports.

Tokens are recognised as by MLIR's lexer. MLIR stops at the first syntax error, so the counts need to be right only up
to that point.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from rlx.support.errors import ParseError

NESTING = 200  # nested brackets of all kinds, with aliases expanded; MLIR overflows at about 3,000
CHAIN = 1000  # operators in one affine expression
DIGITS = 1000  # characters of one number
BITS = 1024  # bits of an integer type
DIMENSIONS = 10_000  # characters of `1x2x3x…`
# Maximum characters that all uses of aliases may expand to: `EXPANSION` plus `EXPANSION_FACTOR` times the length of the
# text. Debug locations, which share their frames through aliases, need the factor.
EXPANSION = 1 << 24
EXPANSION_FACTOR = 32

_STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
_COMMENT = r"//[^\n\r]*+"
_IDENTIFIER = r"(?:\d++|[A-Za-z$._-][\w$.-]*+)"
_SPECIAL = rf"(?:mod|floordiv|ceildiv)(?![\w$.])|[su]?i\d{{4}}|x[\dx]{{{DIMENSIONS}}}"
_WORD = rf"(?!{_SPECIAL})[A-Za-z_][\w$.]*+"
_FLOAT = r"\d{1,99}+\.\d{0,99}+(?:[eE][-+]?\d{1,9}+)?+(?!\d)"
_SHAPED = r"<[\dx?]{0,99}+(?:bf16|f16|f32|f64|i\d{1,2}+|index)?+>"
_ENTRY = rf"{_WORD}[ ]=[ ](?:{_STRING}|{_FLOAT}|\d{{1,18}}+(?![\d.x])|{_WORD})"
_KINDS = rf"""
    (?P<string> {_STRING} )
  | (?P<comment> {_COMMENT} )
  | (?P<arrow> -> )
  | (?P<open> \{{-\# | [(\[{{<] )
  | (?P<close> \#-\}} | [)\]}}>] )
  | (?P<alias> [#!]{_IDENTIFIER} )
  | (?P<word> [A-Za-z_][\w$.]*+ )
  | (?P<number> 0x[0-9a-fA-F]++ | \d++ )
  | (?P<operator> [-+*] )
  | (?P<other> \S )
"""
_FLAGS = re.VERBOSE | re.ASCII
_TOKEN = re.compile(rf"\s*+(?:{_KINDS})", _FLAGS)
# Most tokens are irrelevant here. One match skips them, and small bracketed groups, up to the next relevant token.
_INTERESTING = re.compile(
    rf"""
  (?: \s++ | {_STRING} | {_COMMENT} | ->
    | {_SHAPED} | <-?{_FLOAT}>
    | \((?:(?:%\w{{1,40}}+|tensor{_SHAPED})(?:,[ ])?+){{0,9}}+\)
    | \{{(?:{_ENTRY}(?:,[ ])?+){{0,9}}+\}}
    | [%@^]{_IDENTIFIER}
    | [#!][A-Za-z_][\w$-]*+\.[\w$.-]*+
    | {_WORD} | {_FLOAT}
    | \d{{1,{DIGITS}}}+(?!\d|x[0-9a-fA-F]{{{DIGITS}}})
    | ,\s*+-(?=\d) | [,=:;?.@%^/|&]
  )*+ (?:{_KINDS})""",
    _FLAGS,
)
_HIGH_BYTES = re.compile(r"\\[89a-fA-F][0-9a-fA-F]")
_STRING_OR_COMMENT = re.compile(rf"{_STRING}|{_COMMENT}")
_ESCAPE = re.compile(rb"\\([0-9a-fA-F]{2}|.)", re.DOTALL)
_CLOSES = {")": "(", "]": "[", "}": "{", ">": "<", "#-}": "{"}
_OPERATORS = frozenset(("mod", "floordiv", "ceildiv"))
_WIDE = re.compile(r"[su]?i(\d{4,})")
_DIMENSIONS = re.compile(rf"x[x\d]{{{DIMENSIONS}}}")
_EXPRESSION_ENDS = re.compile(rf'(?:[^,=:/"]|{_COMMENT}|/|{_STRING})*+[,=:]')


def check(text: str, name: str = "<text>") -> None:
    """Reject text that would crash MLIR's parser or printer, or make it very slow.

    Args:
        text: MLIR text.
        name: Its name in messages.

    Raises:
        ParseError: The text exceeds a limit; the error has line, column and the limit.
    """
    _TextScan(text, name).run()


class _TextScan:
    def __init__(self, text: str, name: str):
        self.text, self.name = text, name
        self.open: list[str] = []  # brackets around the current position
        self.chain, self.operator = 0, 0  # operators of the current expression, and the end of the last one
        self.aliases: dict[str, tuple[int, int]] = {}  # for each alias, the nesting and length that it adds
        self.defining: tuple[str, int, int] | None = (
            None  # the alias being defined, the start of its body, `added` before it
        )
        self.deepest = 0  # the maximum nesting in that body
        self.added = 0  # characters that the aliases used so far expand to
        self.budget = EXPANSION + EXPANSION_FACTOR * len(text)

    def fail(self, offset: int, message: str, hint: str | None = None) -> NoReturn:
        line = self.text.count("\n", 0, offset) + 1
        before = self.text[self.text.rfind("\n", 0, offset) + 1 : offset]
        column = len(before.encode("utf-8", "surrogatepass")) + 1  # MLIR counts bytes
        raise ParseError(message, location=f"{self.name}:{line}:{column}", hint=hint)

    def run(self) -> None:
        self._characters()
        steps: dict[str, Callable[[str, int], None]] = {
            "open": self._enter,
            "close": self._leave,
            "alias": self._follow,
            "word": self._word,
            "number": self._number,
            "operator": self._operator,
        }
        previous, candidate, position = "", "", 0
        while match := (_INTERESTING if self.open else _TOKEN).match(self.text, position):
            position, kind = match.end(), str(match.lastgroup)
            token = match[kind]
            if kind == "comment":
                continue
            start = position - len(token)
            if not self.open:
                self._outside(token, kind, previous, candidate, start)
                previous, candidate = token, token if kind == "alias" else ""
            if step := steps.get(kind):
                step(token, start)

    def _outside(self, token: str, kind: str, previous: str, candidate: str, offset: int) -> None:
        """Handle a token outside brackets, where aliases are defined: `#name = body`.

        A body ends at the first token that cannot continue it.
        """
        if token == "=" and candidate:
            self._define(offset)
            self.defining, self.deepest = (candidate, offset + 1, self.added), 0
        elif (
            self.defining
            and kind not in ("open", "other", "arrow", "operator")
            and previous not in ("=", ":", "->", "-")
        ):
            self._define(offset)

    def _characters(self) -> None:
        if (position := self.text.find("\0")) >= 0:
            self.fail(position, "the text has a NUL character")
        try:
            self.text.encode()
        except UnicodeEncodeError as problem:
            self.fail(problem.start, f"the text has {self.text[problem.start]!r}, half of a character")
        if _HIGH_BYTES.search(self.text):  # an escaped non-ASCII byte: check that each string is UTF-8
            for match in _STRING_OR_COMMENT.finditer(self.text):
                if not _is_utf8(match.group()):
                    self.fail(match.start(), "a string that is not UTF-8")

    # --- nesting ----------------------------------------------------------------------------------

    def _reach(self, nesting: int, offset: int) -> None:
        if nesting > NESTING:
            self.fail(offset, f"nested more than {NESTING} deep", "deeper text would overflow the parser's stack")
        self.deepest = max(self.deepest, nesting)

    def _enter(self, bracket: str, offset: int) -> None:
        self._reach(len(self.open) + 1, offset)
        self.open.append(bracket[0])

    def _leave(self, bracket: str, offset: int) -> None:
        opener = _CLOSES[bracket]
        while self.open and self.open[-1] == "<" != opener:
            self.open.pop()  # this `<` was a comparison
        if self.open and self.open[-1] == opener:
            self.open.pop()

    # --- aliases ----------------------------------------------------------------------------------

    def _define(self, end: int) -> None:
        if self.defining is not None:
            name, start, added = self.defining
            self.aliases[name] = (self.deepest + 1, end - start + self.added - added)
            self.defining = None

    def _follow(self, name: str, offset: int) -> None:
        if len(name) > 7 and name[1:].isdigit():  # %0#123: the parser allocates memory for that many results
            self.fail(offset, f"an op has no result '{name[:20]}'")
        nesting, length = self.aliases.get(name, (0, 0))
        self._reach(len(self.open) + nesting, offset)
        self.added += length
        if self.added > self.budget:
            self.fail(offset, f"aliases stand for more than {self.budget} characters", "use them less often")

    # --- words and numbers ------------------------------------------------------------------------

    def _word(self, word: str, offset: int) -> None:
        if word in _OPERATORS:
            self._operator(word, offset)
        elif (wide := _WIDE.fullmatch(word)) and (len(wide[1]) > 9 or int(wide[1]) > BITS):
            self.fail(offset, f"an integer type of more than {BITS} bits")
        elif len(word) > DIMENSIONS and _DIMENSIONS.match(word):
            self.fail(offset, f"dimensions of more than {DIMENSIONS} characters")

    def _number(self, number: str, offset: int) -> None:
        if len(number) > DIGITS:
            self.fail(offset, f"a number of {len(number)} characters; at most {DIGITS} are allowed")

    def _operator(self, token: str, offset: int) -> None:
        if _EXPRESSION_ENDS.match(self.text, self.operator, offset):
            self.chain = 0
        self.chain, self.operator = self.chain + 1, offset + len(token)
        if self.chain > CHAIN:
            self.fail(offset, f"an expression of more than {CHAIN} operators")


def _is_utf8(string: str) -> bool:
    """Whether a string in MLIR's syntax represents UTF-8 bytes; true for a comment."""
    if string.startswith("//"):
        return True
    raw = _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]) if len(m[1]) == 2 else b"?", string.encode())
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
