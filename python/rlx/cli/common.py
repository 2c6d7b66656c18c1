"""Diagnostics of the command line: `file:line:col: error: …`, the line itself, and a caret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx.ir.text.assembly import GenericText

_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_TEXT_PLACE = re.compile(r"^(.*?):(\d+)(?::(\d+))?$")
_UNNAMED = "-"  # the parser's name for text without a file
_CURRENT = "see current operation: "
_WIDEST = 200  # if the source line is longer, only the part around the caret is shown


@dataclass(frozen=True)
class FilePosition:
    """A location in a file. Lines and columns start at 1, and 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class CliDiagnostic:
    """One message: its severity (`"error"`, `"warning"`, `"remark"`, `"note"`), location and notes."""

    severity: str
    message: str
    place: FilePosition
    notes: tuple[CliDiagnostic, ...] = field(default=())

    def all(self) -> Iterator[CliDiagnostic]:
        """Yield the diagnostic itself, then its notes."""
        yield self
        for note in self.notes:
            yield from note.all()

    def format(self, sources: Mapping[str, str]) -> str:
        """Return the text for a terminal, including notes.

        Args:
            sources: Text by file name. Other files are read from disk if they exist.
        """
        from rlx.support.printable import printable

        head = f"{self.place}: {self.severity}: {self.message}\n"
        excerpt = _excerpt(self.place, sources)
        return printable(head + excerpt) + "".join(note.format(sources) for note in self.notes)


def _excerpt(place: FilePosition, sources: Mapping[str, str]) -> str:
    text = sources.get(place.file)
    if text is None and place.line:
        path = Path(place.file)
        try:
            text = path.read_text(encoding="utf-8") if path.is_file() else None
        except (OSError, UnicodeDecodeError):
            text = None
    lines = [] if text is None else text.split("\n")
    if not 0 < place.line <= len(lines):
        return ""
    line = lines[place.line - 1].rstrip("\r")
    column = (
        place.column and len(line.encode()[: place.column - 1].decode(errors="ignore")) + 1
    )  # MLIR's column counts bytes
    if len(line) > _WIDEST:
        start = max(0, column - _WIDEST // 2)
        line, column = line[start : start + _WIDEST], column - start
    if not column:
        return f"{line}\n"
    # The caret's position is in characters: tabs before it stay tabs.
    before = "".join("\t" if c == "\t" else " " for c in line[: column - 1])
    return f"{line}\n{before:{column - 1}}^\n"


def place_of(location: Any, file: str) -> FilePosition:
    """Return the place of an MLIR location.

    Args:
        location: A location, or its text.
        file: The file that is being read.
    """
    from rlx.ir.location import unescaped

    match = _PLACE.search(str(location))
    if match is None:
        return FilePosition(file)
    name, line, column = match.groups()
    return FilePosition(file if name == _UNNAMED else unescaped(name), int(line), int(column))


def from_mlir(diagnostic: Any, file: str, source: GenericText | None = None) -> CliDiagnostic:
    """Return a diagnostic of the bindings.

    Args:
        diagnostic: The diagnostic.
        file: The file that is being read.
        source: The text that the bindings parse; None if they do not parse.
    """
    severity = str(diagnostic.severity).rsplit(".", 1)[-1].lower()
    notes = tuple(from_mlir(note, file, source) for note in diagnostic.notes)
    place = place_of(diagnostic.location, file)
    if source is not None and place.file in (source.name, source.printed_name):
        place = FilePosition(source.name, *source.place(place.line, place.column))
    message = diagnostic.message
    if message.startswith(_CURRENT):
        from rlx.ir.text.assembly import write

        message = _CURRENT + write(message.removeprefix(_CURRENT))
    return CliDiagnostic(severity, message, place, notes)


def from_error(problem: Any, file: str) -> list[CliDiagnostic]:
    """Return an `rlx.Error` as diagnostics: those of MLIR if they caused it, else its message.

    Args:
        problem: The error.
        file: The name to print if the error has no place.
    """
    cause = problem.__cause__
    from_bindings = [from_mlir(d, file) for d in getattr(cause, "error_diagnostics", ())]
    match = _TEXT_PLACE.match(problem.location or "")
    name = file if match is None or match[1] == _UNNAMED else match[1]
    place = FilePosition(name, int(match[2]), int(match[3] or 0)) if match else FilePosition(name)
    hint = (CliDiagnostic("note", problem.hint, place),) if problem.hint else ()
    diagnostic = CliDiagnostic("error", problem.message, place, hint)
    if from_bindings:
        # The message of the error names the pass. Its location is that of the first diagnostic.
        first = from_bindings[0]
        return [CliDiagnostic("error", diagnostic.message, first.place, (*first.notes, *hint)), *from_bindings[1:]]
    return [diagnostic]
