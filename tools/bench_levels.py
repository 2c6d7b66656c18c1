"""The effect of the optimisation levels: the time of programs at levels 1 to 3 over that at level 0.

    python -m tools.bench_levels [--only=cnn] [--target=cpu] [--model=FOLDER] [--scale=16] [--flag=…]

Times are processor times of one thread on one core. The programs of a row alternate, and a ratio is the median over 15
rounds. With `--flag`, which can be given several times, level 2 is compared with and without each flag, instead of the
levels. Several flags can be joined by commas.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rlx
from rlx.targets.cache import DiskCache
from tools.bench_common import ONE_THREAD, in_turns, median_ms, median_ratio
from tools.bench_programs import Workload, blocks, call_of, workloads

_ROUNDS, _SECONDS = 15, 0.15  # the seconds are those of a turn
Variant = tuple[int, tuple[str, ...]]  # a level, and flags
LEVELS: tuple[Variant, ...] = ((0, ()), (1, ()), (2, ()), (3, ()))


def ratios(workload: Workload, target: str, variants: Sequence[Variant], cache: str) -> tuple[float, list[float]]:
    """Return the milliseconds of the first variant, and the ratio of each other one to it."""
    calls: list[Any] = []
    for level, flags in variants:
        session = rlx.Session(target, threads=1, flags=flags)
        program = session.compile(workload.graph, params=workload.params or None, opt=level, cache=DiskCache(cache))
        calls.append(call_of(program, workload))
    first, *others = in_turns(calls, _SECONDS, _ROUNDS)
    return median_ms(first), [median_ratio(ours, first) for ours in others]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", default="", help="only programs whose name has this prefix")
    parser.add_argument("--target", default="cpu", help="cpu or xla (default: %(default)s)")
    parser.add_argument("--model", type=Path, help="the folder of MiniLM; without it, MiniLM is skipped")
    parser.add_argument("--scale", type=int, default=16, help="the size of the blocks (default: %(default)s)")
    parser.add_argument("--flag", action="append", default=[], help="compare level 2 with and without these flags")
    arguments = parser.parse_args()
    os.environ.update(ONE_THREAD)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    variants = ((2, ()), *((2, tuple(text.split(","))) for text in arguments.flag)) if arguments.flag else LEVELS
    heads = [f"O{level} {' '.join(flags)}".strip() for level, flags in variants]
    print(f"| program | {heads[0]}, ms | {' | '.join(heads[1:])} |\n|{'---|' * (len(heads) + 1)}")
    rows: list[list[float]] = []
    with tempfile.TemporaryDirectory() as cache:
        for name, make in (*workloads(arguments.model), *blocks(arguments.scale)):
            if not name.startswith(arguments.only):
                continue
            workload = make()
            first, others = ratios(workload, arguments.target, variants, cache)
            rows.append(others)
            print(f"| {workload.name} | {first:.3g} | {' | '.join(f'{ratio:.2f}' for ratio in others)} |", flush=True)
    means = [math.exp(sum(map(math.log, column)) / len(rows)) for column in zip(*rows, strict=True)]
    print(f"| geometric mean | | {' | '.join(f'{mean:.3f}' for mean in means)} |")


if __name__ == "__main__":
    main()
