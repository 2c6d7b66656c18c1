"""The protocols of back ends. A back end is a module or an object with the functions of `Compiler`, and of `Runtime` if it runs
programs here.

`registry.py` finds the back end of a target. `docs/backends.md` shows a complete one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from rlx.ir.op.costs import Costs
    from rlx.targets.artifacts.artifact import Artifact
    from rlx.targets.artifacts.fields import Check
    from rlx.targets.cache import DiskCache
    from rlx.targets.compilation import Compilation

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
    def fusions(self) -> Collection[str]:
        """The fusions of `rlx-fuse{target=…}`: `swiglu` means `rlx-fuse-swiglu`. A fusion with a cost model is applied where
        it pays.
        """
        ...

    @property
    def costs(self) -> Costs | None:
        """The cost model of the target, which decides about fusions. With None, fusions are applied wherever they match."""
        ...

    @property
    def alternatives(self) -> Collection[Sequence[str]]:
        """Sets of flags for `Compiler.target` that tuning tries. They change results only by rounding."""
        ...

    @property
    def pipeline(self) -> str:
        """The passes from MIR to the target's LIR, as text: see `stages.to_lir`.

        The options of its `rlx-check-lir` declare the ops and dtypes that the target supports.
        """
        ...

    def lowering(self, level: int) -> str:
        """The passes that take a module at LIR to the input of the target's compiler, as text.

        It is empty for a back end that reads LIR itself.

        Args:
            level: The level of optimisation, 0 to 3.
        """
        ...

    def fingerprint(self) -> str:
        """All inputs of compiling except name, architecture and pipeline of the target, as text: for example its flags."""
        ...


@dataclass(frozen=True)
class Substitute:
    """A target of this machine whose programs are ready sooner than those of another one. Results differ only by rounding.

    Attributes:
        name: Its name.
        flags: Flags for its compiler.
        most_operations: The most operations of a graph, without loops, for which it is used; None for all graphs.
    """

    name: str
    flags: Sequence[str] = ()
    most_operations: int | None = None


@runtime_checkable
class Substituted(Protocol):
    """A target that names others, whose programs are used while its own is being compiled. Most targets name none."""

    @property
    def quick(self) -> Sequence[Substitute]:
        """The substitutes, the quickest first."""
        ...


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a graph.

    Attributes:
        program: The code, in any form that the back end can load, or that users can use elsewhere.
        info: Facts about it, as JSON values: see `Compiler.info_fields`.
        lasting: Whether it is stored in the cache: False if compiling it again later may give a better program.
    """

    program: bytes
    info: Mapping[str, Any] = field(default_factory=dict)
    lasting: bool = True


