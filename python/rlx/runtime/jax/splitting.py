"""Division of a reverse-mode graph into a forward and a backward part, which JAX runs separately.

JAX calls the two at different times, so values of the first part that the second one needs must be passed on: the
residuals.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.transforms.base import clean_up
from rlx.transforms.scope import ValueScope, captures, copy, ops_of


@dataclass(frozen=True)
class SplitProgram:
    """The two parts.

    Attributes:
        forward: A function of the arguments. Returns the results, then the residuals.
        backward: A function of the arguments, the cotangents and the residuals. Returns the cotangents of arguments.
    """

    forward: Graph
    backward: Graph


def split(graph: Graph, num_arguments: int, num_results: int) -> SplitProgram:
    """Split a graph into the two parts.

    Arguments are available in both parts. Values that do not depend on an argument, such as a mask, are computed in
    both parts instead of being passed on.

    Args:
        graph: A graph whose arguments are inputs: those of a function, then cotangents of its results. It returns the
            results, then cotangents of arguments.
        num_arguments: The number of arguments of the function.
        num_results: The number of its results.
    """
    block = graph.function.entry_block
    arguments = list(block.arguments)
    forward, backward = (Graph(f"{graph.name_symbol}_{part}", mesh=graph.mesh) for part in ("forward", "backward"))
    scopes = ValueScope(forward), ValueScope(backward)
    for scope, part, count in zip(scopes, (forward, backward), (num_arguments, len(arguments)), strict=True):
        scope.bind(arguments[:count], [part.input(a.name, a.shape) for a in graph.arguments[:count]])
    late = set(arguments[num_arguments:])  # values that depend on a cotangent
    there = set(arguments)  # values available in the second part
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
    return SplitProgram(clean_up(forward), clean_up(backward))
