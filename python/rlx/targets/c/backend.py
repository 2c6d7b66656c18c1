"""The back end for C. For the target `c` it also compiles the programs and runs them on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.passes.pipeline import PassPipeline
from rlx.plan import MemoryPlan
from rlx.support.errors import CompileError, Error
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.container import pack_archive, unpack_archive
from rlx.targets.artifacts.fields import Check, integer, list_of, name
from rlx.targets.building import timed
from rlx.targets.c import toolchain
from rlx.targets.c.footprint import footprint
from rlx.targets.c.host import SOURCE, CProgram, harness
from rlx.targets.c.lower.names import FileNames, program_name
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.selftest import self_test_of
from rlx.targets.c.misra import suppressions_of
from rlx.targets.c.packaging import cmake_of, pack_of
from rlx.targets.c.readme import readme
from rlx.targets.c.targets import CORTEXM, Target, device_names, target, target_names
from rlx.targets.c.to_c import ToC, files_in
from rlx.targets.compilation import Compilation
from rlx.targets.protocol import Compiled, DeviceInfo

_LIBRARY = "library"
_LARGEST = 1 << 40


def version() -> str:
    """Return the version of the C compiler that builds programs for this machine. Files do not depend on it."""
    try:
        command = toolchain.compiler()
    except CompileError:
        return "no compiler"
    return f"{' '.join(command)}: {toolchain.version_of(command)}"


def compile_program(compilation: Compilation, timeout_s: float | None = None) -> Compiled:
    """Write a graph as C, and compile it if its programs run on this machine.

    Args:
        compilation: The compilation.
        timeout_s: The time limit in seconds for the C compiler.

    Raises:
        UnsupportedError: The graph has symbols, or an element that C cannot express.
        CompileError: The program exceeds the memory limits, or there is no compiler.
    """
    target = compilation.target
    assert isinstance(target, Target)
    with timed(compilation.phases, "lower"):
        module, source = lowered(compilation)
        files = files_in(module)
    members = {n: text.encode() for n, text in files.items()}
    if target.name == CORTEXM:
        with timed(compilation.phases, "vectors"):
            members |= {name: text.encode() for name, text in _beside(source, target).items()}
        if target.report:
            with timed(compilation.phases, "report"):
                members[source.files.report] = footprint(source, target).encode()
    else:
        with timed(compilation.phases, "compile"):
            members[_LIBRARY] = toolchain.library({**files, SOURCE: harness(source)}, timeout_s=timeout_s)
    info = {
        "files": list(members),
        "arena": source.arena_size,
        "arena_bound": source.memory.plan.peak_live_bytes,
        "states": source.state_bytes,
        "constants": source.constant_bytes,
    }
    return Compiled(pack_archive(members), info, lasting=not target.report)  # compilers may be installed later


def report(artifact: Artifact) -> str:
    """Return flash by section, RAM, worst-case stack, instructions and cycles of a program."""
    name = FileNames(program_name(artifact.signature.name)).report
    return unpack_archive(artifact.program, artifact.info["files"])[name].decode().rstrip("\n")


def plan_memory(graph: Graph) -> MemoryPlan:
    """Return the memory plan of the program of a graph at LIR, whether it fits into the target's memory or not.

    Raises:
        UnsupportedError: The graph has symbols, or an element that C cannot express.
    """
    return CSource(graph).memory.plan


def _beside(source: CSource, target: Target) -> dict[str, str]:
    """The files for users of a program, which its code does not need."""
    names = source.files
    return {
        names.test: self_test_of(source),
        names.readme: readme(source, target),
        names.cmake: cmake_of(source),
        names.pack: pack_of(source),
        names.misra: suppressions_of(source),
    }


def files(artifact: Artifact) -> Mapping[str, bytes]:
    """The files of a program, by name."""
    members = unpack_archive(artifact.program, artifact.info["files"])
    return {n: data for n, data in members.items() if n != _LIBRARY}


def info_fields() -> dict[str, Check]:
    """The entries of an artifact's `info`: its files, and the bytes of its arena, states and constants."""
    sizes = {n: integer(0, _LARGEST) for n in ("arena", "arena_bound", "states", "constants")}
    return {"files": list_of(name, 100), **sizes}


def lowered(compilation: Compilation) -> tuple[mlir.Module, CSource]:
    """The module that the lowering gives, and the program that it holds.

    Raises:
        UnsupportedError: The graph has symbols, or something that C cannot say.
        CompileError: It needs more memory than it may have.
    """
    (to_c,) = (step.ours for step in PassPipeline.parse(compilation.lowering).steps)
    assert isinstance(to_c, ToC)
    return to_c.lowered(compilation.lir)


def emit(kind: str, compilation: Compilation) -> str | None:
    """The module of `rlx-to-c` (`emitc`), or the C in it, all files concatenated (`c`)."""
    if kind == "emitc":
        return compilation.lowered_text()
    if kind != "c":
        return None
    return "\n".join(f"/* ---- {n} ---- */\n{text}" for n, text in files_in(compilation.lowered()).items())


def notes(artifact: Artifact) -> list[str]:
    """Return a line on the memory of the program."""
    info = artifact.info
    return [
        f"arena: {info['arena']} bytes (no plan has less than {info['arena_bound']}); states: {info['states']} bytes; "
        f"constants: {info['constants']} bytes",
    ]


def devices() -> list[DeviceInfo]:
    """Return the C compiler of this machine, or the reason why there is none. Never raises."""
    try:
        command = toolchain.compiler()
        described = toolchain.version_of(command)
    except Error as problem:
        return [DeviceInfo("c", "c", "", False, problem.message)]
    return [DeviceInfo("c", "c", described, True)]


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> CProgram:
    """Load a program into this process.

    Raises:
        Error: `threads` is neither None nor 1.
        ExecutionError: The program is not for this machine.
    """
    if threads not in (None, 1):
        raise Error(f"programs in C use one thread, not {threads}", hint="leave threads out, or say 1")
    members = unpack_archive(artifact.program, artifact.info["files"])
    if _LIBRARY not in members:
        raise Error("this program is for another machine", hint="`rlx.Session('c')` runs the same graph here")
    return CProgram(artifact, members[_LIBRARY], parameters)


__all__: Sequence[str] = [
    "compile_program",
    "device_names",
    "devices",
    "emit",
    "files",
    "info_fields",
    "load",
    "notes",
    "plan_memory",
    "report",
    "target",
    "target_names",
    "version",
]
