"""An entry point in a file of compiled programs: its signature, and a program for each of some targets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlx.support.errors import Error, ExecutionError
from rlx.targets.artifacts import fields
from rlx.targets.artifacts.artifact import Artifact, NoBackEndError, check_header
from rlx.targets.artifacts.fields import list_of, name, optional, record
from rlx.targets.artifacts.parameters import Parameters
from rlx.targets.artifacts.signature import Signature
from rlx.targets.protocol import Judging
from rlx.targets.registry import backend_of

MOST_PROGRAMS = 64


@dataclass(frozen=True)
class StoredProgram:
    """A program in a file. Only its checksum has been checked."""

    target: str
    arch: str
    info: Mapping[str, Any] = field(repr=False)
    code: Any = field(repr=False)

    def __str__(self) -> str:
        return f"{self.target} ({self.arch})"


@dataclass(frozen=True)
class StoredEntry:
    """An entry point in a file.

    Attributes:
        signature: The arguments and outputs, which all programs share.
        programs: The programs; the first ones are preferred.
        parameters: Values of its parameters; None if there are none.
        origin: Its name in messages.
        folder: The folder that the file was read from.
    """

    signature: Signature
    programs: tuple[StoredProgram, ...]
    parameters: Parameters | None = None
    origin: str = "the file"
    folder: str | None = None

    @classmethod
    def of(cls, artifacts: Sequence[Artifact]) -> StoredEntry:
        """An entry point with some programs.

        Raises:
            Error: They are of different signatures, or two are for the same target and architecture.
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
        return cls(first, tuple(StoredProgram(a.target, a.arch, a.info, a.program) for a in artifacts))

    def to_json(self) -> dict[str, Any]:
        programs = [{"target": p.target, "arch": p.arch, "info": p.info} for p in self.programs]
        return {"signature": self.signature.to_json(), "programs": programs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], codes: Sequence[Any]) -> StoredEntry:
        """The entry point that `to_json` was called on.

        Args:
            data: An entry of the manifest, checked by `ENTRY`.
            codes: The code of each program.

        Raises:
            Error: The signature is not valid.
        """
        stored = [
            StoredProgram(p["target"], p["arch"], p["info"], code)
            for p, code in zip(data["programs"], codes, strict=True)
        ]
        return cls(Signature.from_json(data["signature"]), tuple(stored))

    def artifact(self, stored: StoredProgram) -> Artifact:
        """One of the programs, checked by its back end.

        Raises:
            Error: There is no such back end here, or what is said about the program is not what its back end writes.
        """
        try:
            check_header(stored.target, stored.arch, stored.info)
        except NoBackEndError as problem:
            raise NoBackEndError(f"{self.origin}: {problem.message}", hint=problem.hint) from None
        except Error as problem:
            raise Error(f"{self.origin} is damaged: {problem.message}", hint=problem.hint) from None
        return Artifact(stored.target, stored.arch, self.signature, bytes(stored.code), dict(stored.info))

    def choose(self, target: str | None = None) -> Artifact:
        """The program for this machine: of the first target that it has a device of, the one that makes most use of it.

        A file with one program gives that one; whether this machine can run it is said when it is loaded on its device.

        Args:
            target: The name of the only target to choose among.

        Raises:
            Error: There is none; the message says for each program why not.
        """
        candidates = [p for p in self.programs if target is None or p.target == target]
        if not candidates:
            has = ", ".join(map(str, self.programs))
            raise Error(f"{self.origin} has no program for {target!r:.60}", hint=f"it has programs for {has}")
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
                f"{self.origin} has no program that this machine can run:\n  " + "\n  ".join(reasons),
                hint="compile one for this machine as well: `rlx compile --also=cpu:x86-64`",
            )
        return max(able, key=lambda entry: entry[0])[1]


def _judge(target: str) -> Judging | None:
    """Return the function that checks whether this machine can run a program for a target."""
    loader: Any = backend_of(target).loader
    return loader if isinstance(loader, Judging) else None


def member(index: int, entry: str | None, target: str, arch: str) -> str:
    """The name of a program in the file: for people who take it out."""
    words = "-".join(word for word in (entry, target, arch) if word is not None)
    return f"programs/{index}-" + re.sub(r"[^A-Za-z0-9_-]", "_", words)[:60]


def unchanged(value: Any, what: str) -> Any:
    return value  # it is checked elsewhere


def _facts(value: Any, what: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise fields.unexpected_value(what, "an object", value)
    return value  # the back end checks it


_PROGRAM = record({"target": name, "arch": name, "info": _facts})
# An entry point in a manifest. That of a single graph has no name.
ENTRY = record({"name": optional(name), "signature": unchanged, "programs": list_of(_PROGRAM, MOST_PROGRAMS)})
