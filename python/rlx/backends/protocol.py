"""What every back end is: a module with these functions. `backend_of` finds the one for a target."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from rlx.backends.artifact import Artifact
from rlx.backends.cache import DiskCache
from rlx.backends.fields import Check
from rlx.ir.checks import check_string
from rlx.ir.errors import CompileError, Error
from rlx.ir.graph import Graph


class Target(Protocol):
    """A device, or a kind of file, to compile for."""

    @property
    def name(self) -> str:
        """The target's name."""
        ...

    @property
    def arch(self) -> str:
        """Its architecture."""
        ...

    @property
    def unsupported_dtypes(self) -> frozenset[str]:
        """The dtypes of which a tensor cannot be computed with."""
        ...


class Program(Protocol):
    """A loaded artifact with its weights and states."""

    def call(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """Run it on arrays for its inputs, in order; the results own their memory. States are updated."""
        ...

    def read_state(self, name: str) -> np.ndarray:
        """A copy of a state's present value."""
        ...

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set a state."""
        ...


class DeviceInfo(Protocol):
    """One device, or one driver that has none."""

    @property
    def driver(self) -> str:
        """What runs programs on it."""
        ...

    @property
    def uri(self) -> str:
        """What tells it from others of the same driver."""
        ...

    @property
    def name(self) -> str:
        """The device's own name."""
        ...

    @property
    def available(self) -> bool:
        """Whether it can be used."""
        ...

    @property
    def reason(self) -> str:
        """Why not."""
        ...


class Backend(Protocol):
    """A way from graphs to running programs."""

    def target_names(self) -> Collection[str]:
        """The names that `target` takes, aliases among them."""
        ...

    def target(self, name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
        """The target of a name, for one architecture or the default one.

        Raises:
            CompileError: There is no such architecture, or a flag is wrong.
        """
        ...

    def claimed_ops(self) -> frozenset[str]:
        """Names of the ops that it lowers; the others are decomposed."""
        ...

    def legalised(self, graph: Graph, target: Any, *, policy: str = "direct") -> Graph:
        """A graph at LIR: of ops that the back end lowers, of dtypes that the target has.

        Raises:
            UnsupportedError: A dtype is not there.
        """
        ...

    def compile_graph(
        self,
        graph: Graph,
        target: Any,
        *,
        fusion_policy: str = "direct",
        cache: DiskCache | None = None,
        timeout_s: float | None = None,
        phases: dict[str, float] | None = None,
    ) -> Artifact:
        """Compile a graph, which is not changed.

        Raises:
            CompileError: It cannot be expressed or compiled for the target.
        """
        ...

    def info_fields(self) -> Mapping[str, Check]:
        """What stands in `Artifact.info`: the entries, each with its check. A file with others is refused."""
        ...

    def load(self, artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> Program:
        """Load an artifact on its device. The parameters are C-contiguous, and nobody changes them afterwards.

        Raises:
            Error: The device is not there, or the artifact does not run on it.
        """
        ...

    def emit(self, kind: str, graph: Graph, target: Any) -> str | None:
        """A legalised graph in a form for people to read, or None if the back end has no form of that name."""
        ...

    def devices(self) -> Sequence[DeviceInfo]:
        """The devices that it finds, and why it finds none. Never raises."""
        ...


def target_of(name: str, arch: Any = None, flags: Any = ()) -> Any:
    """A target from what a user says.

    Raises:
        CompileError: There is no such target or architecture, or a flag is wrong.
        Error: The architecture is no string, or the flags are no strings.
    """
    if arch is not None:
        check_string(arch, "arch")
    if not isinstance(flags, (tuple, list)) or not all(isinstance(flag, str) for flag in flags):
        raise Error(f"flags must be a tuple of strings, got {flags!r:.60}")
    return backend_of(name).target(name, arch, tuple(flags))


_MODULES = ("rlx.backends.iree.backend", "rlx.backends.xla.backend")


def backends() -> list[Backend]:
    """All back ends."""
    return [importlib.import_module(name) for name in _MODULES]  # type: ignore[misc]


def backend_of(target: str) -> Backend:
    """The back end that compiles for a target and runs its programs.

    Raises:
        CompileError: There is no such target.
    """
    check_string(target, "a target")
    known: list[str] = []
    for module in _MODULES:  # those behind the right one are not imported
        found: Backend = importlib.import_module(module)  # type: ignore[assignment]
        if target in found.target_names():
            return found
        known += found.target_names()
    close = get_close_matches(str(target), known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise CompileError(f"unknown target: {target!r}", hint=f"{hint}known: {', '.join(known)}")
