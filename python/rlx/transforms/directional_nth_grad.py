"""`rlx-directional-nth-grad`: the nth derivative along directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.ops import rules
from rlx.passes.base import option
from rlx.transforms.base import DerivedGraph, Transform, clean_up, float_outputs, names_of, outputs_of
from rlx.transforms.forward import Forward
from rlx.transforms.nth_order_grad import one_argument


@dataclass(frozen=True)
class DirectionalNthGrad(Transform, name="rlx-directional-nth-grad"):
    """Compute the nth derivative of the outputs along n directions: forward mode, applied n times.

    There is a new input `dir_<level>` for each level from 0, shaped like the argument. The outputs are
    `dir<order>_<output>`.
    """

    wrt: tuple[str, ...] = option((), "the argument; when empty, the only parameter")
    order: int = option(2, "the order of the derivative", least=0)

    def apply(self, graph: Graph) -> Graph:
        name = one_argument(graph, self.wrt, self.order, self.name)
        float_outputs(graph, self.name)
        for level in range(self.order):
            graph = clean_up(self._once(graph, name, f"dir_{level}"))
        derived = DerivedGraph.of(graph)
        results = derived.graph_results()
        named = [(f"dir{self.order}_{n}" if self.order else n, t) for n, t in outputs_of(graph, results)]
        return derived.finish(named, results)

    def _once(self, graph: Graph, name: str, direction: str) -> Graph:
        derived = DerivedGraph.of(graph)
        argument = derived.arguments[name]
        engine = Forward(derived.graph)
        engine.seed(argument, derived.input(direction, argument.shape))
        with derived.graph.scratchpad():
            results = engine.run(derived.block, derived.scope())
            tangents = [
                (n, rules.or_zeros(derived.graph, engine.tangent(r), r.shape))
                for n, r in outputs_of(graph, results)
                if r.dtype.is_inexact
            ]
        return derived.finish(tangents)


@with_call_errors
def directional_nth_grad(graph: Any, wrt: Any, order: int) -> Any:
    """Return a graph that computes the nth derivative of the outputs along n directions.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: The name of the argument (or a list with this name).
        order: The order of the derivative.

    Returns:
        A graph with new inputs `dir_0` to `dir_<order-1>`, shaped like the argument, and an output
        `dir<order>_<output>` for each floating-point output: `D^n f(x)[dir_0, dir_1, …]`.

    Raises:
        Error: The argument does not exist or is not floating-point, the order is negative, or an op has no rule.
    """
    return DirectionalNthGrad(wrt=names_of(wrt, "wrt"), order=order)(graph)
