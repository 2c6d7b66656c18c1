"""Times of a program's kernels from IREE's profiler, and the LIR ops of each kernel.

The program is compiled again, from a LIR where the location of each op is its number. IREE preserves locations. Its IR after
the phase `dispatch-creation` has the ops of each kernel's region, and the IR after `executable-sources` has the calls of each
kernel. `iree-benchmark-module` runs the program in a separate process and records each kernel call. `iree-profile` reads the
records.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rlx.ir.dtype import dtype as rlx_dtype
from rlx.ir.op.signature import bodies
from rlx.ir.packing import pack
from rlx.kernels.declaration import FUNCTION_PREFIX
from rlx.support.errors import Error, ExecutionError
from rlx.targets.building import estimated_flops
from rlx.targets.compilation import Compilation
from rlx.targets.host import usable_cpus
from rlx.targets.iree.backend import leveled, module_text, with_flags_of
from rlx.targets.iree.compiler import compile_module, ir_after
from rlx.targets.iree.devices import LOCAL_DRIVERS, driver_flags
from rlx.targets.iree.kernel_objects import take_out_kernels
from rlx.targets.iree.memory import allocator_environment
from rlx.targets.iree.names import PARAMETER_SCOPE, exported_name
from rlx.targets.iree.program import choose_driver
from rlx.targets.numbering import location_name, numbers_in, with_op_numbers
from rlx.targets.protocol import KernelEvent, Measurement
from rlx.targets.stages import lower

_REGION = "flow.dispatch.workgroups"
_CALL = re.compile(r"stream\.cmd\.dispatch\s+(?:@[^\s:]+::)*@(?P<kernel>\"[^\"]+\"|[^\s({[]+)")
_ALIAS = re.compile(r"#loc\d*")
_FROM_REGION = "_dispatch_"
_FUNCTION = re.compile(r"^  (util\.func|util\.initializer)\b")
# Ops that are copied into each kernel that needs them, and those that move no elements. They do not identify the computation
# of a kernel.
_SHARED = re.compile(
    r"\b(arith\.constant|tensor\.empty|linalg\.fill|iree_encoding\.\w+|tensor\.\w+_shape|hal\.interface\.\S+)\b|^\s*\^bb"
)
_MODE = "queue-events,host-execution,executable-metadata"
_NANO = 1e-9
_TIMEOUT_S = 600
# Records of the profiler that contain other records, or have no time of their own.
_ENCLOSING = ("execute", "barrier", "dealloca")


def profile(
    compilation: Compilation,
    arrays: Sequence[np.ndarray],
    parameters: Mapping[str, np.ndarray],
    *,
    runs: int,
    threads: int | None = None,
) -> Measurement:
    """Measure the kernels of a program: see `protocol.Profiler`."""
    target, name = leveled(compilation), exported_name(compilation.signature.name)
    driver = choose_driver(target, estimated_flops(compilation.lir.module), threads)
    if driver not in LOCAL_DRIVERS:
        raise ExecutionError(
            f"kernels are measured on the CPU, not by the driver {driver!r}", hint="use the device cpu"
        )
    lowered = with_op_numbers(compilation.lir).module
    compilation.name_function(*bodies(lowered))
    lower(lowered, compilation.lowering)
    objects = take_out_kernels(lowered, target, cache=compilation.cache, timeout_s=None)
    target, text = with_flags_of(lowered, target), module_text(lowered)
    compiled = compile_module(text, target, objects=objects, name=f"{name}.mlir")
    regions, calls = ir_after(("dispatch-creation", "executable-sources"), text, target, compiled.flags_used, name)
    kernels = Kernels.read(regions, calls)
    with tempfile.TemporaryDirectory(prefix="rlx-profile-") as folder:
        flags = [f"--function={name}", *_inputs(arrays, folder), *_parameters(parameters, folder)]
        seconds = _run(compiled.vmfb, driver, threads, flags, runs, folder)
        events = _events(_records(folder), kernels, runs + 1)
    used = 1 if driver == "local-sync" else threads or usable_cpus()
    return Measurement(driver, used, runs, seconds, tuple(e for e in events if e.run >= 0))


# --- the ops of a kernel --------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernels:
    """The kernels of a compiled program.

    Attributes:
        calls: The ops of each call of a kernel, in program order.
        all_ops: The ops of all calls of a kernel.
    """

    calls: Mapping[str, tuple[tuple[int, ...], ...]]
    all_ops: Mapping[str, tuple[int, ...]]

    @classmethod
    def read(cls, regions: str, sources: str) -> Kernels:
        """Return the kernels of a program, from its IR after two phases.

        IREE merges identical kernels, so the code of a kernel identifies only the ops of its first call. The region that became
        a call has the location of the call. Kernels that only change the layout of a tensor are created later, and have no
        region.
        """
        by_place = _regions(regions)
        calls: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        for kernel, place in _calls(sources):
            waiting = by_place.get(place) if _FROM_REGION in kernel else None
            calls[kernel].append(waiting.pop(0) if waiting else tuple(sorted(place)))
        every = {k: tuple(sorted({op for ops in of_kernel for op in ops})) for k, of_kernel in calls.items()}
        return cls({k: tuple(of_kernel) for k, of_kernel in calls.items()}, every)

    def ops(self, kernel: str, index: int, count: int) -> tuple[int, ...]:
        """The ops of one of the `count` calls of a kernel in a run. Calls in a loop are repeated."""
        calls = self.calls.get(kernel, ())
        return calls[index % len(calls)] if calls and count % len(calls) == 0 else self.all_ops.get(kernel, ())


def _computed(line: str) -> frozenset[int]:
    """Return the ops that a line of a kernel belongs to."""
    return frozenset() if _SHARED.search(line) else numbers_in(line)


def _regions(ir: str) -> dict[frozenset[int], list[tuple[int, ...]]]:
    """Return the ops in each region that becomes a kernel, by the location of the region, in program order."""
    regions: list[tuple[frozenset[int], frozenset[int], frozenset[int]]] = []
    inside, alone, indent = frozenset[int](), frozenset[int](), ""
    for line in _unaliased(ir):
        if not indent and _REGION in line:
            indent, inside, alone = line[: len(line) - len(line.lstrip())] + "}", frozenset(), frozenset()
        elif indent:
            is_end = line.startswith(f"{indent} loc(")
            numbers = numbers_in(line) if is_end else _computed(line)
            inside |= numbers
            alone |= numbers if len(numbers) == 1 else frozenset()
            if is_end:
                regions.append((numbers, inside, alone))
                indent = ""
    return _attributed(regions)


def _attributed(
    regions: Sequence[tuple[frozenset[int], frozenset[int], frozenset[int]]],
) -> dict[frozenset[int], list[tuple[int, ...]]]:
    """Return the ops of each region, by the location of the region, in program order.

    IREE combines the locations of an op and of its operand when it moves a reshape between them. An op that a region has
    only in combined locations, and another region in a location of its own, is computed in the other one.

    Args:
        regions: For each region its location, all its ops, and those with a location of their own in it.
    """
    elsewhere = frozenset[int]().union(*(alone for _, _, alone in regions))
    found: dict[frozenset[int], list[tuple[int, ...]]] = defaultdict(list)
    for place, inside, alone in regions:
        computed = alone | (inside - elsewhere)
        found[place].append(tuple(sorted(computed or inside)))
    return found


def _calls(ir: str) -> list[tuple[str, frozenset[int]]]:
    """Return the kernels called by functions, with the locations of the calls. Calls at load time are excluded."""
    found: list[tuple[str, frozenset[int]]] = []
    kernel, indent, in_function = "", "", False
    for line in _unaliased(ir):
        if match := _FUNCTION.match(line):
            in_function = match[1] == "util.func"
        elif in_function and not kernel and (match := _CALL.search(line)):
            kernel, indent = match["kernel"].strip('"'), line[: len(line) - len(line.lstrip())] + "}"
        elif kernel and line.startswith(indent):
            found.append((kernel, numbers_in(line)))
            kernel = ""
    return found


def _unaliased(ir: str) -> list[str]:
    """Return the lines of an IR, with op numbers instead of location aliases, which are defined at the end of the IR."""
    written: dict[str, str] = dict(re.findall(r"^(#loc\d*) = (.*)$", ir, re.MULTILINE))

    @cache
    def numbers(alias: str) -> frozenset[int]:
        text = written.get(alias, "")
        return numbers_in(text).union(*map(numbers, _ALIAS.findall(text)))

    def names(match: re.Match[str]) -> str:
        return " ".join(map(location_name, sorted(numbers(match[0]))))

    return [_ALIAS.sub(names, line) for line in ir.splitlines()]


# --- running --------------------------------------------------------------------------------------


def _inputs(arrays: Sequence[np.ndarray], folder: str) -> list[str]:
    flags = []
    for number, array in enumerate(arrays):
        path = os.path.join(folder, f"{number}.bin")
        Path(path).write_bytes(np.ascontiguousarray(array).tobytes())
        flags.append(f"--input={''.join(f'{size}x' for size in array.shape)}{_element(array.dtype)}=@{path}")
    return flags


def _element(dtype: np.dtype) -> str:
    """Return the name of a dtype in IREE's tools, which lack unsigned integers and storage dtypes.

    Raises:
        ExecutionError: The tools lack the dtype.
    """
    kind = rlx_dtype(dtype)
    if kind.is_complex:
        raise ExecutionError(
            "IREE's profiler takes no complex inputs", hint="give the real and the imaginary part, and combine them"
        )
    return kind.element.mlir


def _parameters(parameters: Mapping[str, np.ndarray], folder: str) -> list[str]:
    if not parameters:
        return []
    from iree.runtime import save_archive_file

    path = os.path.join(folder, "parameters.irpa")
    save_archive_file({key: pack(array) for key, array in parameters.items()}, Path(path))
    return [f"--parameters={PARAMETER_SCOPE}={path}"]


def _run(vmfb: bytes, driver: str, threads: int | None, flags: list[str], runs: int, folder: str) -> float:
    """Run the program, write `profile` into the folder, and return the seconds per run. There is one additional warm-up run."""
    program, output = os.path.join(folder, "program.vmfb"), os.path.join(folder, "profile")
    Path(program).write_bytes(vmfb)
    command = [
        _tool("iree-benchmark-module"),
        f"--module={program}",
        f"--device={driver}",
        *driver_flags(driver, threads),
    ]
    command += [*flags, f"--benchmark_min_time={runs + 1}x", "--benchmark_format=json"]
    command += [f"--device_profiling_mode={_MODE}", f"--device_profiling_output={output}"]
    (benchmark,) = json.loads(_printed(command))["benchmarks"]
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    return benchmark["real_time"] * units[benchmark["time_unit"]]


def _records(folder: str) -> list[dict[str, Any]]:
    path = os.path.join(folder, "profile")
    if not os.path.exists(path):  # the program calls no kernel, for example if it returns its input
        return []
    command = [_tool("iree-profile"), "export", "--format=ireeperf-jsonl", "--output=-", path]
    return [json.loads(line) for line in _printed(command).splitlines()]


def _printed(command: Sequence[str]) -> str:
    environment = {**os.environ, **allocator_environment()}
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ExecutionError(f"{Path(command[0]).name} has not ended after {_TIMEOUT_S} s") from None
    except OSError as problem:
        raise ExecutionError(f"cannot start {command[0]}: {problem.strerror}") from None
    if done.returncode:
        printed = done.stderr.decode("utf-8", "replace")
        lines = [line for line in printed.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise ExecutionError(f"{Path(command[0]).name} failed: {lines[-1][:400]}")
    return done.stdout.decode("utf-8", "replace")


def _tool(name: str) -> str:
    """Return the path of one of IREE's tools.

    Raises:
        Error: IREE's runtime is not installed, or lacks the tool.
    """
    spec = importlib.util.find_spec("iree") and importlib.util.find_spec("iree._runtime_libs")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / (f"{name}.exe" if sys.platform == "win32" else name)
        if path.exists():
            return str(path)
    raise Error(f"measuring kernels needs {name}, which is not installed", hint="pip install iree-base-runtime")


# --- results --------------------------------------------------------------------------------------


def _events(records: Sequence[Mapping[str, Any]], kernels: Kernels, runs: int) -> list[KernelEvent]:
    """Return the kernel calls in order. Each run has the same number of calls of a kernel. The first run has the number -1."""
    timed = [r for r in records if r["record_type"] == "host_execution_event" and r["op"] not in _ENCLOSING]
    timed.sort(key=lambda r: r["start_host_time_ns"])
    by_kernel: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in timed:
        by_kernel[record["key"] or record["op"]].append(record)
    origin = timed[0]["start_host_time_ns"] if timed else 0
    events = []
    for kernel, of_kernel in by_kernel.items():
        count = len(of_kernel) // runs
        for i, record in enumerate(of_kernel):
            ops = kernels.ops(kernel, i % max(count, 1), count)
            start, seconds = (record["start_host_time_ns"] - origin) * _NANO, record["duration_ns"] * _NANO
            layout = _FROM_REGION not in kernel and not kernel.startswith(FUNCTION_PREFIX)
            events.append(KernelEvent(kernel, ops, layout, i * runs // len(of_kernel) - 1, start, seconds))
    return sorted(events, key=lambda event: event.start)
