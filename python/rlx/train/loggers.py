"""Callbacks of `fit` that write losses and metrics to files."""

from __future__ import annotations

import csv
import os
from numbers import Real
from typing import Any

from rlx.ir.calls import Answered
from rlx.support.errors import Error
from rlx.support.files import file_name, replacing
from rlx.support.packages import import_package
from rlx.train.schedules import check_count


def scalars(entry: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of an entry without its step."""
    return {n: float(v) for n, v in entry.items() if n != "step" and isinstance(v, Real)}


class Logger(Answered):
    """A callback that `fit` closes at its end. It can be used again."""

    def close(self) -> None:
        """Write buffered entries."""


class CSVLogger(Logger):
    """Writes one line for each entry of the history: `step,loss,…,val_loss,…`.

    A number that only some entries have, such as the loss of a validation, is a column of its own, which is empty
    elsewhere. An existing file is extended; columns that it lacks are added.

    Args:
        path: The file.
        every: Every n-th step is written, and each step with a validation.
        columns: Names of columns to begin with, so that a new file has them from its first line on.
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int = 1, columns: tuple[str, ...] = ()):
        self.path = file_name(path)
        self._every = check_count("every", every)
        self._more = tuple(columns)
        self._columns: list[str] | None = None

    def __call__(self, entry: dict[str, Any]) -> None:
        """Write an entry.

        Raises:
            Error: The file cannot be written, or is not a log.
        """
        numbers = scalars(entry)
        is_validation = any(name.startswith("val_") for name in numbers)
        # The entry of an epoch is written whatever its step.
        if entry["step"] % self._every and not is_validation and "epoch" not in entry:
            return
        if self._columns is None:
            self._columns = self._begun(["step", *dict.fromkeys((*numbers, *self._more))])
        if new := [name for name in numbers if name not in self._columns]:
            self._columns = self._extended(self._columns, new)
        self._write([[self._cell(entry, numbers, name) for name in self._columns]], "a")

    @staticmethod
    def _cell(entry: dict[str, Any], numbers: dict[str, float], name: str) -> Any:
        return entry[name] if name in ("step", "epoch") and name in entry else numbers.get(name, "")

    def _begun(self, columns: list[str]) -> list[str]:
        """Return the columns of the file. The file is created if it does not exist."""
        present = next(iter(self._read()), None)
        if present is None:
            self._write([columns], "w")
            return columns
        if present[:1] != ["step"]:
            raise Error(
                f"{self.path} is not a log of CSVLogger: its columns are {', '.join(present)[:200]}",
                hint="give another file",
            )
        return present

    def _extended(self, columns: list[str], new: list[str]) -> list[str]:
        """Write the file again with more columns. Return all of them."""
        _, *rows = self._read()
        columns = [*columns, *new]
        padded = [[*row, *[""] * (len(columns) - len(row))] for row in rows]
        with replacing(self.path) as temporary:
            self._write([columns, *padded], "w", str(temporary))
        return columns

    def _read(self) -> list[list[str]]:
        """Return the lines of the file; none if it does not exist."""
        try:
            with open(self.path, newline="", encoding="utf-8") as file:
                return list(csv.reader(file))
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError, csv.Error) as problem:
            raise Error(f"cannot read {self.path}: {getattr(problem, 'strerror', None) or problem}") from None

    def _write(self, rows: list[list[Any]], mode: str, path: str | None = None) -> None:
        # Python's csv writer does not quote a carriage return, but its reader treats it as the end of a line.
        has_return = any("\r" in cell for row in rows for cell in row if isinstance(cell, str))
        quoting = csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL
        try:
            with open(path or self.path, mode, newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n", quoting=quoting).writerows(rows)
        except OSError as problem:
            raise Error(f"cannot write {self.path}: {problem.strerror}") from None


class TensorBoardLogger(Logger):
    """Writes event files for TensorBoard: `tensorboard --logdir FOLDER`.

    It needs the package tensorboardX: `pip install 'rlx[tensorboard]'`.

    Args:
        folder: The folder of the run.
        every: Every n-th step is written, and each step with a validation.

    Raises:
        Error: The package is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str], *, every: int = 1):
        package = import_package("tensorboardX", "TensorBoardLogger")
        self._every = check_count("every", every)
        self._writer = package.SummaryWriter(file_name(folder))

    def __call__(self, entry: dict[str, Any]) -> None:
        """Write the numbers of an entry."""
        numbers = scalars(entry)
        is_due = entry["step"] % self._every == 0 or "epoch" in entry
        if is_due or any(name.startswith("val_") for name in numbers):
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Write buffered entries and close the file. Later entries go into a new file."""
        self._writer.close()
