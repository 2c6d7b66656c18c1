"""`Session`: compilation of graphs for a device."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Unpack

from rlx.ir.calls import Answered
from rlx.ir.interface import argument_array
from rlx.runtime.arguments import checked_seconds, checked_threads
from rlx.runtime.build import Build
from rlx.runtime.device import Device
from rlx.runtime.program import Program
from rlx.runtime.tier import check_tier, first_entries, improve
from rlx.runtime.tuning import Request, tune_program
from rlx.support.answers import answers
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.targets.cache import DiskCache
from rlx.targets.options import CompileKeywords, CompileOptions
from rlx.targets.registry import target_of
from rlx.targets.stages import graph_of
from rlx.weights import Weights, open_parameters


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
        raise answers().attribute_problem("a Session", name, "sessions", [n for n in dir(type(self)) if n[0] != "_"])

    @takes_options(CompileOptions)
    def compile(
        self,
        graph: Any,
        *,
        params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        cast: bool = False,
        buckets: Mapping[str, Iterable[int]] | None = None,
        cache: DiskCache | str | os.PathLike[str] | bool = True,
        timeout: float | None = None,
        tune: float | None = None,
        tune_inputs: Mapping[str, Any] | None = None,
        tier: str = "best",
        **options: Unpack[CompileKeywords],
    ) -> Program:
        """Compile a graph, or several into entry points that share parameters and states. Graphs are not changed.

        Args:
            graph: A `Graph` or `GraphModule` (HIR or MIR), or graphs by name, which are the entry points.
            params: Weights, by name or as the path of a file; arrays are copied. They can also be set later, and then
                be lent: see `Program.set_params`. Those that came with the graph (`graph.weights`) are optional.
            cast: True converts weights of other dtypes, such as f16 for f32: see `Program.set_params`.
            buckets: Sizes of symbols for which programs are compiled now; a run pads its inputs. At most 64 programs.
            cache: False for none, a directory, or a `DiskCache`; True is the user's cache directory. One that is not this
                user's alone is not used, which is said once by the logger `rlx`.
            timeout: Seconds that an attempt of the compiler may take.
            tune: Seconds in which to look for what is the fastest here (docs/performance.md); the cache keeps it, and
                `Program.tuning` is the report.
            tune_inputs: Inputs and states for the measurement, by name. Other inputs are random, with 64 for a symbol.
            tier: `"best"` waits for the optimised program. `"auto"` returns a program that is ready sooner, if the target has
                one (the CPU has XLA's). The optimised program replaces it between two runs, with its states, when it has been
                compiled in the background: see `Program.wait_for_best`. Their results may differ by rounding.
            options: The options of `CompileOptions`, by name.

        Raises:
            CompileError: The graph cannot be expressed or compiled for the device.
            Error: An option is unknown, or a parameter does not fit.
        """
        several = isinstance(graph, Mapping) and not isinstance(graph, Program)
        tuning = tune if tune is not None else tune_inputs
        _check_options(timeout, buckets, tuning, several)
        check_tier(tier, tuning)
        chosen, disk = CompileOptions(**options), _cache(cache)
        graph = graph if several else graph_of(graph, "compile")
        if tuning is not None:
            seconds = _check_tuning(tune, tune_inputs, buckets)
            params = _converted(graph, params) if cast else params
            return tune_program(Request(self, graph, chosen, params, tune_inputs, disk, timeout), seconds)
        build = Build(graph, self.target, chosen, buckets, disk, timeout, self.threads)
        entries, weights, best = (*build.entries(), None) if tier == "best" else first_entries(build)
        program = Program(entries)
        if weights:
            program.set_params(weights)
        if params is not None:
            program.set_params(params, cast=cast)
        if best is not None:
            improve(program, best)
        return program


def _check_options(timeout: Any, buckets: Any, tuning: Any, several: bool) -> None:
    """Check the options. Some are valid only for a single graph.

    Raises:
        Error: An option has the wrong type, or is given for several graphs.
    """
    if timeout is not None:
        checked_seconds("timeout", timeout)
    _check_buckets(buckets)
    if several and buckets is not None:
        raise Error(
            "buckets go with one graph, not with several", hint="bind sizes, or give an entry point for each size"
        )
    if several and tuning is not None:
        raise Error("tune goes with one graph, not with several", hint="tune each by itself, and see what it finds")


def _check_tuning(seconds: Any, inputs: Any, buckets: Any) -> float:
    """The seconds for tuning.

    Raises:
        Error: Something does not go with it, or is of another kind.
    """
    if buckets:
        raise Error("tune goes with one set of sizes, not with buckets", hint="bind sizes, and tune each")
    if seconds is None:
        raise Error("tune_inputs goes with tune, the seconds that tuning may take", hint="tune=60")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise Error(f"tune_inputs must be a mapping of names to arrays, got {inputs!r:.60}")
    return checked_seconds("tune", seconds)


def _check_buckets(buckets: Any) -> None:
    """Check that buckets are a mapping, or None.

    Raises:
        Error: They are something else.
    """
    if buckets is not None and not isinstance(buckets, Mapping):
        raise Error(f"buckets must be a mapping of symbols to sizes, got {buckets!r:.60}")


def _converted(graph: Any, params: Any) -> Mapping[str, Any]:
    """Return weights in the dtypes of the graph's parameters. Unknown names are kept."""
    given, known = open_parameters(params or {}), {a.name: a for a in graph_of(graph, "compile").params}
    if isinstance(given, Weights):
        return given.values_of(known.values(), cast=True)
    return {n: argument_array(known[n], v, cast=True) if n in known else v for n, v in given.items()}


def _cache(cache: Any) -> DiskCache | None:
    if cache is None or cache is False:
        return None
    if isinstance(cache, DiskCache):
        return cache
    return DiskCache() if cache is True else DiskCache(cache)
