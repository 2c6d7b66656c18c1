"""Dense derivatives, computed for a batch of directions that form a basis."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.dims.dim import product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.shape import Shape
from rlx.support.errors import PassError
from rlx.transforms.base import DerivedGraph, arguments_of, clean_up, float_outputs, outputs_of
from rlx.transforms.batching import Batching
from rlx.transforms.jvp import Jvp
from rlx.transforms.vjp import Vjp


def real_arguments(graph: Graph, names: Sequence[str], what: str) -> list[Argument]:
    """Return the arguments to differentiate with respect to.

    Raises:
        PassError: An argument or output is complex, for which dense derivatives are not defined here.
    """
    arguments = arguments_of(graph, names, what)
    for entry in (*arguments, *graph.outputs):
        if entry.shape.dtype.is_complex:
            raise PassError(f"{what}: '{entry.name}' is {entry.shape}; dense derivatives are for real numbers")
    return arguments


def identity(b: Builder, shape: Shape) -> Tensor:
    """Return the basis of a shape, `[elements, *dims]`: for each element, a tensor that is 1 there and 0 elsewhere."""
    count = product(shape.dims)
    rows = b.iota((count, count), axis=0, dtype="i32")
    columns = b.iota((count, count), axis=1, dtype="i32")
    return b.reshape(b.cast(rows == columns, shape.dtype), (count, *shape.dims))


def forward(graph: Graph, names: Sequence[str], what: str, prefix: str = "jacobian") -> Graph:
    """Return dense derivatives by forward mode: one direction for each element of an argument."""
    derived = DerivedGraph.of(graph)
    b, outputs = derived.graph, list[tuple[int, str, Tensor]]()
    float_results = float_outputs(graph, what)
    with b.scratchpad():
        for argument in real_arguments(graph, names, what):
            with_tangents = clean_up(Jvp(tangents=(argument.name,)).apply(graph))
            basis = identity(b, argument.shape)
            results = _batched(derived, with_tangents, basis, argument.shape)
            first = len(graph.outputs)
            for i, (_, output) in enumerate(float_results):
                tangents = results[first + i]
                columns = b.transpose(tangents, (*range(1, tangents.rank), 0))
                dense = b.reshape(columns, (*output.shape.dims, *argument.shape.dims))
                outputs.append((i, f"{prefix}_{output.name}_{argument.name}", dense))
    return derived.finish([(name, dense) for _, name, dense in sorted(outputs, key=lambda o: o[0])])


def reverse(graph: Graph, names: Sequence[str], what: str) -> Graph:
    """Return dense derivatives by reverse mode: one cotangent for each element of an output."""
    arguments = real_arguments(graph, names, what)
    derived = DerivedGraph.of(graph)
    b, outputs = derived.graph, list[tuple[str, Tensor]]()
    with b.scratchpad():
        for _, output in float_outputs(graph, what):
            single = DerivedGraph.of(graph)
            results = single.graph_results()
            one_output = single.finish([(n, t) for n, t in outputs_of(graph, results) if n == output.name])
            gradient = clean_up(Vjp(wrt=tuple(a.name for a in arguments)).apply(one_output))
            batched_results = _batched(derived, gradient, identity(b, output.shape), output.shape)
            for argument, rows in zip(arguments, batched_results[1:], strict=True):
                dense = b.reshape(rows, (*output.shape.dims, *argument.shape.dims))
                outputs.append((f"jacobian_{output.name}_{argument.name}", dense))
    return derived.finish(outputs)


def _batched(derived: DerivedGraph, graph: Graph, basis: Tensor, shape: Shape) -> list[Tensor]:
    """Return the batched results of a graph for a batch of directions, its last argument."""
    b = derived.graph
    engine = Batching(b, product(shape.dims))
    engine.mark([basis])
    inner = DerivedGraph(graph, b, derived.arguments)
    scope = inner.scope(basis)
    return [engine.full(r) for r in engine.run(inner.block, scope)]
