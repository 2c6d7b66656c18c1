"""RLX on the device `cpu` against the fastest of JAX, NumPy and PyTorch, in one process with one thread, alternating."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from math import exp, log
from statistics import mean, median

from tools.bench_common import Figure, in_turns, median_ms, worker
from tools.bench_rows import LOOPS, OTHERS, ROWS, check_results, jax_call, other_call, rlx_call

LIMIT = 1.15
MEAN_LIMIT = 0.85
_SECONDS_PER_TURN = 0.1
_TOLERANCE = 1e-3
# Rows whose time is that of a call, which `make bench ARGS="--only overhead"` measures.
_CALLS = ("x + y of 4", "8 inputs of 4, added")
_MEASURED = tuple(row for row in (*ROWS, *LOOPS) if row.name not in _CALLS)


def measure(rounds: int) -> Iterator[Figure]:
    """Yield milliseconds of each function for each library, from NumPy array to NumPy array, and the ratio to the fastest.

    PyTorch is measured if it is installed.

    Raises:
        ArithmeticError: The results differ.
    """
    ratios: list[float] = []
    with worker() as process:
        for number in range(len(_MEASURED)):
            figures = process.submit(_measured, number, rounds).result()
            ratios.append(figures[-1].value)
            yield from figures
    yield Figure(
        f"geometric mean of {len(ratios)} functions: to the fastest", exp(mean(map(log, ratios))), "x", MEAN_LIMIT
    )


def _measured(number: int, rounds: int) -> list[Figure]:
    row = _MEASURED[number]
    arrays = row.arrays()
    calls = {"rlx": rlx_call(row, arrays, "cpu"), "jax": jax_call(row, arrays)}
    for package in OTHERS.get(row.name, {}):
        if importlib.util.find_spec(package) is not None:
            calls[package] = other_call(row, package, arrays)
    expected = calls["jax"]()
    for name, call in calls.items():
        check_results(f"{row.name}: {name}", call(), expected, _TOLERANCE)
    ours, *others = in_turns(list(calls.values()), _SECONDS_PER_TURN, rounds)
    ratio = median(own / min(times) for own, *times in zip(ours, *others, strict=True))
    figures = [Figure(f"{row.name}: {n}", median_ms(t), "ms") for n, t in zip(calls, (ours, *others), strict=True)]
    return [*figures, Figure(f"{row.name}: to the fastest", ratio, "x", LIMIT)]
