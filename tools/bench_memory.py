"""The distance of memory plans from the lower bound, and the memory saved by reordering ops.

`python -m tools.bench_memory` prints the tables of docs/memory.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import rlx
from rlx.plan import MemoryPlan, plan_memory
from rlx.report.text import bytes_text, table
from tests.conformance.random_graphs import Grower, seeded
from tests.passes.test_random_graphs import with_regions
from tests.plan.models import BLOCKS, LOWER, model

_SCHEDULE = "builtin.module(rlx-schedule-memory)"
_RECOMPUTE = "builtin.module(rlx-schedule-memory{recompute})"
_BOUNDS = (0.0, 0.01, 0.05, 0.1)


def random_plans(count: int) -> Iterator[MemoryPlan]:
    """Yield plans of random graphs of all ops as LIR, and of graphs with branches and loops."""
    for number in range(count):
        choose = seeded(number)
        yield plan_memory(rlx.passes.run(Grower(choose).grow(10 + choose(90)).graph, LOWER))
        yield plan_memory(with_regions(number))


def models(scale: int) -> Iterator[tuple[str, Any]]:
    """Yield the blocks of models, forward and differentiated."""
    for name in BLOCKS:
        yield name, model(name, scale)
        yield f"{name}, differentiated", model(name, scale, differentiated=True)


def _distribution(gaps: list[float]) -> list[str]:
    rows = [(f"at most {100 * b:.0f} %", f"{100 * np.mean(np.array(gaps) <= b):.1f} %") for b in _BOUNDS]
    return [
        f"{len(gaps)} random graphs, largest gap {100 * max(gaps):.1f} %:",
        *table(rows, ("gap", "of the graphs"), right=(1,)),
    ]


def _of_models(scale: int) -> list[str]:
    rows = []
    for name, graph in models(scale):
        plans = [plan_memory(g) for g in (graph, rlx.passes.run(graph, _SCHEDULE), rlx.passes.run(graph, _RECOMPUTE))]
        sizes = [f"{bytes_text(plan.arena_size)} ({100 * plan.gap:.1f} %)" for plan in plans]
        rows.append((name, str(len(plans[0].steps) - 2), bytes_text(plans[0].total_bytes), *sizes))
    return table(
        rows, ("model", "ops", "without sharing", "arena (gap)", "in a better order", "with recomputation"), right=(1,)
    )


def chain_with_branches(ops: int) -> Any:
    """Return a deep network with this number of ops, whose early values are read again later."""
    g, chance = rlx.Graph("deep"), np.random.default_rng(1)
    x, w, scale = g.input("x", (64, 128)), g.param("w", (128, 128)), g.param("scale", (128,))
    earlier = [x]
    for i in range(ops // 4):
        x = g.rms_norm(g.gelu(x @ w) + earlier[-1 - int(chance.integers(min(len(earlier), 40)))], scale)
        earlier.append(x)
        if i % 8 == 0:
            x = x + g.sum(earlier[int(chance.integers(len(earlier)))], axes=1, keep_dims=True)
    g.set_outputs([x])
    return g


def _seconds(ops: int) -> Iterator[str]:
    graph = chain_with_branches(ops)
    started = time.perf_counter()
    plan = plan_memory(graph)
    yield f"{len(plan.steps) - 2} ops: planned in {time.perf_counter() - started:.1f} s, gap {100 * plan.gap:.1f} %"
    started = time.perf_counter()
    ordered = plan_memory(rlx.passes.run(graph, _SCHEDULE))
    seconds = time.perf_counter() - started
    yield f"ordered and planned in {seconds:.1f} s: {bytes_text(plan.arena_size)} become {bytes_text(ordered.arena_size)}"


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", type=int, default=300, help="the number of random graphs of each kind")
    parser.add_argument("--scale", type=int, default=8, help="the size of the models")
    parser.add_argument("--ops", type=int, default=20_000, help="the number of ops of the deep network")
    arguments = parser.parse_args()
    print("\n".join(_distribution([plan.gap for plan in random_plans(arguments.graphs)])), end="\n\n")
    print("\n".join(_of_models(arguments.scale)), end="\n\n")
    print("\n".join(_seconds(arguments.ops)))


if __name__ == "__main__":
    main()
