"""History of a module before and after each pass; also as files if `RLX_IR_DUMP` names a folder."""

from __future__ import annotations

import itertools
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.graph.listing import GraphReport, inspect_graph
from rlx.ir.graph.listing_diff import ListingDiff, inspect_diff
from rlx.ir.text.modules import print_op
from rlx.passes.pipeline import PipelineStep
from rlx.passes.runner import Instrument
from rlx.support.errors import Error
from rlx.support.files import write_atomically

DUMP_VARIABLE = "RLX_IR_DUMP"
_LONGEST_NAME = 80


@dataclass(frozen=True)
class PassRecord:
    """One pass that ran.

    Attributes:
        name: Its name.
        text: The name with options, as in a pipeline.
        seconds: Its time, without the verifier.
        before: The listing of the function before the pass.
        after: The listing after the pass; the same object if the pass changed nothing.
    """

    name: str
    text: str
    seconds: float
    before: GraphReport
    after: GraphReport

    @property
    def changed(self) -> bool:
        """Whether the pass changed an op, or an attribute of the module."""
        return self.before is not self.after

    def diff(self) -> ListingDiff:
        """Return the changes made by the pass."""
        return inspect_diff(self.before, self.after)


class History(Instrument):
    """Stores the listing of one function before and after each pass.

    Args:
        function: The name of the function; None takes the first public one.

    Attributes:
        records: The passes that ran, in order.
    """

    def __init__(self, function: str | None = None):
        self.records: list[PassRecord] = []
        self._function = function
        self._started = self._seconds = 0.0
        self._text = ""
        self._listing: GraphReport

    def start(self, module: mlir.Module) -> None:
        self._text, self._listing = print_op(module), self._listed(module)

    def before(self, step: PipelineStep, module: mlir.Module) -> None:
        self._started = time.perf_counter()

    def verified(self, step: PipelineStep, module: mlir.Module) -> None:
        self._seconds = time.perf_counter() - self._started

    def after(self, step: PipelineStep, module: mlir.Module) -> None:
        before, text = self._listing, print_op(module)
        if text != self._text:
            self._text, self._listing = text, self._listed(module)
        self.records.append(PassRecord(step.name, step.text, self._seconds, before, self._listing))

    def _listed(self, module: mlir.Module) -> GraphReport:
        return inspect_graph(Graph.from_module(module, self._function))


class DumpIR(Instrument):
    """Writes the module as text into a folder: the given module, and the module after each pass that changed it.

    It may observe several runs in sequence.

    The files are named `00-given.mlir`, `04-rlx-fuse.mlir` …, after the number of the pass, and have locations.

    Args:
        folder: The parent of a new folder named after the module. If the folder exists, a number is added to the name.
        name: The module's name.

    Raises:
        Error: The folder cannot be created.
    """

    def __init__(self, folder: str, name: str):
        harmless = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[:_LONGEST_NAME].lstrip(".") or "module"
        self.folder = _new_folder(Path(folder), harmless)
        self._count = itertools.count(1)
        self._text = ""

    def start(self, module: mlir.Module) -> None:
        self._write(module, "00-given")

    def after(self, step: PipelineStep, module: mlir.Module) -> None:
        self._write(module, f"{next(self._count):02d}-{step.name}")

    def failed(self, step: PipelineStep, module: mlir.Module) -> None:
        self._write(module, f"{next(self._count):02d}-{step.name}-failed")

    def _write(self, module: mlir.Module, title: str) -> None:
        text = print_op(module, debug_info=True)
        if text != self._text:
            self._text = text
            write_atomically(self.folder / f"{title}.mlir", text.encode())


def dump_from_environment(name: str) -> list[Instrument]:
    """Return an instrument that writes files, if the variable `RLX_IR_DUMP` names a folder."""
    folder = os.environ.get(DUMP_VARIABLE, "")
    return [DumpIR(folder, name)] if folder else []


def _new_folder(parent: Path, name: str) -> Path:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as problem:
        raise Error(
            f"{DUMP_VARIABLE}={parent}: cannot make a folder there: {problem.strerror}",
            hint="give it a folder that can be written, or unset it",
        ) from None
    raise AssertionError
