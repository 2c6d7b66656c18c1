"""`MemoryPlanner`, the protocol of back ends that plan the memory of their programs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rlx.ir.graph.graph import Graph
from rlx.plan import MemoryPlan


@runtime_checkable
class MemoryPlanner(Protocol):
    """The part of a back end that plans memory itself. Most back ends leave it to their compilers."""

    def plan_memory(self, graph: Graph) -> MemoryPlan:
        """The plan that the program of a graph uses. The limits of the target's memory are not checked.

        Args:
            graph: LIR for the target, without symbols.

        Raises:
            UnsupportedError: The program cannot be expressed.
        """
        ...
