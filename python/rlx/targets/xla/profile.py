"""Times of a program's instructions from JAX's profiler, and the LIR ops of each instruction."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.ir.interface import bind_symbols
from rlx.support.errors import ExecutionError
from rlx.targets import stages
from rlx.targets.compilation import Compilation
from rlx.targets.host import usable_cpus
from rlx.targets.numbering import numbers_in, with_op_numbers
from rlx.targets.options import CompileOptions
from rlx.targets.protocol import KernelEvent, Measurement
from rlx.targets.xla import client
from rlx.targets.xla.options import with_threads
from rlx.targets.xla.parts import LoweredParts
from rlx.targets.xla.portable import to_portable
from rlx.targets.xla.targets import Target, device_names

_COMPUTATION = re.compile(r"^(?:ENTRY )?%(\S+) \(.*\{$", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%(?P<name>\S+) = .*$", re.MULTILINE)
_CALLED = re.compile(r"(?:calls|to_apply)=%([\w.\-]+)")
# Instructions that run other instructions, which have their own records.
_ENCLOSING = re.compile(r" (?:while|conditional|call)\(")
# Operands of a fusion. Their location is that of the op that defines them, not of an op in the fusion.
_READS = re.compile(r" (?:parameter|constant|bitcast)\(")
_LAYOUT = re.compile(r" (?:copy|bitcast)\(")
_END = "end: "
_NANO = 1e-9


def profile(
    compilation: Compilation,
    arrays: Sequence[np.ndarray],
    parameters: Mapping[str, np.ndarray],
    *,
    runs: int,
    threads: int | None = None,
) -> Measurement:
    """Measure the instructions of a program: see `protocol.Profiler`."""
    target = compilation.target
    assert isinstance(target, Target)
    if target.name not in device_names():
        raise ExecutionError(f"{target.name} is a kind of file, and no device", hint="use the target xla")
    values = _values(compilation, arrays, parameters)
    shapes = [(a, values[a.name].shape) for a in compilation.signature.arguments]
    bound = stages.prepare_graph(with_op_numbers(compilation.lir), CompileOptions(bind=bind_symbols(shapes))).clone()
    parts = LoweredParts(bound.name_symbol)
    stages.lower(bound.module, compilation.lowering, [parts])
    parts.take(bound.module)
    options = with_threads(target.options, threads)
    if parts.weights is not None:
        computed = client.XlaExecutable(to_portable(parts.weights), options)(_on_device(parts.prepared, values))
        values |= zip([name for name in parts.arguments if name not in values], computed, strict=True)
    executable = client.XlaExecutable(to_portable(parts.main), options)
    on_device = _on_device(parts.arguments, values)
    with tempfile.TemporaryDirectory(prefix="rlx-profile-") as folder:
        jax = client.jax()
        tracing = jax.profiler.ProfileOptions()
        tracing.python_tracer_level = 0
        with jax.profiler.trace(folder, profiler_options=tracing):
            for _ in range(runs + 1):
                for result in executable(on_device):
                    result.block_until_ready()
        (path,) = Path(folder).rglob("*.xplane.pb")
        records = list(_records(jax.profiler.ProfileData.from_file(str(path))))
    events = tuple(e for e in _events(records, _Instructions(executable.text)) if e.run >= 0)
    total = max((e.start + e.seconds for e in events), default=0.0) - min((e.start for e in events), default=0.0)
    return Measurement("xla", threads or usable_cpus(), runs, total / runs, events)


def _on_device(arguments: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    """The values of the arguments of a program, on the device."""
    return client.to_device([values[name] for name in arguments])


def _values(
    compilation: Compilation, arrays: Sequence[np.ndarray], parameters: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return the arrays of all arguments; states have their initial value."""
    signature = compilation.signature
    values = dict(zip([a.name for a in signature.of_kind("input")], arrays, strict=True)) | dict(parameters)
    for state in signature.of_kind("state"):
        values[state.name] = state.initial_array()
    return values


class _Instructions:
    """The instructions of a compiled program, from its text."""

    def __init__(self, text: str):
        heads = [*_COMPUTATION.finditer(text)]
        ends = [*(head.start() for head in heads[1:]), len(text)]
        self._bodies = {head[1]: text[head.end() : end] for head, end in zip(heads, ends, strict=True)}
        self._lines = {match["name"]: match[0] for match in _INSTRUCTION.finditer(text)}

    def has(self, name: str) -> bool:
        """Whether the program has this instruction, and it performs its own computation."""
        return name in self._lines and not _ENCLOSING.search(self._lines[name])

    def is_layout(self, name: str) -> bool:
        """Whether it only copies."""
        return _LAYOUT.search(self._lines[name]) is not None

    def ops(self, name: str) -> tuple[int, ...]:
        """The ops that it computes, including those of called computations."""
        line = self._lines[name]
        called = [body for c in _CALLED.findall(line) for body in self._bodies.get(c, "").splitlines()]
        return tuple(sorted(numbers_in("\n".join([line, *(of for of in called if not _READS.search(of))]))))


def _records(data: Any) -> Iterator[tuple[str, int, float, float]]:
    """Yield name, run id, start and end in seconds of each executed instruction. The end may be in a separate record."""
    started: dict[int, tuple[str, int, float, float]] = {}
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                start, end = event.start_ns * _NANO, (event.start_ns + event.duration_ns) * _NANO
                if "hlo_op" in stats:
                    started[len(started) if "_p" not in stats else stats["_p"]] = (
                        stats["hlo_op"],
                        stats["run_id"],
                        start,
                        end,
                    )
                elif event.name.startswith(_END) and stats.get("_c") in started:
                    name, run, begun, _ = started[stats["_c"]]
                    started[stats["_c"]] = name, run, begun, end
    yield from started.values()


def _events(records: Sequence[tuple[str, int, float, float]], instructions: _Instructions) -> list[KernelEvent]:
    """Return the executed instructions in order. The first run has the number -1."""
    ordered = sorted((r for r in records if instructions.has(r[0])), key=lambda record: record[2])
    if not ordered:
        raise ExecutionError("JAX's profiler has recorded no instruction")
    runs = {run: number for number, run in enumerate(dict.fromkeys(run for _, run, _, _ in ordered))}
    return [
        KernelEvent(name, instructions.ops(name), instructions.is_layout(name), runs[run] - 1, start, end - start)
        for name, run, start, end in ordered
    ]
