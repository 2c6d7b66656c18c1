"""Markdown text and tables for files that are shipped with programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlx.support.printable import printable
from rlx.support.short import shorten_lines

# Characters that start markup anywhere in a line; `_` does so only at the edges of a word. Addresses that become links
# contain `://`, `www.` or `@`.
_MARKUP = re.compile(r"[\\`*\[\]|~$#!@{}]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|:(?=//)|(?<=www)\.", re.IGNORECASE)
# Characters that start a list, a quotation, a rule or a heading at the beginning of a line.
_HEAD = re.compile(r"^(\s*)([-+=>]|\d+(?=[.)]))")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown(text: str) -> str:
    """Return text escaped for Markdown, on one line: names in a graph come from files and may contain markup."""
    text = _MARKUP.sub(r"\\\g<0>", printable(shorten_lines(text), keep="").strip())
    text = re.sub("[&<>]", lambda m: _ENTITIES[m[0]], text)
    return _HEAD.sub(lambda m: f"{m[1]}&#{ord(m[2][0])};{m[2][1:]}", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table.

    Args:
        head: The titles of the columns.
        rows: Cells in Markdown. Text from a graph must have been escaped by `markdown`.
    """
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
