"""Products with sparse matrices on the device `cpu` compared with SciPy, in one process with one thread, alternating."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from tools.bench_common import Figure, in_turns, median_ms, worker

LIMIT = 1.2
_SECONDS_PER_TURN = 0.1
_ROWS = 100_000
_SIDE = 316
# The names of the rows of the report: a pattern, a product, a dtype and the largest ratio to SciPy's time.
ROWS = (
    ("five-point stencil", "A @ x", "f64", LIMIT),
    ("five-point stencil", "A @ x", "f32", None),
    ("five-point stencil", "A.T @ x", "f64", LIMIT),
    ("random rows", "A @ x", "f64", LIMIT),
    ("random rows", "A.T @ x", "f64", LIMIT),
    ("random rows", "A @ X, 16 columns", "f32", None),
)


def measure(rounds: int) -> Iterator[Figure]:
    """Yield milliseconds of each product, from NumPy array to NumPy array, and the ratio to SciPy's.

    The data of the matrix is an argument, as in training, and its pattern is known.

    Raises:
        AssertionError: The results differ.
    """
    with worker() as process:
        for number in range(len(ROWS)):
            yield from process.submit(_measured, number, rounds).result()


def pattern(name: str) -> Any:
    """Return SciPy's matrix of a pattern, about 1e5 rows and 5e5 entries."""
    import scipy.sparse as ss

    rng = np.random.default_rng(0)
    diagonals: Any = ss.diags_array  # SciPy's annotation of offsets lacks lists
    if name == "random rows":
        row, col = rng.integers(0, _ROWS, (2, 5 * _ROWS))
        return ss.csr_array(ss.coo_array((rng.normal(size=row.size), (row, col)), shape=(_ROWS, _ROWS)))
    line = diagonals([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(_SIDE, _SIDE))
    unit = ss.eye_array(_SIDE)
    return ss.csr_array(ss.kron(unit, line) + ss.kron(line, unit))


def _measured(number: int, rounds: int) -> list[Figure]:
    import rlx
    from rlx import sparse

    name, product, kind, limit = ROWS[number]
    matrix = pattern(name).astype(rlx.dtype(kind).numpy)
    columns = (16,) if "X" in product else ()
    x = np.random.default_rng(1).normal(size=(matrix.shape[1], *columns)).astype(matrix.dtype)
    is_transposed = product.startswith("A.T")
    theirs = matrix.T if is_transposed else matrix
    stored = sparse.from_scipy(matrix)

    def multiplied(A: Any, x: Any) -> Any:
        return A.T @ x if is_transposed else A @ x

    program = rlx.jit(multiplied, threads=1).compiled_for(stored, x)
    inputs = {"A.data": stored.data, "x": x}
    np.testing.assert_allclose(program.run(inputs)[0], theirs @ x, rtol=1e-3, atol=1e-3)
    ours, others = in_turns([lambda: program.run(inputs), lambda: theirs @ x], _SECONDS_PER_TURN, rounds)
    ratio = median(a / b for a, b in zip(ours, others, strict=True))
    what = f"{name}: {product}, {kind}"
    return [
        Figure(f"{what}: rlx", median_ms(ours), "ms"),
        Figure(f"{what}: scipy", median_ms(others), "ms"),
        Figure(f"{what}: to scipy", ratio, "x", limit),
    ]
