"""Names of other libraries and the corresponding RLX calls: tables of text, one per subject.

A line is `names : call`, for names that one call replaces. `g` is a graph, or `rlx.ops`; `x` is a tensor.
"""

from __future__ import annotations

from rlx.dialect.dtypes import ROWS


def dtypes() -> dict[str, str]:
    """Return the RLX dtype for each NumPy or ml_dtypes name."""
    return {row.numpy_name: f"rlx.{'bool_' if row.kind == 'bool' else row.name}" for row in ROWS}


def table(text: str) -> dict[str, str]:
    """Return the call for each name of a table.

    Raises:
        ValueError: A name occurs twice.
    """
    result: dict[str, str] = {}
    for line in text.strip().splitlines():
        names, _, call = line.partition(" : ")
        for name in names.split():
            if name in result:
                raise ValueError(f"{name} stands twice in a table of names")
            result[name] = call
    return result
