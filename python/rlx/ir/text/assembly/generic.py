"""Output of the generic form of ops, assembled from pieces of the user's text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlx.ir.text.assembly.grammar import STRING, OpForm
from rlx.ir.text.assembly.positions import GenericText
from rlx.ir.text.assembly.scanner import Scanner, Span

# Text that may follow an op on its line without changing the column of a later op.
_REST_OF_LINE = re.compile(r"[ \t]*+(?:loc\([^\n]*+|//[^\n]*+)?(?:\r?\n|\Z)")
_BREAK = re.compile(rf"{STRING}|(\r?\n|//[^\n]*+)")


@dataclass(slots=True)
class Types:
    """The positions of the types of an op: of operands and of results if `functional`, else a list of types."""

    functional: bool
    spans: list[Span]
    end: int


@dataclass(slots=True)
class Op:
    """An op that is being read, with the parts that follow its regions in the generic form."""

    name: str
    start: int
    form: OpForm
    count: int = 0  # the number of operands
    end: int = 0  # the end of the operands
    attributes: Span | None = None
    types: Types | None = None
    added: str = ""  # attributes that are missing in the text
    region: int = 0  # the number of regions that have begun


class Generic:
    """The text for MLIR's parser, under construction. Line numbers are preserved."""

    def __init__(self, scanner: Scanner):
        self.scanner = scanner
        self.text = scanner.text
        self.pieces: list[str] = []
        self.origins: list[int] = []
        self.copied = 0  # the text before this position has been copied or skipped
        self.moved = False

    def source(self) -> GenericText:
        """Return the complete text."""
        self.copy(len(self.text))
        return GenericText(self.text, self.scanner.name, self.pieces, self.origins, self.moved)

    def copy(self, end: int) -> None:
        """Copy the text up to a position unchanged."""
        self.pieces.append(self.text[self.copied : end])
        self.origins.append(self.copied)
        self.copied = end

    def skip(self, end: int) -> None:
        """Skip the text up to a position, but copy line breaks."""
        self.insert("\n" * self.text.count("\n", self.copied, end), self.copied)
        self.copied = end

    def insert(self, text: str, place: int) -> None:
        """Insert text that is not in the user's text. Errors in it are reported at `place`."""
        self.pieces.append(text)
        self.origins.append(~place)

    def move(self, span: Span) -> None:
        """Insert a part of the user's text from another position, as one line."""
        start, end = span
        if "\n" in self.text[start:end] or "//" in self.text[start:end]:
            for match in _BREAK.finditer(self.text, start, end):
                if match[1]:
                    self._move_line(start, match.start())
                    self.insert(" ", match.start())
                    start = match.end()
        self._move_line(start, end)

    def _move_line(self, start: int, end: int) -> None:
        self.pieces.append(self.text[start:end])
        self.origins.append(start)

    def note_moved(self, position: int) -> int:
        """Record whether the column of later text on this line has changed. Returns the position."""
        if not _REST_OF_LINE.match(self.text, position):
            self.moved = True
        return position

    # --- ops --------------------------------------------------------------------------------------

    def plain(self, printed: re.Match[str], one_type: str | None, count: int) -> None:
        """Write the most common kind of op: quote the name, and repeat a common type for each operand."""
        text, (start, end) = self.text, printed.span("op")
        quoted = f'"{text[start:end]}"'
        if not one_type:
            self.pieces += text[self.copied : start], quoted
            self.origins += self.copied, ~start
            self.copied = end
            return
        place = printed.start("type")
        if count:
            repeated = f", {one_type}" * (count - 1)
            self.pieces += text[self.copied : start], quoted, f"{text[end:place]}(", one_type, f"{repeated}) -> "
            self.origins += self.copied, ~start, end, place, ~place
        else:
            self.pieces += text[self.copied : start], quoted, f"{text[end:place]}() -> "
            self.origins += self.copied, ~start, end
        self.copied = place

    def head(
        self,
        op: Op,
        end: int,
        operands: Span,
        has_parentheses: bool,
        grouped: list[list[Span]] | None = None,
    ) -> None:
        """Write the quoted name, and the operands in parentheses."""
        self.copy(op.start)
        self.insert(f'"rlx.{op.name}"', op.start)
        self.copied = end
        if not has_parentheses:
            self.copy(operands[0])
            self.insert("(", operands[0])
            self.copy(operands[1])
            self.insert(")", operands[1])
        elif grouped is not None:
            start, stop = operands
            self.copy(start)
            for i, span in enumerate(value for group in grouped for value in group):
                self.insert(", " if i else "", span[0])
                self.move(span)
            self.skip(stop)

    def tail(self, op: Op, position: int) -> int:
        """Write attributes and types at their positions in the text."""
        if op.added and op.attributes is not None:
            self.copy(op.attributes[0] + 1)
            self.insert(op.added + self._separator(op), op.attributes[0])
        elif op.added:
            self.copy(op.end)
            self.insert(f" {{{op.added}}}", op.start)
        if op.types is None:
            self.copy(position)
            self.insert(" : () -> ()", position)
        elif not op.types.functional:
            first, last = op.types.spans[0], op.types.spans[-1]
            self.copy(first[0])
            self.insert("(", first[0])
            if len(op.types.spans) == 1:
                self._repeat(first, op.count - op.form.ends)
            if not op.form.ends:
                self.insert(") -> ", first[0])
            elif op.count > 1 and first == last:
                self.insert(", ", first[0])
            self.copy(last[1])
            if op.form.ends:
                self.insert(") -> ()", last[1])
        return position

    def _separator(self, op: Op) -> str:
        """Return the separator between added attributes and those in the text."""
        start, end = op.attributes or (0, 0)
        return "" if self.scanner.space(start + 1) == end - 1 else ", "

    def _repeat(self, span: Span, count: int) -> None:
        """Insert a type `count` times."""
        for i in range(count):
            self.insert(", " if i else "", span[0])
            self.move(span)

    def enter(self, op: Op, index: int, keyword: int, brace: int) -> int:
        self.copy(keyword)
        self.copied = brace
        self.copy(brace + 1)
        op.region = index + 1
        return brace + 1

    def end(self, op: Op, place: int) -> None:
        """Write the part of the generic form after the regions: attributes and types."""
        self.insert(", {}" * (len(op.form.regions) - op.region) + ")", place)
        if op.attributes is not None:
            start, end = op.attributes
            self.insert(f" {{{op.added}{self._separator(op) if op.added else ''}", start)
            self.move((start + 1, end))
        elif op.added:
            self.insert(f" {{{op.added}}}", op.start)
        assert op.types is not None
        spans = op.types.spans
        self.insert(" : ", spans[0][0])
        if op.types.functional:
            self.move(spans[0])
        else:
            self.insert("(", spans[0][0])
            self._repeat(spans[0], op.count)
            self.insert(")", spans[0][0])
        self.insert(" -> ", spans[-1][0])
        self.move(spans[-1])
