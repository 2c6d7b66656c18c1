"""The XLA back end. Its programs are portable StableHLO artifacts, which XLA compiles when they are loaded.

XLA compiles for fixed sizes. So the program of a graph with symbols is the graph at LIR itself, which is lowered and compiled
for each set of sizes that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, bind_symbols
from rlx.ir.op.signature import bodies, prepares, read_arguments
from rlx.ir.text.modules import parse_module
from rlx.passes import run
from rlx.support.errors import Error, ExecutionError
from rlx.support.locks import holding, make_lock
from rlx.targets import stages
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.container import pack_archive, unpack_archive
from rlx.targets.artifacts.fields import Check, list_of, name, one_of, optional
from rlx.targets.artifacts.signature import Signature
from rlx.targets.building import timed
from rlx.targets.cache import DiskCache
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileOptions
from rlx.targets.protocol import Compiled, DeviceInfo, Measurement
from rlx.targets.xla import client
from rlx.targets.xla.client import XlaExecutable
from rlx.targets.xla.options import Options, option, with_threads
from rlx.targets.xla.parts import LoweredParts, as_program, entry_of
from rlx.targets.xla.pipeline import OUTLINE, preparation, to_stablehlo
from rlx.targets.xla.portable import VERSION, to_portable, version_for
from rlx.targets.xla.targets import PORTABLE, Target, device_names, target, target_names

# The maximal number of compiled programs, one for each set of sizes.
_KEPT_SIZES = 32
# The members of a program with a part that runs when it is loaded.
_MAIN, _WEIGHTS = "main", "weights"


def version() -> str:
    """Return the version of StableHLO that artifacts are written for."""
    return VERSION


def compile_program(compilation: Compilation, timeout_s: float | None = None) -> Compiled:
    """Lower a graph.

    Args:
        compilation: The compilation.
        timeout_s: Not used: XLA compiles when the program is loaded.

    Raises:
        CompileError: An op has neither a lowering nor a decomposition.
        Error: The graph has symbols, and the target is a portable artifact.
    """
    target, lir = compilation.target, compilation.lir
    assert isinstance(target, Target)
    given, prepared = [a.name for a in lir.arguments], list[str]()
    with timed(compilation.phases, "lower"):
        # A portable artifact is not specialised to sizes later: lowering it raises an error with the sizes that are missing.
        is_symbolic = bool(lir.symbols) and target.name != PORTABLE
        if is_symbolic:
            laid_out = run(lir, preparation(compilation.options.opt))
            version, program = version_for(laid_out.module), str(laid_out.module).encode()
        else:
            parts = LoweredParts(lir.name_symbol)
            parts.take(compilation.lowered([parts]))
            version = target.version or version_for(parts.main)
            program = to_portable(parts.main, version)
            given, prepared = [name for name in parts.arguments if name in given], parts.prepared
            if parts.weights is not None:
                program = pack_archive({_MAIN: program, _WEIGHTS: to_portable(parts.weights)})
    info = {
        "form": "rlx" if is_symbolic else "stablehlo",
        "arguments": given,
        "prepared": prepared,
        "updates": [o.updates for o in lir.results],
        "options": [list(option) for option in target.options],
        "stablehlo": version,
    }
    return Compiled(program, info)


def info_fields() -> dict[str, Check]:
    """The entries of an artifact's `info`."""
    return {
        "form": one_of("rlx", "stablehlo"),
        "arguments": list_of(name),
        "prepared": list_of(name),
        "updates": list_of(optional(name)),
        "options": list_of(option, 100),
        "stablehlo": name,
    }


def portable(compilation: Compilation) -> bytes:
    """The program of a compilation without symbols as a portable artifact, whose only function is `main`.

    It is written for the oldest version of StableHLO that has all of it.

    Raises:
        UnsupportedError: An op has no lowering, or a size is a symbol.
    """
    return to_portable(entry_of(compilation.lowered(), compilation.lir.name_symbol))


def emit(kind: str, compilation: Compilation) -> str | None:
    """Return the StableHLO that XLA compiles, as text."""
    return compilation.lowered_text() if kind == "stablehlo" else None


def notes(artifact: Artifact) -> list[str]:
    """Return no notes: XLA compiles a program for the machine that loads it."""
    return []


def devices() -> list[DeviceInfo]:
    """Return the CPU that JAX finds. Never raises."""
    try:
        cpu_client = client.client()
    except Error as problem:
        return [DeviceInfo("xla", "xla", "", False, problem.message)]
    version = client.jax().lib.__version__
    return [DeviceInfo("xla", "xla", f"{cpu_client.devices()[0].device_kind}, jaxlib {version}", True)]


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> XlaProgram:
    """Compile an artifact, unless it has symbolic sizes, and copy its weights to the device; see `load_cached`."""
    return load_cached(artifact, parameters, threads, None)


