"""The file of compiled programs, `.rlxa`: a signature, programs for one or more targets, and the values of parameters.

It is an archive (`container.py`) of a manifest, the programs, and optional parameters. The manifest has the size and the hash
of every member and of itself, so that damage is detected. This module checks that a file is complete and consistent. A program
is code, and only the user can decide whether to trust it: loading accepts the expected SHA-256 of the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rlx.support.errors import Error, ExecutionError
from rlx.support.files import file_name, replacing
from rlx.targets.artifacts import fields, parameters
from rlx.targets.artifacts.artifact import Artifact, NoBackEndError, checked
from rlx.targets.artifacts.container import members_of, packed, write
from rlx.targets.artifacts.fields import integer, listed, name, record
from rlx.targets.artifacts.parameters import Parameters, check
from rlx.targets.artifacts.signature import Signature
from rlx.targets.hashes import check_sha256
from rlx.targets.protocol import Judging
from rlx.targets.registry import backend_of
from rlx.weights.mapped import content_of

if TYPE_CHECKING:
    from rlx.targets.artifacts.bundle import Bundle

FORMAT = 3
SEVERAL_FORMAT = 4  # of files with several entry points: see `bundle.py`
MANIFEST, PARAMETERS, PROGRAMS = "manifest.json", "parameters.irpa", "programs"
_LONGEST_MANIFEST = 64 << 20
MOST_PROGRAMS = 64


@dataclass(frozen=True)
class StoredProgram:
    """A program in a file. Only its checksum has been verified."""

    target: str
    arch: str
    info: Mapping[str, Any] = field(repr=False)
    code: Any = field(repr=False)

    def __str__(self) -> str:
        return f"{self.target} ({self.arch})"


class Written:
    """Base class of the contents of a file."""

    def _members(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} has no members")

    def to_bytes(self) -> bytes:
        """Return the content of the file. Equal contents give equal bytes.

        Raises:
            Error: The file is larger than 2 GiB.
        """
        return packed(self._members())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically.

        Raises:
            Error: The file cannot be written, or is larger than 2 GiB.
        """
        with replacing(path) as temporary, open(temporary, "wb") as file:
            write(file, self._members())


