"""A program of its own: lets MLIR read what may crash it, so that it crashes here.

MLIR's reader of bytecode trusts what it reads, and so do some custom formats of its dialects. The rlx dialect is not
registered here: its ops and attributes are taken as they are, to be verified where the text is read in the end.

    python reader.py PROVIDER FOLDER bytecode SECONDS

reads one module from standard input and prints it as generic text with locations. Exit code 1: it is not valid, as a
message on standard error says.

    python reader.py PROVIDER FOLDER texts

reads texts from standard input, each after its length in eight bytes, and answers each with a byte when MLIR is
done with it, whatever it thinks of it. PROVIDER is the package of MLIR's bindings and FOLDER where it lies.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

_PORTABLE = b"StableHLO_v"  # the producer that bytecode names, after four bytes and its version


def _limit(seconds: int | None) -> None:
    """Bound time and memory: a few bytes may ask for any number of gigabytes."""
    try:
        import resource
    except ImportError:  # not on Windows, where the parent's own limit of time has to do
        return
    limits = {
        resource.RLIMIT_AS: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2,
        resource.RLIMIT_CORE: 0,
    }
    if seconds is not None:
        limits[resource.RLIMIT_CPU] = seconds
    for what, limit in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (limit, limit))


class Reader:
    """MLIR, with a new context for each module.

    Args:
        provider: The package of the bindings.
    """

    def __init__(self, provider: str):
        self.ir: Any = importlib.import_module(f"{provider}.ir")
        self._stablehlo: Any = None
        with contextlib.suppress(ImportError):
            self._stablehlo = importlib.import_module(f"{provider}._mlir_libs._stablehlo")

    def context(self) -> Any:
        """A context that takes all dialects."""
        context = self.ir.Context()
        context.enable_multithreading(False)
        context.allow_unregistered_dialects = True
        if self._stablehlo is not None:
            self._stablehlo.register_dialect(context)
        return context

    def convert(self, data: bytes) -> int:
        """Bytecode to text on standard output; the exit code."""
        try:
            context = self.context()
            if data[5:].startswith(_PORTABLE) and self._stablehlo is not None:
                module = self._stablehlo.deserialize_portable_artifact(context, data)
            else:
                module = self.ir.Module.parse(data, context=context)
            text = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()
        except self.ir.MLIRError as problem:
            found = problem.error_diagnostics
            sys.stderr.write(found[0].message if found else str(problem))
            return 1
        return 0

    def attempt_all(self) -> None:
        """Read texts until there are no more."""
        given, answers = sys.stdin.buffer, sys.stdout.buffer
        while len(head := given.read(8)) == 8:
            text = given.read(int.from_bytes(head, "little"))
            with contextlib.suppress(Exception):  # the parent will meet it as well, and tell of it
                self.ir.Operation.parse(text.decode(), context=self.context())
            answers.write(b".")
            answers.flush()


def main(provider: str, folder: str, what: str, seconds: str | None = None) -> int:
    """Run; the exit code."""
    sys.path.append(folder)
    reader = Reader(provider)
    if what == "bytecode":
        data = sys.stdin.buffer.read()
        _limit(int(seconds or 0))
        return reader.convert(data)
    _limit(None)
    reader.attempt_all()
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # what damaged data has left in memory need not survive being taken down
