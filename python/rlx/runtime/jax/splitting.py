"""A graph in reverse mode in two parts: what JAX computes going forward, and what it computes coming back.

JAX calls the two at different times, so what the second part needs of the first has to be handed over: the residuals.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.transforms.base import cleaned
from rlx.transforms.scope import ValueScope, captures, copy, ops_of


@dataclass(frozen=True)
class SplitProgram:
    """The two parts.

    Attributes:
        forward: Of the arguments; gives the results, then the residuals.
        backward: Of the arguments, the cotangents and the residuals; gives the cotangents of arguments.
    """

    forward: Graph
    backward: Graph


def split(graph: Graph, num_arguments: int, num_results: int) -> SplitProgram:
    """The two parts of a graph.

    Arguments are on both sides. So is what depends on no argument, such as a mask: it is computed twice, not handed over.

    Args:
        graph: A graph whose arguments are inputs: of a function, then cotangents of its results. It gives the results, then
            cotangents of arguments.
        num_arguments: How many arguments the function has.
        num_results: How many results it has.
    """
    block = graph.function.entry_block
    arguments = list(block.arguments)
    forward, backward = (Graph(f"{graph.name_symbol}_{part}", mesh=graph.mesh) for part in ("forward", "backward"))
    scopes = ValueScope(forward), ValueScope(backward)
    for scope, part, count in zip(scopes, (forward, backward), (num_arguments, len(arguments)), strict=True):
        scope.bind(arguments[:count], [part.input(a.name, a.shape) for a in graph.arguments[:count]])
    late = set(arguments[num_arguments:])  # what depends on a cotangent
    there = set(arguments)  # what the second part has
    residuals: list[Tensor] = []

    def hand_over(value: mlir.Value) -> None:
        if value not in there:
            residuals.append(scopes[0][value])
            scopes[1][value] = backward.input(backward.new_name("residual"), residuals[-1].shape)
            there.add(value)

    constant: set[mlir.Value] = set()
    for op in ops_of(block):
        used = [*op.operands, *(captures(op) if len(op.regions) else ())]
        is_late, is_constant = any(v in late for v in used), all(v in constant for v in used)
        if is_late:
            for value in used:
                hand_over(value)
            late.update(op.results)
        if is_constant:
            constant.update(op.results)
        if not is_late:
            scopes[0].bind(op.results, copy(forward, op, [scopes[0][v] for v in op.operands], scopes[0]))
        if is_late or is_constant:
            scopes[1].bind(op.results, copy(backward, op, [scopes[1][v] for v in op.operands], scopes[1]))
            there.update(op.results)
    returned = opview.yielded(block)
    for value in returned[num_results:]:
        hand_over(value)
    backward.set_outputs({f"result{i}": scopes[1][value] for i, value in enumerate(returned[num_results:])})
    results = [*(scopes[0][value] for value in returned[:num_results]), *residuals]
    forward.set_outputs({f"result{i}": tensor for i, tensor in enumerate(results)})
    return SplitProgram(cleaned(forward), cleaned(backward))
