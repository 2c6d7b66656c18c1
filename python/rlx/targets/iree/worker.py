"""The handler for `rlx.targets.worker` that compiles with IREE.

IREE's compiler can crash or hang, so it runs in a separate process. This file imports only the standard library, and binds
only the functions of IREE's C API that it needs.

Requests are:

* ``{"kind": "compile", "flags": [...], "name": "m.mlir"}`` with the module as body. The reply's body is the compiled module.
  With ``"phase"``, it is the IR after this phase. With ``"from"``, the module is the IR after that phase. With ``"objects"``,
  pairs of name and size, the request's body begins with object files, which the module refers to by these names.
* ``{"kind": "object", "flags": [...], "name": "m.mlir"}`` with an executable as body. The reply's body is its object file.
* ``{"kind": "warm", "flags": [...]}``.

The reply has ``outcome`` (``"ok"``, ``"flags"``, ``"parse"`` or ``"compile"``), ``diagnostics`` (pairs of severity and text),
``seconds`` and ``target`` (IR with the target that the compiler derived from the flags).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

_SEVERITIES = ("note", "warning", "error", "remark")
_PIPELINE_STANDARD, _PIPELINE_EXECUTABLE = 0, 1
_OBJECTS_ARE_IN = "--iree-hal-executable-object-search-path="
_KEEP_OBJECT = "--iree-llvmcpu-keep-linker-artifacts"
_PHASE_WITH_TARGETS = b"preprocessing"  # the first phase after which the IR has the targets of the devices
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
    "InvocationSetCompileFromPhase": (None, [c_void_p, c_char_p]),
    "InvocationSetCompileToPhase": (None, [c_void_p, c_char_p]),
    "InvocationOutputIR": (c_void_p, [c_void_p, c_void_p]),
    "InvocationOutputHALExecutable": (c_void_p, [c_void_p, c_void_p]),
    "InvocationOutputVMBytecode": (c_void_p, [c_void_p, c_void_p]),
    "OutputOpenMembuffer": (c_void_p, [c_void_p]),
    "OutputMapMemory": (c_void_p, [c_void_p, POINTER(c_void_p), POINTER(c_uint64)]),
    "OutputDestroy": (None, [c_void_p]),
    "SourceWrapBuffer": (c_void_p, [c_void_p, c_char_p, c_char_p, c_size_t, c_bool, c_void_p]),
    "SourceDestroy": (None, [c_void_p]),
}


class FlagError(Exception):
    """The compiler does not know a flag, or rejects its value."""


class IreeCompiler:
    """IREE's C API, with one session per set of flags.

    Args:
        library_path: The compiler's shared library.
        process_flags: Flags that apply to the whole process, and cannot be set for a session.
    """

    def __init__(self, library_path: str, process_flags: tuple[str, ...] = ()):
        self._library = ctypes.CDLL(library_path)
        self._sessions: OrderedDict[tuple[str, ...], int] = OrderedDict()
        self._targets: dict[int, str] = {}
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, "ireeCompiler" + name)
            function.restype, function.argtypes = result, arguments
        self._call("GlobalInitialize")
        arguments = (b"rlx", *(flag.encode() for flag in process_flags))
        # LLVM keeps pointers into this array.
        self._command_line = (c_char_p * (len(arguments) + 1))(*arguments, None)
        self._call("SetupGlobalCL", len(arguments), self._command_line, b"rlx", False)

    def compile(
        self,
        flags: tuple[str, ...],
        name: str,
        module: bytes,
        phase: str | None = None,
        from_phase: str | None = None,
        pipeline: int = _PIPELINE_STANDARD,
    ) -> tuple[dict[str, Any], bytes]:
        """Compile MLIR text or bytecode, and return the reply's header and the compiled module, or its IR after a phase."""
        diagnostics: list[tuple[str, str]] = []
        started = time.perf_counter()
        target = ""
        try:
            session = self._session(flags)
        except FlagError as error:
            outcome, output = "flags", b""
            diagnostics.append(("error", str(error)))
        else:
            target = self._targets[session]
            phases = (from_phase.encode() if from_phase else None, phase.encode() if phase else None)
            outcome, output = self._invoke(session, name, module, diagnostics, phases, pipeline)
        return {
            "outcome": outcome,
            "diagnostics": diagnostics,
            "seconds": time.perf_counter() - started,
            "target": target,
        }, output

    def compile_object(self, flags: tuple[str, ...], name: str, module: bytes) -> tuple[dict[str, Any], bytes]:
        """Compile a `hal.executable.source`, and return the reply's header and the object file of its functions."""
        folder = tempfile.gettempdir()  # that of this process, which compiles one module at a time
        before = {*os.listdir(folder)}
        header, _ = self.compile((*flags, _KEEP_OBJECT), name, module, pipeline=_PIPELINE_EXECUTABLE)
        new = [os.path.join(folder, file) for file in os.listdir(folder) if file not in before]
        objects = [path for path in new if path.endswith(".o")]
        data = b""
        if header["outcome"] == "ok" and len(objects) == 1:
            with open(objects[0], "rb") as file:
                data = file.read()
        for path in new:
            os.remove(path)
        return header, data

    def _invoke(
        self,
        session: int,
        name: str,
        module: bytes,
        diagnostics: list[tuple[str, str]],
        phases: tuple[bytes | None, bytes | None] = (None, None),
        pipeline: int = _PIPELINE_STANDARD,
    ) -> tuple[str, bytes]:
        """The outcome, and the compiled module; with a second phase, the IR after this phase instead."""
        from_phase, phase = phases

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
            if from_phase is not None:
                self._call("InvocationSetCompileFromPhase", invocation, from_phase)
            if phase is not None:
                self._call("InvocationSetCompileToPhase", invocation, phase)
            if not self._call("InvocationPipeline", invocation, pipeline):
                return "compile", b""
            form = "VMBytecode" if pipeline == _PIPELINE_STANDARD else "HALExecutable"
            return "ok", self._output(invocation, form if phase is None else "IR")
        except ValueError as error:
            diagnostics.append(("error", str(error)))
            return "compile", b""
        finally:
            self._call("InvocationDestroy", invocation)
            if source:
                self._call("SourceDestroy", source)

    def _output(self, invocation: int, form: str) -> bytes:
        output, contents, size = c_void_p(), c_void_p(), c_uint64()
        self._check("OutputOpenMembuffer", byref(output))
        try:
            self._check("InvocationOutput" + form, invocation, output)
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
            _, oldest = self._sessions.popitem(last=False)
            del self._targets[oldest]
            self._call("SessionDestroy", oldest)
        _, ir = self._invoke(session, "warm.mlir", _WARM_MODULE, [], (None, _PHASE_WITH_TARGETS))
        self._targets[session] = ir.decode("utf-8", "replace")
        return session

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._library, "ireeCompiler" + name)(*arguments)

    def _check(self, name: str, *arguments: Any) -> None:
        error = self._call(name, *arguments)
        if error is not None:
            message = self._call("ErrorGetMessage", error).decode("utf-8", "replace")
            self._call("ErrorDestroy", error)
            raise ValueError(message)


