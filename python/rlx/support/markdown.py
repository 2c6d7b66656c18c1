"""Text and tables in Markdown, for files that come with programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlx.support.printable import printable
from rlx.support.short import cut

# What begins markup anywhere in a line; `_` does so at the edges of a word only. Addresses that become links hold one of
# `://`, `www.` and `@`.
_MARKUP = re.compile(r"[\\`*\[\]|~$#!@{}]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|:(?=//)|(?<=www)\.", re.IGNORECASE)
# What begins a list, a quotation, a line or a heading at the beginning of a line.
_HEAD = re.compile(r"^(\s*)([-+=>]|\d+(?=[.)]))")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown(text: str) -> str:
    """Return any text as text of Markdown, on one line and without markup of its own: names of a graph come from files."""
    text = _MARKUP.sub(r"\\\g<0>", printable(cut(text), keep="").strip())
    text = re.sub("[&<>]", lambda m: _ENTITIES[m[0]], text)
    return _HEAD.sub(lambda m: f"{m[1]}&#{ord(m[2][0])};{m[2][1:]}", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table.

    Args:
        head: The titles of the columns.
        rows: Cells in Markdown; what comes from a graph has gone through `markdown`.
    """
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
