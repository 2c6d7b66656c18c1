"""Tables of constants that are both overwritten and read, in one program and in several. Quirk: `tables-of-constants`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rlx
from tests.conformance.compiled import compile_graphs
from tests.conformance.levels import at_any_level, skip_if_not_run

_ROWS, _PLACES = np.arange(1, 9, dtype=np.float32).reshape(2, 4), np.array([[1], [0]])


def _ones(g: Any) -> Any:
    return g.expand(g.constant(1.0), (3, 4))


def _ones_of_a_view(g: Any) -> Any:
    return g.expand(g.reshape(g.constant(1.0), (1, 1)), (3, 4))


def _numbered(g: Any) -> Any:
    return g.iota((3, 4), axis=1, dtype="f32")


def _view_of_numbers(g: Any) -> Any:
    return g.reshape(g.iota((12,), axis=0, dtype="f32"), (3, 4))


def _dense(g: Any) -> Any:
    return g.constant(np.arange(12, dtype=np.float32).reshape(3, 4) ** 2)


_TABLES: Sequence[Callable[[Any], Any]] = (_ones, _ones_of_a_view, _numbered, _view_of_numbers, _dense)


def _program(table: Callable[[Any], Any], reduction: str) -> Any:
    g: Any = rlx.Graph("tables")
    rows, places = g.input("rows", (2, 4)), g.input("places", (2, 1), "i64")
    changed = g.scatter_nd(table(g), places, rows, reduction=reduction)
    elements = g.scatter_nd(g.reshape(table(g), (12,)), places, rows[:, 0], reduction=reduction)
    g.set_outputs([table(g), changed, elements, g.scatter_nd(table(g), places + 1, rows, reduction=reduction)])
    return g


@at_any_level()
def test_a_table_that_is_changed_is_its_own(level: str) -> None:
    graphs = [_program(table, reduction) for table in _TABLES for reduction in ("add", "set")]
    programs = compile_graphs(graphs, level=level)
    skip_if_not_run(level, programs)
    for _ in range(2):  # if the first run changes a constant, the second run is wrong
        for program in programs:
            assert program.problem is None
            wanted = rlx.evaluate(program.graph, {"rows": _ROWS, "places": _PLACES})
            for found, expected in zip(program.run([_ROWS.copy(), _PLACES.copy()]), wanted, strict=True):
                np.testing.assert_array_equal(found, expected)
