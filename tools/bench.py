"""Measure RLX against other libraries and against its own limits.

    python tools/bench.py [--only SECTION] [--json OUT]

Prints one line per figure. The exit code is 1 if a figure is over its limit. docs/benchmarks.md describes the
measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.bench_common import Figure  # noqa: E402
from tools.fetch_minilm import FetchError, fetch  # noqa: E402

_PACKAGES = ("numpy", "iree-base-compiler", "torch-mlir", "jax", "jaxlib", "onnxruntime")


def main() -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", choices=SECTIONS, help="a benchmark to run; can be given several times"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to a file")
    parser.add_argument("--rounds", type=int, default=7, help="the number of turns per library (default: %(default)s)")
    parser.add_argument("--model", type=Path, help="directory of all-MiniLM-L6-v2 (default: fetch it)")
    arguments = parser.parse_args()
    machine = _machine()
    for name, value in machine.items():
        print(f"{name}: {value}")
    figures: list[Figure] = []
    for name in arguments.only or SECTIONS:
        print(f"\n{name}", flush=True)
        try:
            for figure in SECTIONS[name](arguments):
                print(f"  {figure}", flush=True)
                figures.append(figure)
        except FetchError as problem:
            raise SystemExit(f"bench: {problem}") from None
    if arguments.json is not None:
        data = {"machine": machine, "figures": [asdict(figure) for figure in figures]}
        arguments.json.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    over = [figure for figure in figures if not figure.ok]
    print(f"\n{len(figures)} figures, {len(over)} over their limit")
    return 1 if over else 0


def _machine() -> dict[str, str]:
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    versions = [f"{name} {metadata.version(name)}" for name in _PACKAGES]
    return {
        "processor": f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "versions": ", ".join([f"python {platform.python_version()}", *versions]),
    }


def _model(arguments: argparse.Namespace) -> Path:
    return arguments.model or fetch()


def _minilm(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_minilm

    return bench_minilm.measure(_model(arguments), arguments.rounds)


def _overhead(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_overhead

    return bench_overhead.measure(arguments.rounds)


def _startup(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_startup

    return bench_startup.measure(arguments.rounds)


def _compile(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_compile

    return bench_compile.measure(_model(arguments))


def _graph(_: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_graph

    return bench_graph.measure()


def _training(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_training

    return bench_training.measure(arguments.rounds)


def _elementary(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_elementary

    return bench_elementary.measure(arguments.rounds)


def _xla(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_xla

    return bench_xla.measure(arguments.rounds)


def _cpu(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_cpu

    return bench_cpu.measure(arguments.rounds)


def _linear_algebra(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_linear_algebra

    return bench_linear_algebra.measure(arguments.rounds)


def _language(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_language

    return bench_language.measure(arguments.rounds)


def _sparse(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_sparse

    return bench_sparse.measure(arguments.rounds)


def _solvers(arguments: argparse.Namespace) -> Iterator[Figure]:
    from tools import bench_solvers

    return bench_solvers.measure(arguments.rounds)


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Figure]]] = {
    "minilm": _minilm,
    "overhead": _overhead,
    "startup": _startup,
    "compile": _compile,
    "graph": _graph,
    "training": _training,
    "elementary": _elementary,
    "xla": _xla,
    "cpu": _cpu,
    "linear-algebra": _linear_algebra,
    "language": _language,
    "sparse": _sparse,
    "solvers": _solvers,
}


if __name__ == "__main__":
    sys.exit(main())
