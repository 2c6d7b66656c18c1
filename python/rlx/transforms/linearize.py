"""Linearisation: a derivative split into a part that depends on the point and a linear function of the tangents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.blocks.graph_module import GraphModule
from rlx.ir.calls import Answered, with_call_errors
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.op import opview
from rlx.passes.rewrite import decompose
from rlx.transforms.base import DerivedGraph, arguments_of, clean_up, names_of, tensor_graph
from rlx.transforms.jvp import Jvp
from rlx.transforms.scope import ValueScope, captures, copy, ops_of


@dataclass(frozen=True)
class Linearized(Answered):
    """Two graphs: one to run once, and one to run for each tangent.

    Attributes:
        primal: Takes the arguments of the graph. Returns its outputs, then `residual_<i>`, the values that the linear
            part needs.
        linear: Takes the residuals and `tangent_<name>`. Returns `tangent_<output>`, linear in the tangents.
        residuals: Names of the residuals.
    """

    primal: Any
    linear: Any
    residuals: tuple[str, ...]


@with_call_errors
def linearize(graph: Any, wrt: Any = ()) -> Linearized:
    """Split a derivative into a graph that depends on the point, and a graph that is linear in the tangents.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: Names of the arguments to differentiate with respect to; all parameters when empty.

    Raises:
        Error: As for `jvp`.
    """
    source = tensor_graph(graph)
    names = tuple(a.name for a in arguments_of(source, names_of(wrt, "wrt"), "linearize"))
    with_tangents = clean_up(Jvp(tangents=names).apply(source))
    _decompose_mixed(with_tangents, len(source.arguments))
    with_tangents = clean_up(with_tangents)
    primal, linear, residuals = _split(source, with_tangents)
    parts = [clean_up(g) for g in (primal, linear)]
    for part in parts:
        part.verify()
    if isinstance(graph, GraphModule):
        return Linearized(GraphModule(parts[0]), GraphModule(parts[1]), residuals)
    return Linearized(parts[0], parts[1], residuals)


def _decompose_mixed(with_tangents: Graph, count: int) -> None:
    """Decompose ops that depend on a tangent but are not linear in it alone, such as `activation_backward`."""
    block = with_tangents.function.entry_block
    while True:
        tangent_values, mixed = set(list(block.arguments)[count:]), list[mlir.Operation]()
        for op in ops_of(block):
            if any(v in tangent_values for v in op.operands):
                tangent_values.update(op.results)
                card = opview.card_of(op)
                if card.composite and not card.linear and not len(op.regions):
                    mixed.append(op)
        if not mixed:
            return
        for op in mixed:
            decompose(op)


def _split(source: Graph, with_tangents: Graph) -> tuple[Graph, Graph, tuple[str, ...]]:
    """Return the graph of ops that do not depend on a tangent, the graph of the others, and the names of the residuals."""
    primal = DerivedGraph.of(source)
    linear = Graph(f"{source.name_symbol}_linear", mesh=source.mesh)
    block = with_tangents.function.entry_block
    count = len(source.arguments)
    primal_arguments, tangents = list(block.arguments)[:count], list(block.arguments)[count:]
    scope, linear_scope = ValueScope(primal.graph), ValueScope(linear)
    scope.bind(primal_arguments, list(primal.arguments.values()))
    tangent_arguments = [
        linear.add_argument(Argument(a.name, "input", a.shape, sharding=a.sharding))
        for a in with_tangents.arguments[count:]
    ]
    linear_scope.bind(tangents, tangent_arguments)
    tangent_values, residuals = set(tangents), dict[mlir.Value, tuple[str, Tensor]]()

    def in_linear(value: mlir.Value) -> Tensor:
        """Return the tensor for a value in the linear graph: a residual if the value does not depend on a tangent."""
        if value not in tangent_values and value not in residuals:
            primal_tensor = scope[value]
            name = f"residual_{len(residuals)}"
            residuals[value] = (name, primal_tensor)
            linear_scope[value] = linear.add_argument(Argument(name, "input", primal_tensor.shape))
        return linear_scope[value]

    for op in ops_of(block):
        used = [*op.operands, *(captures(op) if len(op.regions) else ())]
        if not any(v in tangent_values for v in used):
            scope.bind(op.results, copy(primal.graph, op, [scope[v] for v in op.operands], scope))
            continue
        for value in used:
            in_linear(value)
        tangent_values.update(op.results)
        linear_scope.bind(op.results, copy(linear, op, [linear_scope[v] for v in op.operands], linear_scope))
    returned = opview.yielded(block)
    outputs = list(zip(with_tangents.results, returned, strict=True))
    tangent_outputs = [(o.name, in_linear(v)) for o, v in outputs[len(source.outputs) :] if o.updates is None]
    linear.set_outputs(dict(tangent_outputs))
    plain = [(o.name, scope[v]) for o, v in outputs[: len(source.outputs)]]
    primal.finish([*plain, *residuals.values()])
    return primal.graph, linear, tuple(name for name, _ in residuals.values())
