"""Escaping of text from files for terminals."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Return text with non-printable characters replaced by escapes, such as `\x1b` or `\u202e`.

    A name in a file may contain codes that clear a terminal, move its cursor or reverse the text that follows.

    Args:
        text: Text that contains names from a file.
        keep: Control characters that are kept; "" for a name that must be on one line.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def printable_lines(lines: Iterable[str]) -> str:
    """Return printable text with one line for each entry, each ended by a line feed."""
    return "".join(f"{printable(line, keep='')}\n" for line in lines)


def markup(text: str) -> str:
    """Escape any text for HTML, SVG and XML, including characters that XML forbids or that reverse the text order."""
    return escape(printable(text))
