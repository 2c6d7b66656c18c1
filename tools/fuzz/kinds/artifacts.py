"""Compiled artifacts of both back ends, single and as entry points of one file: read, loaded and run.

A checksum detects accidental damage. Here it is corrected after the damage, so that the later checks are tested.
Machine code is not damaged: no check can determine what modified code does.
"""

from __future__ import annotations

import copy
import hashlib
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
    suffix = ".rlxa"

    def prepare(self) -> None:
        if not hasattr(self, "files"):
            made = artifacts()
            self.files = [artifact.to_bytes() for artifact in made] + [several(made), entry_points(made), buckets()]
            self.members = [members(data) for data in self.files]

    def make(self, rng: random.Random) -> bytes:
        which = rng.randrange(len(self.files))
        if rng.random() < 0.2:
            return damaged_bytes(self.files[which], rng, self.files)
        document, others = copy.deepcopy(self.members[which])
        if rng.random() < 0.85:
            document = mutated(document, rng)
        elif _form(document) == "rlx":
            others = {name: damaged_bytes(data, rng) for name, data in others.items()}
        if isinstance(document, dict) and rng.random() < 0.9:
            document = sealed(document, others if rng.random() < 0.5 else {})
        return _archive(written(document, rng), others, rng)

    def attempt(self, data: bytes) -> Any:
        """Use an artifact in all possible ways."""
        from rlx.runtime.program import Program
        from rlx.runtime.program_file import entries_of
        from rlx.targets.artifacts.archive import Archive

        file = Archive.from_bytes(data)
        again = Archive.from_bytes(file.to_bytes())
        assert again.to_bytes() == file.to_bytes() and again.signature.to_json() == file.signature.to_json()
        values = {} if file.parameters is None else file.parameters.arrays(file.signature)
        program = Program(entries_of(file, threads=1))
        for part in program.values() or (program,):
            known = {a.name for a in part.params}
            use(part, {n: array for n, array in values.items() if n in known})


def _form(document: Any) -> Any:
    """How the first program of a manifest is written, None where it does not say."""
    try:
        entry = document["entries"][0]
        return (entry["buckets"] or [entry])[0]["programs"][0]["info"].get("form")
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def artifacts() -> list[Any]:
    """Return programs with inputs, parameters, states, symbols and requirements, for both back ends."""
    import rlx
    from rlx.targets.compilation import Compilation
    from rlx.targets.registry import target_of

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


def several(made: list[Any]) -> bytes:
    """A file with two programs of one graph, and a value for its parameter."""
    from rlx.targets.artifacts.archive import Archive

    archive = Archive.of({None: [a for a in made if a.signature.name == "fixed"]})
    return archive.with_parameters({"w": np.ones((3, 4), np.float32)}).to_bytes()


def entry_points(made: list[Any]) -> bytes:
    """A file with two entry points that share a parameter and a state, one of them for two targets."""
    from rlx.targets.artifacts.archive import Archive

    fixed = [a for a in made if a.signature.name == "fixed"]
    sized = next(a for a in made if a.signature.name == "sized")
    archive = Archive.of({"first": fixed, "second": fixed[:1], "other": [sized]})
    return archive.with_parameters({"w": np.ones((3, 4), np.float32)}).to_bytes()


def buckets() -> bytes:
    """A file with programs for buckets of two symbols, and a value for their parameter."""
    import rlx
    from rlx.runtime.program_file import archive_of

    g: Any = rlx.Graph("bucketed")
    x = g.input("x", ("n", "m"))
    g.set_outputs({"y": x * g.param("w", ())})
    program = rlx.Session(threads=1).compile(g, buckets={"n": [2, 4], "m": [4]})
    return archive_of(program._entries).with_parameters({"w": np.ones((), np.float32)}).to_bytes()


def use(compiled: Any, values: dict[str, np.ndarray] | None = None) -> None:
    """Give a program weights, run it twice, and read its states."""
    import rlx

    sizes: dict[str, int] = {name: steps[-1] for name, steps in compiled.buckets.items()}
    arrays = {}
    for argument in (*compiled.inputs, *compiled.params, *compiled.states):
        for d in argument.shape.dims:
            for symbol in getattr(d, "symbols", ()):
                sizes.setdefault(symbol, 3)
        shape = argument.shape.bind(sizes).static
        if np.prod([float(s) for s in shape]) > _LARGEST:
            raise rlx.Error("too large to be tried")
        arrays[argument.name] = np.ones(shape, argument.shape.dtype.numpy)
    compiled.set_params({a.name: arrays[a.name] for a in compiled.params} | (values or {}))
    inputs = {a.name: arrays[a.name] for a in compiled.inputs}
    for _ in range(2):
        compiled.run_named(inputs)
    for state in compiled.states:
        compiled.state(state.name)
    compiled.reset_state()


def members(data: bytes) -> tuple[Any, dict[str, bytes]]:
    """Return the manifest of a file, and its other members."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(contents.pop("manifest.json")), contents


def sealed(document: dict[str, Any], others: dict[str, bytes]) -> dict[str, Any]:
    """Return a manifest with correct checksums, including those of the given members."""
    from rlx.targets.artifacts.archive import checksum

    if others:
        document["members"] = [[n, len(d), hashlib.sha256(d).hexdigest()] for n, d in others.items()]
    try:
        return document | {"sha256": checksum(document)}
    except ValueError:
        return document


def _archive(manifest: bytes, others: dict[str, bytes], rng: random.Random) -> bytes:
    """Return an archive of the members, sometimes in a form that RLX does not write."""
    from rlx.targets.artifacts.container import pack_archive

    contents = [("manifest.json", manifest), *others.items()]
    how = rng.randrange(30)
    if how > 4:
        return pack_archive(dict(contents))
    compression = zipfile.ZIP_DEFLATED if how == 0 else zipfile.ZIP_STORED
    if how == 1:
        contents.append(rng.choice((("more", b"x"), ("../x", b""), ("/etc/x", b""), ("a" * 60000, b""))))
    elif how == 2:
        contents = rng.sample(contents, rng.randrange(len(contents)))
    elif how == 3:
        contents[1] = (contents[1][0], bytes(50 << 20))
        compression = zipfile.ZIP_DEFLATED
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in contents:
            archive.writestr(name, data)
    data = bytearray(buffer.getvalue() if how < 4 else pack_archive(dict(contents)))
    if how == 4:  # wrong sizes and offsets
        for _ in range(rng.randrange(1, 4)):
            at = data.rindex(b"PK\x01\x02" if rng.random() < 0.5 and b"PK\x01\x02" in data else b"PK\x05\x06")
            at = min(at + rng.randrange(4, 40), len(data) - 4)
            data[at : at + 4] = struct.pack(
                "<I", rng.choice((0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, rng.randrange(1 << 32)))
            )
    return bytes(data)


KIND = Artifacts()
