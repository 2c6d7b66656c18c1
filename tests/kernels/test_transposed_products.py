"""The kernels of products with transposed matrices: a row has the same bits with any number of other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from rlx.kernels.library import few_rows
from rlx.llm import engine
from tests.conformance.compiled import Program, contiguous
from tests.conformance.levels import at_any_level
from tests.kernels.equal_rows import bits, check_parts, check_single_rows, compiled

_COLUMNS = 53


def _programs(kind: str, rows: Sequence[int | str], elements: int, level: str) -> list[Program]:
    graphs = []
    for count in rows:
        g = rlx.Graph("product")
        product = g.matmul_transposed(g.input("x", (count, elements)), g.input("w", (_COLUMNS, elements), kind))
        g.set_outputs([product])
        graphs.append(g)
    return compiled(graphs, level)


def _values(kind: str, rows: int, elements: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(elements)
    w = rng.standard_normal((_COLUMNS, elements)).astype(dtype(kind).numpy)
    return rng.standard_normal((rows, elements)).astype(np.float32), w


@at_any_level()
@pytest.mark.parametrize("elements", [7, 100, 300])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_bits_of_a_row_among_few(kind: str, elements: int, level: str) -> None:
    """Generation relies on it: batches give the texts of single prompts."""
    x, w = _values(kind, 8, elements)
    one, three, eight = _programs(kind, (1, 3, 8), elements, level)
    together = bits(eight, x, w)
    check_single_rows(one, together, x, w)
    np.testing.assert_array_equal(bits(three, x[5:], w), together[5:])


@at_any_level()
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_bits_of_a_row_among_many(kind: str, level: str) -> None:
    """A prompt may be computed in parts of any size."""
    x, w = _values(kind, 141, 300)
    (program,) = _programs(kind, ("n",), 300, level)
    check_parts(program, x, w)


@at_any_level("x86-64", "x86-64-v3", "x86-64-v4")
@pytest.mark.parametrize("rows", [2, 11])
def test_every_number_of_16_bits(rows: int, level: str) -> None:
    """Subnormal numbers, infinities and NaN of f16 and bf16 are read as NumPy converts them."""
    for kind in ("f16", "bf16"):
        w = np.arange(1 << 16, dtype=np.uint16).view(dtype(kind).numpy).reshape(1024, 64)
        g = rlx.Graph("product")
        g.set_outputs([g.matmul_transposed(g.input("x", (rows, 64)), g.input("w", (1024, 64), kind))])
        (program,) = compiled([g], level)
        for lane in (0, 37):
            x = np.zeros((rows, 64), np.float32)
            x[:, lane] = 1.0
            (result,) = program.run(contiguous([x, w]))
            with np.errstate(invalid="ignore"):
                expected = (x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.float32)
            tiny = (
                np.abs(expected) < np.finfo(np.float32).tiny
            )  # bf16 has subnormal numbers of f32, which count as zero
            np.testing.assert_array_equal(np.where(tiny, 0, result), np.where(tiny, 0, expected))


def test_generation_computes_as_many_rows_as_kernels_take() -> None:
    assert engine._MOST_ROWS == few_rows.MOST_ROWS
