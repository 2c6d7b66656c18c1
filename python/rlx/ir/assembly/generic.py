"""Writing the generic form of ops, out of pieces of what the user wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlx.ir.assembly.grammar import STRING, Layout
from rlx.ir.assembly.positions import Source
from rlx.ir.assembly.scanner import Scanner, Span

# What may follow an op in its line without standing in another column than the user wrote it.
_QUIET = re.compile(r"[ \t]*+(?:loc\([^\n]*+|//[^\n]*+)?(?:\r?\n|\Z)")
_BREAK = re.compile(rf"{STRING}|(\r?\n|//[^\n]*+)")


@dataclass(slots=True)
class Types:
    """The types of an op: of operands and of results, or a list."""

    functional: bool
    spans: list[Span]
    end: int


@dataclass(slots=True)
class Op:
    """An op that is being read, and what its generic form has after its regions."""

    name: str
    start: int
    form: Layout
    count: int = 0  # of operands
    end: int = 0  # of the operands
    attributes: Span | None = None
    types: Types | None = None
    added: str = ""  # attributes
    region: int = 0  # how many of them are begun


class Generic:
    """The text for MLIR's parser, as it grows. Lines keep their numbers."""

    def __init__(self, scanner: Scanner):
        self.scanner = scanner
        self.text = scanner.text
        self.pieces: list[str] = []
        self.origins: list[int] = []
        self.copied = 0  # how much of the text has its place in the pieces
        self.moved = False

    def source(self) -> Source:
        """The whole."""
        self.copy(len(self.text))
        return Source(self.text, self.scanner.name, self.pieces, self.origins, self.moved)

    def copy(self, end: int) -> None:
        """Take over the text up to here as it stands."""
        self.pieces.append(self.text[self.copied : end])
        self.origins.append(self.copied)
        self.copied = end

    def skip(self, end: int) -> None:
        """Leave out the text up to here, but for line breaks."""
        self.insert("\n" * self.text.count("\n", self.copied, end), self.copied)
        self.copied = end

    def insert(self, text: str, place: int) -> None:
        """Text that the user did not write; errors in it belong to a place."""
        self.pieces.append(text)
        self.origins.append(~place)

    def move(self, span: Span) -> None:
        """Text that stands elsewhere, in one line."""
        start, end = span
        if "\n" in self.text[start:end] or "//" in self.text[start:end]:
            for found in _BREAK.finditer(self.text, start, end):
                if found[1]:
                    self._move_line(start, found.start())
                    self.insert(" ", found.start())
                    start = found.end()
        self._move_line(start, end)

    def _move_line(self, start: int, end: int) -> None:
        self.pieces.append(self.text[start:end])
        self.origins.append(start)

    def quiet(self, position: int) -> int:
        """Note whether something follows that now stands in another column; returns the position."""
        if not _QUIET.match(self.text, position):
            self.moved = True
        return position

    # --- ops --------------------------------------------------------------------------------------

    def plain(self, quoted: str, start: int, end: int, printed: re.Match[str]) -> int:
        """Most ops there are: the name is put in quotes, and the type that all have is written for each."""
        text, place = self.text, printed.start("type")
        if place < 0:
            self.pieces += text[self.copied : start], quoted
            self.origins += self.copied, ~start
            self.copied = end
            return printed.end()
        kind, count = printed["type"], printed["operands"].count("%")
        if count:
            self.pieces += (
                text[self.copied : start],
                quoted,
                text[end:place],
                "(",
                kind,
                f", {kind}" * (count - 1) + ") -> ",
            )
            self.origins += self.copied, ~start, end, ~place, place, ~place
        else:
            self.pieces += text[self.copied : start], quoted, text[end:place], "() -> "
            self.origins += self.copied, ~start, end, ~place
        self.copied = place
        return printed.end()

    def head(
        self,
        op: Op,
        end: int,
        operands: Span,
        written: bool,
        grouped: list[list[Span]] | None = None,
    ) -> None:
        """The name in quotes, and the operands in parentheses."""
        self.copy(op.start)
        self.insert(f'"rlx.{op.name}"', op.start)
        self.copied = end
        if not written:
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
        """Attributes and types, where they stand."""
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
        """What stands between added attributes and those that are there."""
        start, end = op.attributes or (0, 0)
        return "" if self.scanner.space(start + 1) == end - 1 else ", "

    def _repeat(self, span: Span, count: int) -> None:
        """A type, so many times."""
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
        """What the generic form has after the regions."""
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
