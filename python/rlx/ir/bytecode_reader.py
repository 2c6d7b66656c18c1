"""A program of its own: bytecode from standard input to generic text on standard output.

MLIR's reader of bytecode trusts what it reads. Whatever it does with a file that somebody has damaged, it does here.
The rlx dialect is not registered: its ops and attributes come out as they are, to be verified when the text is read.

    python bytecode_reader.py PROVIDER FOLDER SECONDS

PROVIDER is the package of MLIR's bindings and FOLDER where it lies. Exit code 0: the text; 1: a message on standard
error says what is wrong with the file.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys


def _limit(seconds: int) -> None:
    """Bound time and memory: a few bytes may ask for any number of gigabytes."""
    try:
        import resource
    except ImportError:  # not on Windows, where the parent's own limit of time has to do
        return
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    for what, limit in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, half), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (limit, limit))


def main(provider: str, folder: str, seconds: str) -> int:
    """Convert one module; the exit code."""
    sys.path.append(folder)
    ir = importlib.import_module(f"{provider}.ir")
    context = ir.Context()
    context.enable_multithreading(False)
    context.allow_unregistered_dialects = True
    with contextlib.suppress(ImportError):
        importlib.import_module(f"{provider}._mlir_libs._stablehlo").register_dialect(context)
    data = sys.stdin.buffer.read()
    _limit(int(seconds))
    try:
        module = ir.Module.parse(data, context=context)
        text = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    except ir.MLIRError as problem:
        found = problem.error_diagnostics
        sys.stderr.write(found[0].message if found else str(problem))
        return 1
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # what damaged data has left in memory need not survive being taken down
