"""`Artifact`: a compiled program with all that is needed to load it elsewhere.

A program is code. What is checked here is that a file is whole and makes sense; whether to trust it is the user's to know,
who may say which file is meant by its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlx.backends import fields
from rlx.backends.container import packed, unpacked
from rlx.backends.fields import boolean, listed, name, number, number_to_json, one_of, optional, record, row, text
from rlx.ir.dim import Dim, dim
from rlx.ir.dtype import DType, dtype
from rlx.ir.errors import Error
from rlx.ir.files import read_bytes, write_atomically
from rlx.ir.graph import Graph
from rlx.ir.requirements import Requirement
from rlx.ir.shape import Shape
from rlx.ir.signature import KINDS, Argument, Output, initial_value

FORMAT = 2
_MANIFEST, _PROGRAM = "manifest.json", "program"
_LONGEST_MANIFEST = 64 << 20
_HIGHEST_RANK = 64  # of NumPy's arrays


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
                {"name": a.name, "kind": a.kind, "donate": a.donate, "init": number_to_json(a.init)}
                | _shape_to_json(a.shape)
                for a in self.arguments
            ],
            "outputs": [{"name": o.name} | _shape_to_json(o.shape) for o in self.outputs],
        }

    @classmethod
    def from_json(cls, data: Any) -> Signature:
        """What `to_json` gave.

        Raises:
            Error: It is something else, or no program has such a signature.
        """
        found = _SIGNATURE(data, "signature")
        signature = cls(found["name"], tuple(found["arguments"]), tuple(found["outputs"]))
        for entries in (signature.arguments, signature.outputs):
            names = [entry.name for entry in entries]
            if len(set(names)) != len(names):
                raise Error(f"signature: two arguments or outputs have the same name: {', '.join(names)}")
        return signature


def _shape_to_json(shape: Shape) -> dict[str, Any]:
    return {"dims": [d if type(d) is int else str(d) for d in shape.dims], "dtype": shape.dtype.name}


def _dim(value: Any, what: str) -> Dim:
    if type(value) is int or (type(value) is str and fields.text(value, what)):
        found = dim(value)
        if found == value or str(found) == value:
            return found
    raise fields.refused(what, "a size or an expression in symbols", value)


def _dtype(value: Any, what: str) -> DType:
    found = dtype(fields.name(value, what))
    if found.name != value:
        raise fields.refused(what, "the name of a dtype", value)
    return found


def _argument(value: Any, what: str) -> Argument:
    found = _ARGUMENT(value, what)
    argument = Argument(found["name"], found["kind"], _shape(found, what), found["donate"], found["init"])
    if argument.donate and argument.kind != "input":
        raise Error(f"{what}: a {argument.kind} is not donated")
    if argument.kind == "state":
        argument.shape.static  # noqa: B018  (raises)
        initial_value(argument.init, argument.shape.dtype)
    return argument


def _output(value: Any, what: str) -> Output:
    found = _OUTPUT(value, what)
    return Output(found["name"], _shape(found, what))


def _shape(found: Mapping[str, Any], what: str) -> Shape:
    shape = Shape(found["dims"], found["dtype"])
    if shape.is_static:
        dim(shape.size_bytes)  # not more than there are
    return shape


_SHAPE = {"dims": listed(_dim, _HIGHEST_RANK), "dtype": _dtype}
_ARGUMENT = record({"name": name, "kind": one_of(*KINDS), "donate": boolean, "init": number, **_SHAPE})
_OUTPUT = record({"name": name, **_SHAPE})
_SIGNATURE = record({"name": name, "arguments": listed(_argument), "outputs": listed(_output)})


def requirement(value: Any, what: str) -> Requirement:
    """The check of an entry of `info["requirements"]`."""
    return Requirement.from_json(_REQUIREMENT(value, what))


_REQUIREMENT = row(name, text, optional(text))
# What stands in the `info` of every artifact, beside what the back end says.
_COMMON_INFO = {"requirements": listed(requirement), "rlx": name}


def _unchanged(value: Any, what: str) -> Any:
    return value  # it has its own check


_CONTENT = record(
    {"format": _unchanged, "target": name, "arch": name, "signature": _unchanged, "info": _unchanged, "sha256": name}
)


@dataclass(frozen=True)
class Artifact:
    """A compiled program.

    Attributes:
        target: Name of the target it is for.
        arch: Its architecture.
        signature: What the program takes and gives.
        program: The code; for IREE's targets a VM module.
        info: Facts for people and for loading: what there is, the back end's `info_fields` say. `requirements` are what has
            to hold of the sizes of symbols, `rlx` is the version that compiled it.
    """

    target: str
    arch: str
    signature: Signature
    program: bytes = field(repr=False)
    info: dict[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """One file: a zip archive of a manifest and the program.

        Raises:
            Error: It has more than 2 GiB.
        """
        manifest = {
            "format": FORMAT,
            "target": self.target,
            "arch": self.arch,
            "signature": self.signature.to_json(),
            "info": self.info,
        }
        manifest["sha256"] = _checksum(manifest, self.program)
        return packed({_MANIFEST: json.dumps(manifest, indent=1, allow_nan=False).encode(), _PROGRAM: self.program})

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file that it makes, as `rlx compile` and `sha256sum` print it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "artifact", *, expected_sha256: str | None = None) -> Artifact:
        """Read what `to_bytes` wrote.

        Args:
            data: The file.
            name: What to call it in messages.
            expected_sha256: The SHA-256 that the file must have, in hexadecimal.

        Raises:
            Error: The data is damaged, of another format, for an unknown target, or is not what was expected.
        """
        if expected_sha256 is not None:
            check_sha256(data, expected_sha256, name)
        try:
            members = unpacked(data, (_MANIFEST, _PROGRAM))
            manifest, program = fields.parsed(members[_MANIFEST], _LONGEST_MANIFEST), members[_PROGRAM]
        except Error as problem:
            raise Error(f"{name} is not a compiled RLX program, or is damaged: {problem.message}") from None
        if isinstance(manifest, dict) and manifest.get("format") != FORMAT:
            found = fields.shown(manifest.get("format"))
            raise Error(f"{name}: format {found}, this version reads {FORMAT}", hint="compile it again")
        try:
            return cls._from_manifest(manifest, program)
        except Error as problem:
            raise Error(f"{name} is damaged: {problem.message}", hint=problem.hint) from None

    @classmethod
    def _from_manifest(cls, manifest: Any, program: bytes) -> Artifact:
        from rlx.backends.registry import backend_of

        found = _CONTENT(manifest, "manifest")
        if found["sha256"] != _checksum(manifest, program):
            raise Error("its checksum is that of another program")
        signature = Signature.from_json(found["signature"])
        compiler = backend_of(found["target"]).compiler
        target = compiler.target(found["target"], found["arch"])
        if (target.name, target.arch) != (found["target"], found["arch"]):
            raise Error(f"it is for {found['target']} ({found['arch']}), another name of {target.name} ({target.arch})")
        record({**compiler.info_fields(), **_COMMON_INFO})(found["info"], "info")
        return cls(target.name, target.arch, signature, program, found["info"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to a file, whole or not at all."""
        write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, expected_sha256: str | None = None) -> Artifact:
        """Read an artifact from a file.

        Args:
            path: The file.
            expected_sha256: The SHA-256 that it must have, in hexadecimal: nothing else of the file is looked at before.

        Raises:
            Error: It cannot be read, is damaged, or is not what was expected.
        """
        return cls.from_bytes(read_bytes(path), os.fspath(path), expected_sha256=expected_sha256)


def _checksum(manifest: Mapping[str, Any], program: bytes) -> str:
    """Over all of an artifact, so that one that was damaged by accident never gets to run."""
    others = {key: value for key, value in manifest.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(others, sort_keys=True).encode() + b"\0")
    digest.update(program)
    return digest.hexdigest()


def check_sha256(data: bytes, expected: str, name: str) -> None:
    """Compare the SHA-256 of a file with what is expected.

    Raises:
        Error: It is another one, or the expected one is none.
    """
    if not isinstance(expected, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise Error(f"a SHA-256 has 64 hexadecimal digits, got {expected!r}", hint=f"sha256sum {name} prints it")
    found = hashlib.sha256(data).hexdigest()
    if found != expected.lower():
        raise Error(f"{name} is another file than expected: its SHA-256 is {found}, not {expected.lower()}")
