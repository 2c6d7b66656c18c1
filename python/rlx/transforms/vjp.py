"""`rlx-vjp`: cotangents of arguments from cotangents of the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ops import rules
from rlx.passes.base import option
from rlx.transforms.base import (
    DerivedGraph,
    Transform,
    arguments_of,
    float_outputs,
    hoist_invariants,
    names_of,
    outputs_of,
)
from rlx.transforms.reverse import ReverseMode


@dataclass(frozen=True)
class Vjp(Transform, name="rlx-vjp"):
    """Add the cotangents of arguments to the outputs (reverse mode).

    For each floating-point output there is a new input `cotangent_<output>`, and for each argument in `wrt` a new
    output `grad_<name>`.
    """

    wrt: tuple[str, ...] = option((), "the arguments to differentiate with respect to; all parameters when empty")

    def apply(self, graph: Graph) -> Graph:
        graph = hoist_invariants(graph)
        float_results = float_outputs(graph, self.name)
        derived = DerivedGraph.of(graph)
        cotangents = [(i, derived.input(f"cotangent_{output.name}", output.shape)) for i, output in float_results]
        wrt = [derived.arguments[a.name] for a in arguments_of(graph, self.wrt, self.name)]
        with derived.graph.scratchpad():
            results, gradients = pulled_back(derived, wrt, dict(cotangents))
            named = gradients_of(derived, wrt, gradients)
        return derived.finish([*outputs_of(graph, results), *named], results)


def pulled_back(
    derived: DerivedGraph, wrt: Sequence[Tensor], cotangents: dict[int, Tensor]
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return the results of a graph, and the cotangents of some arguments.

    Args:
        derived: The new graph.
        wrt: Arguments of the new graph.
        cotangents: The cotangents of results, by position.
    """
    engine = ReverseMode(derived.graph)
    engine.choose(wrt)
    results = engine.run(derived.block, derived.scope())
    engine.pull(results, [cotangents.get(i) for i in range(len(results))])
    return results, [engine.cotangent(t) for t in wrt]


def gradients_of(
    derived: DerivedGraph, wrt: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> list[tuple[str, Tensor]]:
    """Return the outputs `grad_<name>`: zeros where there is no cotangent, and sharded like the argument."""
    b, shardings = derived.graph, {a.name: a.sharding for a in derived.source.arguments}
    named: list[tuple[str, Tensor]] = []
    for tensor, cotangent in zip(wrt, gradients, strict=True):
        gradient, sharding = rules.or_zeros(b, cotangent, tensor.shape), shardings[tensor.name]
        named.append((f"grad_{tensor.name}", gradient if sharding is None else b.shard(gradient, sharding)))
    return named


@with_call_errors
def vjp(graph: Any, wrt: Any = ()) -> Any:
    """Return a graph with the cotangents of arguments of another: reverse mode.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: Names of the arguments to differentiate with respect to; all parameters when empty.

    Returns:
        A graph with a new input `cotangent_<output>` for each floating-point or complex output. Its outputs are those
        of the graph, then `grad_<name>` for each name. For a complex argument, `grad_<name>` is the adjoint for the
        inner product `Re(sum(conj(a)·b))`, the conjugate of the gradient in JAX.

    Raises:
        Error: An argument does not exist or is not floating-point, or an op has no rule.
    """
    return Vjp(wrt=names_of(wrt, "wrt"))(graph)
