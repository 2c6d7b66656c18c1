"""Iterative solvers on the devices `cpu` and `xla` compared with SciPy, in one process with one thread, alternating."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.bench_common import Figure, in_turns, median_ms, median_ratio, worker

LIMIT = 1.2
_SECONDS_PER_TURN = 0.1
_DEVICES = ("cpu", "xla")


@dataclass(frozen=True)
class _Case:
    """A solver, the points of a side of the square, the dtype, the iterations, and the largest ratio to SciPy's time.

    The tolerance is too small to be reached, so all iterations are run.
    """

    solver: str
    side: int
    dtype: str
    iterations: int
    limit: float | None = None

    @property
    def name(self) -> str:
        """The name of the rows of the report."""
        return f"{self.solver}, {self.side * self.side} unknowns, {self.iterations} iterations, {self.dtype}"


CASES = (
    _Case("cg", 316, "f64", 100, LIMIT),
    _Case("cg", 316, "f32", 100, LIMIT),
    _Case("minres", 100, "f64", 100),
    _Case("gmres", 100, "f64", 40),
    _Case("lsqr", 100, "f64", 100),
)


def measure(rounds: int) -> Iterator[Figure]:
    """Yield milliseconds of each solver for the Laplacian of a square, from NumPy array to NumPy array, and the ratios.

    Raises:
        AssertionError: The results of `cg` differ.
    """
    with worker() as process:
        for case in CASES:
            yield from process.submit(_measured, case, rounds).result()


def laplacian(side: int) -> Any:
    """Return SciPy's matrix of the five-point stencil on a square, in rows."""
    ss: Any = importlib.import_module("scipy.sparse")
    line = ss.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    unit = ss.eye_array(side)
    return ss.csr_array(ss.kron(unit, line) + ss.kron(line, unit))


def _measured(case: _Case, rounds: int) -> list[Figure]:
    import rlx
    from rlx import sparse

    matrix = laplacian(case.side).astype(rlx.dtype(case.dtype).numpy)
    b = np.random.default_rng(0).normal(size=matrix.shape[0]).astype(matrix.dtype)
    stored, options = sparse.from_scipy(matrix), _options(case)
    inputs = {"A.data": stored.data, "b": b}
    ours, theirs = (
        getattr(module, case.solver) for module in (rlx.sparse.linalg, importlib.import_module("scipy.sparse.linalg"))
    )

    def solved(A: Any, b: Any) -> Any:
        return ours(A, b, **options)[0]

    programs = [rlx.jit(solved, threads=1, device=device).compiled_for(stored, b) for device in _DEVICES]
    if case.solver == "cg":
        for program in programs:
            wanted = theirs(matrix, b, **options)[0]
            np.testing.assert_allclose(program.run(inputs)[0], wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    calls = [
        *(lambda program=program: program.run(inputs) for program in programs),
        lambda: theirs(matrix, b, **options),
    ]
    *times, others = in_turns(calls, _SECONDS_PER_TURN, rounds)
    figures = [Figure(f"{case.name}: scipy", median_ms(others), "ms")]
    for device, seconds in zip(_DEVICES, times, strict=True):
        figures.append(Figure(f"{case.name}: {device}", median_ms(seconds), "ms"))
        limit = case.limit if device == "cpu" else None
        figures.append(Figure(f"{case.name}: {device} to scipy", median_ratio(seconds, others), "x", limit))
    return figures


def _options(case: _Case) -> dict[str, Any]:
    if case.solver == "lsqr":
        return {"atol": 0.0, "btol": 0.0, "conlim": 0.0, "iter_lim": case.iterations}
    if case.solver == "gmres":
        return {"rtol": 1e-14, "restart": case.iterations, "maxiter": 1}
    return {"rtol": 1e-30 if case.dtype == "f64" else 1e-20, "maxiter": case.iterations}