@dataclass(frozen=True)
class Archive(Written):
    """The content of a file of compiled programs.

    Attributes:
        signature: The arguments and outputs of all programs.
        programs: The programs, in order of preference.
        parameters: Values of parameters, or None.
        name: The name in messages.
        folder: The folder that the file was read from.
    """

    signature: Signature
    programs: tuple[StoredProgram, ...]
    parameters: Parameters | None = None
    name: str = "the file"
    folder: str | None = None

    # --- writing ----------------------------------------------------------------------------------

    @classmethod
    def of(cls, artifacts: Sequence[Artifact], parameters: Parameters | None = None) -> Archive:
        """Return a file with some programs.

        Raises:
            Error: Signatures differ, or two programs are for the same target and architecture.
        """
        first = artifacts[0].signature
        for artifact in artifacts:
            if artifact.signature.to_json() != first.to_json():
                names = f"@{first.name} and @{artifact.signature.name}"
                raise Error(f"{names} take or give something else", hint="one file has programs of one graph")
        names = [f"{a.target} ({a.arch})" for a in artifacts]
        if twice := {n for n in names if names.count(n) > 1}:
            raise Error(f"two programs for {sorted(twice)[0]} in one file", hint="leave one of them out")
        if len(names) > MOST_PROGRAMS:
            raise Error(f"{len(names)} programs in one file; at most {MOST_PROGRAMS} are allowed")
        return cls(first, tuple(StoredProgram(a.target, a.arch, a.info, a.program) for a in artifacts), parameters)

    def _members(self) -> dict[str, Any]:
        head = {"format": FORMAT, "signature": self.signature.to_json(), "programs": programs_to_json(self.programs)}
        programs = {member(index, p.target, p.arch): p.code for index, p in enumerate(self.programs)}
        return written_members(head, programs, self.parameters)

    # --- reading ----------------------------------------------------------------------------------

    @classmethod
    def from_bytes(cls, data: Any, name: str = "artifact", *, expected_sha256: str | None = None) -> Archive:
        """Read the result of `to_bytes`. All checksums are verified.

        Args:
            data: The content of the file, an object with the buffer protocol. It must not change while the archive is used.
            name: The name in messages.
            expected_sha256: The expected SHA-256, in hexadecimal.

        Raises:
            Error: The data is damaged, has another format, or does not have the expected SHA-256.
        """
        manifest, members = read_members(data, name, expected_sha256)
        try:
            return replace(_from_manifest(manifest, members), name=name)
        except Error as problem:
            raise Error(f"{name} is damaged: {problem.message}", hint=problem.hint) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, expected_sha256: str | None = None) -> Archive:
        """Map a file into memory. It must not be written to while its programs or parameters are used.

        Args:
            path: The file.
            expected_sha256: The expected SHA-256, in hexadecimal. It is checked before anything else in the file.

        Raises:
            Error: The file cannot be read, is damaged, or does not have the expected SHA-256.
        """
        file = file_name(path)
        archive = cls.from_bytes(content_of(file), file, expected_sha256=expected_sha256)
        return replace(archive, folder=os.path.dirname(os.path.abspath(file)))

    # --- choosing ---------------------------------------------------------------------------------

    def artifact(self, stored: StoredProgram) -> Artifact:
        """One of the programs, checked by its back end.

        Raises:
            Error: The back end is not installed, or the information about the program does not match its back end.
        """
        try:
            checked(stored.target, stored.arch, stored.info)
        except NoBackEndError as problem:
            raise NoBackEndError(f"{self.name}: {problem.message}", hint=problem.hint) from None
        except Error as problem:
            raise Error(f"{self.name} is damaged: {problem.message}", hint=problem.hint) from None
        return Artifact(stored.target, stored.arch, self.signature, bytes(stored.code), dict(stored.info))

    def choose(self, target: str | None = None) -> Artifact:
        """Return the best program for this machine: the first target with a device here, and its highest-ranked program.

        If the file has only one program, that one is returned. Loading it on its device checks whether this machine can run it.

        Args:
            target: Considers only programs for this target.

        Raises:
            Error: No program can run here; the message has a reason for each.
        """
        candidates = [p for p in self.programs if target is None or p.target == target]
        if not candidates:
            has = ", ".join(map(str, self.programs))
            raise Error(f"{self.name} has no program for {target!r:.60}", hint=f"it has programs for {has}")
        if len(candidates) == 1:
            return self.artifact(candidates[0])
        able: list[tuple[int, Artifact]] = []
        reasons = []
        for stored in candidates:
            if able and able[0][1].target != stored.target:
                continue
            try:
                artifact = self.artifact(stored)
                judge = _judge(artifact.target)
                reason = judge and judge.lacks(artifact)
            except NoBackEndError as problem:
                reason = problem.message
            else:
                if reason is None:
                    able.append((judge.rank(artifact) if judge else 0, artifact))
            if reason is not None:
                reasons.append(f"{stored}: {reason}")
        if not able:
            raise ExecutionError(
                f"{self.name} has no program that this machine can run:\n  " + "\n  ".join(reasons),
                hint="compile one for this machine as well: `rlx compile --also=cpu:x86-64`",
            )
        return max(able, key=lambda entry: entry[0])[1]


HasParameters = TypeVar("HasParameters", bound="Archive | Bundle")


def with_parameters(
    archive: HasParameters, path: str, arrays: Mapping[str, np.ndarray], file: str | os.PathLike[str] | None = None
) -> HasParameters:
    """Return an archive with the values of its parameters.

    Args:
        archive: The archive without them.
        path: The path that the archive will be written to.
        arrays: The values, by name.
        file: A separate file in the same folder for the values, which is written now. None stores them in the archive.

    Raises:
        Error: `file` is in another folder, equals `path`, or cannot be written.
    """
    if file is None:
        return replace(archive, parameters=parameters.written(arrays))
    target, beside = Path(file_name(path)), Path(file_name(file))
    if target.absolute().parent != beside.absolute().parent or target.name == beside.name:
        raise Error(f"{beside} is to lie beside {target}, under another name", hint=f"write it to {target.parent}")
    return replace(archive, parameters=parameters.written(arrays, beside))


def _judge(target: str) -> Judging | None:
    """Return the loader that decides whether this machine can run a target's programs, or None if there is none."""
    loader: Any = backend_of(target).loader
    return loader if isinstance(loader, Judging) else None


def member(index: int, target: str, arch: str) -> str:
    """Return the member name of a program. It is readable, for users who extract it."""
    return f"{PROGRAMS}/{index}-" + re.sub(r"[^A-Za-z0-9_-]", "_", f"{target}-{arch}")[:60]


def programs_to_json(programs: Sequence[StoredProgram]) -> list[dict[str, Any]]:
    """Return the entries of programs in a manifest."""
    return [{"target": p.target, "arch": p.arch, "info": p.info} for p in programs]


