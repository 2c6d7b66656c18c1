"""The compiler process: reads requests from standard input, compiles, replies on standard output.

IREE's compiler can crash or hang, so it lives in a process of its own (see ``compiler.py``, its parent). This
file is run as a script, imports nothing but the standard library, and binds the few functions of IREE's C API
that it needs.

A frame is ``magic, header length, body length`` followed by a JSON header and raw bytes. Requests are
``{"kind": "compile", "flags": [...], "name": "m.mlir"}`` with the module as body, ``{"kind": "warm", "flags":
[...]}``, ``{"kind": "ping"}`` and, for tests, ``{"kind": "sleep", "seconds": 1}`` and ``{"kind": "abort"}``.
The reply to a compile request has ``outcome`` (``"ok"``, ``"flags"``, ``"parse"`` or ``"compile"``),
``diagnostics`` (pairs of severity and text), ``seconds`` and ``peak_mib``; its body is the compiled module.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import struct
import sys
import threading
import time
from collections import OrderedDict
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, BinaryIO

MAGIC = b"RLXW"
_FRAME = struct.Struct("<4sIQ")
_SEVERITIES = ("note", "warning", "error", "remark")
_PIPELINE_STANDARD = 0
_MAX_SESSIONS = 4
_WARM_MODULE = b"func.func @warm(%a: tensor<4xf32>) -> tensor<4xf32> {\n  return %a : tensor<4xf32>\n}\n"

_DIAGNOSTIC_CALLBACK = ctypes.CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "GlobalInitialize": (None, []),
    "SetupGlobalCL": (None, [c_int, POINTER(c_char_p), c_char_p, c_bool]),
    "ErrorDestroy": (None, [c_void_p]),
    "ErrorGetMessage": (c_char_p, [c_void_p]),
    "SessionCreate": (c_void_p, []),
    "SessionDestroy": (None, [c_void_p]),
    "SessionSetFlags": (c_void_p, [c_void_p, c_int, c_void_p]),
    "InvocationCreate": (c_void_p, [c_void_p]),
    "InvocationDestroy": (None, [c_void_p]),
    "InvocationEnableCallbackDiagnostics": (None, [c_void_p, c_int, _DIAGNOSTIC_CALLBACK, c_void_p]),
    "InvocationParseSource": (c_bool, [c_void_p, c_void_p]),
    "InvocationPipeline": (c_bool, [c_void_p, c_int]),
    "InvocationOutputVMBytecode": (c_void_p, [c_void_p, c_void_p]),
    "OutputOpenMembuffer": (c_void_p, [c_void_p]),
    "OutputMapMemory": (c_void_p, [c_void_p, POINTER(c_void_p), POINTER(c_uint64)]),
    "OutputDestroy": (None, [c_void_p]),
    "SourceWrapBuffer": (c_void_p, [c_void_p, c_char_p, c_char_p, c_size_t, c_bool, c_void_p]),
    "SourceDestroy": (None, [c_void_p]),
}


class FlagError(Exception):
    """The compiler does not know a flag, or not its value."""


def write_frame(stream: BinaryIO, header: dict[str, Any], body: bytes = b"") -> None:
    """Write one frame to an unbuffered stream."""
    text = json.dumps(header).encode()
    for part in (_FRAME.pack(MAGIC, len(text), len(body)) + text, body):
        rest = memoryview(part)
        while rest:
            rest = rest[stream.write(rest) :]


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """Read one frame; ``None`` at the end of the stream, also in the middle of a frame."""
    prefix = _read_exactly(stream, _FRAME.size)
    if prefix is None:
        return None
    magic, header_length, body_length = _FRAME.unpack(prefix)
    if magic != MAGIC:
        raise ValueError(f"not a frame: it starts with {magic!r}")
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


class Compiler:
    """IREE's C API, with one session per set of flags.

    Args:
        library_path: The compiler's shared library.
        process_flags: Flags that hold for the whole process: sessions do not know them.
    """

    def __init__(self, library_path: str, process_flags: tuple[str, ...] = ()):
        self._library = ctypes.CDLL(library_path)
        self._sessions: OrderedDict[tuple[str, ...], int] = OrderedDict()
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, "ireeCompiler" + name)
            function.restype, function.argtypes = result, arguments
        self._call("GlobalInitialize")
        arguments = (b"rlx", *(flag.encode() for flag in process_flags))
        # LLVM keeps pointers into this array.
        self._command_line = (c_char_p * (len(arguments) + 1))(*arguments, None)
        self._call("SetupGlobalCL", len(arguments), self._command_line, b"rlx", False)

    def compile(self, flags: tuple[str, ...], name: str, module: bytes) -> tuple[dict[str, Any], bytes]:
        """Compile MLIR text or bytecode; returns the reply's header and the compiled module."""
        diagnostics: list[tuple[str, str]] = []
        started = time.perf_counter()
        try:
            session = self._session(flags)
        except FlagError as error:
            outcome, output = "flags", b""
            diagnostics.append(("error", str(error)))
        else:
            outcome, output = self._invoke(session, name, module, diagnostics)
        return {
            "outcome": outcome,
            "diagnostics": diagnostics,
            "seconds": time.perf_counter() - started,
            "peak_mib": _peak_mib(),
        }, output

    def _invoke(self, session: int, name: str, module: bytes, diagnostics: list[tuple[str, str]]) -> tuple[str, bytes]:
        @_DIAGNOSTIC_CALLBACK
        def on_diagnostic(severity: int, text: int, length: int, _: Any) -> None:
            message = ctypes.string_at(text, length).decode("utf-8", "replace")
            diagnostics.append((_SEVERITIES[severity], message))

        invocation = self._call("InvocationCreate", session)
        source = c_void_p()
        try:
            self._call("InvocationEnableCallbackDiagnostics", invocation, 0, on_diagnostic, None)
            is_text = not module.startswith(b"ML\xefR")
            buffer = module + b"\0" if is_text else module
            self._check("SourceWrapBuffer", session, name.encode(), buffer, len(buffer), is_text, byref(source))
            if not self._call("InvocationParseSource", invocation, source):
                return "parse", b""
            if not self._call("InvocationPipeline", invocation, _PIPELINE_STANDARD):
                return "compile", b""
            return "ok", self._bytecode(invocation)
        except ValueError as error:
            diagnostics.append(("error", str(error)))
            return "compile", b""
        finally:
            self._call("InvocationDestroy", invocation)
            if source:
                self._call("SourceDestroy", source)

    def _bytecode(self, invocation: int) -> bytes:
        output, contents, size = c_void_p(), c_void_p(), c_uint64()
        self._check("OutputOpenMembuffer", byref(output))
        try:
            self._check("InvocationOutputVMBytecode", invocation, output)
            self._check("OutputMapMemory", output, byref(contents), byref(size))
            return ctypes.string_at(contents, size.value)  # type: ignore[arg-type]
        finally:
            self._call("OutputDestroy", output)

    def _session(self, flags: tuple[str, ...]) -> int:
        if flags in self._sessions:
            self._sessions.move_to_end(flags)
            return self._sessions[flags]
        session = self._call("SessionCreate")
        encoded = (c_char_p * len(flags))(*(flag.encode() for flag in flags))
        try:
            self._check("SessionSetFlags", session, len(flags), encoded)
        except ValueError as error:
            self._call("SessionDestroy", session)
            raise FlagError(str(error)) from None
        self._sessions[flags] = session
        if len(self._sessions) > _MAX_SESSIONS:
            self._call("SessionDestroy", self._sessions.popitem(last=False)[1])
        return session

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._library, "ireeCompiler" + name)(*arguments)

    def _check(self, name: str, *arguments: Any) -> None:
        error = self._call(name, *arguments)
        if error is not None:
            message = self._call("ErrorGetMessage", error).decode("utf-8", "replace")
            self._call("ErrorDestroy", error)
            raise ValueError(message)


