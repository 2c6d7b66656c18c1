"""The effect of tuning: the time of a tuned program over that of the same program as given.

    python -m tools.bench_tuning [--seconds=120] [--only=cnn] [--model=FOLDER]

Prints the report of each program, and a table in the format of docs/performance.md. Times are processor times of one
thread on one core, so that other processes have little effect. The two programs of a row are measured once more after
the search, alternating. The ratio is the median over 15 rounds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rlx
from rlx.runtime import tuning
from rlx.runtime.tuning import Request
from rlx.targets.cache import DiskCache
from rlx.targets.options import CompileOptions
from tools.bench_common import ONE_THREAD, cpu_seconds, in_turns, median_ms, median_ratio
from tools.bench_programs import Workload, call_of, workloads

_ROUNDS, _SECONDS = 15, 0.3  # the seconds are those of a turn


def row(workload: Workload, seconds: float, cache: str) -> str:
    """Tune a program, measure it once more, and return its row of the table."""
    session, disk = rlx.Session(threads=1), DiskCache(cache)
    request = Request(session, workload.graph, CompileOptions(), workload.params or None, workload.values, disk)
    tuned = tuning.tune_program(request, seconds, measure=_processor_time)
    print(tuned.tuning, flush=True)
    given = session.compile(workload.graph, params=workload.params or None, cache=disk)
    before, after = in_turns([call_of(program, workload) for program in (given, tuned)], _SECONDS, _ROUNDS)
    assert tuned.tuning is not None
    figures = f"{median_ms(before):.3g} | {median_ms(after):.3g} | {median_ratio(after, before):.2f}"
    return f"| {workload.name} | {figures} | {tuned.tuning.chosen} |"


def _processor_time(program: rlx.Program, inputs: Mapping[str, Any], calls: int) -> float:
    return cpu_seconds(lambda: program.run(inputs), calls)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120, help="the time limit per program (default: %(default)s)")
    parser.add_argument("--only", metavar="NAME", default="", help="only programs whose name has this prefix")
    parser.add_argument("--model", type=Path, help="the folder of MiniLM; without it, MiniLM is skipped")
    arguments = parser.parse_args()
    os.environ.update(ONE_THREAD)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name, make in workloads(arguments.model):
            if name.startswith(arguments.only):
                rows.append(row(make(), arguments.seconds, cache))
                print(rows[-1], flush=True)
    print("\n".join(["| program | as given, ms | tuned, ms | ratio | kept |", "|---|---|---|---|---|", *rows]))


if __name__ == "__main__":
    main()
