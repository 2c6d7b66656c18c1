"""What other libraries call things, and the call here: tables of text, one for each subject.

A line is `names : call`, of names that have the same answer. `g` is a graph, or `rlx.ops`; `x` is a tensor.
"""

from __future__ import annotations

from rlx.dialect.dtypes import ROWS


def dtypes() -> dict[str, str]:
    """The dtype of RLX for each name in NumPy or ml_dtypes."""
    return {row.numpy_name: f"rlx.{'bool_' if row.kind == 'bool' else row.name}" for row in ROWS}


def table(text: str) -> dict[str, str]:
    """The call for each name of a table.

    Raises:
        ValueError: A name stands there twice.
    """
    result: dict[str, str] = {}
    for line in text.strip().splitlines():
        names, _, call = line.partition(" : ")
        for name in names.split():
            if name in result:
                raise ValueError(f"{name} stands twice in a table of names")
            result[name] = call
    return result
