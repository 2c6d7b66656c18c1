"""A function as what it does at a point, and the linear function that it is near it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.blocks.graph_module import GraphModule
from rlx.ir import opview
from rlx.ir.builder import Tensor
from rlx.ir.graph import Graph
from rlx.ir.signature import Argument
from rlx.passes.rewrite import decompose
from rlx.transforms.base import Derived, arguments_of, cleaned, names_of, tensor_graph
from rlx.transforms.jvp import Jvp
from rlx.transforms.scope import Scope, captures, copy, ops_of


@dataclass(frozen=True)
class Linearized:
    """Two graphs: one to run once, one to run for each tangent.

    Attributes:
        primal: Takes what the graph takes; gives its outputs, then `residual_<i>`: what the linear part needs.
        linear: Takes the residuals and `tangent_<name>`; gives `tangent_<output>`, linear in the tangents.
        residuals: Names of the residuals.
    """

    primal: Any
    linear: Any
    residuals: tuple[str, ...]


def linearize(graph: Any, wrt: Any = ()) -> Linearized:
    """Split a derivative: what depends on the point, and what is linear in the tangents.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        wrt: Names of the arguments that move; all parameters when empty.

    Raises:
        Error: As `jvp`.
    """
    source = tensor_graph(graph)
    names = tuple(a.name for a in arguments_of(source, names_of(wrt, "wrt"), "linearize"))
    moved = cleaned(Jvp(tangents=names).apply(source))
    _open_up(moved, len(source.arguments))
    moved = cleaned(moved)
    primal, linear, residuals = _split(source, moved)
    made = [cleaned(g) for g in (primal, linear)]
    for part in made:
        part.verify()
    if isinstance(graph, GraphModule):
        return Linearized(GraphModule(made[0]), GraphModule(made[1]), residuals)
    return Linearized(made[0], made[1], residuals)


def _open_up(moved: Graph, count: int) -> None:
    """Decompose what is a function of the point and of a tangent at once, such as `activation_backward`."""
    block = moved.function.entry_block
    while True:
        hanging, mixed = set(list(block.arguments)[count:]), list[mlir.Operation]()
        for op in ops_of(block):
            if any(v in hanging for v in op.operands):
                hanging.update(op.results)
                card = opview.card_of(op)
                if card.composite and not card.linear and not len(op.regions):
                    mixed.append(op)
        if not mixed:
            return
        for op in mixed:
            decompose(op)


def _split(source: Graph, moved: Graph) -> tuple[Graph, Graph, tuple[str, ...]]:
    """The ops that depend on a tangent, and the others."""
    primal = Derived.of(source)
    linear = Graph(f"{source.name_symbol}_linear")
    block = moved.function.entry_block
    count = len(source.arguments)
    given, tangents = list(block.arguments)[:count], list(block.arguments)[count:]
    scope, linear_scope = Scope(primal.graph), Scope(linear)
    scope.bind(given, list(primal.arguments.values()))
    entering = [linear.add_argument(Argument(a.name, "input", a.shape)) for a in moved.arguments[count:]]
    linear_scope.bind(tangents, entering)
    hanging, residuals = set(tangents), dict[mlir.Value, tuple[str, Tensor]]()

    def inside(value: mlir.Value) -> Tensor:
        """What stands for a value in the linear graph: a residual where it does not depend on a tangent."""
        if value not in hanging and value not in residuals:
            outside = scope[value]
            name = f"residual_{len(residuals)}"
            residuals[value] = (name, outside)
            linear_scope[value] = linear.add_argument(Argument(name, "input", outside.shape))
        return linear_scope[value]

    for op in ops_of(block):
        read = [*op.operands, *(captures(op) if len(op.regions) else ())]
        if not any(v in hanging for v in read):
            scope.bind(op.results, copy(primal.graph, op, [scope[v] for v in op.operands], scope))
            continue
        for value in read:
            inside(value)
        hanging.update(op.results)
        linear_scope.bind(op.results, copy(linear, op, [linear_scope[v] for v in op.operands], linear_scope))
    returned = opview.yielded(block)
    outputs = list(zip(moved.results, returned, strict=True))
    tangent_outputs = [(o.name, inside(v)) for o, v in outputs[len(source.outputs) :] if o.updates is None]
    linear.set_outputs(dict(tangent_outputs))
    plain = [(o.name, scope[v]) for o, v in outputs[: len(source.outputs)]]
    primal.finish([*plain, *residuals.values()])
    return primal.graph, linear, tuple(name for name, _ in residuals.values())
