"""A small pool of warm worker processes.

Callers may be interrupted at any step. So a caller does nothing but wait: everything that holds a place in the pool runs
in threads of the pool's own (``shielded.py``), where no interrupt lands, and gives the place back when it ends.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from rlx.backends.worker.process import Command, Reply, Worker, WorkerDied
from rlx.backends.worker.shielded import Call

# Native code may never free what it allocates: beyond this much memory a process is replaced when it is idle.
_RETIRE_ABOVE_MIB = 2048
# How long a caller that has given up may stand in the queue for a process.
_SLICE_S = 0.25


class WorkerPool:
    """Up to ``size`` processes, started when they are needed and kept warm. Usable from several threads at once.

    A process is used by one request at a time. Several processes, rather than one with several threads: the work scales
    the same, and a crash or a time limit takes one request with it and not all.
    """

    def __init__(self, size: int = 2):
        self._size = size
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._changed = threading.Condition()
        weakref.finalize(self, _end_all, self._workers)  # also when Python exits
        _pools.add(self)

    def request(
        self,
        command: Command,
        header: Mapping[str, Any],
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        affinity: Any = None,
    ) -> Reply:
        """Have a process answer a request. An interrupt ends the process and is raised.

        Waits while all processes are at work; an idle one that runs another command makes room.

        Args:
            command: What the process runs.
            header: The request's header, as JSON takes it.
            body: Its body.
            timeout_s: Seconds that the process may work on it.
            affinity: A process whose request before had the same is preferred.

        Raises:
            WorkerDied: The process crashed, was killed, or took too long and was ended.
            Error: No process can be started.
        """

        def answer(call: Call[Reply]) -> Reply:
            worker = self._acquire(command, affinity, call)
            try:
                return worker.request(header, body, timeout_s=timeout_s, signals=call.signals)
            finally:
                self._release(worker)

        return Call(answer).result()

    def post(self, command: Command, header: Mapping[str, Any]) -> int:
        """Send a process a request whose reply nobody waits for; returns the process's id."""

        def send(call: Call[int]) -> int:
            worker = self._acquire(command, None, call)
            try:
                worker.post(header)
                return worker.pid
            finally:
                self._release(worker)

        return Call(send).result()

    def prewarm(self, command: Command, header: Mapping[str, Any], affinity: Any = None) -> None:
        """Start a process and send it a request, without waiting; does nothing if one fits or there is no place."""

        def start(_: Call[None]) -> None:
            with self._changed:
                if not self._has_one_for(command) and len(self._workers) < self._size:
                    worker = self._start(command, affinity)
                    worker.post(header)  # under the lock: it has no other user yet
                    self._idle.append(worker)

        if not self._has_one_for(command):
            Call(start).start()

    def close(self) -> None:
        """End all processes, also those at work (their callers get ``WorkerDied``). The pool stays usable."""
        Call(lambda _: self._close()).result()

    @property
    def pids(self) -> list[int]:
        """The ids of the pool's processes."""
        return [worker.pid for worker in tuple(self._workers)]

    # --- in threads of the pool's own -------------------------------------------------------------

    def _acquire(self, command: Command, affinity: Any, call: Call[Any]) -> Worker:
        with self._changed:
            while True:
                if call.cancelled:
                    raise WorkerDied(0, False, "")
                self._discard_dead()
                fitting = [w for w in self._idle if w.command == command]
                if fitting:
                    worker = next((w for w in fitting if w.affinity == affinity), fitting[-1])
                    self._idle.remove(worker)
                    break
                if len(self._workers) >= self._size and self._idle:
                    self._discard(self._idle[0])
                if len(self._workers) < self._size:
                    worker = self._start(command, affinity)
                    break
                self._changed.wait(_SLICE_S)
        if affinity is not None:
            worker.affinity = affinity
        return worker

    def _release(self, worker: Worker) -> None:
        with self._changed:
            if worker in self._workers and worker.alive and worker.peak_mib < _RETIRE_ABOVE_MIB:
                self._idle.append(worker)
            else:
                if worker in self._workers:
                    self._workers.remove(worker)
                worker.close()
            self._changed.notify()

    def _close(self) -> None:
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

    def _has_one_for(self, command: Command) -> bool:
        return any(worker.command == command for worker in tuple(self._workers))

    def _start(self, command: Command, affinity: Any) -> Worker:
        worker = Worker(command)
        worker.affinity = affinity
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
