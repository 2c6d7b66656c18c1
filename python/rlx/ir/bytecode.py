"""MLIR bytecode becomes text in a process of its own: its reader crashes and hangs on damaged files."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from rlx.ir import bytecode_reader
from rlx.ir.errors import Error, ParseError

MAGIC = b"ML\xefR"
SECONDS = 20  # for reading one module; 100 MB of weights take 3


def is_bytecode(data: bytes) -> bool:
    """Whether a file's content is MLIR bytecode."""
    return data.startswith(MAGIC)


def text_of(data: bytes, name: str = "<bytecode>") -> str:
    """The module that bytecode holds, as generic text with locations; neither checked nor verified.

    Args:
        data: What `rlx-opt --emit-bytecode` writes.
        name: What to call it in messages, usually a file name.

    Raises:
        ParseError: It is damaged.
        Error: No process can be started to read it.
    """
    from rlx import mlir

    spec = find_spec(mlir.provider)
    folder = Path(spec.origin).parents[1] if spec is not None and spec.origin else Path()
    command = [sys.executable, "-I", bytecode_reader.__file__, mlir.provider, str(folder), str(SECONDS)]
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=SECONDS + 5)
    except subprocess.TimeoutExpired:
        raise ParseError(f"the bytecode could not be read in {SECONDS} s: it is damaged", location=name) from None
    except OSError as problem:
        raise Error(f"cannot start a process to read bytecode: {problem.strerror}") from None
    if done.returncode == 1:
        message = done.stderr.decode(errors="replace").strip().split("\n")[-1]
        raise ParseError(f"not valid bytecode: {message}", location=name)
    if done.returncode:
        raise ParseError("the bytecode is damaged: its reader ended without a message", location=name)
    try:
        return done.stdout.decode()
    except UnicodeDecodeError as problem:
        raise ParseError(
            f"the bytecode has a name that is not UTF-8: {problem.object[problem.start :][:20]!r}", location=name
        ) from None
