"""The command line of the fuzzers; see `python -m tools.fuzz --help`."""

from __future__ import annotations

import argparse
import pkgutil
import sys
from pathlib import Path

from tools.fuzz import frame, kinds


def main() -> int:
    """Run one kind; the exit code is 1 if there are findings."""
    names = sorted(m.name for m in pkgutil.iter_modules(kinds.__path__))
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Feed damaged inputs to RLX.")
    parser.add_argument("kind", help=f"one of {', '.join(names)}")
    parser.add_argument("--count", type=int, default=1000, help="the number of inputs (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the seed; with the index, it determines an input")
    parser.add_argument("--first", type=int, default=0, help="index of the first input")
    parser.add_argument(
        "--shard", type=int, default=1000, help="the number of inputs per child process (default: 1000)"
    )
    parser.add_argument("--seconds", type=float, default=None, help="time limit for one input")
    parser.add_argument(
        "--stop-after", type=float, default=None, help="the number of seconds after which no new input is started"
    )
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"), help="the folder for inputs with findings")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.kind not in names and "." not in given.kind:
        parser.error(f"no kind '{given.kind}'; there are {', '.join(names)}")
    if given.child:
        return frame.child(given.kind, given.seed, given.first, given.count)
    run = frame.Run(given.kind, given.seed, given.save, shard=given.shard, seconds=given.seconds)
    run.go(given.first, given.count, given.stop_after)
    print(run.report())
    return 1 if run.findings else 0


if __name__ == "__main__":
    sys.exit(main())
