"""Compilation of MLIR text with IREE in a separate process. After a failure it is repeated with weaker flags, the ladder."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import Any

from rlx.support.errors import CompileError, Error
from rlx.support.printable import printable
from rlx.targets.iree.cpu import Cpu
from rlx.targets.iree.exact_arithmetic import PHASE, decorated
from rlx.targets.iree.process import compiler_command, compiler_library, default_pool
from rlx.targets.iree.targets import Target
from rlx.targets.worker.pool import WorkerPool
from rlx.targets.worker.process import HandlerFailed, Reply, WorkerDied

DEFAULT_TIMEOUT_S = 600.0
_LONGEST_DIAGNOSTIC = 600
_LONGEST_NOTE = 300
# Messages of a compiler or linker if the machine runs out of memory, disk space or file handles.
_OUT_OF_RESOURCES = re.compile(
    "no space left on device|cannot allocate memory|out of memory|bad_alloc|too many open files|"
    "resource temporarily unavailable|disk quota exceeded|text file busy",
    re.IGNORECASE,
)
_LOCATED = re.compile(r"(?P<location>[^\n]+?:\d+:\d+|loc\([^\n]*?\)): (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True)
class ObjectFile:
    """An object file that is linked into a program.

    Attributes:
        name: The name by which a module refers to it.
        data: Its bytes.
    """

    name: str
    data: bytes


@dataclass(frozen=True)
class IreeDiagnostic:
    """One message of the compiler.

    Attributes:
        severity: ``"error"``, ``"warning"``, ``"remark"`` or ``"note"``.
        location: ``file:line:col``, or empty if the compiler gave none.
        text: The message, without its location.
    """

    severity: str
    location: str
    text: str

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        return printable(f"{place}{self.severity}: {self.text}")


@dataclass(frozen=True)
class Attempt:
    """One attempt to compile.

    Attributes:
        flags: The compiler's flags.
        outcome: ``"ok"``, ``"failed with diagnostics"``, ``"crashed …"``, ``"was killed …"``, ``"timed out
            after … s"`` or ``"failed with …"``, an exception of the handler.
        seconds: The duration.
        diagnostics: The messages of the compiler.
        printed: The end of what the compiler, or a linker that it ran, printed to standard error.
        repeatable: Whether another attempt with the same flags would have the same outcome.
        cpu: The CPU that the compiler derived from the flags, or None for other devices.
    """

    flags: tuple[str, ...]
    outcome: str
    seconds: float
    diagnostics: tuple[IreeDiagnostic, ...] = ()
    printed: str = ""
    repeatable: bool = True
    cpu: Cpu | None = None

    @property
    def ok(self) -> bool:
        """Whether the attempt succeeded."""
        return self.outcome == "ok"


@dataclass(frozen=True)
class CompiledModule:
    """The result of compiling a module.

    Attributes:
        vmfb: The compiled module, ready for ``Executable``.
        flags_used: The flags of the attempt that succeeded.
        seconds: The total time of all attempts.
        attempts: All attempts, the successful one last.
    """

    vmfb: bytes
    flags_used: tuple[str, ...]
    seconds: float
    attempts: tuple[Attempt, ...]

    @property
    def cpu(self) -> Cpu | None:
        """The CPU that the code is for; None for other devices."""
        return self.attempts[-1].cpu

    @property
    def may_improve(self) -> bool:
        """Whether an attempt with better flags failed for a temporary reason: time, memory, a signal from outside."""
        return any(not a.repeatable and a.flags != self.flags_used for a in self.attempts)


class ModuleCompileError(CompileError):
    """IREE failed to compile a module on every rung of the ladder.

    Attributes:
        attempts: All attempts, in order.
        diagnostics: The messages of the first attempt that has any.
    """

    def __init__(self, target: Target, attempts: tuple[Attempt, ...]):
        self.attempts = attempts
        self.diagnostics = next((a.diagnostics for a in attempts if a.diagnostics), ())
        errors = [d for d in self.diagnostics if d.severity == "error"]
        location = next((d.location for d in errors if not d.location.startswith("loc(")), None)
        lines = [f"IREE could not compile the module for {target.name} ({target.arch})"]
        lines += map(_shortened, self.diagnostics)
        lines.append(f"flags: {' '.join(target.flags)}")
        for number, attempt in enumerate(attempts, 1):
            rung = " ".join(attempt.flags[len(target.flags) :]) or "nothing more"
            lines.append(f"attempt {number}, with {rung}: {attempt.outcome} ({attempt.seconds:.2f} s)")
            lines += [f"  {line}" for line in _important_lines(attempt.printed)]
        super().__init__("\n".join(lines), location=location or None, hint=_hint(attempts))


def compile_module(
    text: str | bytes,
    target: Target,
    *,
    objects: Sequence[ObjectFile] = (),
    timeout_s: float | None = None,
    worker: WorkerPool | None = None,
    name: str = "module.mlir",
) -> CompiledModule:
    """Compile MLIR text or bytecode for one target. May be called from several threads at once.

    The rungs of the target's ladder are tried until one compiles. An error in the text itself, or in a flag,
    ends the attempts, because no other rung would change it. If the process was killed from outside (by the
    kernel because memory was full, or by a user), the same rung is tried once more.

    Args:
        text: The module.
        target: The target.
        objects: The object files that the module refers to.
        timeout_s: The time limit in seconds for each attempt; by default ``RLX_COMPILE_TIMEOUT`` or 600.
        worker: The worker pool; by default the pool shared by all callers.
        name: The name of the text in diagnostics for operations without a location.

    Raises:
        CompileError: No attempt succeeded. The message has the diagnostics as ``file:line:col: error: …``
            lines and lists the attempts.
    """
    started = time.perf_counter()
    timeout_s = default_timeout() if timeout_s is None else timeout_s
    module = text.encode() if isinstance(text, str) else bytes(text)
    attempts: list[Attempt] = []
    source = _Source(module, name, objects)
    for attempt, vmfb in _attempts(source, target, timeout_s, worker or default_pool):
        attempts.append(attempt)
        if attempt.ok:
            return CompiledModule(vmfb, attempt.flags, time.perf_counter() - started, tuple(attempts))
    raise ModuleCompileError(target, tuple(attempts))


def compile_object(text: str, target: Target, *, timeout_s: float | None = None) -> bytes:
    """Return the object file of a `hal.executable.source`.

    Args:
        text: A module with the executable.
        target: A CPU.
        timeout_s: The time limit in seconds; by default ``RLX_COMPILE_TIMEOUT`` or 600.

    Raises:
        CompileError: It does not compile, or the compiler is not installed.
        Error: ``RLX_COMPILE_TIMEOUT`` is not a positive number.
    """
    flags, timeout_s = target.kernel_flags, default_timeout() if timeout_s is None else timeout_s
    # The process that will compile the program: kernels depend on none of the flags by which processes differ.
    command = compiler_command(target.process_flags_of(target.attempts[0]))
    request = {"kind": "object", "flags": flags, "name": "kernels.mlir"}
    try:
        reply = default_pool.request(command, request, text.encode(), timeout_s=timeout_s, affinity=flags)
    except (WorkerDied, HandlerFailed) as failure:
        raise CompileError(f"IREE's compiler failed: {failure}") from failure
    if reply.header["outcome"] != "ok":
        messages = [text for severity, text in reply.header["diagnostics"] if severity == "error"]
        raise CompileError(
            "IREE could not compile kernels: " + "; ".join([*messages, reply.header["outcome"]])[:_LONGEST_DIAGNOSTIC]
        )
    return reply.body


def ir_after(phases: Sequence[str], text: str, target: Target, flags: tuple[str, ...], name: str) -> list[str]:
    """Return the IR of a module after each of some compiler phases, with locations.

    Args:
        phases: Names of phases, as in `iree-compile --compile-to`.
        text: A module that compiles.
        target: The target.
        flags: The flags with which it compiles: `CompiledModule.flags_used`.
        name: The name of the text.

    Raises:
        CompileError: The compiler failed.
    """
    command = compiler_command((*target.process_flags_of(flags), "--mlir-print-debuginfo"))
    irs = []
    for phase in phases:
        request = {"kind": "compile", "flags": flags, "name": name, "phase": phase}
        try:
            reply = default_pool.request(command, request, text.encode(), timeout_s=default_timeout(), affinity=flags)
        except (WorkerDied, HandlerFailed) as failure:
            raise CompileError(f"IREE's compiler failed before the end of phase {phase}: {failure}") from failure
        if reply.header["outcome"] != "ok":
            raise CompileError(f"IREE's compiler failed before the end of phase {phase}")
        irs.append(reply.body.decode("utf-8", "replace"))
    return irs


def prewarm(target: Target, worker: WorkerPool | None = None) -> None:
    """Start a compiler process and let it prepare for ``target``, without waiting for it."""
    flags = target.attempts[0]
    command = compiler_command(target.process_flags_of(flags))
    (worker or default_pool).prewarm(command, {"kind": "warm", "flags": flags}, affinity=flags)


@cache
def compiler_version() -> str:
    """Return the version of IREE's compiler; without package metadata, the size and time of the library instead."""
    try:
        return metadata.version("iree-base-compiler")
    except metadata.PackageNotFoundError:
        status = os.stat(compiler_library())
        return f"{status.st_size}-{status.st_mtime_ns}"