def _peak_mib() -> int:
    """The largest resident set of this process so far, in MiB; 0 where it is not known."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """The protocol's streams; afterwards whatever the compiler prints goes to standard error."""
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
    """End this process at once, and the linkers it started, in the middle of whatever it does."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _read_requests(stream: BinaryIO, requests: queue.SimpleQueue[tuple[dict[str, Any], bytes]], folder: str) -> None:
    """Runs in a thread, so that the parent's death is noticed while the compiler is busy or hangs."""
    try:
        while (frame := read_frame(stream)) is not None:
            requests.put(frame)
    finally:
        _leave(folder)


def _answer(compiler: Compiler, header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    kind = header["kind"]
    if kind == "compile":
        return compiler.compile(tuple(header["flags"]), header["name"], body)
    if kind == "warm":
        return compiler.compile(tuple(header["flags"]), "warm.mlir", _WARM_MODULE)
    if kind == "sleep":
        time.sleep(header["seconds"])
    elif kind == "abort":
        os.abort()
    return {"outcome": "ok", "pid": os.getpid()}, b""


def main(library_path: str, folder: str, *process_flags: str) -> None:
    """Answer requests until standard input closes; then remove ``folder``, which the parent made."""
    _settle()
    source, replies = _private_streams()
    requests: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(source, requests, folder), daemon=True).start()
    compiler = Compiler(library_path, process_flags)
    while True:
        header, body = requests.get()
        write_frame(replies, *_answer(compiler, header, body))


if __name__ == "__main__":
    main(*sys.argv[1:])