def load_cached(
    artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None, cache: DiskCache | None
) -> XlaProgram:
    """Load the executable of an artifact from a cache, or compile and store it: see `protocol.CachingRuntime`.

    Raises:
        Error: JAX is not installed, or `threads` is neither None nor 1: XLA has one thread pool in each process.
        CompileError: XLA cannot compile it.
    """
    if threads not in (None, 1):
        raise Error(f"XLA uses one thread or one for each core, not {threads}", hint="leave threads out, or say 1")
    return XlaProgram(artifact, parameters, threads, cache)


def profile(
    compilation: Compilation,
    arrays: Sequence[np.ndarray],
    parameters: Mapping[str, np.ndarray],
    *,
    runs: int,
    threads: int | None = None,
) -> Measurement:
    """Measure the instructions of a program: see `protocol.Profiler`."""
    from rlx.targets.xla import profile as profiler

    return profiler.profile(compilation, arrays, parameters, runs=runs, threads=threads)


_MISMATCH = "the program is another one than the artifact describes"


def _described_graph(artifact: Artifact) -> Graph:
    """Return the graph that is the program of an artifact.

    Raises:
        Error: The program is not a graph, or its signature differs from that of the artifact.
    """
    try:
        text = artifact.program.decode()
    except UnicodeDecodeError as problem:
        raise ExecutionError(f"the program is not text: byte {problem.start} is not UTF-8") from None
    graph = Graph.from_module(parse_module(text, "<artifact>"), artifact.signature.name)
    described = Signature.of(graph).to_json(), [o.updates for o in graph.results]
    if described != (artifact.signature.to_json(), artifact.info["updates"]):
        raise ExecutionError(_MISMATCH, hint="compile it again")
    return graph


def specialised(graph: Graph, function: mlir.FuncOp) -> bytes:
    """A function of a graph that has all sizes, as a portable artifact."""
    module = as_program(graph.module, function)
    stages.lower(module, to_stablehlo(cpu=True))
    return to_portable(module)


Types = list[tuple[tuple[int, ...], np.dtype]]


def _check_weights(executable: XlaExecutable, taken: Sequence[Argument]) -> Types:
    """Check the parameters of a program's initialisation part, and return the types of its results.

    Raises:
        ExecutionError: Its parameters differ.
    """
    if executable.types[0] != [(a.shape.static, a.shape.dtype.numpy) for a in taken]:
        raise ExecutionError(_MISMATCH, hint="compile it again")
    return executable.types[1]


def _check_types(
    executable: XlaExecutable,
    arguments: Sequence[Argument],
    prepared: Types,
    signature: Signature,
    updates: Sequence[str | None],
) -> None:
    """Check that a program has these arguments and the results of a signature, in order, and that types of states match.

    Raises:
        ExecutionError: A type differs.
    """
    states = {a.name: a.shape for a in signature.of_kind("state")}
    outputs = iter([o.shape for o in signature.outputs])
    results = [next(outputs, None) if state is None else states.get(state) for state in updates]
    shapes = [a.shape for a in arguments], results
    expected = tuple([None if s is None else (s.static, s.dtype.numpy) for s in side] for side in shapes)
    expected[0].extend(prepared)
    if next(outputs, None) is not None or executable.types != expected:
        raise ExecutionError(_MISMATCH, hint="compile it again")


