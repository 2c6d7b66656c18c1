"""`rlx-hvp`: Hessian-vector products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.passes.base import option
from rlx.transforms.base import Transform, arguments_of, clean_up, names_of, with_outputs
from rlx.transforms.grad import Grad
from rlx.transforms.jvp import Jvp


@dataclass(frozen=True)
class Hvp(Transform, name="rlx-hvp"):
    """Compute the loss, its gradient, and the Hessian times a direction (forward mode over reverse mode).

    For each argument in `wrt` there is a new input `tangent_<name>`. The outputs are the loss, `grad_<name>` for each,
    and `hvp_<name>` for each: the directional derivative of the gradient.
    """

    wrt: tuple[str, ...] = option((), "the arguments to differentiate with respect to; all parameters when empty")
    loss: str | None = option(None, "the name of the output that is the loss; by default the first")

    def apply(self, graph: Graph) -> Graph:
        names = tuple(a.name for a in arguments_of(graph, self.wrt, self.name))
        gradient = clean_up(Grad(wrt=names, with_loss=True, loss=self.loss).apply(graph))
        gradient = with_outputs(gradient, {o.name: i for i, o in enumerate(gradient.outputs[: 1 + len(names)])})
        with_tangents = Jvp(tangents=names).apply(gradient)
        outputs: dict[str, int] = {o.name: i for i, o in enumerate(gradient.outputs)}
        first = len(outputs) + 1  # after the tangent of the loss
        return with_outputs(with_tangents, outputs | {f"hvp_{name}": first + i for i, name in enumerate(names)})


@with_call_errors
def hvp(graph: Any, wrt: Any = (), *, loss: str | None = None) -> Any:
    """Return a graph that computes the loss, its gradient, and the product of its Hessian with a direction.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: Names of the arguments to differentiate with respect to; all parameters when empty.
        loss: The name of the output to differentiate; by default the first.

    Returns:
        A graph with new inputs `tangent_<name>`, whose outputs are the loss, `grad_<name>` for each name, then `hvp_<name>` for
        each name.

    Raises:
        Error: As for `grad`.
    """
    return Hvp(wrt=names_of(wrt, "wrt"), loss=loss)(graph)