def default_timeout() -> float:
    """Return the time limit in seconds for each attempt: ``RLX_COMPILE_TIMEOUT``, or 600.

    Raises:
        Error: The variable is not a positive number.
    """
    text = os.environ.get("RLX_COMPILE_TIMEOUT", "")
    try:
        seconds = float(text) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise Error(f"RLX_COMPILE_TIMEOUT is {text!r}", hint="give it a number of seconds, such as 600")
    return seconds


@dataclass(frozen=True)
class _Source:
    """The input of the compiler: a module, its name in diagnostics, and its object files."""

    module: bytes
    name: str
    objects: Sequence[ObjectFile]

    def request(self, flags: tuple[str, ...]) -> tuple[dict[str, Any], bytes]:
        """The header and the body of a request."""
        sizes = [(file.name, len(file.data)) for file in self.objects]
        header: dict[str, Any] = {"kind": "compile", "flags": flags, "name": self.name, "objects": sizes}
        return header, b"".join([*(file.data for file in self.objects), self.module])

    def reply(self, flags: tuple[str, ...], target: Target, timeout_s: float, pool: WorkerPool) -> Reply:
        """Compile with these flags: in one request, or in two if arithmetic is decorated in between.

        Raises:
            WorkerDied: The process died, or the time limit is exceeded.
            HandlerFailed: The handler raised an exception.
        """
        command = compiler_command(target.process_flags_of(flags))
        header, body = self.request(flags)
        if not target.reassociates:
            return pool.request(command, header, body, timeout_s=timeout_s, affinity=flags)
        first = pool.request(command, {**header, "phase": PHASE}, body, timeout_s=timeout_s, affinity=flags)
        if first.header["outcome"] != "ok":
            return first
        header, body = {**header, "objects": [], "from": PHASE}, decorated(first.body.decode()).encode()
        second = pool.request(command, header, body, timeout_s=timeout_s, affinity=flags)
        diagnostics = [*first.header["diagnostics"], *second.header["diagnostics"]]
        return replace(second, header={**second.header, "diagnostics": diagnostics})