class XlaProgram:
    """A loaded artifact with its weights and states, all on the device."""

    def __init__(
        self, artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None, cache: DiskCache | None
    ):
        self.signature, self._cache = artifact.signature, cache
        self.lock = make_lock()
        self._options = with_threads([(name, value) for name, value in artifact.info["options"]], threads)
        self._updates: list[str | None] = artifact.info["updates"]
        self._has_states = any(self._updates)
        self._inputs = self.signature.of_kind("input")
        self._parameters = {a.name: parameters[a.name] for a in self.signature.of_kind("param")}
        self._specialised: Callable[[tuple[tuple[str, int], ...]], XlaExecutable] | None = None
        self._executable: XlaExecutable | None = None
        weights, taken = self._load(artifact)
        # The client may use the memory of these arrays, so parameters must not be modified.
        kept = {a.name for a in self._arguments}
        values = {n: self._parameters[n] for n in self._parameters if n in kept or n in taken}
        for state in self.signature.of_kind("state"):
            values[state.name] = state.initial_array()
        on_device = dict(zip(values, client.to_device(list(values.values())), strict=True))
        results = [] if weights is None else weights([on_device[n] for n in taken])
        self._prepared = [value.block_until_ready() for value in results]
        self._on_device: dict[str, Any] = {n: value for n, value in on_device.items() if n in kept}

    def _load(self, artifact: Artifact) -> tuple[XlaExecutable | None, Sequence[str]]:
        """Load the main program. Returns the initialisation part, or None, and the names of its parameters."""
        if artifact.info["form"] == "rlx":
            return self._load_graph(_described_graph(artifact))
        names, taken = artifact.info["arguments"], artifact.info["prepared"]
        by_name = {a.name: a for a in self.signature.arguments}
        params = self._parameters.keys()
        # Parameters may be missing. Inputs and states are complete and in order.
        if [n for n in names if n not in params] != [n for n in by_name if n not in params] or not {*taken} <= params:
            raise ExecutionError(_MISMATCH, hint="compile it again")
        members = unpack_archive(artifact.program, (_MAIN, _WEIGHTS)) if taken else {_MAIN: artifact.program}
        self._arguments = [by_name[n] for n in names]
        self._executable = client.compiled(members[_MAIN], self._options, self._cache)
        weights = client.compiled(members[_WEIGHTS], self._options, self._cache) if taken else None
        prepared = [] if weights is None else _check_weights(weights, [by_name[n] for n in taken])
        _check_types(self._executable, self._arguments, prepared, self.signature, self._updates)
        return weights, taken

    def _load_graph(self, graph: Graph) -> tuple[XlaExecutable | None, Sequence[str]]:
        """The same as `_load` for a program that is compiled for each set of sizes."""
        outlined = run(graph, OUTLINE)
        given = {a.name for a in graph.arguments}
        self._arguments = [a for a in outlined.arguments if a.name in given]
        # Without a reference to `self`, which would keep device memory until the next collection of cycles.
        self._specialised = lru_cache(_KEPT_SIZES)(partial(_specialise, outlined, self._options, self._cache))
        for function in bodies(outlined.module):
            if prepares(function) == outlined.name_symbol:
                taken = [a.name for a in read_arguments(function)]
                return client.compiled(specialised(outlined, function), self._options, self._cache), taken
        return None, ()

    def call(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """Run it on arrays for its inputs, in order."""
        return holding(self.lock, self._run, arrays)

    def call_on_device(self, arrays: Sequence[Any], /) -> list[Any]:
        """Run it on NumPy arrays or arrays on the device. The results stay on the device."""
        return holding(self.lock, self._run_on_device, arrays)

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [client.released(r) for r in self._run_on_device(arrays)]

    def _run_on_device(self, arrays: Sequence[Any]) -> list[Any]:
        executable = self._executable
        if executable is None:
            assert self._specialised is not None
            executable = self._specialised(self._sizes(arrays))
        inputs = iter(client.to_device(arrays))
        on_device = self._on_device
        results = executable(
            [next(inputs) if a.kind == "input" else on_device[a.name] for a in self._arguments] + self._prepared
        )
        client.wait(results)  # arguments may be in the caller's memory, which may be written to afterwards
        if not self._has_states:
            return results
        returned = [r for r, state in zip(results, self._updates, strict=True) if state is None]
        updated = {state: r for r, state in zip(results, self._updates, strict=True) if state is not None}
        self._on_device = on_device | updated  # in one step: after an interrupt, all states are from the same run
        return returned

    def _sizes(self, arrays: Sequence[Any]) -> tuple[tuple[str, int], ...]:
        shapes = [(a, array.shape) for a, array in zip(self._inputs, arrays, strict=True)]
        shapes += [(a, self._parameters[a.name].shape) for a in self.signature.of_kind("param")]
        return tuple(sorted(bind_symbols(shapes).items()))

    def read_state(self, name: str) -> np.ndarray:
        """A copy of the current value of a state."""
        return client.to_host(self._on_device[name])

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set the value of a state."""
        holding(self.lock, self._write_state, name, np.array(value, order="C"))

    def take_state(self, name: str, other: object, /) -> bool:
        """Set a state to its value in another program, and share the array: see `protocol.TakingStates`."""
        if not isinstance(other, XlaProgram):
            return False
        self._on_device = self._on_device | {name: other._on_device[name]}
        return True

    def _write_state(self, name: str, value: np.ndarray) -> None:
        self._on_device = self._on_device | dict(zip([name], client.to_device([value]), strict=True))


def _specialise(
    graph: Graph, options: Options, cache: DiskCache | None, sizes: tuple[tuple[str, int], ...]
) -> XlaExecutable:
    """Return a graph compiled for some sizes of its symbols."""
    known = {name: size for name, size in sizes if name in graph.symbols}
    bound = stages.prepare_graph(graph, CompileOptions(bind=known))
    return XlaExecutable(specialised(bound, bound.function), options, cache=cache)


__all__: Sequence[str] = [
    "XlaProgram",
    "compile_program",
    "device_names",
    "devices",
    "emit",
    "info_fields",
    "load",
    "load_cached",
    "notes",
    "portable",
    "profile",
    "target",
    "target_names",
    "version",
]
