"""An entry point in a file of compiled programs: its signature, and a program for each of some targets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlx.ir.interface import Argument, Output
from rlx.support.errors import Error, ExecutionError
from rlx.targets.artifacts.artifact import Artifact, NoBackEndError, check_header
from rlx.targets.artifacts.buckets import MOST_BUCKETS, Buckets, Sizes
from rlx.targets.artifacts.fields import integer, list_of, mapping, name, optional, record, unchanged
from rlx.targets.artifacts.parameters import Parameters
from rlx.targets.artifacts.signature import Signature
from rlx.targets.iree.cpu import advice
from rlx.targets.protocol import CheckingCpus, Judging
from rlx.targets.registry import backend_of

MOST_PROGRAMS = 64
_LARGEST_SIZE = (1 << 63) - 1


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
class StoredPrograms:
    """The programs of one function in a file.

    Attributes:
        signature: The arguments and outputs, which all programs share.
        programs: The programs; the first ones are preferred.
        origin: The name of the entry point in messages.
    """

    signature: Signature
    programs: tuple[StoredProgram, ...]
    origin: str = "the file"

    @classmethod
    def of(cls, artifacts: Sequence[Artifact]) -> StoredPrograms:
        """Return the programs of some artifacts.

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
    def from_json(cls, data: Mapping[str, Any], codes: Iterator[Any]) -> StoredPrograms:
        """Return the programs that `to_json` was called on.

        Args:
            data: A part of the manifest, checked by `ENTRY`.
            codes: The code of each program is taken from here.

        Raises:
            Error: The signature is not valid.
        """
        stored = [StoredProgram(p["target"], p["arch"], p["info"], next(codes)) for p in data["programs"]]
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

        A file with one program gives that one. `rlx.load` checks it by `check_cpu`.

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
                hint=f"compile one for this machine as well: `rlx compile --also=cpu:{advice()}`",
            )
        return max(able, key=lambda entry: entry[0])[1]


@dataclass(frozen=True)
class StoredEntry:
    """An entry point in a file.

    Attributes:
        signature: The arguments and outputs, with the symbols of buckets.
        by_sizes: The programs for each combination of sizes; `()` without buckets.
        buckets: The sizes; None without buckets.
        parameters: Values of its parameters; None if there are none.
        folder: The folder that the file was read from.
    """

    signature: Signature
    by_sizes: Mapping[Sizes, StoredPrograms]
    buckets: Buckets | None = None
    parameters: Parameters | None = None
    folder: str | None = None

    @classmethod
    def of(cls, artifacts: Sequence[Artifact]) -> StoredEntry:
        """Return an entry point without buckets. See `StoredPrograms.of`.

        Raises:
            Error: The artifacts do not belong to one function.
        """
        programs = StoredPrograms.of(artifacts)
        return cls(programs.signature, {(): programs})

    @classmethod
    def of_buckets(
        cls, signature: Signature, buckets: Buckets, artifacts: Mapping[Sizes, Sequence[Artifact]]
    ) -> StoredEntry:
        """Return an entry point with artifacts for each combination of sizes. See `StoredPrograms.of`.

        Raises:
            Error: Artifacts of the same sizes do not belong to one function.
        """
        return cls(signature, {sizes: StoredPrograms.of(each) for sizes, each in artifacts.items()}, buckets)

    @property
    def programs(self) -> list[StoredProgram]:
        """All programs."""
        return [program for programs in self.by_sizes.values() for program in programs.programs]

    def placed(self, origin: str, folder: str | None, parameters: Parameters | None) -> StoredEntry:
        """Return the entry point with its place and the values of its parameters."""
        by_sizes = {sizes: replace(programs, origin=origin) for sizes, programs in self.by_sizes.items()}
        return replace(self, by_sizes=by_sizes, folder=folder, parameters=parameters)

    def only(self) -> StoredPrograms:
        """Return the programs of an entry point without buckets.

        Raises:
            Error: It has buckets.
        """
        if self.buckets is not None:
            origin = next(iter(self.by_sizes.values())).origin
            raise Error(f"{origin} has programs for buckets: {self.buckets}", hint="rlx.load gives them all")
        return self.by_sizes[()]

    def to_json(self) -> dict[str, Any]:
        if self.buckets is None:
            return {**self.by_sizes[()].to_json(), "buckets": []}
        buckets = [
            {"sizes": self.buckets.named(sizes), **programs.to_json()} for sizes, programs in self.by_sizes.items()
        ]
        return {"signature": self.signature.to_json(), "programs": [], "buckets": buckets}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], codes: Iterator[Any]) -> StoredEntry:
        """Return the entry point that `to_json` was called on.

        Args:
            data: An entry of the manifest, checked by `ENTRY`.
            codes: The code of each program is taken from here, in order.

        Raises:
            Error: A signature is not valid, or the buckets do not belong to it.
        """
        if not data["buckets"]:
            programs = StoredPrograms.from_json(data, codes)
            return cls(programs.signature, {(): programs})
        signature = Signature.from_json(data["signature"])
        symbols = list(data["buckets"][0]["sizes"])
        if not symbols or any(list(bucket["sizes"]) != symbols for bucket in data["buckets"]):
            raise Error("the buckets of an entry point have different symbols, or none")
        each = [tuple(bucket["sizes"].values()) for bucket in data["buckets"]]
        buckets = Buckets.of({s: [sizes[i] for sizes in each] for i, s in enumerate(symbols)}, signature)
        if each != buckets.combinations:
            raise Error("the buckets of an entry point are not all combinations of their sizes, in order")
        by_sizes = {}
        for sizes, bucket in zip(each, data["buckets"], strict=True):
            by_sizes[sizes] = StoredPrograms.from_json(bucket, codes)
            _check_bucket(signature, by_sizes[sizes].signature, buckets.named(sizes))
        return cls(signature, by_sizes, buckets)


