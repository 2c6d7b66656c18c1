"""Folders of published models, of all families: `config.json`, the index of several files, and the tensors.

An input is a line that names the model and its file, and that file.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from tools.fuzz.documents import mutated, written
from tools.fuzz.frame import Kind
from tools.fuzz.kinds.files import damaged_tensors
from tools.fuzz.mutators import damaged_bytes

_LARGEST = 1 << 22  # bytes of weights that are read


class Models(Kind):
    name = "models"

    def prepare(self) -> None:
        if hasattr(self, "folder"):
            return
        from tests.models.references import NAMES, reference, weights, write_model

        self.folder = Path(tempfile.mkdtemp(prefix="rlx-fuzz-models-"))
        for i, name in enumerate(NAMES):
            content = reference(name)
            write_model(self.folder / name, content["config"], weights(content["tensors"]), 1 + i % 2)
        self.files = {
            f"{path.parent.name}/{path.name}": path.read_bytes() for path in sorted(self.folder.glob("*/*.*"))
        }

    def make(self, rng: random.Random) -> bytes:
        kinds = {name.partition("/")[2] for name in self.files}
        kind = rng.choice(("config.json", *sorted(kinds)))
        name = rng.choice([n for n in self.files if n.endswith(f"/{kind}")])
        data = self.files[name]
        if rng.random() < 0.1:
            data = damaged_bytes(data, rng, list(self.files.values()))
        elif name.endswith(".json"):
            data = written(mutated(json.loads(data), rng), rng)
        else:
            data = damaged_tensors(data, rng)
        return name.encode() + b"\n" + data

    def attempt(self, data: bytes) -> Any:
        """Use a model: build graphs, with and without a cache, and read its weights."""
        from rlx.models import load

        first, _, content = data.partition(b"\n")
        name = first.decode() if first.decode("ascii", "replace") in self.files else "llama/config.json"
        path = self.folder / name
        path.write_bytes(content)
        try:
            model = load(path.parent)
            graphs = [model.graph()]
            if "cache" in model.sizes:
                graphs.append(model.graph(batch=1, sequence=2, past=3, cache=True, last=True))
            for graph in graphs:
                graph.verify()
                for weight in graph.weights.values():
                    assert weight.nbytes > _LARGEST or weight.numpy().shape == tuple(weight.shape)
        finally:
            path.write_bytes(self.files[name])


KIND = Models()
