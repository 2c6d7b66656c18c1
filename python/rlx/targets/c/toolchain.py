"""The C compilers of this machine."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from rlx.support.errors import CompileError

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic")
_SECONDS = 120.0


def zig() -> tuple[str, ...] | None:
    """Return the command of Clang in the package `ziglang`, or None if it is not installed."""
    return (sys.executable, "-m", "ziglang", "cc") if importlib.util.find_spec("ziglang") else None


# The flags for each core: of GCC for Arm, and of Clang.
_GCC = {
    "m0": "-mcpu=cortex-m0",
    "m4": "-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16",
    "m7": "-mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
    "m33": "-mcpu=cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
}
_CLANG = {
    "m0": "-target thumb-freestanding-eabi -mcpu=cortex_m0",
    "m4": "-target thumb-freestanding-eabihf -mcpu=cortex_m4",
    "m7": "-target thumb-freestanding-eabihf -mcpu=cortex_m7",
    "m33": "-target thumb-freestanding-eabihf -mcpu=cortex_m33+dsp",
}
ARM_GCC = "arm-none-eabi-gcc"


def for_core(core: str, kind: str | None = None) -> tuple[str, ...]:
    """Return the command of a compiler for a Cortex-M with its flags.

    Args:
        core: m0, m4, m7 or m33.
        kind: `"gcc"` for Arm, `"clang"` of the package `ziglang`; None takes GCC if it is installed.

    Raises:
        CompileError: The compiler is not installed.
    """
    gcc = shutil.which(ARM_GCC)
    if kind != "clang" and gcc:
        return (ARM_GCC, *_GCC[core].split(), "-mthumb")
    clang = zig()
    if kind != "gcc" and clang:
        return (*clang, *_CLANG[core].split(), "-fno-sanitize=undefined", "-fno-unwind-tables")
    package = {"gcc": f"the program '{ARM_GCC}'", "clang": "the package 'ziglang'"}.get(
        kind or "", "a compiler for Arm"
    )
    raise CompileError(
        f"to build for a Cortex-M, {package} is needed",
        hint="pip install 'rlx[cortexm]', or Debian's gcc-arm-none-eabi",
    )


def compiler() -> tuple[str, ...]:
    """Return the command of the C compiler: `CC`, else `cc`, `gcc` or `clang`, else Clang of the package `ziglang`.

    Raises:
        CompileError: No compiler is installed.
    """
    return _compiler(os.environ.get("CC"), os.environ.get("PATH"))


@cache
def _compiler(chosen: str | None, path: str | None) -> tuple[str, ...]:
    if chosen:
        words = tuple(shlex.split(chosen))
        if not words or shutil.which(words[0], path=path) is None:
            raise CompileError(f"CC is {chosen!r}, and there is no such program")
        return words
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name, path=path):
            return (name,)
    found = zig()
    if found is None:
        raise CompileError(
            "there is no C compiler on this machine: no cc, gcc or clang, and no package ziglang",
            hint="install gcc or clang, or `pip install ziglang`, or set CC",
        )
    return found


def version_of(command: Sequence[str]) -> str:
    """Return the first line of a compiler's version text."""
    return _version(tuple(command))


@cache
def _version(command: tuple[str, ...]) -> str:
    return _run([*command, "--version"], None, _SECONDS).stdout.partition("\n")[0].strip()


def library(
    files: Mapping[str, str], flags: Sequence[str] = (), command: Sequence[str] = (), timeout_s: float | None = None
) -> bytes:
    """Compile a shared library for this machine, and return its bytes.

    Args:
        files: Sources and headers, by name.
        flags: Additional flags.
        command: The compiler; `compiler()` by default.
        timeout_s: The time limit in seconds.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    with tempfile.TemporaryDirectory(prefix="rlx-c-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        sources = [name for name in files if name.endswith(".c")]
        build(
            [*(command or compiler()), *WARNINGS, "-O2", "-fPIC", "-shared", *flags, *sources, "-o", "library", "-lm"],
            folder,
            timeout_s,
        )
        return (Path(folder) / "library").read_bytes()


def build(command: Sequence[str], folder: str | os.PathLike[str], timeout_s: float | None = None) -> str:
    """Run a compiler in a folder, and return its output.

    Raises:
        CompileError: The compiler fails, or takes too long.
    """
    result = _run(command, folder, timeout_s or _SECONDS)
    if result.returncode:
        said = (result.stderr or result.stdout).strip()[-3000:]
        raise CompileError(f"{shlex.join(command[:3])} … failed with status {result.returncode}:\n{said}")
    return result.stderr


def _run(
    command: Sequence[str], folder: str | os.PathLike[str] | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} took more than {seconds:.0f} s") from None
    except OSError as problem:
        raise CompileError(f"{command[0]} cannot be run: {problem}") from None