def programs_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the descriptions of all programs of an entry of the manifest, checked by `ENTRY`.

    Raises:
        Error: The entry or one of its buckets has no program, or the entry has programs in addition to its buckets.
    """
    if data["buckets"] and data["programs"]:
        raise Error(f"the entry {data['name']!a:.60} has buckets and programs without sizes")
    parts = data["buckets"] or [data]
    if not all(part["programs"] for part in parts):
        raise Error(f"the entry {data['name']!a:.60} has no program")
    return [program for part in parts for program in part["programs"]]


def _check_bucket(signature: Signature, bound: Signature, sizes: Mapping[str, int]) -> None:
    """Check that the signature of a bucket is that of its entry point for some sizes.

    Raises:
        Error: It is not.
    """
    for whole, part in ((signature.arguments, bound.arguments), (signature.outputs, bound.outputs)):
        if [_facts_of(a) for a in whole] != [_facts_of(a) for a in part]:
            raise Error(f"the signature for the bucket {dict(sizes)} is not that of the entry point")
        for a, b in zip(whole, part, strict=True):
            dims = zip(a.shape.bind(sizes).dims, b.shape.dims, strict=True)
            if any(type(expected) is int and expected != d for expected, d in dims):
                raise Error(f"'{a.name}' is {b.shape} for the bucket {dict(sizes)} of {a.shape}")


def _facts_of(a: Argument | Output) -> tuple[Any, ...]:
    kind = (a.kind, a.donate, a.init) if isinstance(a, Argument) else ()
    return (a.name, *kind, a.dtype, a.rank)


def _judge(target: str) -> Judging | None:
    """Return the function that checks whether this machine can run a program for a target."""
    loader: Any = backend_of(target).loader
    return loader if isinstance(loader, Judging) else None


def check_cpu(artifact: Artifact) -> None:
    """Check that this machine's CPU can run a program. No device is opened.

    Raises:
        ExecutionError: It cannot.
    """
    loader: Any = backend_of(artifact.target).loader
    if isinstance(loader, CheckingCpus):
        loader.check_cpu(artifact)


def member(index: int, entry: str | None, target: str, arch: str) -> str:
    """The name of a program in the file: for people who take it out."""
    words = "-".join(word for word in (entry, target, arch) if word is not None)
    return f"programs/{index}-" + re.sub(r"[^A-Za-z0-9_-]", "_", words)[:60]


def _sizes(value: Any, what: str) -> dict[str, int]:
    size = integer(1, _LARGEST_SIZE)
    return {name(symbol, what): size(entry, what) for symbol, entry in mapping(value, what).items()}


_PROGRAM = record({"target": name, "arch": name, "info": mapping})  # the back end checks `info`
_PROGRAMS = {"signature": unchanged, "programs": list_of(_PROGRAM, MOST_PROGRAMS)}
_BUCKET = record({"sizes": _sizes, **_PROGRAMS})
# An entry point in a manifest. That of a single graph has no name. With buckets, it has no other programs.
ENTRY = record({"name": optional(name), **_PROGRAMS, "buckets": list_of(_BUCKET, MOST_BUCKETS)})
