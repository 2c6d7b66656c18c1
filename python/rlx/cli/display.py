"""Progress display of slow steps."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from rlx.support.printable import printable

_SPINNER = "|/-\\"
_FRAME_SECONDS = 0.1


class Steps:
    """Shows slow steps while they run: a spinner on a terminal, else a line for each finished step.

    Args:
        stream: The stream to write to; standard error by default.
        only_terminal: Show nothing if the stream is not a terminal.

    Attributes:
        seconds: The duration of each step, by name.
    """

    def __init__(self, stream: TextIO | None = None, *, only_terminal: bool = False):
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.silent = only_terminal and not self.is_terminal
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Show the name of a step while the body runs."""
        step = printable(step, keep="")
        started = time.perf_counter()
        finished = threading.Event()
        spinner = threading.Thread(target=self._spin, args=(step, started, finished), daemon=True)
        if self.is_terminal:
            spinner.start()
        try:
            yield
        finally:
            finished.set()
            if self.is_terminal:
                spinner.join()
                self._show("\r\x1b[K")
        self.seconds[step] = time.perf_counter() - started
        if not self.silent:
            self._show(f"{step}: {self.seconds[step]:.2f} s\n")

    def _spin(self, step: str, started: float, finished: threading.Event) -> None:
        frame = 0
        while not finished.wait(_FRAME_SECONDS):
            elapsed = time.perf_counter() - started
            self._show(f"\r\x1b[K{_SPINNER[frame % len(_SPINNER)]} {step} ({elapsed:.1f} s)")
            frame += 1

    def _show(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
