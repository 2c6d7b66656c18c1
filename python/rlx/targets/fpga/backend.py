"""The FPGA back end: integer graphs as SystemVerilog, or simulated on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import collect_arguments, evaluate_function
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Output
from rlx.passes.pipeline import PassPipeline
from rlx.support.errors import CompileError, Error, ExecutionError
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.fields import (
    Check,
    integer,
    list_of,
    name,
    number,
    one_of,
    optional,
    parse_json,
    record,
    row,
)
from rlx.targets.building import timed
from rlx.targets.compilation import Compilation
from rlx.targets.fpga import process
from rlx.targets.fpga.drive import Port
from rlx.targets.fpga.flags import PRESET_NAMES
from rlx.targets.fpga.lower.design import Design, Network, port_bits
from rlx.targets.fpga.lower.layer import Stream
from rlx.targets.fpga.parts import PARTS
from rlx.targets.fpga.project import FpgaProject, hardware_files
from rlx.targets.fpga.report import README_END, report_in
from rlx.targets.fpga.simulate import Simulator
from rlx.targets.fpga.synthesis import check_installed, synthesise
from rlx.targets.fpga.targets import (
    SIMULATOR,
    Target,
    device_names,
    target,
    target_names,
)
from rlx.targets.fpga.to_hw import ToHw
from rlx.targets.fpga.verilog import Case, memory_module
from rlx.targets.protocol import Compiled, DeviceInfo

_MOST_BYTES = 1 << 28
_SEED = 20
# The number of tensors for checking a design with states, and one with a wrapper.
_TENSORS, _WRAPPED_TENSORS = 3, 2


def version() -> str:
    """Return the version of CIRCT."""
    return process.version()


def compile_program(compilation: Compilation, timeout_s: float | None = None) -> Compiled:
    """Compile a graph to a design.

    Args:
        compilation: The compilation.
        timeout_s: The time limit in seconds for CIRCT.

    Raises:
        CompileError: The graph has ops without layers, or does not fit the part.
    """
    chosen = compilation.target
    assert isinstance(chosen, Target)
    if chosen.report:
        check_installed()
    with timed(compilation.phases, "layers"):
        to_hw = lowering_of(compilation)
        design = to_hw.design(compilation.lir)
    part = PARTS[chosen.arch]
    frequency = chosen.frequency or part.frequency
    info = {
        "preset": chosen.preset,
        "frequency": frequency,
        "predicted_cycles": design.network.predicted_cycles,
        "simulated_cycles": None,
    }
    if chosen.name == SIMULATOR:
        with timed(compilation.phases, "circt"):
            updates = {r.updates: r.name for r in compilation.lir.results if r.updates is not None}
            content = _simulated(design, to_hw.text(design), timeout_s, updates)
        return Compiled(json.dumps(content).encode(), info)
    with timed(compilation.phases, "circt"):
        files = hardware_files(design, to_hw.text(design), timeout_s)
    with timed(compilation.phases, "check"):
        case = _case(compilation.lir, design.network, wrapped=bool(chosen.axi))
        info["simulated_cycles"] = cycles = _checked(design, case, timeout_s)
    synthesis = None
    if chosen.report:
        with timed(compilation.phases, "synthesis"):
            synthesis = synthesise(files, design.top, part, frequency)
    project = FpgaProject(design, files, chosen, case, cycles, synthesis)
    return Compiled(json.dumps(project.files()).encode(), info)


def lowering_of(compilation: Compilation) -> ToHw:
    """The pass that lowers the LIR of a compilation."""
    (to_hw,) = (step.ours for step in PassPipeline.parse(compilation.lowering).steps)
    assert isinstance(to_hw, ToHw)
    return to_hw


def files(artifact: Artifact) -> Mapping[str, bytes]:
    """Return the files of a program."""
    content = parse_json(artifact.program, _MOST_BYTES)
    return {n: t.encode() if isinstance(t, str) else json.dumps(t).encode() for n, t in content.items()}


def info_fields() -> dict[str, Check]:
    """The entries of an artifact's `info`."""
    return {
        "preset": one_of(*PRESET_NAMES),
        "frequency": number,
        "predicted_cycles": integer(0, 1 << 60),
        "simulated_cycles": optional(integer(0, 1 << 60)),
    }


def emit(kind: str, compilation: Compilation) -> str | None:
    """The module of `rlx-to-hw` (`hw`), or the design as SystemVerilog in one text (`verilog`)."""
    if kind == "hw":
        return compilation.lowered_text()
    if kind != "verilog":
        return None
    to_hw = lowering_of(compilation)
    design = to_hw.design(compilation.lir)
    return process.verilog(to_hw.text(design)) + "\n" + "\n".join(map(memory_module, design.memories))


