"""Instrument that checks that passes do not change results: it evaluates a module before and after each pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlx import mlir
from rlx.passes.checking.numerics import Comparison
from rlx.passes.pipeline import PipelineStep
from rlx.passes.runner import Instrument, clone_module
from rlx.support.errors import PassError
from rlx.support.printable import printable


def _print_note(text: str) -> None:
    print(f"note: check-numerics: {printable(text)}", file=sys.stderr)


class CheckNumerics(Instrument):
    """Raises an error at the first pass that changes a result, or after which a function cannot be evaluated.

    Functions with ops of other dialects are not checked, nor are passes that change results intentionally; a note
    reports this.

    Args:
        seed: The seed of the inputs: floats in [-2, 2], integers in the range that they index, small sizes of symbols.
        note: Called with a text for each unchecked item; by default it is printed to standard error.
        comparison: The comparison of results; `seed` and `note` override its own.
    """

    def __init__(self, seed: int = 0, note: Callable[[str], None] | None = None, comparison: Comparison | None = None):
        self._note = note or _print_note
        self.comparison = replace(comparison or Comparison(), seed=seed, note=self._note_once)
        self._noted: set[str] = set()
        self._copy: Any = None

    def before(self, step: PipelineStep, module: mlir.Module) -> None:
        self._copy = clone_module(module)

    def after(self, step: PipelineStep, module: mlir.Module) -> None:
        if not step.preserves_results:
            self._note_once(f"{step.name} changes results on purpose")
            return
        said = self.comparison.difference(self._copy, module)
        self._copy = None
        if said:
            given = "arrays given, others by " if self.comparison.given else ""
            raise PassError(f"check-numerics: {step.name} {said} ({given}seed {self.comparison.seed})")

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)
