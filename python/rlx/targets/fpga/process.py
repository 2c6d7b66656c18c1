"""Worker processes for CIRCT."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib import metadata
from pathlib import Path

from rlx.support.errors import CompileError
from rlx.targets.fpga import worker
from rlx.targets.worker.pool import WorkerPool
from rlx.targets.worker.process import Command, HandlerFailed, Reply, WorkerDied

_HINT = "pip install 'rlx[fpga]'"
# Options for Verilog that every tool accepts. CIRCT ends its process at an unknown option.
_STYLE = "disallowLocalVariables,locationInfoStyle=none,omitVersionComment,emittedLineLength=120"
default_pool = WorkerPool(1)


@cache
def version() -> str:
    """Return the version of CIRCT's package.

    Raises:
        CompileError: CIRCT is not installed.
    """
    try:
        return f"pycde {metadata.version('pycde')}"
    except metadata.PackageNotFoundError:
        raise CompileError("CIRCT is not installed", hint=_HINT) from None


def generic(module: str) -> str:
    """A module of the hw, comb and seq dialects, verified, in MLIR's generic form, which every MLIR reads.

    Raises:
        CompileError: CIRCT is not installed, or refuses the module.
    """
    return _answer({"kind": "generic"}, module, None).body.decode()


def verilog(module: str, timeout_s: float | None = None) -> str:
    """Return a module of the hw, comb and seq dialects as SystemVerilog.

    Raises:
        CompileError: CIRCT is not installed, or rejects the module.
    """
    return _answer({"kind": "verilog", "options": _STYLE}, module, timeout_s).body.decode()


def simulation(module: str, top: str, timeout_s: float | None = None) -> tuple[str, dict[str, int], int]:
    """Return LLVM IR for one step of a module, the offset of each port of its top module in the state, and the state's size.

    Raises:
        CompileError: CIRCT is not installed, or rejects the module.
    """
    reply = _answer({"kind": "simulation", "top": top}, module, timeout_s)
    return reply.body.decode(), dict(reply.header["ports"]), reply.header["bytes"]


def _answer(header: dict[str, str], module: str, timeout_s: float | None) -> Reply:
    version()
    try:
        reply = default_pool.request(_command(), header, module.encode(), timeout_s=timeout_s)
    except HandlerFailed as problem:
        raise CompileError(f"CIRCT failed: {problem}", hint=_HINT) from None
    except WorkerDied as problem:
        why = f"took longer than {timeout_s} s" if problem.timed_out else problem.reason
        raise CompileError(f"CIRCT's process {why}") from None
    if reply.header["outcome"] != "ok":
        raise CompileError(f"CIRCT refuses the design: {reply.header['message']:.600}")
    return reply


@cache
def _command() -> Command:
    spec = importlib.util.find_spec("pycde")
    if spec is None or not spec.submodule_search_locations:
        raise CompileError("CIRCT is not installed", hint=_HINT)
    folder = Path(next(iter(spec.submodule_search_locations))).parent
    return Command(worker.__file__, (), (str(folder),))