def report(artifact: Artifact) -> str:
    """Return cycles and resources of the design, by layer and in total: predicted, simulated, estimated and synthesised."""
    (text,) = (content for name, content in files(artifact).items() if name.endswith(README_END))
    return report_in(text.decode())


def notes(artifact: Artifact) -> list[str]:
    """Return a line on the cycles of the design."""
    info = artifact.info
    simulated = info["simulated_cycles"]
    found = "" if simulated is None else f", {simulated} simulated"
    return [f"{info['predicted_cycles']} cycles predicted{found}, preset {info['preset']}, {info['frequency']:g} MHz"]


# --- checking ---------------------------------------------------------------------------------------------------


def _case(graph: Graph, network: Network, *, wrapped: bool) -> Case:
    """Return random inputs and the evaluator's outputs: several tensors if the network has states or is wrapped."""
    draw = np.random.default_rng(_SEED)
    tensors = _TENSORS if network.states else _WRAPPED_TENSORS if wrapped else 1
    # An input and an output may have the same name.
    words: list[dict[str, list[np.ndarray]]] = [{n: [] for n in side} for side in (network.inputs, network.outputs)]
    states: dict[str, np.ndarray] = {}
    for _ in range(tensors):
        given = {
            n: draw.integers(s.low, s.high, s.shape, endpoint=True).astype(s.dtype.numpy)
            for n, s in network.inputs.items()
        }
        arrays = collect_arguments(graph, given | states)
        results = evaluate_function(graph.function, arrays, {})
        states |= {r.updates: v for r, v in zip(graph.results, results, strict=True) if r.updates is not None}
        found = {r.name: v for r, v in zip(graph.results, results, strict=True) if r.updates is None}
        for side, streams, values in zip(words, (network.inputs, network.outputs), (given, found), strict=True):
            for n, stream in streams.items():
                side[n].append(values[n].ravel()[stream.order])
    inputs, outputs = (
        {n: (s, np.concatenate(side[n])) for n, s in streams.items()}
        for side, streams in zip(words, (network.inputs, network.outputs), strict=True)
    )
    return Case(inputs, outputs, tensors)


def _checked(design: Design, case: Case, timeout_s: float | None) -> int | None:
    """Simulate a design, compare it with the evaluator, and return its cycles; None if LLVM is not installed.

    Raises:
        CompileError: The results differ.
    """
    if find_spec("llvmlite") is None:
        return None
    program = _simulated(design, design.simulated(), timeout_s)
    simulator, limit = _simulator(program), case.tensors * _limit(program["predicted_cycles"])
    run = simulator.run([values for _, values in case.inputs.values()], most_cycles=limit, tensors=case.tensors)
    for (output, (stream, wanted)), got in zip(case.outputs.items(), run.outputs, strict=True):
        if not np.array_equal(_elements(got, stream.dtype.name), wanted):
            raise CompileError(
                f"the design of '{design.network.name}' gives other numbers for '{output}' than the graph",
                hint="this is a mistake of RLX: please report it with the graph",
            )
    if case.tensors == 1:
        return run.cycles
    return simulator.run([values[: stream.count] for stream, values in case.inputs.values()], most_cycles=limit).cycles


def _limit(cycles: int) -> int:
    return 4 * cycles + 10_000


# --- simulating -------------------------------------------------------------------------------------------------


