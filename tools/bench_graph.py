"""The cost per op in a large graph: building, verifying, canonicalising, printing and parsing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from tools.bench_common import Figure, worker

SIZES = (2500, 5000, 10000)
# The largest growth of the cost per op in a graph of four times the size. More indicates quadratic work.
LINEAR_LIMIT = 1.5
_REPEATS = 3


def measure() -> Iterator[Figure]:
    """Yield microseconds per op for each step and size, and the growth from the smallest to the largest size."""
    with worker() as process:
        process.submit(_steps, 200).result()  # imports, and caches of types and attributes
        runs = {size: [process.submit(_steps, size).result() for _ in range(_REPEATS)] for size in SIZES}
    for step in runs[SIZES[0]][0]:
        cost = {n: statistics.median(run[step] for run in runs[n]) / n * 1e6 for n in SIZES}
        for size in SIZES:
            yield Figure(f"{step}, {size:,} ops: each", cost[size], "µs")
        yield Figure(f"{step}: growth of an op's cost", cost[SIZES[-1]] / cost[SIZES[0]], "x", LINEAR_LIMIT)


def _steps(size: int) -> dict[str, float]:
    """Return the processor seconds of each step for a graph with this number of ops."""
    import rlx
    from rlx.passes.runner import run_on_module

    seconds: dict[str, float] = {}

    def timed(step: str, call: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = call()
        seconds[step] = time.process_time() - started
        return result

    graph = timed("build", lambda: _build(size))
    timed("verify", graph.verify)
    text = timed("print", lambda: str(graph))
    parsed = timed("parse", lambda: rlx.parse(text))
    timed("canonicalize", lambda: run_on_module(parsed.module, "builtin.module(canonicalize)"))
    if str(parsed) != text:
        raise AssertionError("the graph was meant to be canonical already")
    return seconds


def _build(size: int) -> Any:
    import rlx

    g: Any = rlx.Graph("large")
    x, w = g.input("x", (8, 8)), g.param("w", (8, 8))
    steps = (lambda y: g.tanh(y), lambda y: y + x, lambda y: g.matmul(y, w), lambda y: y * x)
    y = x
    for i in range(size):
        y = steps[i % len(steps)](y)
    g.set_outputs([y])
    return g
