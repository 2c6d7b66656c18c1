"""What compiling has in common for all back ends: timing, and the cache on disk."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from rlx.backends.artifact import Artifact, Signature
from rlx.backends.cache import DiskCache, fingerprint
from rlx.ir.errors import Error
from rlx.ir.graph import Graph
from rlx.ir.requirements import requirements

_log = logging.getLogger("rlx")


@cache
def code_fingerprint(module: str) -> str:
    """A hash of all code of the package that a module is in: a cached program is good for equal code only."""
    package = sys.modules[module.partition(".")[0]]
    folders = [Path(folder) for folder in getattr(package, "__path__", ())]
    sources = [path for folder in folders for kind in ("*.py", "*.mlir") for path in sorted(folder.rglob(kind))]
    if not folders and package.__file__ is not None:
        sources = [Path(package.__file__)]
    return fingerprint(*(path.read_bytes() for path in sources))


class timed:
    """Add the seconds spent inside to a table."""

    def __init__(self, table: dict[str, float], name: str):
        self.table, self.name = table, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.table[self.name] = self.table.get(self.name, 0.0) + time.perf_counter() - self.started


def cached(disk: DiskCache, key: str, graph: Graph) -> Artifact | None:
    """The artifact of a cache entry, unless there is none, or one of another graph."""
    stored = disk.get(key)
    if stored is None:
        return None
    try:
        artifact = Artifact.from_bytes(stored, "a cache entry")
    except Error as problem:
        _log.info("%s", problem.message)
        return None
    fits = artifact.signature.to_json() == Signature.of(graph).to_json()
    return artifact if fits else None


def placed(artifact: Artifact, graph: Graph, lir: Callable[[], Graph]) -> Artifact:
    """An artifact that tells of the lines of this graph; in the cache it has those of the graph that was compiled first."""
    stored = {(expression, meaning) for expression, meaning, _ in artifact.info["requirements"]}
    if not stored:
        return artifact
    needs = requirements(graph.module)
    if not stored <= {(str(r.expression), r.meaning) for r in needs}:  # some are of ops that others decompose into
        needs = requirements(graph.module, lir().module)
    return replace(artifact, info=artifact.info | {"requirements": [r.to_json() for r in needs]})
