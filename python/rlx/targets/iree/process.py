"""Worker processes for IREE's compiler."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from rlx.support.errors import CompileError, Error
from rlx.targets.iree import worker
from rlx.targets.worker.folder import is_harmless
from rlx.targets.worker.pool import WorkerPool
from rlx.targets.worker.process import Command

_LIBRARIES = {"darwin": "libIREECompiler.dylib", "win32": "IREECompiler.dll"}
_LINKER_VARIABLE = "IREE_LLVM_EMBEDDED_LINKER_PATH"


def compiler_library() -> Path:
    """Return the path of IREE's compiler library without importing it.

    Raises:
        CompileError: The compiler is not installed.
    """
    name = _LIBRARIES.get(sys.platform, "libIREECompiler.so")
    try:
        spec = importlib.util.find_spec("iree.compiler")
    except (ImportError, ValueError):  # the package does not exist, or its import is blocked
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "_mlir_libs" / name
        if path.exists():
            return path
    raise CompileError("IREE's compiler is not installed", hint="pip install iree-base-compiler")


def compiler_command(process_flags: tuple[str, ...] = ()) -> Command:
    """Return the command of a compiler process with these flags, which apply to the whole process.

    Raises:
        CompileError: The compiler is not installed.
        Error: ``RLX_COMPILE_THREADS`` is neither 1 nor empty.
    """
    library = compiler_library()
    return Command(worker.__file__, (str(library), _linker(library), *_thread_flags(), *process_flags))


def _thread_flags() -> tuple[str, ...]:
    """Return the flag for one thread if ``RLX_COMPILE_THREADS`` is 1. MLIR supports only one thread or one for each core."""
    threads = os.environ.get("RLX_COMPILE_THREADS", "")
    if threads not in ("", "1"):
        raise Error(
            f"RLX_COMPILE_THREADS is {threads!r}", hint="1 is one thread; without it there is one for each core"
        )
    return ("--mlir-disable-threading",) if threads else ()


def _linker(library: Path) -> str:
    """Return the path of the linker if it is not harmless in a shell, else "". The process then creates a link to it."""
    path = os.environ.get(_LINKER_VARIABLE) or str(library.with_name("iree-lld"))
    return "" if is_harmless(path) or not os.path.exists(path) else path


default_pool = WorkerPool()
