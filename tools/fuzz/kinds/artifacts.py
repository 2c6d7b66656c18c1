"""Compiled artifacts of both back ends: read, loaded and run.

A checksum refuses whatever is damaged by accident. Here it is set right after the damage, so that the checks behind it are
tried. Only machine code that was tampered with is left out: it is code, and no check can tell what it does.
"""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from typing import Any

import numpy as np

from tools.fuzz.documents import mutated, written
from tools.fuzz.frame import Kind
from tools.fuzz.mutators import damaged_bytes

_LARGEST = 1 << 22  # elements of an array that a run is tried with


class Artifacts(Kind):
    name = "artifacts"
    suffix = ".rlx"

    def prepare(self) -> None:
        if not hasattr(self, "files"):
            self.files = [artifact.to_bytes() for artifact in artifacts()]
            self.members = [_members(data) for data in self.files]

    def make(self, rng: random.Random) -> bytes:
        which = rng.randrange(len(self.files))
        if rng.random() < 0.2:
            return damaged_bytes(self.files[which], rng, self.files)
        manifest, program = self.members[which]
        document = json.loads(manifest)
        if rng.random() < 0.85:
            document = mutated(document, rng)
        elif document["info"].get("form") == "rlx":
            program = damaged_bytes(program, rng)
        if isinstance(document, dict) and rng.random() < 0.9:
            document["sha256"] = _checksum(document, program)
        text = written(document, rng)
        return _archive(text, program, rng)

    def attempt(self, data: bytes) -> Any:
        """Everything that may be done with an artifact."""
        from rlx.backends.artifact import Artifact
        from rlx.runtime.compiled import CompiledGraph

        artifact = Artifact.from_bytes(data)
        again = Artifact.from_bytes(artifact.to_bytes())
        assert again.signature.to_json() == artifact.signature.to_json() and again.info == artifact.info
        use(CompiledGraph(artifact, threads=1))


def artifacts() -> list[Any]:
    """Programs with inputs, parameters, states, symbols and requirements, for both back ends."""
    import rlx
    from rlx.backends.compilation import Compilation
    from rlx.backends.registry import target_of

    fixed: Any = rlx.Graph("fixed")
    x, w = fixed.input("x", (2, 3)), fixed.param("w", (3, 4))
    count = fixed.state("count", (4,), "i32", init=7)
    fixed.update(count, count + 1)
    fixed.set_outputs({"y": fixed.matmul(x, w), "count": count})
    sized: Any = rlx.Graph("sized")
    a, b = sized.input("a", ("n", 3)), sized.input("b", ("m", 3), donate=True)
    total = sized.state("total", (3,), init=float("-inf"))
    sized.update(total, sized.maximum(total, sized.max(a, 0)))
    sized.set_outputs([sized.concat([a, b], 0), sized.narrow(a, 0, 1, 1)])
    found = []
    for name in ("cpu", "xla"):
        found += [Compilation(graph, target_of(name)).artifact() for graph in (fixed, sized)]
    return found


def use(compiled: Any) -> None:
    """Give a program weights, run it twice, and read its states."""
    import rlx

    sizes: dict[str, int] = {}
    arrays = {}
    for argument in compiled.artifact.signature.arguments:
        for d in argument.shape.dims:
            for symbol in getattr(d, "symbols", ()):
                sizes.setdefault(symbol, 3)
        shape = argument.shape.bind(sizes).static
        if np.prod([float(s) for s in shape]) > _LARGEST:
            raise rlx.Error("too large to be tried")
        arrays[argument.name] = np.ones(shape, argument.shape.dtype.numpy)
    params = {a.name for a in compiled.artifact.signature.of_kind("param")}
    compiled.set_params({name: arrays[name] for name in params})
    inputs = {a.name: arrays[a.name] for a in compiled.inputs}
    for _ in range(2):
        compiled.run_named(inputs)
    for state in compiled.artifact.signature.of_kind("state"):
        compiled.state(state.name)
    compiled.reset_state()


def _members(data: bytes) -> tuple[bytes, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read("manifest.json"), archive.read("program")


def _checksum(document: dict[str, Any], program: bytes) -> str:
    from rlx.backends.artifact import _checksum

    try:
        return _checksum(document, program)
    except ValueError:
        return ""


def _archive(manifest: bytes, program: bytes, rng: random.Random) -> bytes:
    """The members put together, now and then in a way that is none of ours."""
    members = [("manifest.json", manifest), ("program", program)]
    how = rng.randrange(30)
    compression = zipfile.ZIP_DEFLATED if how == 0 else zipfile.ZIP_STORED
    if how == 1:
        members.append(rng.choice((("more", b"x"), ("../x", b""), ("a" * 60000, b""))))
    elif how == 2:
        members = rng.sample(members, rng.randrange(3))
    elif how == 3:
        members[1] = ("program", bytes(50 << 20))
        compression = zipfile.ZIP_DEFLATED
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    data = bytearray(buffer.getvalue())
    if how == 4:  # sizes and places that lie
        for _ in range(rng.randrange(1, 4)):
            at = data.rindex(b"PK\x01\x02" if rng.random() < 0.5 and b"PK\x01\x02" in data else b"PK\x05\x06")
            at = min(at + rng.randrange(4, 40), len(data) - 4)
            data[at : at + 4] = struct.pack(
                "<I", rng.choice((0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, rng.randrange(1 << 32)))
            )
    return bytes(data)


KIND = Artifacts()
