"""`rlx-jvp`: tangents of the outputs from tangents of arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.ops import rules
from rlx.passes.base import option
from rlx.transforms.base import DerivedGraph, Transform, arguments_of, float_outputs, names_of, outputs_of
from rlx.transforms.forward import Forward


@dataclass(frozen=True)
class Jvp(Transform, name="rlx-jvp"):
    """Add the directional derivative of every output to the outputs (forward mode).

    For each argument in `tangents` there is a new input `tangent_<name>`, and for each floating-point output a new
    output `tangent_<output>`.
    """

    tangents: tuple[str, ...] = option((), "the arguments to differentiate with respect to; all parameters when empty")

    def apply(self, graph: Graph) -> Graph:
        float_outputs(graph, self.name)
        derived = DerivedGraph.of(graph)
        engine = Forward(derived.graph)
        for argument in arguments_of(graph, self.tangents, self.name):
            tangent = derived.input(f"tangent_{argument.name}", argument.shape, argument.sharding)
            engine.seed(derived.arguments[argument.name], tangent)
        with derived.graph.scratchpad():
            results = engine.run(derived.block, derived.scope())
            tangents = [
                (f"tangent_{name}", rules.or_zeros(derived.graph, engine.tangent(r), r.shape))
                for name, r in outputs_of(graph, results)
                if r.dtype.is_inexact
            ]
        return derived.finish([*outputs_of(graph, results), *tangents], results)


@with_call_errors
def jvp(graph: Any, tangents: Any = ()) -> Any:
    """Return a graph with the directional derivatives of the outputs of another: forward mode.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        tangents: Names of the arguments to differentiate with respect to; the others are constant. All parameters when
            empty.

    Returns:
        A graph with new inputs `tangent_<name>`. Its outputs are those of the graph, then `tangent_<output>` for each
        floating-point or complex output.

    Raises:
        Error: An argument does not exist or is not floating-point, no output is floating-point, or an op has no rule.
    """
    return Jvp(tangents=names_of(tangents, "tangents"))(graph)
