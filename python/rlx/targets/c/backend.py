"""The back end for C. For the target `c` it also compiles the programs and runs them on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx.support.errors import CompileError, Error
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.container import packed, unpacked
from rlx.targets.artifacts.fields import Check, integer, listed, name
from rlx.targets.building import timed
from rlx.targets.c import toolchain
from rlx.targets.c.host import SOURCE, Program, harness
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.program import CSource as Source
from rlx.targets.c.readme import README, readme
from rlx.targets.c.targets import CORTEXM, Target, device_names, target, target_names
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
        source = Source(compilation.lir)
        files = files_of(source)
    _check_size(source, target)
    members = {n: text.encode() for n, text in files.items()}
    if target.name == CORTEXM:
        members[README] = readme(source, target).encode()
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
    return Compiled(packed(members), info)


def _check_size(source: Source, target: Target) -> None:
    """Check that a program fits into the memory of its target.

    Raises:
        CompileError: It does not fit; the message has the excess in bytes.
    """
    needs = source.arena_size + source.state_bytes
    if target.ram is not None and needs > target.ram:
        plan = source.memory.plan
        busiest = int(np.argmax(plan.live_bytes()))
        raise CompileError(
            f"'{source.graph.name}' needs {needs} bytes of RAM (arena {source.arena_size}, states {source.state_bytes}), "
            f"which is {needs - target.ram} more than the {target.ram} there are",
            hint=f"most is in use at step {busiest}, {plan.steps[busiest]}: `rlx inspect --memory` shows all; "
            "smaller images, fewer channels or a larger part",
        )
    if target.flash is not None and source.constant_bytes > target.flash:
        raise CompileError(
            f"'{source.graph.name}' has {source.constant_bytes} bytes of constants, which is "
            f"{source.constant_bytes - target.flash} more than the {target.flash} bytes of flash there are",
            hint="weights of 4 or 2 bits take a half or a quarter of those of 8; or a larger part",
        )


def files(artifact: Artifact) -> Mapping[str, bytes]:
    """The files of a program, by name."""
    members = unpacked(artifact.program, artifact.info["files"])
    return {n: data for n, data in members.items() if n != _LIBRARY}


def info_fields() -> dict[str, Check]:
    """The entries of an artifact's `info`: its files, and the bytes of its arena, states and constants."""
    sizes = {n: integer(0, _LARGEST) for n in ("arena", "arena_bound", "states", "constants")}
    return {"files": listed(name, 100), **sizes}


def emit(kind: str, compilation: Compilation) -> str | None:
    """Return the C code: all files concatenated."""
    if kind != "c":
        return None
    return "\n".join(f"/* ---- {n} ---- */\n{text}" for n, text in files_of(Source(compilation.lir)).items())


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


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> Program:
    """Load a program into this process.

    Raises:
        Error: `threads` is neither None nor 1.
        ExecutionError: The program is not for this machine.
    """
    if threads not in (None, 1):
        raise Error(f"programs in C use one thread, not {threads}", hint="leave threads out, or say 1")
    members = unpacked(artifact.program, artifact.info["files"])
    if _LIBRARY not in members:
        raise Error("this program is for another machine", hint="`rlx.Session('c')` runs the same graph here")
    return Program(artifact, members[_LIBRARY], parameters)


__all__: Sequence[str] = [
    "compile_program",
    "device_names",
    "devices",
    "emit",
    "files",
    "info_fields",
    "load",
    "notes",
    "target",
    "target_names",
    "version",
]
