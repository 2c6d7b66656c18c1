"""`WorkQueue`: runs the work of requests in threads, a bounded number at once, in the order of their arrival."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from rlx.serve.metrics import ServerMetrics
from rlx.serve.request_error import RequestError, shutting_down

_LONGEST_RETRY = 60  # seconds that a client is asked to wait at most


class JobSignal(Enum):
    """Entries of `Job.pieces` other than bytes and exceptions."""

    END = "all pieces are there"
    DISCONNECTED = "the client has gone"


class JobCancelled(Exception):
    """Ends the work of a request that is not wanted any longer."""


class Job:
    """The work of one request.

    Args:
        work: Yields the pieces of the answer, in a worker thread. It calls `check` between its steps.
        on_end: Called when the work has ended, or will not begin, from any thread. It may be called again.

    Attributes:
        pieces: The pieces that are ready, then `JobSignal.END` or an exception.
        created: When the job was made, of `time.monotonic`.
        end: The argument `on_end`.
    """

    def __init__(self, work: Callable[[Job], Generator[bytes]], *, on_end: Callable[[], None] = lambda: None):
        self._work, self.end = work, on_end
        self._cancelled = threading.Event()
        self._stop: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self.pieces: asyncio.Queue[bytes | BaseException | JobSignal] = asyncio.Queue()
        self.created = time.monotonic()

    def check(self) -> None:
        """Raise an exception if the work is not wanted any longer."""
        if self._cancelled.is_set():
            raise JobCancelled

    def cancel(self) -> None:
        """Ask the work to end."""
        self._cancelled.set()
        if self._stop is not None:
            self._stop()

    def stop_with(self, stop: Callable[[], None]) -> None:
        """Set the function that ends the current step of the work, from any thread."""
        self._stop = stop
        if self._cancelled.is_set():
            stop()

    def run(self) -> None:
        """Do the work, in this thread."""
        try:
            self.check()
            with contextlib.closing(self._work(self)) as pieces:
                for piece in pieces:
                    self.put(piece)
                    self.check()
            self.put(JobSignal.END)
        except JobCancelled:
            self.put(shutting_down())  # if the client has gone, no code reads it
        except BaseException as problem:
            self.put(problem)

    def put(self, piece: bytes | BaseException | JobSignal) -> None:
        """Add a piece, from any thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has been closed, so the client has gone
            self._loop.call_soon_threadsafe(self.pieces.put_nowait, piece)


class WorkQueue:
    """A bounded queue, and threads that take jobs from it. All methods are thread-safe.

    Args:
        parallel: The largest number of jobs that run at once.
        most: The largest number of jobs that wait.
        metrics: Counts running and waiting jobs.
    """

    def __init__(self, parallel: int, most: int, metrics: ServerMetrics):
        self._parallel, self._most, self._metrics = parallel, most, metrics
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._running: set[Job] = set()
        self._waiting: deque[Job] = deque()
        self._mean_seconds = 1.0  # of recent jobs
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether no jobs are accepted any longer."""
        return self._is_closed

    def start(self, job: Job) -> None:
        """Run a job now or when it is its turn.

        Raises:
            RequestError: The queue is full (429) or closed (503).
        """
        with self._lock:
            if self._is_closed:
                raise shutting_down()
            if len(self._running) < self._parallel:
                self._run(job)
            elif len(self._waiting) < self._most:
                self._waiting.append(job)
                self._metrics.waiting.add(1)
            else:
                raise self._full()

    def _full(self) -> RequestError:
        rounds = len(self._waiting) / self._parallel + 1
        seconds = max(1, min(_LONGEST_RETRY, round(self._mean_seconds * rounds)))
        message = f"The server is busy: {len(self._running)} requests are running and {len(self._waiting)} are waiting."
        return RequestError(
            429, message, kind="requests", code="rate_limit_exceeded", headers={"Retry-After": str(seconds)}
        )

    def _run(self, job: Job) -> None:
        """Run a job in a free thread. The caller has the lock."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._parallel, thread_name_prefix="rlx-serve")
        self._running.add(job)
        self._metrics.running.add(1)
        self._executor.submit(self._run_and_continue, job)

    def _run_and_continue(self, job: Job) -> None:
        begin = time.monotonic()
        try:
            job.run()
        finally:
            job.end()
            with self._lock:
                self._mean_seconds += (time.monotonic() - begin - self._mean_seconds) / 8
                self._running.discard(job)
                self._metrics.running.add(-1)
                if self._waiting:
                    self._metrics.waiting.add(-1)
                    self._run(self._waiting.popleft())

    def cancel(self, job: Job) -> None:
        """End a job. One that waits leaves the queue, and one that runs ends at its next `check`.

        It may have ended before, or have been refused by `start`.
        """
        job.cancel()
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                self._metrics.waiting.add(-1)
            is_running = job in self._running
        if not is_running:
            job.end()

    def open(self) -> None:
        """Accept jobs, also after `stop`."""
        with self._lock:
            self._is_closed = False

    def close(self) -> None:
        """Accept no more jobs, and refuse those that wait. Running jobs continue."""
        with self._lock:
            self._is_closed = True
            refused = list(self._waiting)
            self._metrics.waiting.add(-len(refused))
            self._waiting.clear()
        for job in refused:
            job.put(shutting_down())

    def stop(self) -> None:
        """Close the queue, and end running jobs at their next `check`."""
        self.close()
        with self._lock:
            for job in self._running:
                job.cancel()
            if self._executor is not None:
                self._executor.shutdown(wait=False)
                self._executor = None
