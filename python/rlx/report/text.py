"""Text for reports and commands: tables, sizes, locations."""

from __future__ import annotations

import os
import textwrap
from collections import Counter

from rlx.support.columns import table as table
from rlx.support.printable import markup as markup
from rlx.support.printable import printable


def bytes_text(count: int) -> str:
    """Return a size for readers: `1.5 MiB`."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def counts_text(counts: Counter[str]) -> str:
    """Return a histogram on one line, the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def short_place(place: str) -> str:
    """Return a location with only the last part of its path, for tables."""
    return os.path.basename(place)


def seconds_text(seconds: float) -> str:
    """Return a time for readers: `1.5 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def middle_cut(text: str, longest: int) -> str:
    """Return text of at most `longest` characters, without its middle if it is longer. Names often differ at both ends."""
    text = printable(text, keep="")
    head = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:head]}…{text[head + 1 - longest :]}"


def wrap_text(text: str, *, indent: str, width: int = 100) -> str:
    """Return text wrapped to lines of at most `width` characters; all but the first begin with `indent`."""
    return "\n".join(
        textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )
