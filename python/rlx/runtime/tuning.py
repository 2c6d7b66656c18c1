"""Tuning of a program for this machine: the choices, the expected results, and the stored best choice."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.dims.dim import TYPICAL_SIZE
from rlx.ir.dtype import family
from rlx.ir.graph.evaluate import collect_arguments, evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, argument_array, bind_symbols
from rlx.passes.checking.numerics import differs, draw, tolerances
from rlx.report.tuning import TuningReport, TuningTrial
from rlx.runtime.arguments import checked_seconds
from rlx.runtime.program import Program
from rlx.runtime.tuner import Candidate, Choice, ChoiceSearch
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error
from rlx.support.suggestions import suggestion
from rlx.targets.artifacts.fields import integer, list_of, name, one_of, optional, parse_json, record, text
from rlx.targets.cache import DiskCache
from rlx.targets.compilation import Compilation
from rlx.targets.hashes import fingerprint
from rlx.targets.options import CompileOptions
from rlx.targets.registry import backend_of, runtime_of, target_of
from rlx.weights import Weights, open_parameters

if TYPE_CHECKING:
    from rlx.runtime.session import Session

_SEED = 0
_LARGEST_RECORD = 1 << 20
# The two devices that run a graph on the CPU. Tuning on one of them also tries the other one.
_OTHER_DEVICE = {"cpu": "xla", "xla": "cpu"}
_ALL_FUSIONS = "rlx-lower-blocks,rlx-simplify,rlx-recognize,rlx-simplify,rlx-fuse"
_CHOICE = record(
    {
        "device": name,
        "flags": list_of(name),
        "opt": integer(0, 3),
        "fusions": one_of("target", "all", "none"),
        "threads": optional(integer(1, 1 << 20)),
    }
)
_RECORD = record(
    {
        "choice": _CHOICE,
        "report": lambda value, what: TuningReport.from_json(value, what),
        "runs_on": list_of(text),
    }
)


@dataclass(frozen=True)
class Request:
    """A program to tune.

    Attributes:
        session: The user's session.
        graph: The graph.
        options: Those of a compilation.
        params: Weights, as there.
        inputs: Arrays to measure with, by the names of inputs and states. Other inputs are drawn, other states begin as always.
        cache: Where programs and choices are kept, None for nowhere.
        timeout: Seconds that an attempt of the compiler may take.
    """

    session: Session
    graph: Graph
    options: CompileOptions = field(default_factory=CompileOptions)
    params: Any = None
    inputs: Mapping[str, Any] | None = None
    cache: DiskCache | None = None
    timeout: float | None = None

    @cached_property
    def given(self) -> Compilation:
        """The given program, at all stages."""
        return Compilation(self.graph, self.session.target, self.options)

    @cached_property
    def reference(self) -> Graph:
        """The graph whose evaluation defines the expected results: in the requested precision, without optimisation."""
        return Compilation(self.graph, self.session.target, replace(self.options, opt=0, policy="fusable")).mir

    @cached_property
    def symbols(self) -> dict[str, int]:
        """The sizes to measure with.

        Raises:
            Error: An array does not belong to an input or state, or does not fit.
        """
        arguments = {a.name: a for a in self.given.prepared.arguments if a.kind != "param"}
        known: list[tuple[Argument, tuple[int, ...]]] = []
        for name_, value in (self.inputs or {}).items():
            if name_ not in arguments:
                close, names = suggestion(str(name_), arguments), ", ".join(arguments)
                raise Error(f"tune_inputs: there is no input or state '{name_}'{close}; there are {names or 'none'}")
            known.append((arguments[name_], argument_array(arguments[name_], value).shape))
        return dict.fromkeys(sorted(self.given.prepared.symbols), TYPICAL_SIZE) | bind_symbols(known)

    def compiled(self, choice: Choice) -> Program:
        """Return the program of a choice, with only the weights of the graph."""
        from rlx.runtime.session import Session

        session = self.session
        options = replace(self.options, opt=choice.opt)
        if choice.fusions != "target":
            options = replace(options, policy="fusable" if choice.fusions == "none" else "direct")
        if choice.fusions == "all":
            options = replace(options, passes=",".join(filter(None, [options.passes, _ALL_FUSIONS])))
        same = choice.device == session.device.value
        arch, flags = (session.arch, session.flags) if same else (None, ())
        other = Session(choice.device, arch=arch, threads=choice.threads, flags=(*flags, *choice.flags))
        return other.compile(self.graph, cache=self.cache or False, timeout=self.timeout, **options.keywords())


def tune_program(
    request: Request,
    seconds: float,
    *,
    again: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    measure: Callable[[Program, Mapping[str, np.ndarray], int], float] | None = None,
    progress: Callable[[TuningTrial], None] = lambda _: None,
) -> Program:
    """Return the fastest program on this machine, from a stored choice or a search, with its report as `tuning`.

    Args:
        request: The program.
        seconds: The time limit of the search.
        again: Whether to search even if a choice is stored.
        clock: Returns the time in seconds.
        measure: Returns the seconds of one call of a program with inputs, measured over a number of calls.
        progress: Called with each trial after its first measurement.

    Raises:
        Error: The given program does not run here, or its results are wrong.
        KeyboardInterrupt: The search was interrupted; the best choice so far is stored, if anything was measured.
    """
    seconds = checked_seconds("tune", seconds)
    choices = choices_of(request)
    key = _key(request, choices)
    kept = None if again else _kept(request, key, seconds)
    if kept is not None:
        return _final(request, *kept)
    values, expected, limits = _expected(request)
    inputs = {a.name: values[a.name] for a in request.graph.inputs}
    states = [n for n in request.inputs or () if n not in inputs]

    def prepare(choice: Choice) -> Candidate:
        program = request.compiled(choice)
        program.set_params({a.name: values[a.name] for a in request.graph.params}, copy=False)
        for name_ in states:
            program.set_state(name_, values[name_])
        problem = differs(expected, program.run(_fresh(program, inputs)), program.output_names, limits)
        artifact = program._one_function("tune").artifact
        code = hashlib.sha256(artifact.program).digest()
        at_load = choice.device, choice.threads, repr(artifact.info.get("options"))
        return Candidate(program, (code, at_load), problem)

    timed = measure or _seconds_of_a_call
    search = ChoiceSearch(choices, prepare, lambda p, calls: timed(p, inputs, calls), seconds, clock, progress)
    finished = False
    try:
        search.run()
        finished = True
    finally:
        report = _report(request, search, finished)
        if report.measured:
            _keep(request, key, search.chosen, report)
    return _final(request, search.chosen, report)


def choices_of(request: Request) -> list[Choice]:
    """Return the choices to try, the given program first."""
    session, options = request.session, request.options
    device = session.device.value
    fusions = "none" if options.policy == "fusable" else "target"
    given = Choice(device, (), options.opt, fusions, session.threads)
    others: list[Choice] = []

    def add(**changed: Any) -> None:
        others.append(Choice(**{**asdict(given), **changed}))

    elsewhere = _OTHER_DEVICE.get(device)
    is_free = session.arch is None and not session.flags and not request.given.prepared.symbols
    if elsewhere is not None and is_free and session.threads in (None, 1):
        add(device=elsewhere)
    if session.threads is None and device in _OTHER_DEVICE and (os.cpu_count() or 1) > 1:
        add(threads=1)
    for name_ in ("all", "none"):
        if name_ != fusions:
            add(fusions=name_)
    if given.opt != 0:
        add(opt=0)
    for flags in session.target.alternatives:
        add(flags=tuple(flags))
    if elsewhere is not None and is_free and session.threads in (None, 1):
        for flags in target_of(elsewhere, None, ()).alternatives:
            add(device=elsewhere, flags=tuple(flags))
    return [given, *others]


# --- expected results -----------------------------------------------------------------------------


def _expected(request: Request) -> tuple[dict[str, np.ndarray], list[np.ndarray], list[float]]:
    """Return values of all arguments, the evaluator's results for them, and the tolerance of each result.

    Raises:
        Error: A parameter does not fit, or the graph cannot be evaluated for these sizes.
    """
    graph, given = request.reference, dict(request.inputs or {})
    if request.params is not None:
        params = open_parameters(request.params)
        given |= params.values_of(graph.params) if isinstance(params, Weights) else dict(params)
    given = {**graph.weights, **given}
    random = np.random.default_rng(_SEED)
    for argument, value in zip(graph.arguments, graph.function.entry_block.arguments, strict=True):
        if argument.name not in given and argument.kind != "state":
            drawn = draw(random, argument, value, request.symbols)
            given[argument.name] = _scaled(drawn) if argument.kind == "param" else drawn
    arrays = collect_arguments(graph, given)
    values = {a.name: array for a, array in zip(graph.arguments, arrays, strict=True)}
    limits = zip(tolerances(graph.function), graph.results, strict=True)
    return values, evaluate(graph, values), [limit for limit, result in limits if result.updates is None]


def _scaled(weight: np.ndarray) -> np.ndarray:
    """Return random weights that are small enough for a deep network to avoid overflow and large rounding errors."""
    if family(weight.dtype) not in ("float", "complex") or weight.ndim < 2:
        return weight
    return np.asarray(weight / math.sqrt(max(1, weight.size // max(1, weight.shape[-1]))), weight.dtype)


def _fresh(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs. Those that the program may overwrite are copied."""
    donated = {a.name for a in program.inputs if a.donate}
    return {n: array.copy() if n in donated else array for n, array in inputs.items()}


def _seconds_of_a_call(program: Program, inputs: Mapping[str, np.ndarray], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        program.run(_fresh(program, inputs))
    return (time.perf_counter() - started) / calls


# --- stored choices -------------------------------------------------------------------------------


def _key(request: Request, choices: list[Choice]) -> str | None:
    """Return the key of a stored choice: the program, its input sizes, the machine, the candidates and their versions."""
    program = request.given.key()
    if program is None:
        return None
    sizes = sorted(request.symbols.items())
    machine = (platform.node(), platform.machine(), os.cpu_count())
    compilers = [_compiler(device) for device in sorted({choice.device for choice in choices})]
    return fingerprint("tuning", program, repr(sizes), repr(machine), repr(choices), *compilers)


def _compiler(device: str) -> str:
    """Return the version of a device's compiler, empty if it is not installed."""
    try:
        return backend_of(device).compiler.version()
    except Error:
        return ""


def _runs_on(device: str, given: str) -> list[str]:
    """Return the runtimes of a device other than the given one. Its back end may be missing, or have any version."""
    return [] if device == given else [d.name for d in runtime_of(device).devices() if d.available]


def _kept(request: Request, key: str | None, seconds: float) -> tuple[Choice, TuningReport] | None:
    """Return the choice of an earlier search, unless it had less time and was incomplete, or its runtime is missing."""
    stored = request.cache.get(key) if request.cache is not None and key is not None else None
    if stored is None:
        return None
    try:
        data = _RECORD(parse_json(stored, _LARGEST_RECORD), "a kept choice")
    except Error:
        return None
    choice, report = Choice(**{**data["choice"], "flags": tuple(data["choice"]["flags"])}), data["report"]
    if data["runs_on"] != _runs_on(choice.device, request.session.device.value):
        return None
    return (choice, report) if seconds <= report.enough_for else None


def _keep(request: Request, key: str | None, choice: Choice, report: TuningReport) -> None:
    if request.cache is not None and key is not None:
        runs_on = _runs_on(choice.device, request.session.device.value)
        data = {"choice": asdict(choice), "report": report.to_json(), "runs_on": runs_on}
        request.cache.put(key, json.dumps(data).encode())


def _report(request: Request, search: ChoiceSearch, finished: bool) -> TuningReport:
    took, chosen = search.budget - search.left, search.chosen.named(search.given)
    results = tuple(search.results())
    return TuningReport(request.graph.name, chosen, search.budget, took, results, interrupted=not finished)


def _final(request: Request, choice: Choice, report: TuningReport) -> Program:
    program = request.compiled(choice)
    if request.params is not None:
        program.set_params(request.params)
    program.tuning = report
    return program
