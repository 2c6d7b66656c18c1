"""`rlx-jacrev`: dense derivatives by reverse mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.passes.base import option
from rlx.transforms import jacobian
from rlx.transforms.base import Transform, names_of


@dataclass(frozen=True)
class Jacrev(Transform, name="rlx-jacrev"):
    """Compute the Jacobian of the outputs with respect to arguments by reverse mode, for few output elements.

    The outputs are `jacobian_<output>_<name>`, with the dimensions of the output, then those of the argument.
    """

    wrt: tuple[str, ...] = option((), "the arguments to differentiate with respect to; all parameters when empty")

    def apply(self, graph: Graph) -> Graph:
        return jacobian.reverse(graph, self.wrt, self.name)


@with_call_errors
def jacrev(graph: Any, wrt: Any = ()) -> Any:
    """Return a graph that computes the Jacobian of outputs with respect to arguments: reverse mode, for few outputs.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: Names of the arguments to differentiate with respect to; all parameters when empty.

    Returns:
        A graph with the same arguments and an output `jacobian_<output>_<name>` of shape `[*output, *argument]` for
        each floating-point output and each name.

    Raises:
        Error: An argument does not exist, is not real floating-point, or an op has no rule.
    """
    return Jacrev(wrt=names_of(wrt, "wrt"))(graph)
