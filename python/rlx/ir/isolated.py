"""What may crash MLIR is read in a process of its own first: bytecode, and text in the formats of other dialects.

The parsers of MLIR's own dialects are made for what people write. A `linalg.transpose` with a wrong permutation, for
one, ends the process. Text of rlx, func and builtin ops alone is read at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlx.ir import reader
from rlx.ir.errors import Error, ParseError
from rlx.ir.locks import holding, make_lock

_BYTECODE = b"ML\xefR"
SECONDS = 20  # for one module; 100 MB of weights take 3
_START = 60  # seconds more for the first: the process has to start, on a machine that may be busy
_OURS = frozenset(("rlx", "func", "builtin"))
# Names with a dialect in front: of ops in custom and generic form, of types and attributes.
_NAMES = re.compile(
    r"""
    "(?P<generic>[A-Za-z_]\w*+)\.[^"\\\n]*+"\s*+[(<]
  | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?
  | //[^\n\r]*+
  | (?<![%@^\w.$-])(?P<custom>[A-Za-z_]\w*+)\.[A-Za-z_]
    """,
    re.VERBOSE | re.ASCII,
)
# A dot after another name than one of ours: where there is none, there is no other dialect. Found many times as fast.
_STRANGE_DOT = re.compile(r"\.(?<!\brlx\.)(?<!\bfunc\.)(?<!\bbuiltin\.)(?!\d)", re.ASCII)
_STRANGE_NAME = re.compile(r'"[A-Za-z_]\w*+\.(?<!"rlx\.)(?<!"func\.)(?<!"builtin\.)', re.ASCII)


def is_bytecode(data: bytes) -> bool:
    """Whether a file's content is MLIR bytecode."""
    return data.startswith(_BYTECODE)


def _command(*arguments: str) -> list[str]:
    from rlx import mlir

    spec = find_spec(mlir.provider)
    folder = Path(spec.origin).parents[1] if spec is not None and spec.origin else Path()
    return [sys.executable, "-I", reader.__file__, mlir.provider, str(folder), *arguments]


def bytecode_text(data: bytes, name: str = "<bytecode>") -> str:
    """The module that bytecode holds, as generic text with locations; neither checked nor verified.

    Args:
        data: What `rlx-opt --emit-bytecode` writes.
        name: What to call it in messages, usually a file name.

    Raises:
        ParseError: It is damaged.
        Error: No process can be started to read it.
    """
    command = _command("bytecode", str(SECONDS))
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=SECONDS + _START)
    except subprocess.TimeoutExpired:
        raise ParseError(f"the bytecode could not be read in {SECONDS} s: it is damaged", location=name) from None
    except OSError as problem:
        raise _cannot_start(problem) from None
    if done.returncode == 1:
        message = done.stderr.decode(errors="replace").strip().split("\n")[-1]
        raise ParseError(f"not valid bytecode: {message}", location=name)
    if done.returncode:
        raise ParseError("the bytecode is damaged: its reader ended without a message", location=name)
    try:
        return done.stdout.decode()
    except UnicodeDecodeError:
        raise ParseError("the bytecode has a name that is not UTF-8", location=name) from None


def _cannot_start(problem: OSError) -> Error:
    return Error(f"cannot start a process that reads modules: {problem.strerror}")


def is_foreign(text: str) -> bool:
    """Whether a text has ops, types or attributes of dialects other than rlx, func and builtin."""
    if not _STRANGE_DOT.search(text) and not _STRANGE_NAME.search(text):
        return False
    for found in _NAMES.finditer(text):
        dialect = found["generic"] or found["custom"]
        if dialect is not None and dialect not in _OURS:
            return True
    return False


def attempt(text: str, name: str = "<text>") -> None:
    """Let another process parse a text that is foreign; it survives if this one will.

    Raises:
        ParseError: MLIR's parser crashes, or takes very long.
        Error: No process can be started to read it.
    """
    if not is_foreign(text):
        return
    # What earlier texts have left in its memory may end a process that has been used; a new one decides.
    outcome = holding(_lock, lambda: _ask(text) or _ask(text))
    if outcome != ".":
        ending = f"takes more than {SECONDS} s for" if outcome == "late" else "crashes on"
        raise ParseError(
            f"MLIR's parser {ending} this text",
            location=f"{name}:1:1",
            hint="some op of another dialect is written so badly that its own parser gives up",
        )


_lock = make_lock()
_process: subprocess.Popen[bytes] | None = None
_owner = 0  # the process that started it: a fork has no part in it


def _ask(text: str) -> str:
    """`.` when the process is done with a text, `late`, or nothing when it has ended."""
    process, seconds = _running()
    data, answer = text.encode(), b""
    late = threading.Event()
    limit = threading.Timer(seconds, _end_late, (process, late))
    limit.daemon = True
    try:
        limit.start()
        with contextlib.suppress(OSError):  # it has ended
            process.stdin.write(len(data).to_bytes(8, "little") + data)
            process.stdin.flush()
            answer = process.stdout.read(1)
    finally:
        limit.cancel()
        if answer != b".":
            close()
    return "late" if not answer and late.is_set() else answer.decode()


def _end_late(process: Any, late: threading.Event) -> None:
    late.set()
    process.kill()


def _running() -> tuple[Any, float]:
    """The process, and how long its next answer may take."""
    global _process, _owner
    if _process is not None and _owner == os.getpid() and _process.poll() is None:
        return _process, SECONDS
    close()  # what is left of one that has ended
    try:
        _process = subprocess.Popen(
            _command("texts"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError as problem:
        raise _cannot_start(problem) from None
    _owner = os.getpid()
    return _process, SECONDS + _START


def close() -> None:
    """End the process that reads texts; the next text starts another."""
    global _process
    process, _process = _process, None
    if process is not None and _owner == os.getpid():
        process.kill()
        with contextlib.suppress(OSError):
            process.communicate()


atexit.register(close)