def make(
    library_path: str, linker: str, *process_flags: str
) -> Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]:
    """Load the compiler, and return the function that answers requests.

    Args:
        library_path: The compiler's shared library.
        linker: The path of the linker if it is not harmless in a shell, else empty. The compiler runs the linker through a
            shell without quotes.
        process_flags: As in ``IreeCompiler``.
    """
    if linker:
        link = os.path.join(tempfile.gettempdir(), "iree-lld")  # in the folder of this process, whose name is harmless
        os.symlink(linker, link)
        os.environ["IREE_LLVM_EMBEDDED_LINKER_PATH"] = link
    compiler = IreeCompiler(library_path, (*process_flags, _OBJECTS_ARE_IN + tempfile.gettempdir()))

    def answer(header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        if header["kind"] == "warm":
            return compiler.compile(tuple(header["flags"]), "warm.mlir", _WARM_MODULE)
        flags, name = tuple(header["flags"]), header["name"]
        if header["kind"] == "object":
            return compiler.compile_object(flags, name, body)
        with _files(header.get("objects", ()), body) as module:
            return compiler.compile(flags, name, module, header.get("phase"), header.get("from"))

    return answer


@contextlib.contextmanager
def _files(objects: Sequence[tuple[str, int]], body: bytes) -> Iterator[bytes]:
    """A context with object files in the folder of this process, in which their names are found. The value is the module."""
    paths: list[str] = []
    start = 0
    try:
        for name, size in objects:
            paths.append(os.path.join(tempfile.gettempdir(), name))
            with open(paths[-1], "wb") as file:
                file.write(body[start : start + size])
            start += size
        yield body[start:]
    finally:
        for path in paths:
            os.remove(path)