@runtime_checkable
class Compiler(Protocol):
    """The part of a back end that compiles graphs to programs."""

    def target_names(self) -> Collection[str]:
        """The names that `target` accepts, including aliases."""
        ...

    def target(self, name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
        """The target with a name, for an architecture or the default one.

        Raises:
            CompileError: The architecture is unknown, or a flag is wrong.
        """
        ...

    def version(self) -> str:
        """The version of all code that compiles programs, except the Python and MLIR files of the back end's package.

        Raises:
            CompileError: It is not installed.
        """
        ...

    def compile_program(self, compilation: Compilation, timeout_s: float | None = None) -> Compiled:
        """Compile a graph, the `lir` of the compilation, for its target. The graph is not changed.

        Args:
            compilation: The compilation; seconds of more phases may be added to its `phases`.
            timeout_s: The time limit in seconds for each attempt of a compiler.

        Raises:
            CompileError: The graph cannot be expressed or compiled for the target.
        """
        ...

    def info_fields(self) -> Mapping[str, Check]:
        """The entries of `Compiled.info`, each with its check. A file with other entries is rejected."""
        ...

    def emit(self, kind: str, compilation: Compilation) -> str | bytes | None:
        """The input of the compiler in a format: text, or bytes for another tool. None if the target lacks the format."""
        ...

    def notes(self, artifact: Artifact) -> Sequence[str]:
        """Facts that a user who runs the program elsewhere should know, one line each."""
        ...


@runtime_checkable
class JointCompiler(Protocol):
    """The part of a compiler that compiles several graphs to one program, whose functions share parameters and states.

    Not every compiler has it. Without it, each graph becomes a program of its own, with its own copies of them.
    """

    def compile_together(
        self, compilations: Sequence[Compilation], timeout_s: float | None = None
    ) -> Sequence[Compiled]:
        """Compile graphs for their target. The results have the same program, one for each graph.

        Args:
            compilations: The compilations, whose signatures have different names.
            timeout_s: As for `Compiler.compile_program`.

        Raises:
            CompileError: A graph cannot be expressed or compiled for the target.
        """
        ...


class Loader(Protocol):
    """The part of a back end that reads and runs programs. It does not need the compiler."""

    @property
    def target(self) -> Callable[..., Target]:
        """As `Compiler.target`."""
        ...

    def info_fields(self) -> Mapping[str, Check]:
        """As `Compiler.info_fields`."""
        ...


@runtime_checkable
class FileSet(Protocol):
    """The part of a back end whose programs are exported as several files. Most programs are one file, and do not need it."""

    def files(self, artifact: Artifact) -> Mapping[str, bytes]:
        """The files of a program: contents by file name, without folders. `rlx compile -o FOLDER` writes them."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """The part of a back end that reports the hardware resources of a program. Most back ends lack it."""

    def report(self, artifact: Artifact) -> str:
        """The report, as text. The target has the flag `--report`."""
        ...


# --- running --------------------------------------------------------------------------------------


class LoadedProgram(Protocol):
    """A loaded artifact with its weights and states."""

    def call(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """Run it on arrays for its inputs, in order; the results own their memory. States are updated."""
        ...

    def read_state(self, name: str) -> np.ndarray:
        """A copy of the current value of a state."""
        ...

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set the value of a state."""
        ...


@runtime_checkable
class TakingStates(Protocol):
    """A program that can take the value of a state from another program on the device, without a copy through the host."""

    def take_state(self, name: str, other: LoadedProgram, /) -> bool:
        """Set a state to its value in another program. Returns False, without any change, if that value is elsewhere."""
        ...


@runtime_checkable
class KeepingResults(Protocol):
    """A program whose arguments and results may stay in device memory.

    Arguments and results of other programs are in host memory. If they are copied to a device from there, the program has
    an attribute `in_host_memory` that is False.
    """

    def call_on_device(self, arrays: Sequence[Any], /) -> list[Any]:
        """Run it. Each argument is a NumPy array, or a result of this method of any program of this back end.

        The call returns after the results are computed. They have `shape`, `dtype`, `__array__`, `__dlpack__` and
        `__dlpack_device__`.
        """
        ...


@runtime_checkable
class Remarking(Protocol):
    """A program that reports facts about its last call, such as the cycles of a simulation. Most programs do not."""

    def remarks(self) -> Sequence[str]:
        """Facts about the last call, one line each."""
        ...


@dataclass(frozen=True)
class DeviceInfo:
    """One device, or one driver without a device.

    Attributes:
        driver: The driver that runs programs on it: `"local-sync"`, `"cuda"` …
        uri: Identifies it among the devices of the driver, such as `"cuda://0"`.
        name: The name of the device itself.
        available: Whether it can be used.
        reason: Why it cannot be used.
        features: Its optional features, by the driver's names.
    """

    driver: str
    uri: str
    name: str
    available: bool
    reason: str = ""
    features: tuple[str, ...] = ()


@runtime_checkable
class Runtime(Protocol):
    """The part of a back end that runs the programs of its compiler, in this process or in another one."""

    def device_names(self) -> Collection[str]:
        """The targets whose programs can run on this machine if it has the device: names of devices for `Session`."""
        ...

    def load(
        self, artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None
    ) -> LoadedProgram:
        """Load an artifact on its device. The parameters are C-contiguous, and are not changed afterwards.

        Raises:
            Error: The device does not exist, or the artifact does not run on it.
        """
        ...

    def devices(self) -> Sequence[DeviceInfo]:
        """The devices of this machine, and for a driver without a device the reason. Never raises."""
        ...


@runtime_checkable
class Judging(Protocol):
    """The part of a runtime that chooses among several programs in a file for this machine. Not every runtime has it."""

    def lacks(self, artifact: Artifact) -> str | None:
        """The reason why this machine cannot run a program; None if no reason is known. Its info has been checked."""
        ...

    def rank(self, artifact: Artifact) -> int:
        """The rank of a program among those for one device that this machine can run. The highest rank is the best."""
        ...


@runtime_checkable
class CheckingCpus(Protocol):
    """The part of a runtime that compares the CPU that code needs with this machine's. Not every runtime has it."""

    def check_cpu(self, artifact: Artifact) -> None:
        """Raise an `ExecutionError` if this machine's CPU cannot run a program. No device is opened."""
        ...


# --- measuring ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelEvent:
    """One call of a kernel, or another activity of a program that takes time, such as a copy.

    Attributes:
        kernel: Its name in the compiled program.
        ops: The LIR ops that it computes: their indices in the order of `opview.operations`. Empty if it belongs to no op.
        layout: Whether it only changes the layout of a tensor in memory for these ops.
        run: The run of the program that it belongs to, from 0.
        start: The start time in seconds. Only differences between start times have a meaning.
        seconds: The duration.
    """

    kernel: str
    ops: tuple[int, ...]
    layout: bool
    run: int
    start: float
    seconds: float


@dataclass(frozen=True)
class Measurement:
    """The measurements of a program.

    Attributes:
        driver: The driver that ran it.
        threads: The maximal number of threads.
        runs: The number of runs.
        seconds: The mean time of a run with the profiler enabled.
        events: All recorded events, in order of time.
    """

    driver: str
    threads: int
    runs: int
    seconds: float
    events: tuple[KernelEvent, ...]


@runtime_checkable
class CachingRuntime(Protocol):
    """The part of a runtime that compiles programs when it loads them, and keeps the results; not every one has it."""

    def load_cached(
        self,
        artifact: Artifact,
        parameters: Mapping[str, np.ndarray],
        threads: int | None,
        cache: DiskCache | None,
    ) -> LoadedProgram:
        """Load an artifact like `Runtime.load`, with a cache on disk. An entry that cannot be used is compiled again.

        Raises:
            Error: The device does not exist, or the artifact does not run on it.
        """
        ...


@runtime_checkable
class JointRuntime(Protocol):
    """The part of a runtime whose compiler is a `JointCompiler`."""

    def load_beside(
        self,
        artifact: Artifact,
        parameters: Mapping[str, np.ndarray],
        threads: int | None,
        other: LoadedProgram | None,
    ) -> LoadedProgram:
        """Load a function of a program that has several, like `Runtime.load`.

        Args:
            artifact: The function.
            parameters: The weights of the function, and of the other functions of the program those that are set.
            threads: As for `Runtime.load`.
            other: Another function of the program that is loaded with these weights; None if there is none. Both share
                parameters and states.
        """
        ...


@runtime_checkable
class Profiler(Protocol):
    """The part of a back end that measures the kernels of its programs; not every one has it."""

    def profile(
        self,
        compilation: Compilation,
        arrays: Sequence[np.ndarray],
        parameters: Mapping[str, np.ndarray],
        *,
        runs: int,
        threads: int | None = None,
    ) -> Measurement:
        """Run a program several times, and record its kernel calls.

        Args:
            compilation: The program, whose `lir` has the ops.
            arrays: The inputs, in order.
            parameters: The weights, by name.
            runs: The number of runs to record. One unrecorded run precedes them.
            threads: The number of threads, as for `Runtime.load`.

        Raises:
            Error: The program cannot be measured.
        """
        ...