def _attempts(source: _Source, target: Target, timeout_s: float, pool: WorkerPool) -> Iterator[tuple[Attempt, bytes]]:
    """Yield each attempt with the compiled module, until one succeeds or no other attempt can succeed."""
    for flags in target.attempts:
        attempt, outcome, vmfb = _attempt(source, flags, target, timeout_s, pool)
        yield attempt, vmfb
        if not attempt.repeatable and "was killed" in attempt.outcome:
            attempt, outcome, vmfb = _attempt(source, flags, target, timeout_s, pool)
            yield attempt, vmfb
        if outcome in ("flags", "parse"):
            return


def _attempt(
    source: _Source, flags: tuple[str, ...], target: Target, timeout_s: float, pool: WorkerPool
) -> tuple[Attempt, str, bytes]:
    started = time.perf_counter()
    try:
        reply = source.reply(flags, target, timeout_s, pool)
    except WorkerDied as death:
        seconds = time.perf_counter() - started
        if death.timed_out:
            return Attempt(flags, f"timed out after {timeout_s:g} s", seconds, repeatable=False), "died", b""
        repeatable = not death.killed_from_outside and not _OUT_OF_RESOURCES.search(death.stderr)
        attempt = Attempt(flags, death.reason, seconds, printed=death.stderr, repeatable=repeatable)
        return attempt, "died", b""
    except HandlerFailed as failure:
        attempt = Attempt(flags, f"failed with {failure}", time.perf_counter() - started, printed=failure.stderr)
        return attempt, "failed", b""
    diagnostics = tuple(part for severity, message in reply.header["diagnostics"] for part in _split(severity, message))
    ok = reply.header["outcome"] == "ok"
    printed = "" if ok else reply.printed
    attempt = Attempt(
        flags,
        "ok" if ok else "failed with diagnostics",
        time.perf_counter() - started,
        diagnostics,
        printed,
        repeatable=ok or not _OUT_OF_RESOURCES.search("\n".join([printed, *map(str, diagnostics)])),
        cpu=_cpu(reply.header["target"], flags, target),
    )
    return attempt, reply.header["outcome"], reply.body


