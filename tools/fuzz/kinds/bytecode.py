"""Bytecode files: read by name and by `rlx-opt`."""

from __future__ import annotations

import io
import random
import tempfile
from pathlib import Path
from typing import Any

from tools.fuzz import corpus
from tools.fuzz.frame import Kind
from tools.fuzz.mutators import damaged_bytes


class Bytecode(Kind):
    name = "bytecode"
    suffix = ".bc"
    seconds = 60.0  # a hanging reader is stopped before this limit

    def prepare(self) -> None:
        import rlx

        self.rlx = rlx
        self.files = [written(graph) for graph in corpus.graphs()[::3]]
        self.folder = Path(tempfile.mkdtemp(prefix="rlx-fuzz-bytecode-"))

    def make(self, rng: random.Random) -> bytes:
        while True:
            data = damaged_bytes(rng.choice(self.files), rng, self.files)
            if data.startswith(b"ML\xefR") or rng.random() < 0.1:
                return data

    def attempt(self, data: bytes) -> Any:
        from tools.fuzz.kinds.texts import use

        path = self.folder / "model.bc"
        path.write_bytes(data)
        graph = self.rlx.parse(path)
        use(graph)
        return graph


def written(graph: Any) -> bytes:
    """Return a graph as bytecode."""
    buffer = io.BytesIO()
    graph.module.operation.write_bytecode(buffer)
    return buffer.getvalue()


KIND = Bytecode()
