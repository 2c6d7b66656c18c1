"""`Artifact`: a compiled program with all that is needed to load it elsewhere."""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass, field
from typing import Any

from rlx.ir.dim import dim
from rlx.ir.dtype import dtype
from rlx.ir.errors import Error
from rlx.ir.files import read_bytes, write_atomically
from rlx.ir.graph import Argument, Graph, Output
from rlx.ir.shape import Shape

FORMAT = 1
_MANIFEST, _PROGRAM = "manifest.json", "program"


@dataclass(frozen=True)
class Signature:
    """What a compiled function takes and gives: the part of a graph that callers see."""

    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[Output, ...]

    @classmethod
    def of(cls, graph: Graph) -> Signature:
        return cls(graph.name_symbol, graph.arguments, graph.outputs)

    def of_kind(self, kind: str) -> tuple[Argument, ...]:
        """The inputs, params or states."""
        return tuple(a for a in self.arguments if a.kind == kind)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arguments": [
                {"name": a.name, "kind": a.kind, "donate": a.donate, "init": a.init} | _shape_to_json(a.shape)
                for a in self.arguments
            ],
            "outputs": [{"name": o.name} | _shape_to_json(o.shape) for o in self.outputs],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Signature:
        arguments = [
            Argument(a["name"], a["kind"], _shape_from_json(a), a["donate"], a["init"]) for a in data["arguments"]
        ]
        outputs = [Output(o["name"], _shape_from_json(o)) for o in data["outputs"]]
        return cls(data["name"], tuple(arguments), tuple(outputs))


def _shape_to_json(shape: Shape) -> dict[str, Any]:
    return {"dims": [d if type(d) is int else str(d) for d in shape.dims], "dtype": shape.dtype.name}


def _shape_from_json(data: dict[str, Any]) -> Shape:
    return Shape((dim(d) for d in data["dims"]), dtype(data["dtype"]))


@dataclass(frozen=True)
class Artifact:
    """A compiled program.

    Attributes:
        target: Name of the target it is for.
        arch: Its architecture.
        signature: What the program takes and gives.
        program: The code; for IREE's targets a VM module.
        info: Facts for people and for choosing a driver: `flops`, `flags`, versions.
    """

    target: str
    arch: str
    signature: Signature
    program: bytes = field(repr=False)
    info: dict[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """One file: a zip archive of a manifest and the program."""
        manifest = {
            "format": FORMAT,
            "target": self.target,
            "arch": self.arch,
            "signature": self.signature.to_json(),
            "info": self.info,
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name, data in (
                (_MANIFEST, json.dumps(manifest, indent=1).encode()),
                (_PROGRAM, self.program),
            ):
                # A fixed date: equal programs are equal files.
                archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "artifact") -> Artifact:
        """Read what `to_bytes` wrote.

        Raises:
            Error: The data is damaged, or of another format.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                manifest = json.loads(archive.read(_MANIFEST))
                program = archive.read(_PROGRAM)
            if manifest["format"] != FORMAT:
                raise Error(
                    f"{name}: format {manifest['format']}, this version reads {FORMAT}",
                    hint="compile it again",
                )
            signature = Signature.from_json(manifest["signature"])
            return cls(manifest["target"], manifest["arch"], signature, program, manifest["info"])
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError, NotImplementedError) as problem:
            raise Error(f"{name} is not a compiled RLX program, or is damaged: {problem}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to a file, whole or not at all."""
        write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Artifact:
        """Read an artifact from a file.

        Raises:
            Error: It cannot be read, or is damaged.
        """
        return cls.from_bytes(read_bytes(path), os.fspath(path))
