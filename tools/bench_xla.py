"""RLX on XLA against `jax.jit` of the same function, in one process on one core, one thread, alternating."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator

import numpy as np

from tools.bench_common import Figure, in_turns, median_ms, median_ratio, worker
from tools.bench_rows import ROWS, check_results, jax_call, rlx_call

LIMIT = 1.05
_SECONDS_PER_TURN = 0.1
_TOLERANCE = 1e-3
_LAYERS = 12


def measure(rounds: int) -> Iterator[Figure]:
    """Yield milliseconds of each function for both, from NumPy array to NumPy array, the ratio to JAX's, and compile times.

    Raises:
        ArithmeticError: The results differ.
    """
    with worker() as process:
        for number in range(len(ROWS)):
            yield from process.submit(_measured, number, rounds).result()
    with tempfile.TemporaryDirectory(prefix="rlx-bench-") as folder:
        for name in ("without an entry in the cache", "with an entry in the cache"):
            with worker() as process:
                seconds = process.submit(_first_result, folder).result()
            yield Figure(f"compile and run {_LAYERS} layers in a new process, {name}", seconds, "s")


def _measured(number: int, rounds: int) -> list[Figure]:
    row = ROWS[number]
    arrays = row.arrays()
    calls = [rlx_call(row, arrays, "xla"), jax_call(row, arrays)]
    check_results(row.name, calls[0](), calls[1](), _TOLERANCE)
    ours, theirs = in_turns(calls, _SECONDS_PER_TURN, rounds)
    return [
        Figure(f"{row.name}: rlx", median_ms(ours), "ms"),
        Figure(f"{row.name}: jax", median_ms(theirs), "ms"),
        Figure(f"{row.name}: to jax's", median_ratio(ours, theirs), "x", LIMIT),
    ]


def _first_result(folder: str) -> float:
    """The processor time to compile and run layers of width 128 with a cache in a folder, without that of imports."""
    import rlx
    from rlx.targets.xla import client

    client.client()
    g = rlx.Graph("layers")
    x = g.input("x", (8, 128))
    for i in range(_LAYERS):
        x = g.layer_norm(g.gelu(x @ g.param(f"w{i}", (128, 128))))
    g.set_outputs([x])
    weights = {a.name: np.eye(128, dtype=np.float32) for a in g.arguments if a.kind == "param"}
    started = time.process_time()
    program = rlx.Session("xla", threads=1).compile(g, params=weights, cache=folder)
    program.run({"x": np.ones((8, 128), np.float32)})
    return time.process_time() - started
