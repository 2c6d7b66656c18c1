"""`Session`: compilation of graphs for a device."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from rlx.ir.graph.graph import Graph
from rlx.ir.interface import argument_array
from rlx.ir.op.calls import Answered, answered
from rlx.ops.other_names import attribute_problem
from rlx.ops.vocabulary.objects import SESSIONS
from rlx.passes.levels import DEFAULT_LEVEL
from rlx.report.progress import waiting
from rlx.runtime.arguments import checked_threads
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.device import Device
from rlx.support.errors import Error
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.cache import DiskCache
from rlx.targets.compilation import Compilation
from rlx.targets.dispatch import KernelDispatchPolicy
from rlx.targets.registry import target_of
from rlx.targets.stages import graph_of
from rlx.weights import Weights, opened

if TYPE_CHECKING:
    from rlx.runtime.bucketed import BucketedGraph
    from rlx.runtime.programs import Programs


class Session(Answered):
    """Compiles graphs for one device.

    Args:
        device: An `rlx.Device` or its name.
        arch: The architecture of the device, such as `"sm_80"`; None takes the target's default.
        threads: Threads that programs may use on the CPU; None is one per core, 1 runs in the caller's thread. XLA
            supports no other values.
        flags: Additional flags for the compiler: IREE's, or XLA's options (`--xla_…=…`).

    Raises:
        Error: The device or architecture does not exist.
    """

    def __init__(
        self,
        device: Any = Device.CPU,
        *,
        arch: str | None = None,
        threads: int | None = None,
        flags: tuple[str, ...] = (),
    ):
        self.device = Device.of(device)
        self.threads = checked_threads(threads)
        self.target = target_of(self.device.value, arch, flags)
        self.arch, self.flags = arch, tuple(flags)

    def __repr__(self) -> str:
        threads = "" if self.threads is None else f", {self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"<Session for {self.target.name} ({self.target.arch}){threads}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"'Session' object has no attribute '{name}'")
        raise attribute_problem("a Session", name, SESSIONS, [n for n in dir(type(self)) if n[0] != "_"])

    @overload
    def compile(
        self,
        graph: Mapping[str, Any],
        *,
        params: Mapping[str, Any] | str | os.PathLike[str] | None = ...,
        cast: bool = ...,
        bind: Mapping[str, int] | None = ...,
        buckets: None = ...,
        precision: Any = ...,
        passes: str | None = ...,
        policy: str = ...,
        opt: int = ...,
        fast_math: bool = ...,
        dispatch: KernelDispatchPolicy | str | None = ...,
        cache: DiskCache | str | os.PathLike[str] | bool = ...,
        timeout: float | None = ...,
        tune: float | None = ...,
        tune_inputs: Mapping[str, Any] | None = ...,
    ) -> Programs: ...

    @overload
    def compile(
        self,
        graph: Any,
        *,
        params: Mapping[str, Any] | str | os.PathLike[str] | None = ...,
        cast: bool = ...,
        bind: Mapping[str, int] | None = ...,
        buckets: None = ...,
        precision: Any = ...,
        passes: str | None = ...,
        policy: str = ...,
        opt: int = ...,
        fast_math: bool = ...,
        dispatch: KernelDispatchPolicy | str | None = ...,
        cache: DiskCache | str | os.PathLike[str] | bool = ...,
        timeout: float | None = ...,
        tune: float | None = ...,
        tune_inputs: Mapping[str, Any] | None = ...,
    ) -> CompiledGraph: ...

    @overload
    def compile(
        self,
        graph: Any,
        *,
        params: Mapping[str, Any] | str | os.PathLike[str] | None = ...,
        cast: bool = ...,
        bind: Mapping[str, int] | None = ...,
        buckets: Mapping[str, Sequence[int]],
        precision: Any = ...,
        passes: str | None = ...,
        policy: str = ...,
        opt: int = ...,
        fast_math: bool = ...,
        dispatch: KernelDispatchPolicy | str | None = ...,
        cache: DiskCache | str | os.PathLike[str] | bool = ...,
        timeout: float | None = ...,
    ) -> BucketedGraph: ...

    @answered
    def compile(
        self,
        graph: Any,
        *,
        params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        cast: bool = False,
        bind: Mapping[str, int] | None = None,
        buckets: Mapping[str, Sequence[int]] | None = None,
        precision: Any = None,
        passes: str | None = None,
        policy: str = "direct",
        opt: int = DEFAULT_LEVEL,
        fast_math: bool = False,
        dispatch: KernelDispatchPolicy | str | None = None,
        cache: DiskCache | str | os.PathLike[str] | bool = True,
        timeout: float | None = None,
        tune: float | None = None,
        tune_inputs: Mapping[str, Any] | None = None,
    ) -> CompiledGraph | BucketedGraph | Programs:
        """Compile a graph, or several into entry points that share parameters and states. Graphs are not changed.

        Args:
            graph: A `Graph` or `GraphModule` (HIR or MIR), or graphs by name, which share all options and give `Programs`.
            params: Weights, by name or as the path of a file; arrays are copied. They can also be set later, and then
                be lent: see `CompiledGraph.set_params`. Those that came with the graph (`graph.weights`) are optional.
            cast: True converts weights of other dtypes, such as f16 for f32: see `CompiledGraph.set_params`.
            bind: Sizes of symbols to fix; the others stay dynamic. (XLA compiles again for each set of sizes.)
            buckets: Sizes of symbols for which programs are compiled now; the result is a `BucketedGraph`, which pads.
            precision: `"f16"` or `"bf16"`: the compute dtype; reductions, values that would leave its range, and the
                boundary stay in f32. Other policies by name, and a mapping of ops to dtypes: see docs/quantisation.md.
            passes: A pipeline to run first.
            policy: `"direct"` fuses ops (`rlx-fuse`) unless the module declares otherwise, `"fusable"` does not.
            opt: The optimisation level: 0 does only what is necessary. Levels 1 to 3 make programs faster and smaller;
                results stay equal within the tolerance of their dtypes.
            fast_math: Simplify floats as if they were real numbers, from level 1 (docs/optimisation.md).
            dispatch: The composite ops that are lowered by rules of the target: a `KernelDispatchPolicy`, or its text.
            cache: False for none, a directory, or a `DiskCache`; True is the user's cache directory, if it belongs to
                this user alone (the logger `rlx` reports once if it does not).
            timeout: Seconds that one attempt of the compiler may take.
            tune: Seconds to search for the fastest program on this machine (docs/performance.md). The cache stores the
                choice, and `CompiledGraph.tuning` is the report.
            tune_inputs: Inputs and states to measure with, by name; other inputs are random, with 64 for a symbol.

        Raises:
            CompileError: The graph cannot be expressed or compiled for the device.
            Error: An option is unknown, or a parameter does not fit.
        """
        _check_options(timeout, buckets, tune if tune is not None else tune_inputs, isinstance(graph, Mapping))
        options = {"precision": precision, "policy": policy, "opt": opt, "fast_math": fast_math, "dispatch": dispatch}
        if isinstance(graph, Mapping):
            return self._together(graph, bind, params, cast, options | {"passes": passes}, _cache(cache), timeout)
        if tune is not None or tune_inputs is not None:
            options |= {"passes": passes, "bind": bind, "timeout": timeout, "buckets": buckets}
            return self._tuned(graph_of(graph, "compile"), options, params, cast, tune_inputs, _cache(cache), tune)
        compilation = Compilation(graph_of(graph, "compile"), self.target, passes=passes, bind=bind, **options)
        if buckets:
            bucketed = self._bucketed(compilation.prepared, buckets, options | {"cache": cache, "timeout": timeout})
            return _with_params(bucketed, compilation.prepared, params, cast)
        program = self._program(compilation, _cache(cache), timeout)
        return _with_params(program, compilation.prepared, params, cast)

    def _program(self, compilation: Compilation, cache: DiskCache | None, timeout: float | None) -> CompiledGraph:
        artifact = _artifact(compilation, cache, timeout)
        return CompiledGraph(artifact, threads=self.threads, compilation=compilation)

    def _together(
        self,
        graphs: Mapping[str, Any],
        bind: Mapping[str, int] | None,
        params: Any,
        cast: bool,
        options: dict[str, Any],
        cache: DiskCache | None,
        timeout: float | None,
    ) -> Programs:
        """Return entry points for several graphs."""
        from rlx.runtime.together import compiled_together

        def compile(graph: Graph, sizes: dict[str, int] | None) -> tuple[CompiledGraph, Mapping[str, Any]]:
            compilation = Compilation(graph, self.target, bind=sizes, **options)
            program = self._program(compilation, cache, timeout)
            return program, compilation.prepared.weights

        return compiled_together(graphs, bind, params, cast, compile)

    def _tuned(
        self,
        graph: Graph,
        options: dict[str, Any],
        params: Any,
        cast: bool,
        inputs: Any,
        cache: DiskCache | None,
        seconds: Any,
    ) -> CompiledGraph:
        """Return the fastest program for a graph on this machine."""
        from rlx.runtime.tuning import Request, check_seconds, tuned

        if options.pop("buckets"):
            raise Error("tune goes with one set of sizes, not with buckets", hint="bind sizes, and tune each")
        if seconds is None:
            raise Error("tune_inputs goes with tune, the seconds that tuning may take", hint="tune=60")
        if inputs is not None and not isinstance(inputs, Mapping):
            raise Error(f"tune_inputs must be a mapping of names to arrays, got {inputs!r:.60}")
        params = _converted(graph, params) if cast else params
        return tuned(Request(self, graph, options, params, inputs, cache), check_seconds(seconds))

    def _bucketed(self, source: Graph, buckets: Mapping[str, Sequence[int]], options: dict[str, Any]) -> BucketedGraph:
        """Return programs for some sizes of symbols."""
        from rlx.runtime.bucketed import BucketedGraph

        return BucketedGraph(source, buckets, lambda sizes: self.compile(source, bind=sizes, **options))


def _artifact(compilation: Compilation, cache: DiskCache | None, timeout: float | None) -> Artifact:
    with waiting(f"compiling {compilation.given.name} for {compilation.target.name}"):
        return compilation.artifact(cache=cache, timeout=timeout)


def _check_timeout(timeout: float | None) -> None:
    """Check that a limit is a positive number of seconds, or None.

    Raises:
        Error: It is something else.
    """
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or not 0 < timeout < 1e9:
        raise Error(f"timeout must be a positive number of seconds, got {timeout!r:.60}")


def _check_options(timeout: Any, buckets: Any, tuning: Any, several: bool) -> None:
    """Check the options. Some are valid only for a single graph.

    Raises:
        Error: An option has the wrong type, or is given for several graphs.
    """
    _check_timeout(timeout)
    _check_buckets(buckets)
    if several and buckets is not None:
        raise Error("entry points have no buckets", hint="bind sizes, or give an entry point for each size")
    if several and tuning is not None:
        raise Error("tune goes with one graph, not with several", hint="tune each by itself, and see what it finds")


def _check_buckets(buckets: Any) -> None:
    """Check that buckets are a mapping, or None.

    Raises:
        Error: They are something else.
    """
    if buckets is not None and not isinstance(buckets, Mapping):
        raise Error(f"buckets must be a mapping of symbols to sizes, got {buckets!r:.60}")


P = TypeVar("P", CompiledGraph, "BucketedGraph")


def _with_params(program: P, source: Graph, params: Any, cast: bool) -> P:
    """Set the weights that came with a graph, then those of the user. Returns the program."""
    if source.weights:
        program.set_params(source.weights)
    if params is not None:
        program.set_params(params, cast=cast)
    return program


def _converted(graph: Any, params: Any) -> Mapping[str, Any]:
    """Return weights in the dtypes of the graph's parameters. Unknown names are kept."""
    given, known = opened(params or {}), {a.name: a for a in graph_of(graph, "compile").params}
    if isinstance(given, Weights):
        return given.values_of(known.values(), cast=True)
    return {n: argument_array(known[n], v, cast=True) if n in known else v for n, v in given.items()}


def _cache(cache: Any) -> DiskCache | None:
    if cache is None or cache is False:
        return None
    if isinstance(cache, DiskCache):
        return cache
    return DiskCache() if cache is True else DiskCache(cache)
