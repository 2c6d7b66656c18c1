"""`rlx-to-c`: lowering of rlx ops to C, as text in the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import replace_body
from rlx.support.errors import CompileError
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.rules import RULES
from rlx.targets.lowering.table import empty_module


@dataclass(frozen=True)
class ToC(Pass, name="rlx-to-c"):
    """Lower rlx ops to C99, which the module holds as `emitc.verbatim` in an `emitc.file` for each file.

    Every op must have a lowering rule: run rlx-lower-blocks and rlx-decompose{for=rlx-to-c} first.
    """

    ram: int | None = option(None, "the bytes that states and arena may have (default: any number)", least=0)
    flash: int | None = option(None, "the bytes that constants may have (default: any number)", least=0)

    made_with: str = option("", "the options of the compilation, which the header has (default: none)")

    @classmethod
    def rules(cls) -> Mapping[str, Callable[..., Any]]:
        return RULES

    def run(self, module: mlir.Module) -> None:
        replace_body(module, self.lowered(Graph.from_module(module))[0])

    def lowered(self, graph: Graph) -> tuple[mlir.Module, CSource]:
        """Return a new module with the files of a graph, and the program that they hold. The graph is not changed.

        Raises:
            UnsupportedError: The graph has symbols, or something that C cannot say.
            CompileError: It needs more memory than it may have.
        """
        source = CSource(graph, self.made_with)
        _check_size(source, self.ram, self.flash)
        with mlir.entered():
            ir, emitc = mlir.ir, mlir.dialect("emitc")
            lowered = empty_module(graph.module)
            with ir.InsertionPoint(lowered.body), ir.Location.unknown():
                for name, text in files_of(source).items():
                    file = emitc.FileOp(ir.StringAttr.get(name))
                    with ir.InsertionPoint(file.regions[0].blocks.append()):
                        emitc.VerbatimOp(text, [])
        return lowered, source


def files_in(module: mlir.Module) -> dict[str, str]:
    """The text of each file that a lowered module holds, by name."""
    return {
        file.attributes["id"].value: file.regions[0].blocks[0].operations[0].attributes["value"].value
        for file in module.body.operations
    }


def _check_size(source: CSource, ram: int | None, flash: int | None) -> None:
    """Check that a program fits into memory.

    Raises:
        CompileError: It does not; the message gives the excess.
    """
    needs = source.arena_size + source.state_bytes
    if ram is not None and needs > ram:
        plan = source.memory.plan
        busiest = int(np.argmax(plan.live_bytes()))
        raise CompileError(
            f"'{source.graph.name}' needs {needs} bytes of RAM (arena {source.arena_size}, states {source.state_bytes}), "
            f"which is {needs - ram} more than the {ram} there are",
            hint=f"most is in use at step {busiest}, {plan.steps[busiest]}: `rlx inspect FILE --memory` with the same "
            "--target shows all; "
            "smaller images, fewer channels or a larger part",
        )
    if flash is not None and source.constant_bytes > flash:
        raise CompileError(
            f"'{source.graph.name}' has {source.constant_bytes} bytes of constants, which is "
            f"{source.constant_bytes - flash} more than the {flash} bytes of flash there are",
            hint="weights of 4 or 2 bits take a half or a quarter of those of 8; or a larger part",
        )
