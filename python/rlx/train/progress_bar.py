"""The progress bar of `fit`, by the conventions of tqdm."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from numbers import Real
from typing import Any

from rlx.support.printable import printable

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_FEWEST_CELLS = 4  # a shorter bar is left out


def clock(seconds: float) -> str:
    """Return a time as tqdm does: `02:41`, `1:02:41`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def speed(rate: float) -> str:
    """Return a rate: `18.2step/s`, or `2.50s/step` if a step takes longer than a second."""
    if not rate:
        return "?step/s"
    return f"{rate:5.2f}step/s" if rate >= 1 else f"{1 / rate:5.2f}s/step"


class ProgressBar:
    """One line of progress, such as `Epoch 3/10:  45%|████▌     | 20/45 [00:01<00:01, 18.21step/s, loss=0.123]`.

    On a terminal the line is rewritten, at most ten times a second, with the numbers that fit its width. Elsewhere, plain
    lines are written: at the end, and every ten seconds.

    Args:
        total: The number of steps, if it is known.
        title: The text before the bar; may be empty.
        enabled: Whether anything is written.
        done: The number of steps before this bar.
        plain: Whether lines are written if standard error is not a terminal.
    """

    _INTERVAL, _PLAIN_INTERVAL = 0.1, 10.0

    def __init__(self, total: int | None, title: str = "", *, enabled: bool = True, done: int = 0, plain: bool = True):
        self._total, self._title, self._before, self._done = total, title, done, done
        self._stream = sys.stderr if enabled else None
        self._is_terminal = self._stream is not None and self._stream.isatty()
        if not self._is_terminal and not plain:
            self._stream = None
        self._start = self._shown = time.monotonic()
        self._numbers: dict[str, float] = {}
        self._is_open = self._is_written = False

    def show(self, done: int, numbers: Mapping[str, Any]) -> None:
        """Show the number of completed steps, and losses and metrics; other values than numbers are left out."""
        if self._stream is None:
            return
        self._done, self._is_open, self._is_written = done, True, False
        # Metrics that only some steps have stay on the line with their last values.
        self._numbers |= {n: float(v) for n, v in numbers.items() if n not in ("step", "epoch") and isinstance(v, Real)}
        interval = self._INTERVAL if self._is_terminal else self._PLAIN_INTERVAL
        if time.monotonic() - self._shown >= interval:
            self._write()

    def close(self) -> None:
        """Show the last step, and end the line. Numbers that do not fit its width follow on lines of their own."""
        if self._stream is not None and self._is_open:
            if not self._is_terminal and not self._is_written:
                self._write()
            elif self._is_terminal:
                width = self._width()
                is_cut = self.line(width, kept=0) != self.line(width) and self._kept(width) < len(self._numbers)
                self._put(f"\r{self.line(width, kept=0 if is_cut else None)}\x1b[K\n")
                if is_cut:
                    numbers = printable(", ".join(self._texts()), keep="")
                    self._put("".join(f"  {line}\n" for line in textwrap.wrap(numbers, max(width - 2, 8))))
        self._is_open = False

    def _write(self) -> None:
        self._shown, self._is_written = time.monotonic(), True
        if self._is_terminal:
            # A line that wraps could not be overwritten.
            self._put(f"\r{self.line(self._width())}\x1b[K")
        else:
            self._put(f"{self.line(None)}\n")

    @staticmethod
    def _width() -> int:
        return shutil.get_terminal_size().columns - 1

    def _texts(self) -> list[str]:
        return [f"{name}={value:.4g}" for name, value in self._numbers.items()]

    def _put(self, text: str) -> None:
        assert self._stream is not None
        try:
            self._stream.write(text)
        except UnicodeEncodeError:  # a terminal without block characters
            self._stream.write(text.encode("ascii", "replace").decode())
        self._stream.flush()

    def line(self, width: int | None, *, kept: int | None = None) -> str:
        """Return the line.

        Args:
            width: The maximum number of characters; None for a line without a bar.
            kept: The number of losses and metrics; by default, all that fit.
        """
        if width is None:
            return printable(self._plain(), keep="")
        head, counts = self._parts(self._kept(width) if kept is None else kept)
        cells = width - len(head) - len(counts)
        if self._total is not None:
            head += self._bar(cells) if cells >= _FEWEST_CELLS else ""
        return printable(head + counts, keep="")[:width]

    def _kept(self, width: int) -> int:
        """Return how many losses and metrics fit a width."""
        numbers = range(len(self._numbers), 0, -1)
        return next((n for n in numbers if sum(map(len, self._parts(n))) <= width), 0)

    def _parts(self, kept: int) -> tuple[str, str]:
        """Return the text before and after the bar, with some of the losses and metrics."""
        elapsed, rate = self._clock()
        title = f"{self._title}: " if self._title else ""
        numbers = "".join(f", {text}" for text in self._texts()[:kept])
        if self._total is None:
            return title, f"{self._done}step [{clock(elapsed)}, {speed(rate)}{numbers}]"
        left = clock((self._total - self._done) / rate) if rate else "?"
        share = 100 * self._done / max(self._total, 1)
        counts = f"| {self._done}/{self._total} [{clock(elapsed)}<{left}, {speed(rate)}{numbers}]"
        return f"{title}{share:3.0f}%|", counts

    def _plain(self) -> str:
        """Return the line without a bar."""
        head, counts = self._parts(len(self._numbers))
        if self._total is None:
            return head + counts
        title = f"{self._title}: " if self._title else ""
        if self._done == self._total:
            counts = re.sub(r"<[\d:?]+", "", counts, count=1)
        return title + counts.removeprefix("| ")

    def _clock(self) -> tuple[float, float]:
        """Return the seconds since the start, and the steps for each of them."""
        elapsed = time.monotonic() - self._start
        return elapsed, (self._done - self._before) / elapsed if elapsed > 0 else 0.0

    def _bar(self, cells: int) -> str:
        assert self._total is not None
        eighths = min(8 * cells * self._done // max(self._total, 1), 8 * cells)
        full, part = divmod(eighths, 8)
        encoding = (getattr(self._stream, "encoding", None) or "utf-8").lower().replace("-", "")
        if encoding not in ("utf8", "utf16", "utf32"):
            return ("#" * full).ljust(cells, ".")
        return ("█" * full + (_EIGHTHS[part] if full < cells else "")).ljust(cells)
