"""Conversion of a graph at LIR to a network of layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.ir.graph.graph import Graph
from rlx.ir.location import describe, layer_of
from rlx.ir.op import opview, registry
from rlx.ir.op.card import as_results
from rlx.ir.op.quantization import quantization_of
from rlx.ir.shape import shape_of
from rlx.passes.bind import bind_hint
from rlx.support.errors import UnsupportedError
from rlx.targets.fpga.lower import movement_rules, pointwise, product_rules, rules
from rlx.targets.fpga.lower.design import Network
from rlx.targets.fpga.lower.layer import Stream, StreamLayer, dtype_range
from rlx.targets.fpga.lower.names import layer_name
from rlx.targets.fpga.lower.orders import usual
from rlx.targets.fpga.lower.site import RULES, LayerSite, Operand
from rlx.targets.fpga.lower.state import StateLayer

# Importing the modules registers their rules.
_REGISTERED = (rules, product_rules, movement_rules)
CLAIMED = ("constant", *RULES)
_KINDS = {
    "binary": (*pointwise.BINARY, *pointwise.SHIFTS),
    "activation": pointwise.UNARY,
    "reduce": ("sum", "max", "min"),
    "pool": ("max", "sum"),
}


def _unsupported_kinds() -> Iterator[str]:
    """Kinds without a layer, such as `binary.pow`, of ops whose other kinds have one."""
    for op, taken in _KINDS.items():
        (kinds,) = (a.cases for a in registry.load()[op].spec.attributes if a.name == "kind")
        yield from (f"{op}.{kind}" for kind in kinds if kind not in taken)


UNSUPPORTED_KINDS = tuple(_unsupported_kinds())


def network_of(graph: Graph, *, states_as_ports: bool = False) -> Network:
    """Return the network of a graph.

    Args:
        graph: An integer graph at LIR with constant weights.
        states_as_ports: Whether states are inputs and outputs, instead of being stored in the hardware.

    Raises:
        UnsupportedError: The graph has symbols or parameters, or ops without a layer, which are all listed.
    """
    _check_arguments(graph)
    values: dict[Any, Operand] = {}
    inputs: dict[str, Stream] = {}
    layers: list[StreamLayer] = []
    states: dict[str, StateLayer] = {}
    counts: dict[str, int] = {}
    for argument, value in zip(graph.arguments, graph.function.entry_block.arguments, strict=True):
        shape, kind, title = argument.shape.static, argument.shape.dtype, argument.name
        if argument.kind == "state" and not states_as_ports:
            made = StateLayer(
                layer_name(counts, "state", title), "", [], title=title, init=int(argument.init), shape=shape, dtype=kind,
                order=usual(shape),
            )  # fmt: skip
            states[title] = made
            layers.append(made)
            values[value] = made.output
        else:
            inputs[title] = values[value] = Stream(shape, kind, usual(shape), *dtype_range(kind), title)
    problems: list[str] = []
    hints: list[str] = []
    operations = [op.operation for op in graph.function.entry_block.operations]
    for op in operations[:-1]:
        if any(v not in values for v in op.operands):
            continue  # an operand has no layer
        try:
            values[op.results[0]] = _made(op, values, layers, counts)
        except UnsupportedError as problem:
            problems.append(f"  {describe(op.location) or '<unknown>'}: {opview.label_of(op)}: {problem.message}")
            hints += [problem.hint] if problem.hint else []
    if problems:
        verb = "op has" if len(problems) == 1 else "ops have"
        message = f"{len(problems)} {verb} no layer for target fpga:\n" + "\n".join(problems)
        raise UnsupportedError(message, hint="; ".join(dict.fromkeys(hints)) or None)
    network = Network(graph.name, inputs, layers=layers, quantized=quantization_of(graph.function))
    for output, value in zip(graph.results, operations[-1].operands, strict=True):
        made = values[value]
        if not isinstance(made, Stream):
            what = f"output '{output.name}'" if output.updates is None else f"what state '{output.updates}' becomes"
            raise UnsupportedError(f"{what} is a constant", hint="leave it out of the graph")
        if output.updates in states:
            state = states[output.updates]
            site = LayerSite("state", "", "", output.shape, np.asarray, layers, counts)
            state.update = site.ordered(made, state.order)
        else:
            network.outputs[output.name] = made
    if not graph.outputs:
        raise UnsupportedError(
            f"'{graph.name}' has no outputs, so nothing says when it is done", hint="call set_outputs"
        )
    return _without_unused(network)


def _made(op: Any, values: dict[Any, Operand], layers: list[StreamLayer], counts: dict[str, int]) -> Operand:
    name, card = opview.name_of(op), opview.card_of(op)
    operands = opview.operands_of(op, [values[v] for v in op.operands])
    attributes = opview.attributes_of(op)
    if not any(isinstance(o, Stream) for o in operands):
        return np.asarray(as_results(card.evaluate(*operands, **attributes))[0])

    def sole(stream: Stream) -> bool:
        # An op without effect returns the stream of its operand, which then has several values.
        names = [v for v, made in values.items() if made is stream]
        readers = [use.owner.operation for v in names for use in v.uses]
        return all(r == op or (len(r.results) > 0 and r.results[0] in names) for r in readers)

    site = LayerSite(
        name, opview.place_of(op), layer_of(op.location), shape_of(op.results[0]), card.evaluate, layers, counts, sole
    )
    return RULES[name](site, *operands, **attributes)


def _check_arguments(graph: Graph) -> None:
    if graph.symbols:
        names = ", ".join(sorted(graph.symbols))
        raise UnsupportedError(
            f"hardware has static sizes, and '{graph.name}' has the symbols {names}", hint=bind_hint(graph.symbols)
        )
    if names := [a.name for a in graph.arguments if a.kind == "param"]:
        message = f"target fpga takes no params, and '{graph.name}' has {', '.join(names)}"
        raise UnsupportedError(message, hint="weights are part of the hardware: give them as constants")


def _without_unused(network: Network) -> Network:
    """Remove layers, including states, that no output depends on."""
    read = {s.source for s in network.outputs.values()}
    waiting = list(read)
    while waiting:
        source = waiting.pop()
        if isinstance(source, StreamLayer):
            inputs = [source.update] if isinstance(source, StateLayer) else source.inputs
            found = {s.source for s in inputs} - read
            read |= found
            waiting += found
    kept = [layer for layer in network.layers if layer in read]
    return replace(network, layers=kept)
