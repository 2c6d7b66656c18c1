"""Instruments, which observe passes while they run: printing the IR, statistics, timing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Collection
from typing import TextIO

from rlx import mlir
from rlx.ir.text.modules import print_op
from rlx.passes.pattern import RewriteCounts, count_rewrites
from rlx.passes.pipeline import PipelineStep
from rlx.passes.runner import Instrument


class PrintIR(Instrument):
    """Print the module before or after passes.

    Each print begins with a line `// -----// IR Dump After Simplify (rlx-simplify) //----- //`.

    Args:
        before: Names of passes before which to print.
        after: Names of passes after which to print.
        before_all: Print before every pass.
        after_all: Print after every pass.
        after_change: Print after every pass that changed something.
        after_failure: Print after a pass that failed.
        stream: The stream to print to; standard error by default.
        debug_info: Print locations as well.
        generic: Print all ops in the generic form.
    """

    def __init__(
        self,
        *,
        before: Collection[str] = (),
        after: Collection[str] = (),
        before_all: bool = False,
        after_all: bool = False,
        after_change: bool = False,
        after_failure: bool = False,
        stream: TextIO | None = None,
        debug_info: bool = False,
        generic: bool = False,
    ):
        self._before, self._after = frozenset(before), frozenset(after)
        self._before_all, self._after_all = before_all, after_all
        self._after_change, self._after_failure = after_change, after_failure
        self._stream = stream
        self._debug_info = debug_info
        self._generic = generic
        self._text = ""

    def before(self, step: PipelineStep, module: mlir.Module) -> None:
        if self._after_change:
            self._text = self._asm(module)
        if self._before_all or step.name in self._before:
            self._print(f"IR Dump Before {step.title} ({step.name})", module)

    def after(self, step: PipelineStep, module: mlir.Module) -> None:
        if self._after_change:
            changed = self._asm(module) != self._text
            to_print = changed and (step.name in self._after or not self._after)
        else:
            to_print = self._after_all or step.name in self._after
        if to_print:
            self._print(f"IR Dump After {step.title} ({step.name})", module)

    def failed(self, step: PipelineStep, module: mlir.Module) -> None:
        if self._after_failure or self._after_all:
            self._print(f"IR Dump After {step.title} Failed ({step.name})", module)

    def _asm(self, module: mlir.Module) -> str:
        return print_op(module, generic=self._generic, debug_info=self._debug_info)

    def _print(self, title: str, module: mlir.Module) -> None:
        stream = self._stream or sys.stderr
        stream.write(f"// -----// {title} //----- //\n{self._asm(module)}\n\n")
        stream.flush()


class Statistics(Instrument):
    """Counts the applications of each pattern in each pass; `str()` is a table. It may observe several runs."""

    def __init__(self) -> None:
        self.counts: dict[PipelineStep, RewriteCounts] = {}
        self._counting = contextlib.ExitStack()
        self._current: RewriteCounts = RewriteCounts()

    def before(self, step: PipelineStep, module: mlir.Module) -> None:
        self._current = self._counting.enter_context(count_rewrites())

    def after(self, step: PipelineStep, module: mlir.Module) -> None:
        self._leave(step)

    def failed(self, step: PipelineStep, module: mlir.Module) -> None:
        self._leave(step)

    def _leave(self, step: PipelineStep) -> None:
        self._counting.close()
        if self._current.visits:
            self.counts[step] = self._current

    def __str__(self) -> str:
        lines = ["===-- Rewrites by pattern --==="]
        for step, counts in self.counts.items():
            lines.append(f"{step.title} ({step.name}): {counts.rewrites.total()} rewrites, {counts.erased} dead ops")
            lines += [f"  {count:6d} {name}" for name, count in counts.rewrites.most_common()]
        return "\n".join([*lines, ""])


class Timing(Instrument):
    """Wall time of every pass and of the verifier; `str()` is a table like MLIR's. It may observe several runs."""

    def __init__(self) -> None:
        self._start = self._mark = time.perf_counter()
        self._total: float | None = None
        self._seconds: dict[object, float] = {}

    def record(self, subject: PipelineStep | str, seconds: float) -> None:
        """Add time to a row of the table: for a pass, or for another task by its name, such as parsing."""
        self._seconds[subject] = self._seconds.get(subject, 0.0) + seconds

    @property
    def seconds(self) -> list[tuple[str, float]]:
        """The name and the seconds of each row."""
        return [
            (f"{subject.title} ({subject.name})" if isinstance(subject, PipelineStep) else str(subject), seconds)
            for subject, seconds in self._seconds.items()
        ]

    def before(self, step: PipelineStep, module: mlir.Module) -> None:
        self._mark = time.perf_counter()

    def verified(self, step: PipelineStep, module: mlir.Module) -> None:
        now = time.perf_counter()
        self.record(step, now - self._mark)
        self._mark = now

    def after(self, step: PipelineStep, module: mlir.Module) -> None:
        self.record("(V) Verifier", time.perf_counter() - self._mark)

    def stop(self) -> None:
        """Record the total time. Later work is not included."""
        self._total = time.perf_counter() - self._start

    def __str__(self) -> str:
        total = self._total if self._total is not None else time.perf_counter() - self._start
        recorded = sum(self._seconds.values())
        rows = [*self.seconds, ("Rest", max(0.0, total - recorded)), ("Total", total)]
        rule = f"==={'-' * 73}==="
        lines = [rule, "... Execution time report ...".center(79).rstrip(), rule]
        lines += [f"  Total Execution Time: {total:.4f} seconds", "", "  ----Wall Time----  ----Name----"]
        for name, seconds in rows:
            percent = 100 * seconds / total if total else 0.0
            lines.append(f"  {seconds:8.4f} ({percent:5.1f}%)  {name}")
        return "\n".join(lines) + "\n"
