"""Positions in text that was rewritten, in terms of the text that the user wrote."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import Any

from rlx import mlir
from rlx.ir.assembly.grammar import SPACE, STRING, layout

_FILE = re.compile(r'loc\("((?:[^"\\]|\\.)*+)":(\d+):(\d+)\)')
_BARE_OP = re.compile(rf"{STRING}|//[^\n]*+|(?<![\w.$#!@%^-])rlx\.([\w$.]++)", re.ASCII)


class Source:
    """Text for MLIR's parser, and where each part of it comes from.

    Lines and columns count from 1, columns in bytes, as MLIR's do.

    Args:
        written: What the user wrote.
        name: What the text is called in locations.
        pieces: The text for the parser, in pieces.
        origins: For each piece the place in `written` where it stands, or `~place` of what it was inserted for.
        moved: Whether ops may stand in other columns than the user wrote them.
    """

    def __init__(self, written: str, name: str, pieces: list[str], origins: list[int], moved: bool):
        self.written = written
        self.name = name
        self._pieces = pieces
        self._origins = origins
        self._moved = moved
        self.text = "".join(pieces)

    @property
    def changed(self) -> bool:
        """Whether the text is another one than the user wrote."""
        return len(self._pieces) > 1

    @cached_property
    def printed_name(self) -> str:
        """The name as MLIR prints it in locations, where some characters are escaped."""
        found = _FILE.fullmatch(str(mlir.ir.Location.file(self.name, 1, 1, context=mlir.context())))
        return self.name if found is None else found[1]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(map(len, self._pieces))][:-1]

    @cached_property
    def _lines(self) -> tuple[list[int], list[int]]:
        return _line_starts(self.text), _line_starts(self.written)

    def place(self, line: int, column: int) -> tuple[int, int]:
        """Where what stands at a line and column of `text` was written."""
        lines, written_lines = self._lines
        if not self.changed or not 0 < line <= len(lines) or column < 1:
            return line, column
        start = lines[line - 1]
        before = _bytes(self.text[start : start + column - 1])[: column - 1]
        offset = start + len(before.decode("utf-8", "ignore"))
        index = bisect_right(self._starts, offset) - 1
        origin = self._origins[index]
        place = ~origin if origin < 0 else origin + offset - self._starts[index]
        return _line_and_column(self.written, written_lines, place)

    def place_of(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset into what the user wrote."""
        return _line_and_column(self.written, self._lines[1], offset)

    def described(self, place: str | None) -> str | None:
        """A place in `text`, as `file:line:column`, as one in what the user wrote; places in other files stay."""
        file, line, column = [*(place or "").rsplit(":", 2), "", ""][:3]
        if file not in (self.name, self.printed_name) or not (line.isdecimal() and column.isdecimal()):
            return place
        return "{}:{}:{}".format(self.name, *self.place(int(line), int(column)))

    @property
    def begin(self) -> str:
        """Where the text begins, as `file:line:column`, after space and comments."""
        found = SPACE.match(self.written)
        place = 0 if found is None or found.end() == len(self.written) else found.end()
        return "{}:{}:{}".format(self.name, *self.place_of(place))

    @property
    def blank(self) -> bool:
        """Whether there is nothing but space and comments."""
        return SPACE.fullmatch(self.written) is not None

    def bare_op(self) -> tuple[str, str] | None:
        """The first rlx op without quotes that is left in the text for the parser: its place and name."""
        for found in _BARE_OP.finditer(self.text):
            if found[1] and layout(found[1]):
                lines = self._lines[0]
                line, column = _line_and_column(self.text, lines, found.start())
                return "{}:{}:{}".format(self.name, *self.place(line, column)), found[0]
        return None

    def relocate(self, op: mlir.Operation, unnamed: str | None = None) -> None:
        """Have the locations of ops and block arguments that the parser made say where the user wrote them.

        Args:
            op: What was parsed.
            unnamed: The parser's name for the text, where it could not be told ours.
        """
        if not self._moved and unnamed is None:
            return
        known: dict[str, Any] = {}
        name = self.printed_name if unnamed is None else unnamed

        def mended(location: mlir.Location) -> mlir.Location:
            text = str(location)
            if text not in known:
                known[text] = location
                found = _FILE.fullmatch(text)
                if found is not None and found[1] == name:
                    line, column = self.place(int(found[2]), int(found[3]))
                    known[text] = mlir.ir.Location.file(self.name, line, column, context=mlir.context())
            return known[text]

        def visit(inner: mlir.Operation) -> Any:
            inner.location = mended(inner.location)
            for region in inner.regions:
                for block in region:
                    for argument in block.arguments:
                        argument.set_location(mended(argument.location))
            return mlir.ir.WalkResult.ADVANCE

        mlir.walk(op, visit)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def _line_and_column(text: str, lines: list[int], offset: int) -> tuple[int, int]:
    line = bisect_right(lines, offset)
    return line, len(_bytes(text[lines[line - 1] : offset])) + 1
