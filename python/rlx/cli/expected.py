"""`--verify-diagnostics`: comments with the expected diagnostics of a file, as in MLIR's tests.

// expected-error @+1 {{part of the message}}
// expected-note-re @below {{a {{[0-9]+}} in it}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rlx.cli.common import CliDiagnostic, FilePosition

_COMMENT = re.compile(
    r"expected-(?P<kind>error|note|remark|warning)(?P<re>-re)? *"
    r"(?:@(?P<where>[+-][0-9]+|above|below|unknown))? *\{\{(?P<text>.*)\}\}\s*$"
)


@dataclass
class Expectation:
    """One comment: the kind of a diagnostic, its line (None is any place), and a pattern for its message."""

    kind: str
    line: int | None
    text: str
    pattern: re.Pattern[str]
    comment: FilePosition
    met: bool = False

    def fits(self, diagnostic: CliDiagnostic, file: str) -> bool:
        """Return whether a diagnostic matches."""
        if self.met or diagnostic.severity != self.kind or not self.pattern.search(diagnostic.message):
            return False
        if self.line is None:
            return diagnostic.place.line == 0
        return diagnostic.place.file == file and diagnostic.place.line == self.line


def _pattern(text: str, is_pattern: bool) -> re.Pattern[str]:
    """Return the pattern for literal text, or for literal text around `{{regular expressions}}`."""
    if not is_pattern:
        return re.compile(re.escape(text))
    parts = re.split(r"\{\{(.*?)\}\}", text)
    return re.compile("".join(p if i % 2 else re.escape(p) for i, p in enumerate(parts)))


def expectations(text: str, file: str) -> list[Expectation]:
    """Return the comments of a text, in order."""
    result: list[Expectation] = []
    above = 0  # the last line without a comment
    waiting: list[Expectation] = []  # comments for the next line without a comment
    for number, line in enumerate(text.split("\n"), 1):
        match = _COMMENT.search(line)
        if match is None:
            for expectation in waiting:
                expectation.line = number
            waiting = []
            above = number
            continue
        position = match["where"] or "+0"
        place = FilePosition(file, number, match.start() + 1)
        expectation = Expectation(
            match["kind"], number, match["text"], _pattern(match["text"], bool(match["re"])), place
        )
        result.append(expectation)
        if position == "below":
            waiting.append(expectation)
        elif position == "above":
            expectation.line = above
        else:
            expectation.line = None if position == "unknown" else number + int(position)
    return result


def unmet(
    text: str, file: str, diagnostics: Iterable[CliDiagnostic], *, only_expected: bool = False
) -> list[CliDiagnostic]:
    """Return errors for missing diagnostics and, unless `only_expected`, for unexpected ones."""
    expected = expectations(text, file)
    wrong: list[CliDiagnostic] = []
    for diagnostic in (part for top in diagnostics for part in top.all()):
        if diagnostic.severity == "note" and diagnostic.message.startswith("see current operation"):
            continue
        fulfilled = next((e for e in expected if e.fits(diagnostic, file)), None)
        if fulfilled is not None:
            fulfilled.met = True
        elif not only_expected:
            message = f"unexpected {diagnostic.severity}: {diagnostic.message}"
            wrong.append(CliDiagnostic("error", message, diagnostic.place))
    for expectation in expected:
        if not expectation.met:
            message = f'expected {expectation.kind} "{expectation.text}" was not produced'
            wrong.append(CliDiagnostic("error", message, expectation.comment))
    return wrong
