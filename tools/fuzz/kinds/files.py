"""Other input files: weights, checkpoints, published models, arrays, and cache entries.

An input is a line that names the kind of file, and the file.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tools.fuzz.documents import mutated, written
from tools.fuzz.frame import Kind
from tools.fuzz.mutators import damaged_bytes

_MODEL = ("config.json", "tokenizer.json", "model.safetensors", "sentence_bert_config.json")

_OTHERS = ("weights", "checkpoint", "entry", "array", "archive", "packed")


class Files(Kind):
    name = "files"

    def prepare(self) -> None:
        if hasattr(self, "files"):
            return
        from tests.models.tiny_bert import write_model

        self.folder = Path(tempfile.mkdtemp(prefix="rlx-fuzz-files-"))
        self.model = write_model(self.folder / "model")
        (self.model / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": false}')
        self.files = {name: (self.model / name).read_bytes() for name in _MODEL}
        self.files |= {name: getattr(self, f"_{name}")() for name in _OTHERS}

    def make(self, rng: random.Random) -> bytes:
        name = rng.choice(list(self.files))
        data = self.files[name]
        if name.endswith(".json") and rng.random() < 0.8:
            data = written(mutated(json.loads(data), rng), rng)
        elif (name.endswith("safetensors") or name in ("weights", "checkpoint")) and rng.random() < 0.8:
            data = damaged_tensors(data, rng)
        else:
            data = damaged_bytes(data, rng, list(self.files.values()))
        if name == "entry" and rng.random() < 0.5:
            data = self._intact(data[48:])
        return name.encode() + b"\n" + data

    def attempt(self, data: bytes) -> Any:
        name, _, content = data.partition(b"\n")
        used = name.decode() if name in _names() else "weights"
        path = (self.model if used in _MODEL else self.folder) / used
        path.write_bytes(content)
        try:
            self._use(used, path, content)
        finally:
            if used in _MODEL:
                path.write_bytes(self.files[used])

    def _use(self, name: str, path: Path, content: bytes) -> None:
        from rlx.weights import open as open_weights

        if name in _MODEL:
            from rlx.models.embedder import SentenceEmbedder

            SentenceEmbedder(self.model, cache=False).tokenize(["the red cat eats", "", "x" * 1000])
        elif name in ("weights", "array", "archive", "packed"):
            for weight in open_weights(path).values():
                weight.numpy()
        elif name == "checkpoint":
            from rlx.train import checkpoint

            checkpoint.read(path, self._expected, "adam")
        else:
            self._use_entry(content)

    def _use_entry(self, content: bytes) -> None:
        """Use a cache entry. It is a miss or the stored program, and the program is correct in both cases."""
        self._stored.write_bytes(content)
        artifact = self._session.compile(self._graph, cache=self.folder / "cache").artifact
        assert artifact == self._made

    def _intact(self, payload: bytes) -> bytes:
        """Return an entry with this content and a correct hash."""
        key = self._stored.parent.name + self._stored.stem
        digest = hashlib.sha256(key.encode() + payload).digest()
        return struct.pack("<4sIQ32s", b"RLXC", 2, len(payload), digest) + payload

    # --- damaged data -----------------------------------------------------------------------------

    def _weights(self) -> bytes:
        import ml_dtypes

        arrays = {"w1": np.ones((3, 4), np.float32), "b1": np.zeros(4, np.float16), "n": np.arange(3)}
        return self._saved(arrays | {"h": np.ones((2,), ml_dtypes.bfloat16), "m": np.ones((1, 0), bool)})

    def _checkpoint(self) -> bytes:
        from rlx.ir.interface import Argument
        from rlx.ir.shape import Shape

        self._expected = {n: Argument(n, "state", Shape((3, "n"), "f32")) for n in ("w", "adam_m/w", "adam_v/w")}
        return self._saved({name: np.ones((3, 4), np.float32) for name in self._expected})

    def _saved(self, arrays: Any) -> bytes:
        from safetensors.numpy import save

        return save(arrays)

    def _array(self) -> bytes:
        np.save(self.folder / "array.npy", np.ones((2, 3), np.float32))
        return (self.folder / "array.npy").read_bytes()

    def _archive(self) -> bytes:
        return self._archived(np.savez)

    def _packed(self) -> bytes:
        return self._archived(np.savez_compressed)

    def _archived(self, save: Any) -> bytes:
        stream = io.BytesIO()
        save(stream, w=np.ones((2, 3), np.float32), n=np.arange(3), b=np.zeros((), bool))
        return stream.getvalue()

    def _entry(self) -> bytes:
        import rlx

        self._graph: Any = rlx.Graph("g")
        self._graph.set_outputs([self._graph.input("x", (2,)) + 1])
        self._session = rlx.Session("xla")
        self._made = self._session.compile(self._graph, cache=self.folder / "cache").artifact
        (self._stored,) = (self.folder / "cache").rglob("*.rlxc")
        return self._stored.read_bytes()


@functools.cache
def _names() -> frozenset[bytes]:
    return frozenset(name.encode() for name in (*_MODEL, *_OTHERS))


def damaged_tensors(data: bytes, rng: random.Random) -> bytes:
    """Return a safetensors file with a structurally damaged header, usually with the declared length."""
    (size,) = struct.unpack("<Q", data[:8])
    header = written(mutated(json.loads(data[8 : 8 + size]), rng), rng)
    for dtype in ("F8_E4M3", "F8_E5M2", "F4", "C64", "U64", "BOOL"):
        if rng.random() < 0.05:
            header = header.replace(b"F32", dtype.encode(), 1)
    said = rng.choice((len(header),) * 12 + (0, 1, len(header) + 1, 1 << 40, (1 << 64) - 1))
    body = data[8 + size :]
    return struct.pack("<Q", said) + header + (body if rng.random() < 0.8 else damaged_bytes(body, rng))


KIND = Files()
