"""Mapping of positions in rewritten text to positions in the user's text."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Any

from rlx import mlir
from rlx.ir.text.assembly.grammar import SPACE, STRING, layout
from rlx.support.cached_property import cached_property

_FILE = re.compile(r'loc\("((?:[^"\\]|\\.)*+)":(\d+):(\d+)\)')
_BARE_OP = re.compile(rf"{STRING}|//[^\n]*+|(?<![\w.$#!@%^-])rlx\.([\w$.]++)", re.ASCII)


class GenericText:
    """Text for MLIR's parser, with the position of each piece in the user's text.

    Lines and columns count from 1, and columns count bytes, as in MLIR.

    Args:
        written: The user's text.
        name: The name of the text in locations.
        pieces: The text for the parser, in pieces.
        origins: For each piece its position in `written`; for an inserted piece `~place`, the position that it belongs
            to.
        moved: Whether the columns of ops may differ from those in `written`.
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
        """Whether the text differs from the user's text."""
        return len(self._pieces) > 1

    @cached_property
    def printed_name(self) -> str:
        """The name as MLIR prints it in locations, with some characters escaped."""
        match = _FILE.fullmatch(str(mlir.ir.Location.file(self.name, 1, 1, context=mlir.context())))
        return self.name if match is None else match[1]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(map(len, self._pieces))][:-1]

    @cached_property
    def _lines(self) -> tuple[list[int], list[int]]:
        return _line_starts(self.text), _line_starts(self.written)

    def place(self, line: int, column: int) -> tuple[int, int]:
        """Return line and column in the user's text, for a line and column of `text`."""
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
        """Return line and column of an offset into the user's text."""
        return _line_and_column(self.written, self._lines[1], offset)

    def described(self, place: str | None) -> str | None:
        """Map a place `file:line:column` in `text` to the user's text. Places in other files are unchanged."""
        file, line, column = [*(place or "").rsplit(":", 2), "", ""][:3]
        if file not in (self.name, self.printed_name) or not (line.isdecimal() and column.isdecimal()):
            return place
        return "{}:{}:{}".format(self.name, *self.place(int(line), int(column)))

    @property
    def begin(self) -> str:
        """The position of the first token, after space and comments, as `file:line:column`."""
        match = SPACE.match(self.written)
        place = 0 if match is None or match.end() == len(self.written) else match.end()
        return "{}:{}:{}".format(self.name, *self.place_of(place))

    @property
    def blank(self) -> bool:
        """Whether the text contains only space and comments."""
        return SPACE.fullmatch(self.written) is not None

    def bare_op(self) -> tuple[str, str] | None:
        """Return position and name of the first unquoted rlx op in the parser's text, which MLIR does not accept."""
        for match in _BARE_OP.finditer(self.text):
            if match[1] and layout(match[1]):
                lines = self._lines[0]
                line, column = _line_and_column(self.text, lines, match.start())
                return "{}:{}:{}".format(self.name, *self.place(line, column)), match[0]
        return None

    def relocate(self, op: mlir.Operation, unnamed: str | None = None) -> None:
        """Map the locations of parsed ops and block arguments to the user's text.

        Args:
            op: The op that was parsed.
            unnamed: The parser's name for the text, if the parser could not be given the real name.
        """
        if not self._moved and unnamed is None:
            return
        relocated_by_text: dict[str, Any] = {}
        name = self.printed_name if unnamed is None else unnamed

        def relocated(location: mlir.Location) -> mlir.Location:
            text = str(location)
            if text not in relocated_by_text:
                relocated_by_text[text] = location
                match = _FILE.fullmatch(text)
                if match is not None and match[1] == name:
                    line, column = self.place(int(match[2]), int(match[3]))
                    relocated_by_text[text] = mlir.ir.Location.file(self.name, line, column, context=mlir.context())
            return relocated_by_text[text]

        def visit(inner: mlir.Operation) -> Any:
            inner.location = relocated(inner.location)
            for region in inner.regions:
                for block in region:
                    for argument in block.arguments:
                        argument.set_location(relocated(argument.location))
            return mlir.ir.WalkResult.ADVANCE

        mlir.walk(op, visit)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _line_and_column(text: str, lines: list[int], offset: int) -> tuple[int, int]:
    line = bisect_right(lines, offset)
    return line, len(_bytes(text[lines[line - 1] : offset])) + 1
