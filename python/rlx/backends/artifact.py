"""`Artifact`: a compiled program with everything that is needed to load it elsewhere.

A program is code. Here it is checked that a file is complete and consistent. Whether to trust it, only the user can decide, who
may give the SHA-256 of the file that is expected.
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
from rlx.ir.errors import CompileError, Error
from rlx.ir.files import read_bytes, write_atomically
from rlx.ir.graph import Graph
from rlx.ir.interface import KINDS, Argument, Output, Requirement
from rlx.ir.shape import Shape
from rlx.ir.signature import initial_value

FORMAT = 2
_MANIFEST, _PROGRAM = "manifest.json", "program"
_LONGEST_MANIFEST = 64 << 20
_HIGHEST_RANK = 64  # the limit of NumPy


@dataclass(frozen=True)
class Signature:
    """The arguments and outputs of a compiled function: the part of a graph that callers see."""

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
        """The signature that `to_json` was called on.

        Raises:
            Error: The data is of another form, or cannot be the signature of a program.
        """
        content = _SIGNATURE(data, "signature")
        signature = cls(content["name"], tuple(content["arguments"]), tuple(content["outputs"]))
        for entries in (signature.arguments, signature.outputs):
            names = [entry.name for entry in entries]
            if len(set(names)) != len(names):
                raise Error(f"signature: two arguments or outputs have the same name: {', '.join(names)}")
        return signature


def _shape_to_json(shape: Shape) -> dict[str, Any]:
    return {"dims": [d if type(d) is int else str(d) for d in shape.dims], "dtype": shape.dtype.name}


def _dim(value: Any, what: str) -> Dim:
    if type(value) is int or (type(value) is str and fields.text(value, what)):
        size = dim(value)
        if size == value or str(size) == value:
            return size
    raise fields.refused(what, "a size or an expression in symbols", value)


def _dtype(value: Any, what: str) -> DType:
    result = dtype(fields.name(value, what))
    if result.name != value:
        raise fields.refused(what, "the name of a dtype", value)
    return result


def _argument(value: Any, what: str) -> Argument:
    entries = _ARGUMENT(value, what)
    argument = Argument(entries["name"], entries["kind"], _shape(entries, what), entries["donate"], entries["init"])
    if argument.donate and argument.kind != "input":
        raise Error(f"{what}: a {argument.kind} is not donated")
    if argument.kind == "state":
        argument.shape.static  # noqa: B018  (raises)
        initial_value(argument.init, argument.shape.dtype)
    return argument


def _output(value: Any, what: str) -> Output:
    entries = _OUTPUT(value, what)
    return Output(entries["name"], _shape(entries, what))


def _shape(entries: Mapping[str, Any], what: str) -> Shape:
    shape = Shape(entries["dims"], entries["dtype"])
    if shape.is_static:
        dim(shape.size_bytes)  # raises if it is too large
    return shape


_SHAPE = {"dims": listed(_dim, _HIGHEST_RANK), "dtype": _dtype}
_ARGUMENT = record({"name": name, "kind": one_of(*KINDS), "donate": boolean, "init": number, **_SHAPE})
_OUTPUT = record({"name": name, **_SHAPE})
_SIGNATURE = record({"name": name, "arguments": listed(_argument), "outputs": listed(_output)})


def requirement(value: Any, what: str) -> Requirement:
    """The check of an entry of `info["requirements"]`."""
    return Requirement.from_json(_REQUIREMENT(value, what))


_REQUIREMENT = row(name, text, optional(text))
# The entries that the `info` of every artifact has, in addition to those of the back end.
_COMMON_INFO = {"requirements": listed(requirement), "rlx": name}


def _unchanged(value: Any, what: str) -> Any:
    return value  # it is checked elsewhere


class _NoBackEndError(Error):
    """An artifact is for a target of a package that is not installed here."""


_CONTENT = record(
    {"format": _unchanged, "target": name, "arch": name, "signature": _unchanged, "info": _unchanged, "sha256": name}
)


@dataclass(frozen=True)
class Artifact:
    """A compiled program.

    Attributes:
        target: The name of the target that it is compiled for.
        arch: Its architecture.
        signature: The arguments and outputs of the program.
        program: The code; for IREE's targets a VM module.
        info: Facts for people and for loading. The entries are those of the back end's `info_fields`, and `requirements`, the
            requirements on the sizes of symbols, and `rlx`, the version that compiled it.
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
        """The SHA-256 of the file with this artifact, as `rlx compile` and `sha256sum` print it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "artifact", *, expected_sha256: str | None = None) -> Artifact:
        """Read what `to_bytes` wrote.

        Args:
            data: The content of the file.
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
            written_format = fields.shown(manifest.get("format"))
            raise Error(f"{name}: format {written_format}, this version reads {FORMAT}", hint="compile it again")
        try:
            return cls._from_manifest(manifest, program)
        except _NoBackEndError as problem:
            raise Error(f"{name}: {problem.message}", hint=problem.hint) from None
        except Error as problem:
            raise Error(f"{name} is damaged: {problem.message}", hint=problem.hint) from None

    @classmethod
    def _from_manifest(cls, manifest: Any, program: bytes) -> Artifact:
        from rlx.backends.registry import backend_of, target_of

        content = _CONTENT(manifest, "manifest")
        if content["sha256"] != _checksum(manifest, program):
            raise Error("its checksum is that of another program")
        signature = Signature.from_json(content["signature"])
        try:
            compiler = backend_of(content["target"]).compiler
        except CompileError as problem:
            message = f"it is for target {content['target']!r}, for which no back end is installed"
            raise _NoBackEndError(message, hint=problem.hint) from None
        target = target_of(content["target"], content["arch"])
        if (target.name, target.arch) != (content["target"], content["arch"]):
            raise Error(
                f"it is for {content['target']} ({content['arch']}), another name of {target.name} ({target.arch})"
            )
        record({**compiler.info_fields(), **_COMMON_INFO})(content["info"], "info")
        return cls(target.name, target.arch, signature, program, content["info"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to a file, completely or not at all."""
        write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, expected_sha256: str | None = None) -> Artifact:
        """Read an artifact from a file.

        Args:
            path: The file.
            expected_sha256: The SHA-256 that it must have, in hexadecimal. It is checked before anything else in the file.

        Raises:
            Error: It cannot be read, is damaged, or is not what was expected.
        """
        return cls.from_bytes(read_bytes(path), os.fspath(path), expected_sha256=expected_sha256)


def _checksum(manifest: Mapping[str, Any], program: bytes) -> str:
    """A checksum of the whole artifact, so that one that was damaged by accident is never run."""
    others = {key: value for key, value in manifest.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(others, sort_keys=True).encode() + b"\0")
    digest.update(program)
    return digest.hexdigest()


def check_sha256(data: bytes, expected: str, name: str) -> None:
    """Check that the SHA-256 of a file is the expected one.

    Raises:
        Error: It is another one, or `expected` is not a SHA-256.
    """
    if not isinstance(expected, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise Error(f"a SHA-256 has 64 hexadecimal digits, got {expected!r}", hint=f"sha256sum {name} prints it")
    actual = hashlib.sha256(data).hexdigest()
    if actual != expected.lower():
        raise Error(f"{name} is another file than expected: its SHA-256 is {actual}, not {expected.lower()}")
