"""A separate program in which MLIR reads data that may crash it.

MLIR's bytecode reader does not validate its input, and neither do some parsers of its dialects. The rlx dialect is not
registered here: its ops and attributes are read without checks, and verified when the caller reads the text.

    python reader.py PROVIDER FOLDER bytecode SECONDS

reads one module from standard input and prints it as generic text with locations. Exit code 1 means that it is not
valid; the reason is printed to standard error. Exit code 3 means that it uses a newer StableHLO; standard error names
both versions.

    python reader.py PROVIDER FOLDER texts

reads texts from standard input, each preceded by its length in eight bytes. It answers with one byte when MLIR has
parsed a text, valid or not. PROVIDER is the package of MLIR's bindings, FOLDER the folder that contains the package.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from typing import Any

# The producer in a portable artifact, after four bytes and the bytecode version.
_PORTABLE = b"StableHLO_v"
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


def _limit(seconds: int | None) -> None:
    """Limit time and memory: a few bytes of input may make MLIR allocate any amount of memory."""
    try:
        import resource
    except ImportError:  # on Windows, where only the time limit of the parent process applies
        return
    limits = {
        resource.RLIMIT_AS: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2,
        resource.RLIMIT_CORE: 0,
    }
    if seconds is not None:
        limits[resource.RLIMIT_CPU] = seconds
    for resource_kind, limit in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource_kind, (limit, limit))


class ModuleReader:
    """Parses modules with MLIR, each in a new context.

    Args:
        provider: The package of the bindings.
    """

    def __init__(self, provider: str):
        self.ir: Any = importlib.import_module(f"{provider}.ir")
        self._stablehlo: Any = None
        with contextlib.suppress(ImportError):
            self._stablehlo = importlib.import_module(f"{provider}._mlir_libs._stablehlo")

    def context(self) -> Any:
        """Return a context that accepts ops of all dialects."""
        context = self.ir.Context()
        context.enable_multithreading(False)
        context.allow_unregistered_dialects = True
        if self._stablehlo is not None:
            self._stablehlo.register_dialect(context)
        return context

    def convert(self, data: bytes) -> int:
        """Write bytecode as text to standard output. Returns the exit code."""
        try:
            context = self.context()
            if data[5:].startswith(_PORTABLE) and self._stablehlo is not None:
                module = self._stablehlo.deserialize_portable_artifact(context, data)
            else:
                module = self.ir.Module.parse(data, context=context)
            text = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()
        except (self.ir.MLIRError, ValueError) as problem:  # portable artifacts raise a ValueError
            if versions := self._too_new(data):
                sys.stderr.write(versions)
                return 3
            diagnostics = getattr(problem, "error_diagnostics", ())
            sys.stderr.write(diagnostics[0].message if diagnostics else str(problem))
            return 1
        return 0

    def _too_new(self, data: bytes) -> str | None:
        """Return the version of a portable artifact and the newest supported one, if the artifact is newer."""
        if not data[5:].startswith(_PORTABLE) or self._stablehlo is None:
            return None
        of_data = _VERSION.match(data[5 + len(_PORTABLE) :][:32].decode("latin-1"))
        newest = _VERSION.match(self._stablehlo.get_current_version())
        if of_data is None or newest is None:
            return None
        is_newer = tuple(map(int, of_data.groups())) > tuple(map(int, newest.groups()))
        return f"{of_data.group()} {newest.group()}" if is_newer else None

    def attempt_all(self) -> None:
        """Parse texts from standard input until there are no more."""
        texts, answers = sys.stdin.buffer, sys.stdout.buffer
        while len(head := texts.read(8)) == 8:
            text = texts.read(int.from_bytes(head, "little"))
            with contextlib.suppress(Exception):  # the parent process gets the same error and reports it
                self.ir.Operation.parse(text.decode(), context=self.context())
            answers.write(b".")
            answers.flush()


def main(provider: str, folder: str, mode: str, seconds: str | None = None) -> int:
    """Run the program. Returns the exit code."""
    sys.path.append(folder)
    reader = ModuleReader(provider)
    if mode == "bytecode":
        data = sys.stdin.buffer.read()
        _limit(int(seconds or 0))
        return reader.convert(data)
    _limit(None)
    reader.attempt_all()
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # skip the cleanup, which may crash if damaged data has corrupted memory
