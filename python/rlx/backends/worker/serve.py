"""The worker's side: reads requests from standard input, has a handler answer them, replies on standard output.

This file is run as a script, and imports nothing but the standard library. Its one argument is JSON: ``folder``, which
the parent made and this process removes at its end, ``handler``, the path of a Python file, ``arguments`` for it, and
``path``, what is added to ``sys.path``. The handler's file has a function ``make(*arguments)`` that returns a function
from a request's header and body to those of its reply.

A frame is ``magic, header length, body length`` followed by a JSON header and raw bytes. A request's header has a
``kind``. Of these ``ping`` and, for tests, ``sleep`` (``seconds``) and ``abort`` are answered here, all others by the
handler. Each reply's header gets ``peak_mib``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

Frame = tuple[dict[str, Any], bytes]
Handler = Callable[[dict[str, Any], bytes], Frame]

MAGIC = b"RLXW"
_FRAME = struct.Struct("<4sIQ")


def write_frame(stream: BinaryIO, header: dict[str, Any], body: bytes = b"") -> None:
    """Write one frame to an unbuffered stream."""
    text = json.dumps(header).encode()
    for part in (_FRAME.pack(MAGIC, len(text), len(body)) + text, body):
        rest = memoryview(part)
        while rest:
            rest = rest[stream.write(rest) :]


def read_frame(stream: BinaryIO) -> Frame | None:
    """Read one frame; ``None`` at the end of the stream, also in the middle of a frame."""
    prefix = _read_exactly(stream, _FRAME.size)
    if prefix is None:
        return None
    magic, header_length, body_length = _FRAME.unpack(prefix)
    if magic != MAGIC:
        raise ValueError(f"not a frame: it starts with {bytes(magic)!r}")
    header = _read_exactly(stream, header_length)
    body = _read_exactly(stream, body_length)
    if header is None or body is None:
        return None
    return json.loads(header), bytes(body)


def _read_exactly(stream: BinaryIO, length: int) -> bytearray | None:
    buffer = bytearray(length)
    rest = memoryview(buffer)
    while rest:
        count = stream.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            return None
        rest = rest[count:]
    return buffer


def _peak_mib() -> int:
    """The largest resident set of this process so far, in MiB; 0 where it is not known."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """The protocol's streams; afterwards whatever native code prints goes to standard error."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return open(requests, "rb", buffering=0), open(replies, "wb", buffering=0)


def _settle() -> None:
    """Keep this process from outliving a crash: no interrupt from the terminal, no core file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave(folder: str) -> None:
    """End this process at once, and what it started, in the middle of whatever it does."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _read_requests(stream: BinaryIO, requests: queue.SimpleQueue[Frame], folder: str) -> None:
    """Runs in a thread, so that the parent's death is noticed while the handler is busy or hangs."""
    try:
        while (frame := read_frame(stream)) is not None:
            requests.put(frame)
    finally:
        _leave(folder)


def _answer(handler: Handler, header: dict[str, Any], body: bytes) -> Frame:
    kind = header["kind"]
    if kind == "sleep":
        time.sleep(header["seconds"])
    elif kind == "abort":
        os.abort()
    elif kind != "ping":
        return handler(header, body)
    return {"outcome": "ok", "pid": os.getpid()}, b""


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("rlx_worker_handler", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(settings: dict[str, Any]) -> None:
    """Answer requests until standard input closes; then remove the folder."""
    _settle()
    source, replies = _private_streams()
    requests: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(source, requests, settings["folder"]), daemon=True).start()
    sys.path += settings["path"]
    handler: Handler = _load(settings["handler"]).make(*settings["arguments"])
    while True:
        header, body = _answer(handler, *requests.get())
        write_frame(replies, {**header, "peak_mib": _peak_mib()}, body)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