def written_members(
    head: Mapping[str, Any], programs: Mapping[str, Any], parameters: Parameters | None
) -> dict[str, Any]:
    """Return the members of a file, including its manifest.

    Args:
        head: The first entries of the manifest.
        programs: The programs, by member name.
        parameters: The values of parameters, or None.
    """
    others = dict(programs)
    if parameters is not None and parameters.file is None:
        others[PARAMETERS] = parameters.content
    manifest = {
        **head,
        "parameters": parameters and parameters.to_json(),
        "members": [[n, memoryview(d).nbytes, hashlib.sha256(d).hexdigest()] for n, d in others.items()],
    }
    manifest["sha256"] = checksum(manifest)
    return {MANIFEST: json.dumps(manifest, indent=1, allow_nan=False).encode(), **others}


def read_members(
    data: Any, name: str, expected_sha256: str | None = None, formats: Sequence[int] = (FORMAT,)
) -> tuple[Any, dict[str, memoryview]]:
    """Return the manifest of a file and the other members. Only the format number of the manifest has been checked.

    Raises:
        Error: The data is not this kind of file, is damaged, has another format, or does not have the expected SHA-256.
    """
    if expected_sha256 is not None:
        check_sha256(data, expected_sha256, name)
    try:
        members = members_of(data)
        if next(iter(members)) != MANIFEST:
            raise Error(f"its first member is not {MANIFEST}")
        manifest = fields.parsed(bytes(members.pop(MANIFEST)), _LONGEST_MANIFEST)
    except Error as problem:
        raise Error(f"{name} is not a compiled RLX program, or is damaged: {problem.message}") from None
    if isinstance(manifest, dict) and manifest.get("format") not in formats:
        if manifest.get("format") == SEVERAL_FORMAT:
            raise Error(f"{name} has several entry points, and one program is wanted", hint="rlx.load gives them all")
        written_format, known = fields.shown(manifest.get("format")), " and ".join(map(str, formats))
        raise Error(f"{name}: format {written_format}, this version reads {known}", hint="compile it again")
    return manifest, members


def checksum(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest, which the manifest contains."""
    others = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def unchanged(value: Any, what: str) -> Any:
    return value  # checked elsewhere


def _facts(value: Any, what: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise fields.refused(what, "an object", value)
    return value  # the back end checks it


PROGRAM = record({"target": name, "arch": name, "info": _facts})
MEMBER = fields.row(name, integer(0, 1 << 32), name)
_CONTENT: Callable[[Any, str], dict[str, Any]] = record(
    {
        "format": unchanged,
        "signature": unchanged,
        "programs": listed(PROGRAM, MOST_PROGRAMS),
        "parameters": unchanged,
        "members": listed(MEMBER, MOST_PROGRAMS + 1),
        "sha256": name,
    }
)


def check_members(manifest: Mapping[str, Any], content: Mapping[str, Any], members: Mapping[str, memoryview]) -> None:
    """Check that a file has the members listed in its manifest, with their sizes and hashes.

    Args:
        manifest: The manifest.
        content: The manifest after its fields were checked.
        members: The members of the file, except the manifest.

    Raises:
        Error: A member is missing, or has another size or hash.
    """
    if content["sha256"] != checksum(manifest):
        raise Error("the checksum of its manifest is that of another one")
    if [entry[0] for entry in content["members"]] != list(members):
        raise Error("its members are not those that its manifest lists")
    for key, size, sha256 in content["members"]:
        check(members[key], size, sha256, key)


def stored_values(
    described: Any, signature: Signature, programs: Sequence[str], members: Mapping[str, memoryview]
) -> Parameters | None:
    """Return the values of parameters that a manifest describes.

    Args:
        described: Their entry in the manifest.
        signature: The signature with the parameters.
        programs: The names of the members that are programs.
        members: All members.

    Raises:
        Error: There are members other than these programs and the values, or the values do not match the signature.
    """
    values = None if described is None else Parameters.from_json(described, signature)
    is_inside = values is not None and values.file is None
    if [*programs, *[PARAMETERS] * is_inside] != list(members) or not programs:
        raise Error("its members are not the programs that its manifest has")
    if values is not None and is_inside:
        check(members[PARAMETERS], values.size, values.sha256, PARAMETERS)
        values = replace(values, content=members[PARAMETERS])
    return values


def _from_manifest(manifest: Any, members: Mapping[str, memoryview]) -> Archive:
    content = _CONTENT(manifest, "manifest")
    check_members(manifest, content, members)
    signature, programs = Signature.from_json(content["signature"]), content["programs"]
    names = [member(index, p["target"], p["arch"]) for index, p in enumerate(programs)]
    values = stored_values(content["parameters"], signature, names, members)
    stored = [
        StoredProgram(p["target"], p["arch"], p["info"], members[key]) for key, p in zip(names, programs, strict=True)
    ]
    return Archive(signature, tuple(stored), values)
