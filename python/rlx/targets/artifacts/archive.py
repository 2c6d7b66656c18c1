"""The file of compiled programs, `.rlxa`: entry points, each with a program for some targets, and the values of parameters.

It is an archive (`container.py`) of a manifest, the programs, and perhaps parameters. The manifest has the size and the hash of
every member and of itself, so that all that is used is what was written. It is checked here that a file is complete and
consistent. A program is code: whether to trust it, only the user can decide, who may give the SHA-256 of the file.

A single graph is an entry point without a name. Several entry points have names, and share parameters and states by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlx.support.errors import Error
from rlx.support.files import check_writable, file_name, replacing
from rlx.support.suggestions import suggestion
from rlx.targets.artifacts import fields, parameters
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.buckets import MOST_BUCKETS
from rlx.targets.artifacts.container import members_of, pack_archive, write
from rlx.targets.artifacts.entry import ENTRY, MOST_PROGRAMS, StoredEntry, member, programs_of
from rlx.targets.artifacts.fields import integer, list_of, name, unchanged
from rlx.targets.artifacts.parameters import Parameters, check
from rlx.targets.artifacts.signature import Signature, shared_arguments
from rlx.targets.hashes import check_sha256
from rlx.weights.mapped import content_of

FORMAT = 7
MANIFEST, PARAMETERS = "manifest.json", "parameters.irpa"
MOST_ENTRIES = 64
_LONGEST_MANIFEST = 64 << 20


@dataclass(frozen=True)
class Archive:
    """The content of a file of compiled programs.

    Attributes:
        entries: The programs of each entry point by its name, without parameters. That of a single graph has the name None.
        parameters: Values of parameters of any of them; None if there are none.
        name: Its name in messages.
        folder: The folder that it was read from.
    """

    entries: Mapping[str | None, StoredEntry]
    parameters: Parameters | None = None
    name: str = "the file"
    folder: str | None = None

    @classmethod
    def of(cls, entries: Mapping[str | None, StoredEntry | Sequence[Artifact]]) -> Archive:
        """A file with some entry points, or of a single graph, whose name is None. Artifacts have one signature.

        Raises:
            Error: There are too many, they do not share what has one name, or those of an entry do not go together.
        """
        if len(entries) > MOST_ENTRIES:
            raise Error(f"{len(entries)} entry points in one file; at most {MOST_ENTRIES} are allowed")
        stored = {n: e if isinstance(e, StoredEntry) else StoredEntry.of(e) for n, e in entries.items()}
        return cls(_checked(stored))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entry points; none if the file has a single graph."""
        return tuple(entry for entry in self.entries if entry is not None)

    @property
    def signature(self) -> Signature:
        """The parameters and states of all entry points, as the signature of a function."""
        return _shared(self.entries)

    def entry(self, name: str | None = None) -> StoredEntry:
        """The programs of one entry point, with the values of its parameters.

        Args:
            name: Its name; None for the only one.

        Raises:
            Error: There is no such entry point, or there are several; the message lists them.
        """
        known = ", ".join(map(ascii, self.names))
        if name is None and len(self.entries) > 1:
            hint = f"name one: --entry={self.names[0]!a:.60}; rlx.load gives them all"
            raise Error(f"{self.name} has several entry points: {known}", hint=hint)
        if name is not None and name not in self.entries:
            there = f"{suggestion(name, self.names)}; it has {known or 'a single graph'}"
            raise Error(f"{self.name} has no entry point {name!a:.60}{there}")
        name = next(iter(self.entries)) if name is None else name
        found, values = self.entries[name], self.parameters
        if values is not None:
            own = {argument.name for argument in found.signature.of_kind("param")}
            values = replace(values, places={key: place for key, place in values.places.items() if key in own})
        origin = self.name if name is None else f"{self.name}, entry {name!a:.60}"
        return found.placed(origin, self.folder, values)

    # --- writing ----------------------------------------------------------------------------------

    def with_parameters(self, arrays: Mapping[str, np.ndarray]) -> Archive:
        """The same with the values of parameters, by name, in the file itself."""
        return replace(self, parameters=parameters.packed(arrays))

    def to_bytes(self) -> bytes:
        """Return the content of the file. Equal contents give equal bytes.

        Raises:
            Error: The file is larger than 2 GiB.
        """
        return pack_archive(self._members())

    def save(
        self,
        path: str | os.PathLike[str],
        arrays: Mapping[str, np.ndarray] | None = None,
        params_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write the file atomically, or two files. If an error is raised, both are unchanged.

        Args:
            path: The file.
            arrays: Values of parameters to add, by name.
            params_file: Another file for these values; None writes them into the file.

        Raises:
            Error: A file cannot be written, the program is larger than 2 GiB, or the file for the values is in another
                folder or is the same one.
        """
        if arrays is None:
            with replacing(path) as temporary, open(temporary, "wb") as file:
                write(file, self._members())
        elif params_file is None:
            self.with_parameters(arrays).save(path)
        else:
            name = check_beside(path, params_file)
            check_writable(params_file)  # it is replaced last, after the program
            with replacing(params_file) as temporary:
                stored = parameters.written(arrays, temporary, name)
                replace(self, parameters=stored).save(path)

    def _members(self) -> dict[str, Any]:
        rows = [(name, program) for name, entry in self.entries.items() for program in entry.programs]
        others = {member(i, name, p.target, p.arch): p.code for i, (name, p) in enumerate(rows)}
        values = self.parameters
        if values is not None and values.file is None:
            others[PARAMETERS] = values.content
        manifest = {
            "format": FORMAT,
            "entries": [{"name": name, **entry.to_json()} for name, entry in self.entries.items()],
            "parameters": values and values.to_json(),
            "members": [[n, memoryview(d).nbytes, hashlib.sha256(d).hexdigest()] for n, d in others.items()],
        }
        manifest["sha256"] = checksum(manifest)
        return {MANIFEST: json.dumps(manifest, indent=1, allow_nan=False).encode(), **others}

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
        if expected_sha256 is not None:
            check_sha256(data, expected_sha256, name)
        manifest, members = _read(data, name)
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


def check_beside(path: str | os.PathLike[str], params_file: str | os.PathLike[str]) -> str:
    """Return the name of a file for values of parameters, checked to be in the folder of the file with the programs.

    Raises:
        Error: It is in another folder, or is the same file.
    """
    target, beside = Path(file_name(path)), Path(file_name(params_file))
    same = os.path.realpath(target) == os.path.realpath(beside)
    with contextlib.suppress(OSError):
        same = same or os.path.samefile(target, beside)  # hard links, and file systems that ignore case
    if same:
        raise Error(f"{beside} is the file of the program, {target}", hint="name another file for the parameters")
    if target.absolute().parent != beside.absolute().parent:
        hint = f"write it to {target.absolute().parent}"
        raise Error(f"{beside} must be in the same folder as {target}", hint=hint)
    return beside.name


def _shared(entries: Mapping[str | None, StoredEntry]) -> Signature:
    arguments = {entry or "": stored.signature.arguments for entry, stored in entries.items()}
    return Signature("shared", tuple(shared_arguments(arguments).values()), ())


def _checked(entries: Mapping[str | None, StoredEntry]) -> Mapping[str | None, StoredEntry]:
    """Entry points that may be together in a file.

    Raises:
        Error: Two entry points disagree about a shared parameter or state, or one of several has no name.
    """
    if None in entries and len(entries) > 1:
        raise Error("one of several entry points has no name")
    _shared(entries)
    return entries


def _read(data: Any, name: str) -> tuple[Any, dict[str, memoryview]]:
    """Return the manifest of a file and the other members. Only the format of the manifest has been checked.

    Raises:
        Error: The data is no such file, is damaged, or of another format.
    """
    try:
        members = members_of(data)
        if next(iter(members)) != MANIFEST:
            raise Error(f"its first member is not {MANIFEST}")
        manifest = fields.parse_json(bytes(members.pop(MANIFEST)), _LONGEST_MANIFEST)
    except Error as problem:
        raise Error(f"{name} is not a compiled RLX program, or is damaged: {problem.message}") from None
    if isinstance(manifest, dict) and manifest.get("format") != FORMAT:
        written_format = fields.shown(manifest.get("format"))
        raise Error(f"{name}: format {written_format}, this version reads {FORMAT}", hint="compile it again")
    return manifest, members


def checksum(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest, which the manifest contains."""
    others = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


_CONTENT: Callable[[Any, str], dict[str, Any]] = fields.record(
    {
        "format": unchanged,
        "entries": list_of(ENTRY, MOST_ENTRIES),
        "parameters": unchanged,
        "members": list_of(
            fields.row(name, integer(0, 1 << 32), name), MOST_ENTRIES * MOST_BUCKETS * MOST_PROGRAMS + 1
        ),
        "sha256": name,
    }
)


def _from_manifest(manifest: Any, members: Mapping[str, memoryview]) -> Archive:
    content = _CONTENT(manifest, "manifest")
    if content["sha256"] != checksum(manifest):
        raise Error("the checksum of its manifest is that of another one")
    if [entry[0] for entry in content["members"]] != list(members):
        raise Error("its members are not those that its manifest lists")
    for key, size, sha256 in content["members"]:
        check(members[key], size, sha256, key)
    names = [entry["name"] for entry in content["entries"]]
    if len(set(names)) != len(names):
        raise Error("two entries have the same name")
    rows = [(entry["name"], p) for entry in content["entries"] for p in programs_of(entry)]
    keys = [member(index, entry, p["target"], p["arch"]) for index, (entry, p) in enumerate(rows)]
    if not keys or list(members)[: len(keys)] != keys:
        raise Error("its members are not the programs that its manifest has")
    codes = (members[key] for key in keys)
    entries = {entry["name"]: StoredEntry.from_json(entry, codes) for entry in content["entries"]}
    archive = Archive(_checked(entries))
    return replace(archive, parameters=_values(content["parameters"], archive.signature, keys, members))


def _values(
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
    if [*programs, *[PARAMETERS] * is_inside] != list(members):
        raise Error("its members are not the programs that its manifest has")
    if values is not None and is_inside:
        check(members[PARAMETERS], values.size, values.sha256, PARAMETERS)
        values = replace(values, content=members[PARAMETERS])
    return values
