"""Shared helpers for compiling: timing, and the cache on disk."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from rlx import mlir
from rlx.ir.dims.dim import estimate
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.ir.op.requirements import requirements
from rlx.ir.op.signature import bodies
from rlx.support.errors import Error
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.signature import Signature
from rlx.targets.cache import DiskCache
from rlx.targets.hashes import fingerprint

# In the code of each program that calls LAPACK: names of jaxlib's handlers, of routines in rlx ops, and of IREE's parameter.
_CALLS_LAPACK = re.compile(rb'lapack_[sdcz][a-z]+_ffi|"lapack\.[sdcz][a-z]+"|rlx\.lapack\.pointers')

_log = logging.getLogger("rlx")


@cache
def code_fingerprint(module: str) -> str:
    """Return a hash of all code of a module's package. A cached program is used only by the same code."""
    package = sys.modules[module.partition(".")[0]]
    folders = [Path(folder) for folder in getattr(package, "__path__", ())]
    sources = [path for folder in folders for kind in ("*.py", "*.mlir") for path in sorted(folder.rglob(kind))]
    if not folders and package.__file__ is not None:
        sources = [Path(package.__file__)]
    return fingerprint(*(path.read_bytes() for path in sources))


def estimated_flops(module: mlir.Module) -> int:
    """Return the number of operations of each function, with a typical size for each symbol. Each op is counted once.

    The body of a loop is also counted once, because threads cost time in every step and must pay in every step. With
    threads, 1,000 steps of `tanh(h @ w + x)` for 256 numbers (134 million operations) took 36 ms on two cores instead of 9.
    """
    total = 0
    for function in bodies(module):
        for op in opview.operations(function.entry_block):
            if op.name not in opview.TERMINATORS:
                total += max(0, estimate(opview.own_cost_of(op).flops))  # a size may be n - 100
    return total


def calls_lapack(artifact: Artifact) -> bool:
    """Whether a program has calls of LAPACK, which its code names."""
    return _CALLS_LAPACK.search(artifact.program) is not None


class timed:
    """A context that adds the seconds spent in it to a table."""

    def __init__(self, table: dict[str, float], name: str):
        self.table, self.name = table, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.table[self.name] = self.table.get(self.name, 0.0) + time.perf_counter() - self.started


def cached_artifact(disk: DiskCache, key: str, signature: Signature) -> Artifact | None:
    """Return the artifact of a cache entry. The result is None if there is no entry, or if its signature differs."""
    stored = disk.get(key)
    if stored is None:
        return None
    try:
        artifact = Artifact.from_bytes(stored, "a cache entry")
    except Error as problem:
        _log.info("%s", problem.message)
        return None
    return artifact if artifact.signature.to_json() == signature.to_json() else None


def with_locations(artifact: Artifact, graph: Graph, lir: Callable[[], Graph]) -> Artifact:
    """Return a cached artifact with the source locations of this graph instead of those of the graph compiled first."""
    stored = {(expression, meaning) for expression, meaning, _ in artifact.info["requirements"]}
    if not stored:
        return artifact
    needs = requirements(graph.module)
    if not stored <= {
        (str(r.expression), r.meaning) for r in needs
    }:  # some requirements are on ops that decomposition adds
        needs = requirements(graph.module, lir().module)
    return replace(artifact, info=artifact.info | {"requirements": [r.to_json() for r in needs]})
