"""What may crash MLIR is read in a process of its own first: bytecode, and text in the formats of other dialects.

The parsers of MLIR's own dialects are made for what people write. A `linalg.transpose` with a wrong permutation, for
one, ends the process. Text of rlx, func and builtin ops alone is read at once, unless it has one of the things of
builtin that RLX never writes itself: an affine map that divides the least i64 by -1 ends the process as well.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import selectors
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlx.ir import reader
from rlx.ir.errors import Error, ParseError
from rlx.ir.locks import holding, make_lock

_BYTECODE = b"ML\xefR"
SECONDS = 20  # for one module; 100 MB of weights take 3
_START = 60  # seconds for the process to start, on a machine that may be busy
_REAP = 2  # for a process that was killed to end
_CHUNK = 1 << 16
_OURS = frozenset(("rlx", "func", "builtin"))
# Of builtin: what has arithmetic, sizes or layouts in its text, and binary resources after it.
_RARE = "affine_map|affine_set|dense_resource|distinct|memref|opaque|sparse|strided|vector"
_GAP = r"(?:\s++|//[^\n\r]*+)*+"
# Names with a dialect in front: of ops in custom and generic form, of types and attributes in both of their forms. An
# escape in an op's name may stand for anything.
_NAMES = re.compile(
    rf"""
    "(?P<generic>[A-Za-z_]\w*+)\.[^"\\\n]*+"{_GAP}[(<]
  | "(?P<escaped>[^"\\\n]*+\\.(?:[^"\\\n]|\\.)*+)"{_GAP}[(<]
  | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?
  | //[^\n\r]*+
  | [\#!](?P<short>[A-Za-z_]\w*+)<
  | (?<![%@^\w.$-])(?P<custom>[A-Za-z_]\w*+)\.[A-Za-z_]
  | (?<![%@^\#!\w.$-])(?P<rare>{_RARE})(?![\w.$])
  | (?P<resources>\{{-\#)
    """,
    re.VERBOSE | re.ASCII,
)
# Where nothing of this is, there is none of that: a name with a dot that is not one of ours, an escape, what stands above.
# Found many times as fast.
_STRANGE_DOT = re.compile(r"\.(?<!\brlx\.)(?<!\bfunc\.)(?<!\bbuiltin\.)(?!\d)", re.ASCII)
_STRANGE = re.compile(
    rf'"[A-Za-z_]\w*+\.(?<!"rlx\.)(?<!"func\.)(?<!"builtin\.)|\\|[#!][A-Za-z_]\w*+<|\{{-#|\b(?:{_RARE})\b', re.ASCII
)


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
    """Whether a text has what MLIR may not survive: another dialect than rlx, func and builtin, or builtin's rare things."""
    if not _STRANGE_DOT.search(text) and not _STRANGE.search(text):
        return False
    return any(found.lastgroup and found[found.lastgroup] not in _OURS for found in _NAMES.finditer(text))


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
_owing = False  # an answer: whatever it is asked next, it would answer what it was asked before


def _ask(text: str) -> str:
    """`.` when the process is done with a text, `late`, or nothing when it has ended."""
    process = _running()
    answer = _exchange(process, text.encode(), SECONDS)
    return "late" if answer is None else answer.decode()


def _running() -> Any:
    """The process, started if there is none that waits for a text."""
    global _process, _owner
    if _process is not None and _owner == os.getpid() and not _owing and _process.poll() is None:
        return _process
    close()
    try:
        _process = subprocess.Popen(
            _command("texts"), bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError as problem:
        raise _cannot_start(problem) from None
    _owner = os.getpid()
    process = _process
    answer = _exchange(process, b"", _START)  # what takes long is the import of MLIR, and no fault of the text
    if answer != b".":
        raise Error(f"cannot start a process that reads modules: it {'took too long' if answer is None else 'ended'}")
    return process


def _exchange(process: Any, data: bytes, seconds: float) -> bytes | None:
    """The same as `_answer`; a process that has not answered ends now or, if an interrupt comes between, later."""
    global _owing
    answer = None
    _owing = True
    try:
        answer = _answer(process, data, seconds)
    finally:
        if answer != b".":
            close()
    _owing = False
    return answer


def _answer(process: Any, data: bytes, seconds: float) -> bytes | None:
    """What a process answers to a text: nothing when it has ended, None when it takes longer than it may."""
    waiting = memoryview(len(data).to_bytes(8, "little") + data)
    until = time.monotonic() + seconds
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while ready := selector.select(max(0.0, until - time.monotonic())):
            if any(key.fileobj is process.stdout for key, _ in ready):
                return process.stdout.read(1)
            try:
                waiting = waiting[process.stdin.write(waiting[:_CHUNK]) or 0 :]
            except BrokenPipeError:
                return b""
            if not waiting:
                selector.unregister(process.stdin)
    return None


def close() -> None:
    """End the process that reads texts; the next text starts another."""
    global _process
    process = _process
    if process is not None and _owner == os.getpid():
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # an interrupt may have left it with its lock held
            process.wait(_REAP)
    _process = None


atexit.register(close)
