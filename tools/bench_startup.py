"""The start-up time of fresh processes."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator

from tools.bench_common import Figure

_SCRIPT = "import sys; from rlx.cli.{0} import main; sys.exit(main())"
# name, arguments of the interpreter, limit in seconds
COMMANDS: tuple[tuple[str, list[str], float | None], ...] = (
    ("python -c pass", ["-c", "pass"], None),
    ("python -c 'import rlx'", ["-c", "import rlx"], 0.25),
    ("python -c 'import rlx; rlx.Graph()'", ["-c", "import rlx; rlx.Graph()"], None),
    ("rlx --version", ["-c", _SCRIPT.format("main"), "--version"], None),
    ("rlx-opt --version", ["-c", _SCRIPT.format("opt"), "--version"], 0.3),
    ("rlx-opt --list-passes", ["-c", _SCRIPT.format("opt"), "--list-passes"], None),
)


def measure(rounds: int) -> Iterator[Figure]:
    """Yield the processor time of each command, including the start of the interpreter."""
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in COMMANDS}
    for turn in range(rounds + 1):
        for name, arguments, _ in COMMANDS:
            taken = _cpu_seconds(arguments)
            if turn:  # the first turn fills the caches of files and of byte code
                seconds[name].append(taken)
    for name, _, limit in COMMANDS:
        yield Figure(name, statistics.median(seconds[name]), "s", limit)


def _cpu_seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
