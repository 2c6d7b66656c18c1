"""Products of rows with a matrix, whose rows must have the same bits with any number of other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import rlx
from tests.conformance.compiled import Program, compile_graphs, contiguous
from tests.conformance.levels import skip_if_not_run


def compiled(graphs: Sequence[rlx.Graph], level: str) -> list[Program]:
    """Return graphs compiled with all kernels for a level of CPU. The test is skipped if they do not run here."""
    programs = compile_graphs(graphs, level=level, kernels="all")
    assert not [program.problem for program in programs if program.problem is not None]
    skip_if_not_run(level, programs)
    return programs


def bits(program: Program, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the bits of the product of rows with a matrix."""
    (result,) = program.run(contiguous([x, w]))
    return result.view(np.int32)


def check_single_rows(one: Program, together: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    """Check that the program for one row gives the bits that each row of `x` has among the others."""
    for row in range(len(x)):
        np.testing.assert_array_equal(bits(one, x[row : row + 1], w), together[row : row + 1])


def check_parts(program: Program, x: np.ndarray, w: np.ndarray) -> None:
    """Check that parts of 141 rows have the bits that they have among all."""
    assert len(x) == 141
    together = bits(program, x, w)
    for part in (slice(0, 1), slice(7, 16), slice(120, 141)):
        np.testing.assert_array_equal(bits(program, x[part], w), together[part])
