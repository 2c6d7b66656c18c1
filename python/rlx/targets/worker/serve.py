"""The worker's side: it reads requests from standard input, calls a handler, and writes replies to standard output.

This file is run as a script, and imports only the standard library. Its only argument is a JSON object with four entries:
``folder``, created by the parent and removed by this process at its end; ``handler``, the path of a Python file; the handler's
``arguments``; and ``path``, folders that are added to ``sys.path``. The handler's file has a function ``make(*arguments)`` that
returns a function from the header and body of a request to those of the reply.

A frame is ``magic, header length, body length``, followed by a JSON header and raw bytes. The header of a request has a
``kind``. The kinds ``ping`` and, for tests, ``sleep`` (with ``seconds``) and ``abort`` are answered here, all others by the
handler. The header of each reply gets an entry ``peak_mib``. If the handler raises an exception, the header has the
``outcome`` ``error`` and a ``message``, and the traceback is printed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import signal
import struct
import sys
import threading
import time
import traceback
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
        unsent = memoryview(part)
        while unsent:
            unsent = unsent[stream.write(unsent) :]


def read_frame(stream: BinaryIO) -> Frame | None:
    """Read one frame; ``None`` if the stream ends, even in the middle of a frame."""
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
    unfilled = memoryview(buffer)
    while unfilled:
        count = stream.readinto(unfilled)  # type: ignore[attr-defined]
        if not count:
            return None
        unfilled = unfilled[count:]
    return buffer


def _peak_mib() -> int:
    """The largest resident set of this process so far, in MiB; 0 if it is not known.

    On Linux, `ru_maxrss` is at least the size of the process that started this one, so another source is used.
    """
    if sys.platform == "linux":
        try:
            with open("/proc/self/status", "rb") as status:
                return next((int(line.split()[1]) >> 10 for line in status if line.startswith(b"VmHWM:")), 0)
        except OSError:
            return 0
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return the streams of the protocol, and redirect all output of native code to standard error."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return open(requests, "rb", buffering=0), open(replies, "wb", buffering=0)


def _ignore_interrupts_and_cores() -> None:
    """Ignore interrupts from the terminal, and write no core file after a crash."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave(folder: str) -> None:
    """End this process and its child processes immediately, even while a request is being handled."""
    import shutil

    # The folder is renamed first: a linker that is still running could otherwise add files, and removing would fail.
    left = f"{folder}-left"
    with contextlib.suppress(OSError):
        os.rename(folder, left)
        folder = left
    shutil.rmtree(folder, ignore_errors=True)
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _read_requests(stream: BinaryIO, requests: queue.SimpleQueue[Frame], folder: str) -> None:
    """Read requests in a thread, so that the end of the parent is noticed even while the handler is busy or hangs."""
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
    _ignore_interrupts_and_cores()
    source, replies = _private_streams()
    requests: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(source, requests, settings["folder"]), daemon=True).start()
    sys.path += settings["path"]
    handler: Handler = _load(settings["handler"]).make(*settings["arguments"])
    while True:
        try:
            header, body = _answer(handler, *requests.get())
        except Exception as problem:  # only this request fails; the process serves others
            traceback.print_exc()
            header, body = {"outcome": "error", "message": f"{type(problem).__name__}: {problem}"}, b""
        write_frame(replies, {**header, "peak_mib": _peak_mib()}, body)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
