"""`rlx-hessian`: dense second derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.passes.base import option
from rlx.transforms import jacobian
from rlx.transforms.base import Transform, arguments_of, clean_up, names_of, with_outputs
from rlx.transforms.grad import Grad


@dataclass(frozen=True)
class Hessian(Transform, name="rlx-hessian"):
    """Compute all second derivatives of a scalar output with respect to arguments (forward mode over reverse mode).

    The outputs are `hessian_<name>_<other>` for each pair of arguments, with the dimensions of the first, then the second.
    """

    wrt: tuple[str, ...] = option((), "the arguments to differentiate with respect to; all parameters when empty")
    loss: str | None = option(None, "the name of the output that is the loss; by default the first")

    def apply(self, graph: Graph) -> Graph:
        names = tuple(a.name for a in arguments_of(graph, self.wrt, self.name))
        gradient = clean_up(Grad(wrt=names, loss=self.loss).apply(graph))
        dense = jacobian.forward(gradient, names, self.name)
        pairs = [f"hessian_{first}_{second}" for first in names for second in names]
        return with_outputs(dense, {name: i for i, name in enumerate(pairs)})


@with_call_errors
def hessian(graph: Any, wrt: Any = (), *, loss: str | None = None) -> Any:
    """Return a graph that computes the dense second derivatives of a scalar output.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: Names of the arguments to differentiate with respect to; all parameters when empty.
        loss: The name of the output to differentiate; by default the first.

    Returns:
        A graph with the same arguments and an output `hessian_<name>_<other>` of shape `[*name, *other]` for each pair
        of names.

    Raises:
        Error: As for `grad`, or an argument is complex.
    """
    return Hessian(wrt=names_of(wrt, "wrt"), loss=loss)(graph)
