"""A small pool of worker processes that are kept running.

Callers may be interrupted at any step. So a caller only waits. Separate threads (``shielded.py``) communicate with the
processes of the pool. Interrupts do not reach these threads, so they always return the process to the pool.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlx.targets.worker.process import Command, Reply, Worker, WorkerDied
from rlx.targets.worker.shielded import ThreadCall

# Native code may leak memory. A process that has used more than this is ended after its request.
_RETIRE_ABOVE_MIB = 2048
# How often a thread that waits for a process checks whether its caller has given up.
_SLICE_S = 0.25
# The longest wait for processes that are being started when Python exits, and the pause between two looks.
_START_S, _PAUSE_S = 5.0, 0.01


@dataclass(frozen=True, eq=False)
class _PoolSlot:
    """The slot in the pool of a process that is being started.

    Attributes:
        command: The command of the process.
        is_prewarmed: Whether it is started before a caller waits for it.
    """

    command: Command
    is_prewarmed: bool


class WorkerPool:
    """Up to ``size`` processes, started when they are needed and kept running. Usable from several threads at once.

    A process works on one request at a time. Several processes are as fast as one process with several threads, and a crash
    or a time limit ends only one request and not all.
    """

    def __init__(self, size: int = 2):
        self._size = size
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._starting: list[_PoolSlot] = []
        self._changed = threading.Condition()
        weakref.finalize(self, _end_all, self._workers, self._starting)  # this is called when Python exits as well
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
        """Send a request to a process and wait for the reply. An interrupt ends the process and is raised.

        Waits while all processes are busy; an idle process with another command is ended to make room.

        Args:
            command: The command that the process must run.
            header: The header of the request, a JSON object.
            body: The body of the request.
            timeout_s: The time limit in seconds.
            affinity: A process whose last request had the same affinity is preferred.

        Raises:
            WorkerDied: The process crashed, was killed, or took too long and was ended.
            HandlerFailed: The handler raised an exception.
            Error: No process can be started.
        """

        def answer(call: ThreadCall[Reply]) -> Reply:
            worker = self._acquire(command, affinity, call)
            try:
                return worker.request(header, body, timeout_s=timeout_s, signals=call.signals)
            finally:
                self._release(worker)

        return ThreadCall(answer).result()

    def post(self, command: Command, header: Mapping[str, Any]) -> int:
        """Send a request without waiting for the reply; returns the id of the process."""

        def send(call: ThreadCall[int]) -> int:
            worker = self._acquire(command, None, call)
            try:
                worker.post(header)
                return worker.pid
            finally:
                self._release(worker)

        return ThreadCall(send).result()

    def prewarm(self, command: Command, header: Mapping[str, Any], affinity: Any = None) -> None:
        """Start a process and send it a request, without waiting. Does nothing if one already runs or the pool is full."""

        def start(_: ThreadCall[None]) -> None:
            place = _PoolSlot(command, is_prewarmed=True)
            with self._changed:
                if self._has_process_for(command) or not self._has_room:
                    return
                self._starting.append(place)
            worker = self._start(place, affinity)
            worker.post(header)
            self._release(worker)

        if not self._has_process_for(command):
            ThreadCall(start).start()

    def close(self) -> None:
        """End all processes, including busy ones (their callers get ``WorkerDied``). The pool can still be used."""
        ThreadCall(lambda _: self._close()).result()

    @property
    def pids(self) -> list[int]:
        """The ids of the pool's processes."""
        return [worker.pid for worker in tuple(self._workers)]

    # --- these run in threads of `ThreadCall` -----------------------------------------------------------

    # Starting and ending a process takes time. Both are done without the lock, and the process keeps its slot meanwhile.

    def _acquire(self, command: Command, affinity: Any, call: ThreadCall[Any]) -> Worker:
        chosen = None
        while chosen is None:
            if call.cancelled:
                raise WorkerDied(0, False, "")
            with self._changed:
                chosen, leaving = self._choose(command, affinity)
                if chosen is None and leaving is None:
                    self._changed.wait(_SLICE_S)
            if leaving is not None:
                self._end(leaving)
        worker = self._start(chosen, affinity) if isinstance(chosen, _PoolSlot) else chosen
        if affinity is not None:
            worker.affinity = affinity
        return worker

    def _choose(self, command: Command, affinity: Any) -> tuple[Worker | _PoolSlot | None, Worker | None]:
        """An idle process, or a slot for a new one; else an idle process that must be ended first. The lock is held."""
        idle = self._idle
        fitting = [w for w in idle if w.command == command]
        leaving = next((w for w in idle if not w.alive), None)
        if leaving is None and fitting:
            worker = next((w for w in fitting if w.affinity == affinity), fitting[-1])
            idle.remove(worker)
            return worker, None
        if leaving is None and self._is_prewarming(command):
            return None, None
        if leaving is None and self._has_room:
            self._starting.append(_PoolSlot(command, is_prewarmed=False))
            return self._starting[-1], None
        if leaving is None and idle:
            leaving = idle[0]
        if leaving is not None:
            idle.remove(leaving)
        return None, leaving

    def _release(self, worker: Worker) -> None:
        with self._changed:
            if worker in self._workers and worker.alive and worker.peak_mib < _RETIRE_ABOVE_MIB:
                self._idle.append(worker)
                self._changed.notify_all()
                return
        self._end(worker)

    def _end(self, worker: Worker) -> None:
        """Close an unused process, then free its slot."""
        worker.close()
        with self._changed:
            if worker in self._workers:
                self._workers.remove(worker)
            self._changed.notify_all()

    def _close(self) -> None:
        with self._changed:
            workers, idle = self._workers.copy(), self._idle.copy()
            self._workers.clear()
            self._idle.clear()
            self._starting.clear()
            self._changed.notify_all()
        for worker in workers:
            if worker in idle:
                worker.close()
            else:
                worker.kill()  # the thread that uses it closes it

    @property
    def _has_room(self) -> bool:
        return len(self._workers) + len(self._starting) < self._size

    def _is_prewarming(self, command: Command) -> bool:
        return any(place.command == command for place in tuple(self._starting) if place.is_prewarmed)

    def _has_process_for(self, command: Command) -> bool:
        return self._is_prewarming(command) or any(worker.command == command for worker in tuple(self._workers))

    def _start(self, place: _PoolSlot, affinity: Any) -> Worker:
        """A new process. If the pool is closed meanwhile, the process does not belong to it: `_release` ends it."""
        started: list[Worker] = []
        try:
            started.append(Worker(place.command))
        finally:
            with self._changed:
                if place in self._starting:
                    self._starting.remove(place)
                    self._workers += started
                self._changed.notify_all()
        started[0].affinity = affinity
        return started[0]

    def _after_fork(self) -> None:
        for worker in self._workers:
            worker.forget()
        self._workers.clear()
        self._idle.clear()
        self._starting.clear()
        self._changed = threading.Condition()


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _end_all(workers: list[Worker], starting: list[_PoolSlot]) -> None:
    # When Python exits, it stops the threads that start processes at any step, and their folders would be left.
    end = time.monotonic() + _START_S
    while starting and time.monotonic() < end:
        time.sleep(_PAUSE_S)
    for worker in tuple(workers):
        worker.close()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
