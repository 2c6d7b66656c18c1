"""The progress bar of `fit`, by the conventions of tqdm."""

from __future__ import annotations

import shutil
import sys
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

    On a terminal the line is rewritten, at most ten times a second, and fits its width. Elsewhere, plain lines are
    written: at the end, and every ten seconds.

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
        """Show the last step, and end the line."""
        if self._stream is not None and self._is_open:
            if self._is_terminal or not self._is_written:
                self._write()
            if self._is_terminal:
                self._put("\n")
        self._is_open = False

    def _write(self) -> None:
        self._shown, self._is_written = time.monotonic(), True
        if self._is_terminal:
            # A line that wraps could not be overwritten.
            self._put(f"\r{self.line(shutil.get_terminal_size().columns - 1)}\x1b[K")
        else:
            self._put(f"{self.line(None)}\n")

    def _put(self, text: str) -> None:
        assert self._stream is not None
        try:
            self._stream.write(text)
        except UnicodeEncodeError:  # a terminal without block characters
            self._stream.write(text.encode("ascii", "replace").decode())
        self._stream.flush()

    def line(self, width: int | None) -> str:
        """Return the line, at most `width` characters long; without a bar if `width` is None."""
        elapsed = time.monotonic() - self._start
        rate = (self._done - self._before) / elapsed if elapsed > 0 else 0.0
        title = f"{self._title}: " if self._title else ""
        numbers = "".join(f", {name}={value:.4g}" for name, value in self._numbers.items())
        if self._total is None:
            head, counts = title, f"{self._done}step [{clock(elapsed)}, {speed(rate)}{numbers}]"
            text = head + counts
        else:
            left = clock((self._total - self._done) / rate) if rate else "?"
            head = f"{title}{100 * self._done / max(self._total, 1):3.0f}%|"
            counts = f"| {self._done}/{self._total} [{clock(elapsed)}<{left}, {speed(rate)}{numbers}]"
            cells = 0 if width is None else width - len(head) - len(counts)
            if width is None:
                counts = counts.replace(f"<{left}", "") if self._done == self._total else counts
                return printable(f"{title}{counts.removeprefix('| ')}", keep="")
            text = head + self._bar(cells) + counts if cells >= _FEWEST_CELLS else head + counts.removeprefix("|")
        text = printable(text, keep="")
        return text if width is None else text[:width]

    def _bar(self, cells: int) -> str:
        assert self._total is not None
        eighths = min(8 * cells * self._done // max(self._total, 1), 8 * cells)
        full, part = divmod(eighths, 8)
        encoding = (getattr(self._stream, "encoding", None) or "utf-8").lower().replace("-", "")
        if encoding not in ("utf8", "utf16", "utf32"):
            return ("#" * full).ljust(cells, ".")
        return ("█" * full + (_EIGHTHS[part] if full < cells else "")).ljust(cells)
