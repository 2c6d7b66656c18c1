"""Loops of StableHLO: every code of every storage dtype goes through their rows as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.ir.dtype import DTYPES


def test_rows_of_storage_dtypes() -> None:
    """XLA reads and stacks rows of f8e5m2fnuz through f16, which changes small numbers."""
    g: Any = rlx.Graph("main")
    kinds = [kind for kind in DTYPES if kind.storage]
    arrays, results = dict[str, np.ndarray](), []
    for kind in kinds:
        codes = (
            np.arange(1 << kind.bits, dtype=np.uint8)
            if kind.is_float
            else np.arange(1 << kind.bits - 1, dtype=np.uint8)
        )
        arrays[kind.name] = np.resize(codes, (16, 16)).view(kind.numpy)
        x = g.input(kind.name, arrays[kind.name].shape, kind)
        last, rows = g.scan(lambda carry, row: (row, carry), x[0], x)
        results += [last, rows]
    g.set_outputs(results)
    found = [np.asarray(array) for array in rlx.Session("xla").compile(g).run(arrays)]
    for i, kind in enumerate(kinds):
        x = arrays[kind.name]
        for got, wanted in ((found[2 * i], x[-1]), (found[2 * i + 1], np.concatenate([x[:1], x[:-1]]))):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64), err_msg=kind.name)
