"""What compiling has in common for all back ends: timing, and the cache on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rlx.backends.artifact import Artifact
from rlx.backends.cache import DiskCache, fingerprint
from rlx.ir.custom import sources
from rlx.ir.graph import Graph


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
    make: Callable[[], Artifact],
) -> Artifact:
    """An artifact from the cache, or made and put there.

    Args:
        disk: The cache, or None.
        graph: What is compiled.
        rules: The lowering rules by op name: those of a user's ops are no code of this package.
        describe: All that the artifact depends on, beside this package's code.
        phases: Seconds by phase; `cached` is there where the artifact was.
        make: Makes it.
    """
    own = None if disk is None else sources(graph.module, rules)
    if disk is None or own is None:
        return make()
    with timed(phases, "key"):
        key = fingerprint(package_fingerprint(), *own, *describe())
        stored = disk.get(key)
    if stored is not None:
        phases["cached"] = 1.0
        return Artifact.from_bytes(stored, "cache entry")
    artifact = make()
    disk.put(key, artifact.to_bytes())
    return artifact
