"""Products of a few rows with a matrix that is read once: their limits, and the columns of a workgroup."""

from __future__ import annotations

from collections.abc import Iterator

from rlx.kernels.buffer import Size, ceil_div, greatest
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.products import rows_of
from rlx.kernels.values import Value

# The largest number of rows. Generation computes this number of texts in one run.
MOST_ROWS = 8
_FEWEST_COLUMNS, _MOST_COLUMNS = 128, 1024  # of a workgroup
_WORKGROUPS = 16  # between these limits


def has_few_rows(case: KernelCase) -> bool:
    """Whether the number of rows is known and from 1 to `MOST_ROWS`."""
    rows = rows_of(case)
    return rows is not None and 0 < rows <= MOST_ROWS


def axes_of_columns(case: KernelCase) -> list[Axes]:
    """Return the axis of the columns, `[N, …]` in the matrix: the code is for any number of them."""
    return [[(1, 0), (2, case.results[0].rank - 1)]]


def ranges_of_columns(k: Kernel, columns: Size) -> Iterator[tuple[Value, Value]]:
    """Distribute columns over workgroups: the first column of each, and the one after its last."""
    size = k.least(greatest(columns // _WORKGROUPS, _FEWEST_COLUMNS), _MOST_COLUMNS)
    for workgroup in k.parallel(ceil_div(columns, size)):
        first = workgroup * size
        yield first, k.least(first + size, columns)
