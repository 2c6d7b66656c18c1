"""Export of graphs: text, copies, pickles, and functions of other libraries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlx.ir.calls import Answered
from rlx.ir.graph.pickled import Copied
from rlx.parts import JAX
from rlx.support.printable import printable
from rlx.support.short import join_names

if TYPE_CHECKING:
    from rlx.runtime.jax.exported import JaxGraph


class Exports(Copied, Answered):
    """Mixin of the export methods of a graph."""

    def __str__(self: Any) -> str:
        return self.text()

    def __repr__(self: Any) -> str:
        arguments = join_names(f"{a.name}: {a.shape}" for a in self.arguments)
        outputs = join_names(f"{o.name}: {o.shape}" for o in self.outputs)
        return printable(f"<Graph {self.name}({arguments}) -> {outputs or 'nothing'}>", keep="")

    def text(self: Any, *, locations: bool = False) -> str:
        """Return the graph as MLIR text, which `rlx.parse` and all commands read.

        Args:
            locations: Whether to write the source lines and scopes of ops as well, so that reports about the text refer
                to them.
        """
        from rlx.ir.text.modules import print_op

        return print_op(self.module, debug_info=locations)

    def to_jax(self: Any) -> JaxGraph:
        """Return the graph, in its current state, as a pure function that JAX can call, compile, differentiate and batch.

        Inputs are passed in order or by name, parameters by `params={name: array}`. Missing parameters take the values
        that came with the graph. The result is a tuple of the outputs.

        Raises:
            StageError: The graph is at LIR.
            Error: JAX is not installed, the graph has no outputs, or an output has 64 bits and 64-bit dtypes are
                disabled in JAX.
        """
        return importlib.import_module(JAX).to_jax(self)
