"""What a back end is: a module, or an object, with the functions of `Compiler`, and of `Runtime` if it runs programs here.

`registry.py` finds the back end of a target. `docs/backends.md` shows a whole one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from rlx.backends.artifact import Artifact
    from rlx.backends.compilation import Compilation
    from rlx.backends.fields import Check

# --- compiling ------------------------------------------------------------------------------------


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
    def rules(self) -> Mapping[str, Any]:
        """What the target lowers each op by, by op name: these are the ops that it claims. Others are decomposed."""
        ...

    @property
    def unsupported_dtypes(self) -> frozenset[str]:
        """The dtypes of which a tensor cannot be computed with."""
        ...

    @property
    def pipeline(self) -> str:
        """The passes that take a module at MIR to the target's LIR, as text: see `stages.to_lir`."""
        ...

    def fingerprint(self) -> str:
        """All of the target that programs depend on beside its name, its architecture and its pipeline, such as flags."""
        ...


@dataclass(frozen=True)
class Compiled:
    """What a back end makes of a graph.

    Attributes:
        program: The code, in whatever form the back end loads, or users take elsewhere.
        info: What is known of it, as JSON takes it: see `Compiler.info_fields`.
        lasting: Whether compiling again would give no better program: only then it is kept in the cache.
    """

    program: bytes
    info: Mapping[str, Any] = field(default_factory=dict)
    lasting: bool = True


@runtime_checkable
class Compiler(Protocol):
    """A way from graphs to programs."""

    def target_names(self) -> Collection[str]:
        """The names that `target` takes, aliases among them."""
        ...

    def target(self, name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
        """The target of a name, for one architecture or the default one.

        Raises:
            CompileError: There is no such architecture, or a flag is wrong.
        """
        ...

    def version(self) -> str:
        """The version of what compiles, on which programs depend.

        Raises:
            CompileError: It is not installed.
        """
        ...

    def compile_program(self, compilation: Compilation, timeout_s: float | None = None) -> Compiled:
        """Compile a graph, the `lir` of the compilation, for its target. Nothing of it is changed.

        Args:
            compilation: What is compiled; its `phases` may get the seconds of more phases.
            timeout_s: Seconds that an attempt of a compiler may take.

        Raises:
            CompileError: It cannot be expressed or compiled for the target.
        """
        ...

    def info_fields(self) -> Mapping[str, Check]:
        """The entries of `Compiled.info`, each with its check. A file with others is refused."""
        ...

    def emit(self, kind: str, compilation: Compilation) -> str | None:
        """What a compiler is given, in a form for people to read; None if the target has no form of that name."""
        ...

    def notes(self, artifact: Artifact) -> Sequence[str]:
        """What somebody who takes a program elsewhere should know of it, a line each."""
        ...


# --- running --------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class DeviceInfo:
    """One device, or one driver that has none.

    Attributes:
        driver: What runs programs on it: `"local-sync"`, `"cuda"` …
        uri: What tells it from others of the same driver, such as `"cuda://0"`.
        name: The device's own name.
        available: Whether it can be used.
        reason: Why not.
    """

    driver: str
    uri: str
    name: str
    available: bool
    reason: str = ""


@runtime_checkable
class Runtime(Protocol):
    """What runs the programs of a compiler, in this process or out of it."""

    def device_names(self) -> Collection[str]:
        """The targets whose programs run here, if there is such a device: names of devices for `Session`."""
        ...

    def load(self, artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> Program:
        """Load an artifact on its device. The parameters are C-contiguous, and nobody changes them afterwards.

        Raises:
            Error: The device is not there, or the artifact does not run on it.
        """
        ...

    def devices(self) -> Sequence[DeviceInfo]:
        """The devices that it finds, and why it finds none. Never raises."""
        ...
