"""Isolated parsing: input that may crash MLIR (bytecode, and text with other dialects) is first read in a separate process.

The parsers of MLIR's own dialects do not expect malicious input: for example, a `linalg.transpose` with a wrong
permutation aborts the process. Text with only rlx, func and builtin ops is read directly, unless it uses parts of
builtin that RLX never writes: an affine map that divides the smallest i64 by -1 also aborts the process.
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
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlx.ir.text import reader
from rlx.support.errors import Error, ParseError
from rlx.support.locks import holding, make_lock

_BYTECODE = b"ML\xefR"
SECONDS = 20  # limit for one module; 100 MB of weights take 3 s
_START = 60  # limit for the start of the process, on a busy machine
_REAP = 2  # limit for the end of a killed process
_CHUNK = 1 << 16
_SAFE_DIALECTS = frozenset(("rlx", "func", "builtin"))
# Keywords of builtin for arithmetic, sizes, layouts or binary resources.
_RARE_WORDS = [
    "affine_map",
    "affine_set",
    "dense_resource",
    "distinct",
    "memref",
    "opaque",
    "sparse",
    "strided",
    "vector",
]
_GAP = r"(?:\s++|//[^\n\r]*+)*+"
# Names that begin with a dialect: ops in custom and generic form, and both forms of types and attributes. An escape in
# the name of an op may represent any character.
_NAMES = re.compile(
    rf"""
    "(?P<generic>[A-Za-z_]\w*+)\.[^"\\\n]*+"{_GAP}[(<]
  | "(?P<escaped>[^"\\\n]*+\\.(?:[^"\\\n]|\\.)*+)"{_GAP}[(<]
  | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?
  | //[^\n\r]*+
  | [\#!](?P<short>[A-Za-z_]\w*+)<
  | (?<![%@^\w.$-])(?P<custom>[A-Za-z_]\w*+)\.[A-Za-z_]
  | (?<![%@^\#!\w.$-])(?P<rare>{"|".join(_RARE_WORDS)})(?![\w.$])
  | (?P<resources>\{{-\#)
    """,
    re.VERBOSE | re.ASCII,
)
# If a text matches none of these patterns, it has no dotted names outside the safe dialects and no short forms, so the
# search for `_NAMES` can be skipped. A plain search for the rare words and escapes is still needed. This is much
# faster.
_SUSPICIOUS = [
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"\.(?<!\brlx\.)(?<!\bfunc\.)(?<!\bbuiltin\.)(?!\d)",
        r'"[A-Za-z_]\w*+\.(?<!"rlx\.)(?<!"func\.)(?<!"builtin\.)',
        r"[#!][A-Za-z_]\w*+<",
    )
]


def is_bytecode(data: bytes) -> bool:
    """Whether a file's content is MLIR bytecode."""
    return data.startswith(_BYTECODE)


def _command(*arguments: str) -> list[str]:
    from rlx import mlir

    spec = find_spec(mlir.provider)
    folder = Path(spec.origin).parents[1] if spec is not None and spec.origin else Path()
    return [sys.executable, "-I", reader.__file__, mlir.provider, str(folder), *arguments]


def bytecode_text(data: bytes, name: str = "<bytecode>") -> str:
    """Return the module in bytecode as generic text with locations. It is neither checked nor verified.

    Args:
        data: Bytecode, as `rlx-opt --emit-bytecode` writes it.
        name: Its name in messages, usually a file name.

    Raises:
        ParseError: The bytecode is damaged, or uses a newer StableHLO version than is supported.
        Error: The process that reads it cannot be started.
    """
    command = _command("bytecode", str(SECONDS))
    try:
        completed = subprocess.run(command, input=data, capture_output=True, check=False, timeout=SECONDS + _START)
    except subprocess.TimeoutExpired:
        raise ParseError(f"the bytecode could not be read in {SECONDS} s: it is damaged", location=name) from None
    except OSError as problem:
        raise _cannot_start(problem) from None
    if completed.returncode == 1:
        message = completed.stderr.decode(errors="replace").strip().split("\n")[-1]
        raise ParseError(f"not valid bytecode: {message}", location=name)
    if completed.returncode == 3:
        version, newest = completed.stderr.decode(errors="replace").split()[-2:]
        raise ParseError(
            f"the bytecode is of StableHLO {version}, newer than the {newest} that can be read",
            location=name,
            hint=f"export it for the version {newest} or an older one, or as text",
        )
    if completed.returncode:
        raise ParseError("the bytecode is damaged: its reader ended without a message", location=name)
    try:
        return completed.stdout.decode()
    except UnicodeDecodeError:
        raise ParseError("the bytecode has a name that is not UTF-8", location=name) from None


def _cannot_start(problem: OSError) -> Error:
    return Error(f"cannot start a process that reads modules: {problem.strerror}")


def is_foreign(text: str) -> bool:
    """Whether a text may crash MLIR: it uses other dialects than rlx, func and builtin, or the rare words of builtin."""
    rare = any(word in text for word in ("\\", "{-#", *_RARE_WORDS))
    if not rare and not any(pattern.search(text) for pattern in _SUSPICIOUS):
        return False
    return any(match.lastgroup and match[match.lastgroup] not in _SAFE_DIALECTS for match in _NAMES.finditer(text))


def attempt(text: str, name: str = "<text>") -> None:
    """Let another process parse a foreign text, to see whether MLIR crashes.

    Raises:
        ParseError: MLIR's parser crashes, or exceeds the time limit.
        Error: The process that reads it cannot be started.
    """
    if not is_foreign(text):
        return
    # A process that has parsed other texts may have corrupted memory and crash for that reason. A failure is therefore
    # confirmed in a new process.
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
_owner = 0  # the id of the process that started it; a forked child must not use it
_awaits_answer = False  # whether an answer is outstanding; the next answer would be for an earlier text


def _ask(text: str) -> str:
    """Return `.` if the process has parsed a text, `late` if it exceeded the time limit, an empty string if it has ended."""
    process = _running()
    answer = _exchange(process, text, SECONDS)
    return "late" if answer is None else answer.decode()


def _running() -> Any:
    """Return the process that parses texts, started if none is available."""
    global _process, _owner
    if _process is not None and _owner == os.getpid() and not _awaits_answer and _process.poll() is None:
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
    answer = _exchange(process, "", _START)  # importing MLIR takes long for any text
    if answer != b".":
        raise Error(f"cannot start a process that reads modules: it {'took too long' if answer is None else 'ended'}")
    return process


def _exchange(process: Any, text: str, seconds: float) -> bytes | None:
    """Return the answer as `_answer` does, but end a process that does not answer, now or before the next text."""
    global _awaits_answer
    answer = None
    _awaits_answer = True
    try:
        answer = _answer(process, text, seconds)
    finally:
        if answer != b".":
            close()
    _awaits_answer = False
    return answer


def _pieces(text: str) -> Iterator[bytes]:
    """Yield a text in the format in which it is sent: the length, then the bytes in pieces, to avoid a second copy."""
    parts = range(0, len(text), _CHUNK)
    size = len(text) if text.isascii() else sum(len(text[i : i + _CHUNK].encode()) for i in parts)
    yield size.to_bytes(8, "little")
    yield from (text[i : i + _CHUNK].encode() for i in parts)


def _answer(process: Any, text: str, seconds: float) -> bytes | None:
    """Return the answer of a process to a text: empty if the process has ended, None if the time limit is exceeded."""
    pieces = _pieces(text)
    unsent = next(pieces)
    deadline = time.monotonic() + seconds
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while ready := selector.select(max(0.0, deadline - time.monotonic())):
            if any(key.fileobj is process.stdout for key, _ in ready):
                return process.stdout.read(1)
            try:
                unsent = unsent[process.stdin.write(unsent) or 0 :] or next(pieces, b"")
            except BrokenPipeError:
                return b""
            if not unsent:
                selector.unregister(process.stdin)
    return None


def close() -> None:
    """End the process that reads texts. The next text starts a new one."""
    global _process
    process = _process
    if process is not None and _owner == os.getpid():
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(
            subprocess.TimeoutExpired
        ):  # an interrupt may have left the lock of the `Popen` object locked
            process.wait(_REAP)
    _process = None


atexit.register(close)
