"""What compiling has in common for all back ends: timing, and the cache on disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rlx.backends.artifact import Artifact, Signature
from rlx.backends.cache import DiskCache, fingerprint
from rlx.ir.custom import sources
from rlx.ir.errors import Error
from rlx.ir.graph import Graph
from rlx.ir.requirements import requirements

_log = logging.getLogger("rlx")


@cache
def package_fingerprint() -> str:
    """A hash of this package's own code: a cached program is good for equal code only."""
    root = Path(__file__).parents[1]
    sources = sorted(root.rglob("*.py")) + sorted(root.rglob("*.mlir"))
    return fingerprint(*(path.read_bytes() for path in sources))


class timed:
    """Add the seconds spent inside to a table."""

    def __init__(self, table: dict[str, float], name: str):
        self.table, self.name = table, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.table[self.name] = self.table.get(self.name, 0.0) + time.perf_counter() - self.started


def cached(
    disk: DiskCache | None,
    graph: Graph,
    rules: Mapping[str, Any],
    describe: Callable[[], tuple[str, ...]],
    phases: dict[str, float],
    make: Callable[[], tuple[Artifact, bool]],
    legalised: Callable[[], Graph],
) -> Artifact:
    """An artifact from the cache, or made and put there.

    Args:
        disk: The cache, or None.
        graph: What is compiled.
        rules: The lowering rules by op name: those of a user's ops are no code of this package.
        describe: All that the artifact depends on, beside this package's code.
        phases: Seconds by phase; `cached` is there where the artifact was.
        make: Makes it, and says whether to keep it: what came out weaker by chance is made again the next time.
        legalised: Gives what the graph is before it is lowered.
    """
    own = None if disk is None else sources(graph.module, rules)
    if disk is None or own is None:
        return make()[0]
    with timed(phases, "key"):
        key = fingerprint(package_fingerprint(), *own, *describe())
        stored = disk.get(key)
        artifact = None if stored is None else _artifact(stored, graph)
    if artifact is not None:
        phases["cached"] = 1.0
        return _placed(artifact, graph, legalised)
    artifact, lasting = make()
    if lasting:
        disk.put(key, artifact.to_bytes())
    return artifact


def _artifact(stored: bytes, graph: Graph) -> Artifact | None:
    """The artifact in a cache entry, unless it is none, or one of another graph."""
    try:
        artifact = Artifact.from_bytes(stored, "a cache entry")
    except Error as problem:
        _log.info("%s", problem.message)
        return None
    fits = artifact.signature.to_json() == Signature.of(graph).to_json()
    return artifact if fits else None


def _placed(artifact: Artifact, graph: Graph, legalised: Callable[[], Graph]) -> Artifact:
    """An artifact that tells of the lines of this graph; in the cache it has those of the graph that was compiled first."""
    stored = {(expression, meaning) for expression, meaning, _ in artifact.info["requirements"]}
    if not stored:
        return artifact
    found = requirements(graph.module)
    if not stored <= {(str(r.expression), r.meaning) for r in found}:  # some are of ops that others decompose into
        found = requirements(graph.module, legalised().module)
    return replace(artifact, info=artifact.info | {"requirements": [r.to_json() for r in found]})
