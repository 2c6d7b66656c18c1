"""Rows of text as lines with aligned columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest

from rlx.support.printable import printable


def table(
    rows: Sequence[Sequence[str]],
    header: Sequence[str] | None = None,
    *,
    right: Collection[int] = (),
    indent: str = "",
    long: Collection[int] = (),
) -> list[str]:
    """Return rows as lines with aligned columns.

    Args:
        rows: Cells. Non-printable characters are escaped.
        header: The titles of the columns, if any.
        right: Columns that are aligned to the right.
        indent: The indentation of each line.
        long: Columns whose cells may have several lines.
    """
    every = [list(row) for row in ([header] if header else []) + list(rows)]
    cells = [
        [
            printable(cell.rstrip("\n") if i in long else cell, keep="\n" if i in long else "").split("\n")
            for i, cell in enumerate(row)
        ]
        for row in every
    ]
    widths = [max(len(line) for cell in column for line in cell) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        for parts in zip_longest(*row, fillvalue=""):
            padded = [
                p.rjust(w) if i in right else p.ljust(w) for i, (p, w) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append(indent + "  ".join(padded).rstrip())
    return lines
