"""The output of the commands: any text on any terminal, and the progress of slow steps."""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from rlx.ir.printable import printable

_SPINNER = "|/-\\"
_FRAME_SECONDS = 0.1
# Replacements for terminals without Unicode; all other characters are shown as their number.
_ASCII = {"…": "...", "–": "-", "—": "-", "×": "x", "µ": "u", "²": "^2", "≤": "<=", "≥": ">=", "→": "->", "·": "*"}


class Steps:
    """Shows slow steps as they run: a spinner on a terminal, else a line for each when it is done.

    Args:
        stream: Where to write; standard error when absent.
        only_terminal: Show nothing where the stream is not a terminal.

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


def say(text: str, *, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print text for readers, with escapes for what a name of a file must not do to a terminal.

    Args:
        text: The text.
        stream: Where to; standard output when absent.
        end: What follows it.
    """
    print(printable(text), end=end, file=stream)


def show_any_text() -> None:
    """Write characters that the encoding of standard output or error lacks in ASCII, instead of failing."""
    codecs.register_error("rlx.ascii", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="rlx.ascii")


def _in_ascii(problem: UnicodeError) -> tuple[str, int]:
    assert isinstance(problem, UnicodeEncodeError)
    missing = problem.object[problem.start : problem.end]
    replacements = (_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in missing)
    return "".join(replacements), problem.end