def _cpu(ir: str, flags: tuple[str, ...], target: Target) -> Cpu | None:
    """Return the CPU that code is for. It counts as the host's CPU only if no other flag changes it."""
    cpu_flags = [flag for flag in flags if flag.startswith("--iree-llvmcpu-target-")]
    return Cpu.of_ir(ir, target.host_features if len(cpu_flags) == 1 else "")


def _split(severity: str, message: str) -> Iterator[IreeDiagnostic]:
    """Yield a diagnostic and its notes, which the compiler sends as one string of paragraphs with locations."""
    paragraphs: list[str] = []
    for paragraph in message.split("\n\n"):
        if _LOCATED.match(paragraph) or not paragraphs:
            paragraphs.append(paragraph)
        else:
            paragraphs[-1] += "\n\n" + paragraph
    for index, paragraph in enumerate(paragraphs):
        match = _LOCATED.match(paragraph)
        location, text = (match["location"], match["text"]) if match else ("", paragraph)
        yield IreeDiagnostic(severity if index == 0 else "note", location, text)


def _shortened(diagnostic: IreeDiagnostic) -> str:
    """Return a diagnostic as shortened text: the compiler may print the whole module as a note."""
    limit = _LONGEST_NOTE if diagnostic.severity == "note" else _LONGEST_DIAGNOSTIC
    text = str(diagnostic)
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit} more characters)"


def _important_lines(printed: str) -> list[str]:
    """Return the first errors in the output of a compiler or linker, or else its last lines."""
    lines = [line[:_LONGEST_NOTE] for line in printed.splitlines() if line.strip()]
    return [line for line in lines if "error" in line.lower()][:3] or lines[-3:]


def _hint(attempts: tuple[Attempt, ...]) -> str | None:
    if any("timed out" in attempt.outcome for attempt in attempts):
        return "give the compiler more time with RLX_COMPILE_TIMEOUT (seconds)"
    if any(not attempt.repeatable for attempt in attempts):
        return "the compiler's process was ended from outside, perhaps because memory was full; compile again"
    if all(not attempt.diagnostics for attempt in attempts):
        return "the compiler gave no reason; an operation that IREE does not know has this effect"
    return None
