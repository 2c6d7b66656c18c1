"""What the commands show: steps that take a while, tables, sizes."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

_SPINNER = "|/-\\"
_FRAME_SECONDS = 0.1


class Steps:
    """Shows slow steps as they run: a spinner on a terminal, else a line for each when it is done.

    Args:
        stream: Where to; standard error when absent.
        only_terminal: Show nothing where the stream is not a terminal.

    Attributes:
        seconds: What each step took, by name.
    """

    def __init__(self, stream: TextIO | None = None, *, only_terminal: bool = False):
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.silent = only_terminal and not self.is_terminal
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Show `what` while the body runs."""
        started = time.perf_counter()
        finished = threading.Event()
        spinner = threading.Thread(target=self._spin, args=(what, started, finished), daemon=True)
        if self.is_terminal:
            spinner.start()
        try:
            yield
        finally:
            finished.set()
            if self.is_terminal:
                spinner.join()
                self._show("\r\x1b[K")
        self.seconds[what] = time.perf_counter() - started
        if not self.silent:
            self._show(f"{what}: {self.seconds[what]:.2f} s\n")

    def _spin(self, what: str, started: float, finished: threading.Event) -> None:
        frame = 0
        while not finished.wait(_FRAME_SECONDS):
            elapsed = time.perf_counter() - started
            self._show(f"\r\x1b[K{_SPINNER[frame % len(_SPINNER)]} {what} ({elapsed:.1f} s)")
            frame += 1

    def _show(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None, *, right: Sequence[int] = ()) -> str:
    """Rows as lines with aligned columns.

    Args:
        rows: Cells; every row has as many.
        header: Titles of the columns.
        right: Columns that are aligned to the right, such as numbers.
    """
    lines = [*([list(header)] if header else []), *map(list, rows)]
    if not lines:
        return ""
    widths = [max(len(row[i]) for row in lines) for i in range(len(lines[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, lines))


def short_number(value: object, unit: str = "") -> str:
    """A count for people: `1.50 M`; what is not a number, such as a symbolic size, as it is."""
    if not isinstance(value, (int, float)):
        return f"{value} {unit}".rstrip()
    scaled, prefix = float(value), ""
    for larger in ("k", "M", "G", "T"):
        if abs(scaled) < 1000:
            break
        scaled, prefix = scaled / 1000, larger
    digits = f"{scaled:.0f}" if not prefix else f"{scaled:.3g}" if abs(scaled) < 999.5 else f"{scaled:.0f}"
    return f"{digits} {prefix}{unit}".rstrip()
