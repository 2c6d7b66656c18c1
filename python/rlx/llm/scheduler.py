"""`Scheduler`: the thread that runs the programs of a model for all others.

It alone changes the cache, so that an interrupt of another thread leaves the cache valid: that thread only stops to wait.
Threads and the scheduler share a queue and locks that are implemented in C, which an interrupt cannot leave half taken.
"""

from __future__ import annotations

import _thread
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.llm.pages import CachedText
from rlx.support.errors import Error

# Seconds to wait for the next tokens of texts that were in the last run, or as long as that run took if it is more: a run of
# their own costs as much. Texts that have not come by then are not waited for.
_PATIENCE_S = 0.02
_POLL_S = 0.002  # seconds until the scheduler sees that a text has ended for which it waits


class ScheduledCall:
    """A function that the scheduler calls.

    Args:
        function: The function.
        *arguments: Its arguments.

    Attributes:
        thread: The thread that waits for the result.
        is_finished: Whether there is a result or an error.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self._function, self._arguments = function, arguments
        self.thread = threading.get_ident()
        self.is_finished = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()

    def run(self) -> None:
        """Call the function."""
        try:
            self.finish(self._function(*self._arguments))
        except BaseException as problem:
            self.fail(problem)

    def finish(self, result: Any) -> None:
        """Let the waiting thread continue with a result."""
        self._result = result
        self._end()

    def fail(self, error: BaseException) -> None:
        """Let the waiting thread continue with an error."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self.is_finished = True  # the lock does not tell: the waiting thread takes it as soon as it is free
        self._done.release()

    def result(self) -> Any:
        """Wait for the result. An interrupt ends the waiting and not the call."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return self._result


class Step(ScheduledCall):
    """A token to add to a text. Its result is the logits after the token; those of a text that is done are empty.

    Args:
        text: The text.
        token: The token.
        run_together: Runs steps, the first of some or all, and finishes them.
        most: The number of steps that it can run.
    """

    def __init__(self, text: CachedText, token: int, run_together: Callable[[Sequence[Step]], None], most: int):
        super().__init__(run_together)
        self.text, self.token, self.most = text, token, most

    def run_with(self, others: Sequence[Step]) -> None:
        """Run this step with others."""
        steps = [self, *others]
        try:
            self._function(steps)
        except BaseException as problem:
            for step in steps:
                if not step.is_finished:
                    step.fail(problem)


class Scheduler:
    """Makes calls in one thread. Steps that wait at the same time are run together.

    Calls and steps alternate, so that a long prompt and the tokens of other texts advance at the same time. The thread starts
    with the first call, and ends with the scheduler.
    """

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self._process = os.getpid()
        self._queue: queue.SimpleQueue[ScheduledCall | None] = queue.SimpleQueue()
        self._owner = _thread.allocate_lock()  # held by the thread
        self._busy = [False]
        weakref.finalize(self, _end, self._queue)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function."""
        call = ScheduledCall(function, *arguments)
        self._start(call)
        return call.result()

    def run(self, steps: Sequence[Step]) -> list[np.ndarray]:
        """Return the results of steps."""
        for step in steps:
            self._start(step)
        return [step.result() for step in steps]

    def _start(self, call: ScheduledCall) -> None:
        if os.getpid() != self._process:
            if self._busy[0]:
                message = "the model was generating in another thread when this process was forked"
                raise Error(message, hint="load it again here, or start processes with multiprocessing's 'spawn'")
            self._open()  # a fork copies no threads
        self._queue.put(call)
        if not self._owner.locked():
            # If an interrupt or another thread starts a second one, that one ends at once.
            _thread.start_new_thread(_work, (self._queue, self._owner, self._busy))


def _end(calls: queue.SimpleQueue[ScheduledCall | None]) -> None:
    calls.put(None)


def _work(calls: queue.SimpleQueue[ScheduledCall | None], owner: Any, busy: list[bool]) -> None:
    """Run calls until there is None."""
    if not owner.acquire(blocking=False):
        return
    try:
        _Loop(calls, busy).run()
    finally:
        owner.release()


class _Loop:
    """The work of the thread. It has no reference to a model while it waits.

    Args:
        incoming: The calls.
        busy: Its element is whether a call is running.
    """

    def __init__(self, incoming: queue.SimpleQueue[ScheduledCall | None], busy: list[bool]):
        self._incoming, self._busy = incoming, busy
        self._steps: list[Step] = []
        self._calls: deque[ScheduledCall] = deque()
        self._last: list[tuple[CachedText, int]] = []  # the texts of the last run, with their threads
        self._last_s = 0.0  # its duration
        self._is_ended = False

    def run(self) -> None:
        while not self._is_ended:
            if not self._steps and not self._calls:
                self._take(None)
            while self._take(0):
                pass
            self._busy[0] = True
            if self._steps:
                self._run_steps()
            if self._calls:
                self._calls.popleft().run()
            self._busy[0] = False

    def _take(self, timeout: float | None) -> bool:
        """Take a call from the queue, after at most some seconds. Returns False if there is none."""
        try:
            call = self._incoming.get(timeout=timeout) if timeout != 0 else self._incoming.get_nowait()
        except queue.Empty:
            return False
        if isinstance(call, Step):
            self._steps.append(call)
        elif call is None:
            self._is_ended = True
        else:
            self._calls.append(call)
        return True

    def _run_steps(self) -> None:
        self._wait_for_others()
        for step in self._steps:
            if step.text.is_done:
                step.finish(np.zeros(0, np.float32))
        waiting = [step for step in self._steps if not step.is_finished]
        # Texts outside of the cache come last: they would push out others, which would push them out in the next run.
        waiting.sort(key=lambda step: step.text.is_outside)
        if waiting:
            first, *others = waiting
            begin = time.monotonic()
            first.run_with(others[: first.most - 1])
            self._last_s = time.monotonic() - begin
        self._last = [(step.text, step.thread) for step in waiting if step.is_finished]
        self._steps = [step for step in waiting if not step.is_finished]

    def _wait_for_others(self) -> None:
        """Wait for texts of the last run whose threads choose their next tokens, so that they are in one run again."""
        end = time.monotonic() + max(_PATIENCE_S, self._last_s)
        while len(self._steps) < self._steps[0].most:
            here = {call.thread for call in (*self._steps, *self._calls)}
            if all(thread in here or text.is_done for text, thread in self._last):
                return
            left = end - time.monotonic()
            if left <= 0:
                return
            self._take(min(left, _POLL_S))
