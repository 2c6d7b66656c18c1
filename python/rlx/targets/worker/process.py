"""The parent's side of one worker process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from rlx.support.errors import Error
from rlx.targets.worker import serve
from rlx.targets.worker.folder import make_folder, open_stderr

_STDERR_TAIL = 2000
_POSIX = os.name == "posix"
# A killed process ends immediately, unless the system still writes data for it.
_REAP_S = 10.0


@dataclass(frozen=True)
class Command:
    """The command of a worker process. A request can be sent to any process with an equal command.

    Attributes:
        handler: The path of a Python file with `make(*arguments)`; see ``serve.py``.
        arguments: The arguments of `make`.
        path: Folders to add to `sys.path`: without them the handler can only import the standard library.
    """

    handler: str
    arguments: tuple[str, ...] = ()
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """The reply of a worker.

    Attributes:
        header: The header of the reply.
        body: The body of the reply.
        printed: The end of what the process has printed to standard error since the previous request.
    """

    header: Mapping[str, Any]
    body: bytes
    printed: str


class HandlerFailed(Exception):
    """The handler raised an exception; the process can be used again.

    Attributes:
        stderr: The end of its output, a traceback.
    """

    def __init__(self, message: str, stderr: str):
        super().__init__(message)
        self.stderr = stderr


class WorkerDied(Exception):
    """The process ended, or was ended, before it answered.

    Attributes:
        returncode: As in ``subprocess``: minus the number of the signal if a signal ended the process.
        timed_out: Whether the parent ended it because it took too long.
        stderr: The end of what it printed.
    """

    def __init__(self, returncode: int, timed_out: bool, stderr: str):
        super().__init__(f"the worker process ended with status {returncode}")
        self.returncode = returncode
        self.timed_out = timed_out
        self.stderr = stderr

    @property
    def reason(self) -> str:
        """The cause as text: ``crashed with signal 11 (SIGSEGV)``."""
        if self.returncode >= 0:
            return f"ended with exit status {self.returncode}"
        number = -self.returncode
        try:
            name = signal.Signals(number).name
        except ValueError:
            return f"crashed with signal {number}"
        verb = "was killed by" if self.killed_from_outside else "crashed with"
        return f"{verb} signal {number} ({name})"

    @property
    def killed_from_outside(self) -> bool:
        """Whether a user ended it, or the kernel because memory was full. The request may not be the cause."""
        return not self.timed_out and -self.returncode in _FROM_OUTSIDE


# Signals that do not come from a crash of the process itself.
_FROM_OUTSIDE = frozenset(
    getattr(signal, name)
    for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGXCPU", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
)


class Worker:
    """One process. It is not thread-safe: one thread at a time may use it, and interrupts must not reach this thread.

    Raises:
        Error: The process cannot be started.
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        self.affinity: Any = None  # of the last request
        self.peak_mib = 0
        self._unread_replies = 0
        self._timed_out = False
        self._ending = False
        folder = make_folder()
        self._folder = os.fspath(folder)
        try:
            self._stderr = open_stderr(folder)
            self._process = self._started()
        except BaseException as problem:
            if hasattr(self, "_stderr"):
                self._stderr.close()
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(problem, OSError):
                raise Error(f"cannot start the process {sys.executable!r}: {problem}") from problem
            raise

    def _started(self) -> subprocess.Popen[bytes]:
        command = self.command
        settings = {
            "folder": self._folder,
            "handler": command.handler,
            "arguments": command.arguments,
            "path": command.path,
        }
        return subprocess.Popen(
            [sys.executable, "-I", "-S", serve.__file__, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), self._folder)},
            bufsize=0,
            start_new_session=_POSIX,  # its child processes can be ended with it, and Ctrl-C in a terminal does not reach it
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs and may be used again. If it has ended, its exit status is collected."""
        return self._process.poll() is None and not self._ending

    def post(self, header: Mapping[str, Any]) -> None:
        """Send a request without waiting for the reply."""
        with contextlib.suppress(OSError):  # the next request reports a process that has died
            self._send(header, b"")
            self._unread_replies += 1

    def request(
        self,
        header: Mapping[str, Any],
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        signals: SimpleQueue[str] | None = None,
    ) -> Reply:
        """Send one request and wait for its reply.

        Args:
            header: The request's header.
            body: Its body.
            timeout_s: The process is ended after this number of seconds.
            signals: When an item is put into this queue, the process is ended immediately.

        Raises:
            WorkerDied: The process crashed, was killed, or took too long and was ended.
            HandlerFailed: The handler raised an exception.
        """
        signals = signals or SimpleQueue()
        watcher_ended = allocate_lock()
        watcher_ended.acquire()
        try:
            start_new_thread(self._watch, (timeout_s, signals, watcher_ended))
        except RuntimeError as problem:
            raise Error(f"cannot start a thread: {problem}") from None
        try:
            reply = self._exchange(header, body)
        except BaseException:
            self.kill()  # otherwise the next request would get the reply to this one
            raise
        finally:
            signals.put("answered")
            watcher_ended.acquire()  # the watching thread has ended, and can no longer kill the process
        if reply is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_REAP_S)  # it may be ending by itself: wait for its exit status
            self.kill()
            raise WorkerDied(self._process.returncode or 0, self._timed_out, self._printed())
        self.peak_mib = max(self.peak_mib, reply[0].get("peak_mib", 0))
        if reply[0].get("outcome") == "error":
            raise HandlerFailed(reply[0]["message"], self._printed())
        return Reply(*reply, self._printed())

    def kill(self) -> None:
        """End the process and its child processes, and collect its exit status. May be called again."""
        self._signal_group()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)

    def close(self) -> None:
        """Kill the process, and close pipes and files."""
        self.kill()
        self._close_streams()
        shutil.rmtree(self._folder, ignore_errors=True)

    def forget(self) -> None:
        """In a forked child: close the streams of the parent's process, and do not end it."""
        self._process.returncode = 0
        self._close_streams()

    def _exchange(self, header: Mapping[str, Any], body: bytes) -> serve.Frame | None:
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
            reply = serve.read_frame(self._process.stdout)  # type: ignore[arg-type]
            if reply is None:
                return None
            self._unread_replies -= 1
        return reply

    def _send(self, header: Mapping[str, Any], body: bytes) -> None:
        assert self._process.stdin is not None
        serve.write_frame(self._process.stdin, dict(header), body)  # type: ignore[arg-type]

    def _watch(self, timeout_s: float | None, signals: SimpleQueue[str], ended: Any) -> None:
        """In a separate thread: end the process at its time limit, or when the caller stops waiting."""
        try:
            try:
                if signals.get(timeout=timeout_s) == "answered":
                    return
            except Empty:
                self._timed_out = True
            self._signal_group()
        finally:
            ended.release()

    def _signal_group(self) -> None:
        self._ending = True
        if not _POSIX:
            self._process.kill()
        elif self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _printed(self) -> str:
        """The end of what the process has printed to standard error since the previous request."""
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")[-_STDERR_TAIL:].strip()

    def _close_streams(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
