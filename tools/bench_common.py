"""Shared code of all benchmarks: figures, and processes with controlled threads and cores."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

# In addition to pinning: some libraries count all cores, including those that a process may not use.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


@dataclass(frozen=True)
class Figure:
    """One result.

    Attributes:
        name: The measured quantity.
        value: In `unit`.
        unit: `"ms"`, `"µs"`, `"s"`, or `"x"` for a ratio.
        limit: The largest accepted value; None without a limit.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the value is within the limit."""
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        value = f"{self.name:66} {self.value:9.3g} {self.unit:4}"
        if self.limit is None:
            return value.rstrip()
        return f"{value} {'within' if self.ok else 'OVER'} the limit of {self.limit:g}"


@contextlib.contextmanager
def worker(initialise: Callable[..., None] | None = None, *arguments: Any, pinned: bool = True) -> Iterator[Any]:
    """Yield a fresh process that runs one function at a time: `submit(function, …).result()`.

    Args:
        initialise: Called in the process first.
        arguments: The arguments of `initialise`.
        pinned: Confine the process to one core, always the same, and its libraries to one thread.
    """
    environment = dict(os.environ)
    os.environ.update(ONE_THREAD if pinned else {})
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context, _start, (pinned, initialise, arguments)) as pool:
            yield pool
    finally:
        os.environ.clear()
        os.environ.update(environment)


def _start(pinned: bool, initialise: Callable[..., None] | None, arguments: Sequence[Any]) -> None:
    if pinned and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if initialise is not None:
        initialise(*arguments)


def cpu_seconds(call: Callable[[], Any], calls: int) -> float:
    """Return the processor time of one call, as the mean of several. Other processes are not included."""
    started = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - started) / calls


def calls_for(call: Callable[[], Any], seconds: float) -> int:
    """Return the number of calls that take about this time."""
    call()
    return max(1, int(seconds / max(cpu_seconds(call, 1), 1e-7)))


def in_turns(calls: Sequence[Callable[[], Any]], seconds: float, rounds: int) -> list[list[float]]:
    """Return the processor time per call for each function and round. The functions alternate, in changing order.

    A warm-up call before each turn is not counted. It restores the caches after the turns of other functions.
    """
    counts = [calls_for(call, seconds) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        order = range(len(calls))
        for i in order if number % 2 else reversed(order):
            calls[i]()
            times[i].append(cpu_seconds(calls[i], counts[i]))
    return times


def median_ms(seconds: Sequence[float]) -> float:
    """Return the median, in milliseconds."""
    return statistics.median(seconds) * 1e3


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median ratio over the rounds. A temporary slowdown of the machine affects both turns of a round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
