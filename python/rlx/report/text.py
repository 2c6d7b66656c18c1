"""What reports are printed with: tables, sizes, places."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from rlx.ir.location import describe


def table(rows: Sequence[Sequence[str]], header: Sequence[str], *, right: Collection[int] = ()) -> list[str]:
    """Rows under a header as lines with aligned columns; the columns in `right` are aligned to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    aligned = []
    for line in lines:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        aligned.append("  ".join(cells).rstrip())
    return aligned


def bytes_text(count: int) -> str:
    """A size for people: `1.5 MiB`."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def counts_text(counts: Counter[str]) -> str:
    """A histogram on one line, the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def label_of(op: Any) -> str:
    """The name of an op, or what an enumerated op does: `add` for a `binary` whose kind is `add`."""
    return op.attributes["kind"].value if "kind" in op.attributes else op.name.rpartition(".")[2]


def place_of(op: Any) -> str:
    """The user's `file:line` of an op, empty when it has none."""
    return describe(op.location) or ""


def short_place(place: str) -> str:
    """A place with the last part of its path only, for tables."""
    return os.path.basename(place)
