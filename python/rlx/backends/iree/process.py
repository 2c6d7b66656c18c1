"""Compiler processes as their parent sees them: one warm process, and a small pool of them.

A process is used by one thread at a time. Two processes at most, rather than one process with two threads:
compiling scales the same on two cores, and a crash or a time limit takes one module with it and not two.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlx.backends.iree import worker as protocol
from rlx.ir.errors import CompileError

# MLIR never frees a context's types and attributes: beyond this much memory a process is replaced when it is
# idle.
_RETIRE_ABOVE_MIB = 2048
_LIBRARIES = {"darwin": "libIREECompiler.dylib", "win32": "IREECompiler.dll"}
_STDERR_TAIL = 2000
_POSIX = os.name == "posix"


def compiler_library() -> Path:
    """The path of IREE's compiler library, found without importing it.

    Raises:
        CompileError: The compiler is not installed.
    """
    name = _LIBRARIES.get(sys.platform, "libIREECompiler.so")
    try:
        spec = importlib.util.find_spec("iree.compiler")
    except ModuleNotFoundError:
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "_mlir_libs" / name
        if path.exists():
            return path
    raise CompileError("IREE's compiler is not installed", hint="pip install iree-base-compiler")


class WorkerDied(Exception):
    """The compiler process ended, or was ended, before it answered.

    Attributes:
        returncode: As of ``subprocess``: minus the signal's number where a signal ended the process.
        timed_out: Whether the parent ended it because its time was over.
        stderr: The last that it printed.
    """

    def __init__(self, returncode: int, timed_out: bool, stderr: str):
        super().__init__(f"the compiler process ended with status {returncode}")
        self.returncode = returncode
        self.timed_out = timed_out
        self.stderr = stderr

    @property
    def reason(self) -> str:
        """What happened, in words: ``crashed with signal 11 (SIGSEGV)``."""
        if self.returncode >= 0:
            return f"ended with exit status {self.returncode}"
        number = -self.returncode
        try:
            name = signal.Signals(number).name
        except ValueError:
            return f"crashed with signal {number}"
        verb = "was killed by" if name in ("SIGKILL", "SIGTERM") else "crashed with"
        return f"{verb} signal {number} ({name})"

    @property
    def killed_from_outside(self) -> bool:
        """Someone else (a user, the kernel for want of memory) ended it: the module need not be at fault."""
        return not self.timed_out and self.returncode in (-9, -15)


class Worker:
    """One compiler process. Not thread-safe: whoever holds it uses it alone.

    Args:
        process_flags: Flags that hold for all that this process compiles.
    """

    def __init__(self, process_flags: tuple[str, ...] = ()) -> None:
        self.process_flags = process_flags
        library = compiler_library()
        self._folder = tempfile.mkdtemp(prefix="rlx-iree-")  # also for what a killed compiler leaves behind
        self._stderr = open(Path(self._folder) / "stderr", "w+b", buffering=0)  # noqa: SIM115
        command = [sys.executable, "-I", "-S", protocol.__file__, str(library), self._folder, *process_flags]
        self._unread_replies = 0
        self._timed_out = False
        self.last_flags: tuple[str, ...] = ()
        self.peak_mib = 0
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), self._folder)},
                bufsize=0,
                start_new_session=_POSIX,  # so its linkers end with it, and a terminal's Ctrl-C spares it
            )
        except OSError as error:
            self._stderr.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise CompileError(f"cannot start the compiler process {sys.executable!r}: {error}") from error

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs; reaps it where it does not."""
        return self._process.poll() is None

    def post(self, header: dict[str, Any]) -> None:
        """Send a request whose reply nobody waits for."""
        with contextlib.suppress(OSError):  # a process that died is noticed by the next request
            self._send(header, b"")
            self._unread_replies += 1

    def request(
        self, header: dict[str, Any], body: bytes = b"", *, timeout_s: float | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Send one request and wait for its reply, at most ``timeout_s`` seconds.

        Raises:
            WorkerDied: The process crashed, was killed, or took too long and was ended.
        """
        timer = threading.Timer(timeout_s, self._on_timeout) if timeout_s is not None else None
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            reply = self._exchange(header, body)
        except BaseException:
            # Also KeyboardInterrupt: the reply to this request must not be taken for that to the next one.
            self.kill()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if reply is None:
            self._process.wait()
            raise WorkerDied(self._process.returncode, self._timed_out, self.printed())
        self.peak_mib = max(self.peak_mib, reply[0].get("peak_mib", 0))
        return reply

    def kill(self) -> None:
        """End the process and what it started, and reap it. May be called again."""
        self._signal_group()
        self._process.wait()

    def close(self) -> None:
        """Kill, and release the pipes and files."""
        self.kill()
        self._close_streams()
        shutil.rmtree(self._folder, ignore_errors=True)

    def forget(self) -> None:
        """In a forked child: let go of the parent's process without touching it."""
        self._process.returncode = 0
        self._close_streams()

    def _exchange(self, header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes] | None:
        assert self._process.stdout is not None
        if self._unread_replies == 0:
            self._stderr.seek(0)
            self._stderr.truncate()
        try:
            self._send(header, body)
        except BrokenPipeError:
            return None
        self._unread_replies += 1
        reply = None
        while self._unread_replies:
            reply = protocol.read_frame(self._process.stdout)  # type: ignore[arg-type]
            if reply is None:
                return None
            self._unread_replies -= 1
        return reply

    def _send(self, header: dict[str, Any], body: bytes) -> None:
        assert self._process.stdin is not None
        protocol.write_frame(self._process.stdin, header, body)  # type: ignore[arg-type]

    def _on_timeout(self) -> None:
        self._timed_out = True
        self._signal_group()

    def _signal_group(self) -> None:
        if not _POSIX:
            self._process.kill()
        elif self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def printed(self) -> str:
        """The last that the process printed to standard error since the request before."""
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")[-_STDERR_TAIL:].strip()

    def _close_streams(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                stream.close()


class WorkerPool:
    """Up to ``size`` compiler processes, started when they are needed and kept warm."""

    def __init__(self, size: int = 2):
        self._size = size
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._changed = threading.Condition()
        weakref.finalize(self, _end_all, self._workers)  # also when Python exits
        _pools.add(self)

    def prewarm(self, flags: Sequence[str], process_flags: Sequence[str] = ()) -> None:
        """Start a process and have it get ready, without waiting; does nothing if one fits or there is no place."""
        with self._changed:
            fitting = any(w.process_flags == tuple(process_flags) for w in self._workers)
            if fitting or len(self._workers) >= self._size:
                return
            worker = self._start(tuple(process_flags))
            worker.post({"kind": "warm", "flags": list(flags)})  # under the lock: it has no other user yet
            worker.last_flags = tuple(flags)
            self._idle.append(worker)

    @contextlib.contextmanager
    def worker(self, flags: Sequence[str] = (), process_flags: Sequence[str] = ()) -> Iterator[Worker]:
        """Hold a live process with these process flags, preferably one with a session for ``flags``.

        Waits while all are held; an idle process with other process flags makes room.
        """
        worker = self._acquire(tuple(flags), tuple(process_flags))
        try:
            yield worker
        finally:
            self._release(worker)

    def close(self) -> None:
        """End all processes, also those at work (their callers get ``WorkerDied``). The pool stays usable."""
        with self._changed:
            workers, idle = self._workers.copy(), self._idle.copy()
            self._workers.clear()
            self._idle.clear()
            self._changed.notify_all()
        for worker in workers:
            if worker in idle:
                worker.close()
            else:
                worker.kill()  # whoever holds it closes it

    @property
    def pids(self) -> list[int]:
        """The ids of the pool's processes."""
        with self._changed:
            return [worker.pid for worker in self._workers]

    def _acquire(self, flags: tuple[str, ...], process_flags: tuple[str, ...]) -> Worker:
        with self._changed:
            while True:
                self._discard_dead()
                fitting = [w for w in self._idle if w.process_flags == process_flags]
                if fitting:
                    worker = next((w for w in fitting if w.last_flags == flags), fitting[-1])
                    self._idle.remove(worker)
                    break
                if len(self._workers) >= self._size and self._idle:
                    self._discard(self._idle[0])
                if len(self._workers) < self._size:
                    worker = self._start(process_flags)
                    break
                self._changed.wait()
        if flags:
            worker.last_flags = flags
        return worker

    def _release(self, worker: Worker) -> None:
        with self._changed:
            if worker in self._workers:
                if worker.alive and worker.peak_mib < _RETIRE_ABOVE_MIB:
                    self._idle.append(worker)
                else:
                    self._workers.remove(worker)
                    worker.close()
            else:
                worker.close()
            self._changed.notify()

    def _start(self, process_flags: tuple[str, ...]) -> Worker:
        worker = Worker(process_flags)
        self._workers.append(worker)
        return worker

    def _discard_dead(self) -> None:
        for worker in [w for w in self._idle if not w.alive]:
            self._discard(worker)

    def _discard(self, worker: Worker) -> None:
        self._idle.remove(worker)
        self._workers.remove(worker)
        worker.close()

    def _after_fork(self) -> None:
        for worker in self._workers:
            worker.forget()
        self._workers.clear()
        self._idle.clear()
        self._changed = threading.Condition()


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _end_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.close()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

default_pool = WorkerPool()