def _simulated(
    design: Design, text: str, timeout_s: float | None, updates: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the program that `FpgaProgram` reads. `updates` names the output that updates each state."""
    ir, offsets, size = process.simulation(text, design.top, timeout_s)
    network = design.network

    def described(side: Mapping[str, Stream], ports: Mapping[str, str]) -> list[list[Any]]:
        return [[n, ports[n], port_bits(s.dtype), s.dtype.name, s.order.tolist()] for n, s in side.items()]

    inputs, outputs = network.ports

    return {
        "ir": ir,
        "top": design.top,
        "offsets": offsets,
        "bytes": size,
        "predicted_cycles": network.predicted_cycles,
        "updates": [list(pair) for pair in (updates or {}).items()],
        "inputs": described(network.inputs, inputs),
        "outputs": described(network.outputs, outputs),
    }


_PORT = row(name, name, integer(1, 64), name, list_of(integer(0, 1 << 40)))
_PROGRAM = {
    "ir": name,
    "top": name,
    "bytes": integer(0, 1 << 40),
    "predicted_cycles": integer(0, 1 << 60),
    "updates": list_of(row(name, name), 1000),
    "inputs": list_of(_PORT, 1000),
    "outputs": list_of(_PORT, 1000),
}


def _simulator(program: Mapping[str, Any]) -> Simulator:
    def ports(side: str) -> list[Port]:
        return [Port(port, bits, len(order)) for _, port, bits, _, order in program[side]]

    return Simulator(
        program["ir"], program["top"], program["offsets"], program["bytes"], ports("inputs"), ports("outputs")
    )


def _elements(values: np.ndarray, kind: str) -> np.ndarray:
    """Convert the words of a port to elements of a dtype."""
    return (values & 1).astype(bool) if kind == "bool" else values.astype(dtype(kind).numpy)


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> FpgaProgram:
    """Compile the simulation of a design for this machine.

    Raises:
        Error: LLVM is not installed, or the program does not match the artifact.
    """
    if threads not in (None, 1):
        raise Error(f"a simulation uses one thread, not {threads}", hint="leave threads out, or say 1")
    return FpgaProgram(artifact)


class FpgaProgram:
    """A simulated design.

    Attributes:
        cycles: The cycles of the last call, from the first element of an input to the last one of the outputs.
    """

    def __init__(self, artifact: Artifact):
        content = parse_json(artifact.program, _MOST_BYTES)
        offsets = content.pop("offsets", None) if isinstance(content, dict) else None
        program = record(_PROGRAM)(content, "program") | {"offsets": offsets}
        signature = artifact.signature
        self._updates = dict[str, str](program["updates"])
        states = {a.name: a for a in signature.of_kind("state")}
        given = [a for a in signature.arguments if a.kind != "param"]
        made = [Output(self._updates[n], states[n].shape) for n in self._updates if n in states]
        for side, described in (("inputs", given), ("outputs", [*signature.outputs, *made])):
            found = sorted((n, kind, len(order)) for n, _, _, kind, order in program[side])
            wanted = sorted((d.name, d.shape.dtype.name, int(np.prod(d.shape.static))) for d in described)
            if found != wanted or any(sorted(order) != list(range(len(order))) for *_, order in program[side]):
                raise ExecutionError("the program is another one than the artifact describes", hint="compile it again")
        ports = [
            f"{port}_{end}"
            for s in ("inputs", "outputs")
            for _, port, *_ in program[s]
            for end in ("valid", "data", "ready")
        ]
        size = program["bytes"]
        if not isinstance(offsets, dict) or any(
            type(offsets.get(p)) is not int or not 0 <= offsets[p] < size for p in [*ports, "clk", "rst"]
        ):
            raise ExecutionError("the program lacks the places of its ports", hint="compile it again")
        self._orders = [[np.array(order, np.int64) for *_, order in program[s]] for s in ("inputs", "outputs")]
        self._names = [[n for n, *_ in program[s]] for s in ("inputs", "outputs")]
        self._inputs = [a.name for a in signature.of_kind("input")]
        self._outputs = [o.name for o in signature.outputs]
        self._shapes = {o.name: o.shape for o in (*signature.outputs, *made)}
        self._states = {n: a.initial_array() for n, a in states.items()}
        self._limit = _limit(program["predicted_cycles"])
        self._simulator = _simulator(program)
        self.cycles = 0

    def call(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """Run it on arrays for its inputs, in order."""
        named = dict(zip(self._inputs, arrays, strict=True)) | self._states
        given = [named[n].ravel()[order] for n, order in zip(self._names[0], self._orders[0], strict=True)]
        run = self._simulator.run(given, most_cycles=self._limit)
        self.cycles = run.cycles
        results: dict[str, np.ndarray] = {}
        for output, values, order in zip(self._names[1], run.outputs, self._orders[1], strict=True):
            shape = self._shapes[output]
            result = np.empty(len(order), shape.dtype.numpy)
            result[order] = _elements(values, shape.dtype.name)
            results[output] = result.reshape(shape.static)
        self._states |= {state: results[made] for state, made in self._updates.items()}
        return [results[n].copy() for n in self._outputs]

    def remarks(self) -> list[str]:
        """The cycles of the last call."""
        return [f"{self.cycles} cycles"]

    def read_state(self, name: str) -> np.ndarray:
        """A copy of the current value of a state."""
        return self._states[name].copy()

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set the value of a state."""
        self._states[name] = value.copy()


@cache
def devices() -> Sequence[DeviceInfo]:
    """Return the simulator. Never raises."""
    missing = [package for package in ("pycde", "llvmlite") if find_spec(package) is None]
    if missing:
        reason = f"{' and '.join(missing)} not installed: pip install 'rlx[fpga]'"
        return (DeviceInfo(SIMULATOR, SIMULATOR, "", False, reason),)
    return (DeviceInfo(SIMULATOR, SIMULATOR, f"CIRCT ({process.version()}) and LLVM", True),)


__all__: Sequence[str] = [
    "FpgaProgram",
    "compile_program",
    "device_names",
    "devices",
    "emit",
    "files",
    "hardware_files",
    "info_fields",
    "load",
    "lowering_of",
    "notes",
    "report",
    "target",
    "target_names",
    "version",
]
