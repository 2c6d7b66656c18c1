"""`Artifact`: a compiled program with everything needed to load it elsewhere. `archive.py` has its file format."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlx.support.errors import CompileError, Error
from rlx.targets.artifacts.fields import list_of, name, record
from rlx.targets.artifacts.signature import Signature, requirement
from rlx.targets.registry import backend_of, target_of

# The entries that the `info` of every artifact has, in addition to those of the back end.
_COMMON_INFO = {"requirements": list_of(requirement), "rlx": name}


class NoBackEndError(Error):
    """The target of a program belongs to a package that is not installed."""


@dataclass(frozen=True)
class Artifact:
    """A compiled program.

    Attributes:
        target: The name of the target that it is compiled for.
        arch: Its architecture.
        signature: The arguments and outputs of the program.
        program: The code. For IREE's targets it is a VM module.
        info: Facts for users and for loading. The entries are those of the back end's `info_fields`, plus `requirements`, the
            requirements on the sizes of symbols, and `rlx`, the version that compiled it.
    """

    target: str
    arch: str
    signature: Signature
    program: bytes = field(repr=False)
    info: dict[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The file with this program and no parameters.

        Raises:
            Error: The file is larger than 2 GiB.
        """
        from rlx.targets.artifacts.archive import Archive

        return Archive.of({None: [self]}).to_bytes()

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file with this artifact, as `rlx compile` and `sha256sum` print it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "artifact", *, expected_sha256: str | None = None) -> Artifact:
        """The program for this machine in the content of a file: see `Archive.from_bytes` and `StoredPrograms.choose`."""
        from rlx.targets.artifacts.archive import Archive

        return Archive.from_bytes(data, name, expected_sha256=expected_sha256).entry().only().choose()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to a file atomically."""
        from rlx.targets.artifacts.archive import Archive

        Archive.of({None: [self]}).save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, expected_sha256: str | None = None) -> Artifact:
        """The program for this machine in a file: see `Archive.load` and `StoredPrograms.choose`."""
        from rlx.targets.artifacts.archive import Archive

        return Archive.load(path, expected_sha256=expected_sha256).entry().only().choose()


def check_header(target: str, arch: str, info: Mapping[str, Any]) -> None:
    """Check a file's information about a program: the spelling of target and architecture, and the back end's own entries.

    Raises:
        NoBackEndError: No installed back end has the target.
        Error: The information does not match the back end.
    """
    try:
        backend = backend_of(target)
    except CompileError as problem:
        message = f"it is for target {target!r}, for which no back end is installed"
        raise NoBackEndError(message, hint=problem.hint) from None
    meant = target_of(target, arch)
    if (meant.name, meant.arch) != (target, arch):
        raise Error(f"it is for {target} ({arch}), another name of {meant.name} ({meant.arch})")
    record({**backend.loader.info_fields(), **_COMMON_INFO})(info, "info")
