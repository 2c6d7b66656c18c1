"""The file of several compiled entry points, which share parameters and states by name.

It is the archive of `archive.py` with another manifest. This manifest lists the entries, each with its signature and its
programs for one or more targets. The value of each parameter is stored once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlx.ir.interface import Argument
from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.support.suggestions import suggestion
from rlx.targets.artifacts.archive import (
    FORMAT,
    MEMBER,
    MOST_PROGRAMS,
    PROGRAM,
    SEVERAL_FORMAT,
    Archive,
    StoredProgram,
    Written,
    check_members,
    member,
    programs_to_json,
    read_members,
    stored_values,
    unchanged,
    written_members,
)
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.fields import listed, name, record
from rlx.targets.artifacts.parameters import Parameters
from rlx.targets.artifacts.signature import Signature
from rlx.weights.mapped import content_of

MOST_ENTRIES = 64


@dataclass(frozen=True)
class Bundle(Written):
    """The content of a file of several entry points.

    Attributes:
        entries: The programs of each entry point, without parameters.
        parameters: Values of the parameters of all entry points, or None.
        name: The name in messages.
        folder: The folder that the file was read from.
    """

    entries: Mapping[str, Archive]
    parameters: Parameters | None = None
    name: str = "the file"
    folder: str | None = None

    @classmethod
    def of(cls, artifacts: Mapping[str, Sequence[Artifact]]) -> Bundle:
        """Return a file with the programs of some entry points.

        Raises:
            Error: There are too many, arguments with the same name differ, or the programs of one entry are inconsistent.
        """
        if len(artifacts) > MOST_ENTRIES:
            raise Error(f"{len(artifacts)} entry points in one file; at most {MOST_ENTRIES} are allowed")
        bundle = cls({entry: Archive.of(programs) for entry, programs in artifacts.items()})
        bundle.shared  # noqa: B018  (raises)
        return bundle

    @property
    def shared(self) -> dict[str, Argument]:
        """The parameters and states of all entries, by name."""
        return shared_arguments({entry: archive.signature.arguments for entry, archive in self.entries.items()})

    @property
    def signature(self) -> Signature:
        """The parameters and states of all entries, as the signature of a function."""
        return Signature("shared", tuple(self.shared.values()), ())

    def entry(self, name: str | None) -> Archive:
        """The programs of one entry, with the values of its parameters.

        Raises:
            Error: The entry does not exist; the message lists all entries.
        """
        known = ", ".join(map(ascii, self.entries))
        if name is None:
            first = next(iter(self.entries))
            raise Error(f"{self.name} has several entry points: {known}", hint=f"name one: --entry={first!a:.60}")
        if name not in self.entries:
            raise Error(f"{self.name} has no entry point {name!a:.60}{suggestion(name, self.entries)}; it has {known}")
        archive, values = self.entries[name], self.parameters
        if values is not None:
            own = {argument.name for argument in archive.signature.of_kind("param")}
            values = replace(values, places={key: place for key, place in values.places.items() if key in own})
        return replace(archive, parameters=values, name=f"{self.name}, entry {name!a:.60}", folder=self.folder)

    # --- writing ----------------------------------------------------------------------------------

    def _members(self) -> dict[str, Any]:
        entries = [
            {"name": entry, "signature": archive.signature.to_json(), "programs": programs_to_json(archive.programs)}
            for entry, archive in self.entries.items()
        ]
        programs = [(entry, stored) for entry, archive in self.entries.items() for stored in archive.programs]
        codes = {_member(i, entry, p.target, p.arch): p.code for i, (entry, p) in enumerate(programs)}
        return written_members({"format": SEVERAL_FORMAT, "entries": entries}, codes, self.parameters)


def shared_arguments(entries: Mapping[str, Iterable[Argument]]) -> dict[str, Argument]:
    """Return the parameters and states of several entry points, by name. Equal names mean the same parameter or state.

    Args:
        entries: The arguments of each entry point.

    Raises:
        Error: Two with the same name differ in kind, shape, dtype or initial value; the message names both entry points.
    """
    found: dict[str, tuple[str, Argument]] = {}
    for entry, arguments in entries.items():
        for argument in arguments:
            if argument.kind == "input":
                continue
            first, other = found.setdefault(argument.name, (entry, argument))
            if (argument.kind, argument.shape) != (other.kind, other.shape) or argument.init != other.init:
                raise Error(
                    f"'{argument.name}' is {_described(other)} in {first!a} and {_described(argument)} in {entry!a}",
                    hint="entry points share parameters and states by name: make them equal, or rename one",
                )
    return {key: argument for key, (_, argument) in found.items()}


def _described(argument: Argument) -> str:
    initial = f" that begins as {argument.init:g}" if argument.kind == "state" else ""
    return f"a {'parameter' if argument.kind == 'param' else argument.kind} {argument.shape}{initial}"


def _member(index: int, entry: str, target: str, arch: str) -> str:
    return member(index, f"{entry}-{target}", arch)


# --- reading --------------------------------------------------------------------------------------

_ENTRY = record({"name": name, "signature": unchanged, "programs": listed(PROGRAM, MOST_PROGRAMS)})
_CONTENT: Callable[[Any, str], dict[str, Any]] = record(
    {
        "format": unchanged,
        "entries": listed(_ENTRY, MOST_ENTRIES),
        "parameters": unchanged,
        "members": listed(MEMBER, MOST_ENTRIES * MOST_PROGRAMS + 1),
        "sha256": name,
    }
)


def from_bytes(data: Any, name: str = "artifact", *, expected_sha256: str | None = None) -> Archive | Bundle:
    """Read the result of `Archive.to_bytes` or `Bundle.to_bytes`. All checksums are verified.

    Args:
        data: The content of the file, an object with the buffer protocol. It must not change while the result is used.
        name: The name in messages.
        expected_sha256: The expected SHA-256, in hexadecimal.

    Raises:
        Error: The data is damaged, has another format, or does not have the expected SHA-256.
    """
    manifest, members = read_members(data, name, expected_sha256, (FORMAT, SEVERAL_FORMAT))
    if not isinstance(manifest, dict) or manifest["format"] == FORMAT:
        return Archive.from_bytes(data, name)
    try:
        return replace(_from_manifest(manifest, members), name=name)
    except Error as problem:
        raise Error(f"{name} is damaged: {problem.message}", hint=problem.hint) from None


def load(path: str | os.PathLike[str], *, expected_sha256: str | None = None) -> Archive | Bundle:
    """Map a file of either kind into memory: see `Archive.load`.

    Raises:
        Error: The file cannot be read, is damaged, or does not have the expected SHA-256.
    """
    file = file_name(path)
    found = from_bytes(content_of(file), file, expected_sha256=expected_sha256)
    return replace(found, folder=os.path.dirname(os.path.abspath(file)))


def _from_manifest(manifest: dict[str, Any], members: Mapping[str, memoryview]) -> Bundle:
    content = _CONTENT(manifest, "manifest")
    check_members(manifest, content, members)
    names = [entry["name"] for entry in content["entries"]]
    if len(set(names)) != len(names):
        raise Error("two entries have the same name")
    rows = [(entry["name"], p) for entry in content["entries"] for p in entry["programs"]]
    keys = [_member(index, entry, p["target"], p["arch"]) for index, (entry, p) in enumerate(rows)]
    if not keys or list(members)[: len(keys)] != keys:
        raise Error("its members are not the programs that its manifest has")
    codes = iter(keys)
    entries = {}
    for entry in content["entries"]:
        stored = [StoredProgram(p["target"], p["arch"], p["info"], members[next(codes)]) for p in entry["programs"]]
        if not stored:
            raise Error(f"the entry {entry['name']!a:.60} has no program")
        entries[entry["name"]] = Archive(Signature.from_json(entry["signature"]), tuple(stored))
    bundle = Bundle(entries)
    return replace(bundle, parameters=stored_values(content["parameters"], bundle.signature, keys, members))
