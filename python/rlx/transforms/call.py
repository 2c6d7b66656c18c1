"""Calls of a graph from another: its ops are copied to the call site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.ir.calls import with_call_errors
from rlx.ir.dims.dim import Dim, DimExpr
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.current import builder_of, current_builder
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.shape import Shape
from rlx.ops.lift import tensor_like
from rlx.passes import run
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError
from rlx.support.suggestions import suggestion
from rlx.transforms.base import tensor_graph


@with_call_errors
def call(graph: Any, /, *inputs: Any, **named: Any) -> Any:
    """Call a graph from another: copy its ops into the graph of the given tensors.

    The symbols in its shapes take the sizes of the tensors. A parameter that is not passed is shared with the caller's
    parameter of the same name, or added to the caller, with its value. A state becomes a state of the caller, with its
    update.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR; it is not changed.
        inputs: Tensors (or arrays) for its inputs, in order.
        named: Tensors (or arrays) for inputs, parameters and states, by name.

    Returns:
        The tensor of its output; a tuple if there are several.

    Raises:
        Error: No argument is a tensor, an input is missing, unknown or passed twice, or a name is taken.
        ShapeError: A tensor does not fit.
    """
    source, place = tensor_graph(graph), caller_place()
    b = builder_of((*inputs, *named.values())) or current_builder()
    if b is None:
        hint = "rlx.evaluate and Session.compile run a graph for arrays"
        raise Error(f"call of graph '{source.name}': none of the arguments is a tensor", location=place, hint=hint)
    try:
        values = _given(source, inputs, named)
        tensors = {a.name: tensor_like(b, values[a.name], a.shape.dtype) for a in source.arguments if a.name in values}
        sizes = _sizes(source, {n: t.shape for n, t in tensors.items()})
        bound = run(source, f"rlx-bind{{{sizes}}}") if sizes else source
        arguments = [tensors[a.name] if a.name in tensors else _own(b, a, source) for a in bound.arguments]
        _check(bound, arguments)
    except Error as problem:
        message = f"call of graph '{source.name}': {problem.message}"
        raise problem.moved(message, location=problem.location or place) from None
    with b.named(source.name):
        results = b.inline(bound.function.entry_block, arguments)
    outputs: list[Tensor] = []
    for result, output in zip(results, bound.results, strict=True):
        if output.updates is None:
            outputs.append(result)
        elif output.updates not in tensors:
            b.update(b.argument(output.updates), result)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _given(source: Graph, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a call by argument name."""
    names = [a.name for a in source.inputs]
    if len(inputs) > len(names):
        raise Error(f"{len(inputs)} tensors for {len(names)} inputs ({', '.join(names) or 'none'})")
    values = dict(zip(names, inputs, strict=False))
    known = [a.name for a in source.arguments]
    for name, value in named.items():
        if name not in known:
            raise Error(f"it has no argument '{name}'{suggestion(name, known)}; it has {', '.join(known) or 'none'}")
        if name in values:
            raise Error(f"input '{name}' is given twice")
        values[name] = value
    for a in source.inputs:
        if a.name not in values:
            raise Error(f"input '{a.name}' ({a.shape}) is missing")
    return values


def _sizes(source: Graph, shapes: Mapping[str, Shape]) -> str:
    """Return the sizes that replace symbols, as options of `rlx-bind`."""
    sizes: dict[str, Dim] = {}
    for a in source.arguments:
        given = shapes.get(a.name)
        if given is not None and given.rank == a.shape.rank:
            for d, size in zip(a.shape.dims, given.dims, strict=True):
                if isinstance(d, DimExpr) and [*d.symbols] == [str(d)]:
                    sizes.setdefault(str(d), size)
    return " ".join(f"{name}={str(size).replace(' ', '')}" for name, size in sizes.items() if str(size) != name)


def _own(b: Any, argument: Argument, source: Graph) -> Tensor:
    """Return the caller's argument for a parameter or a state that is not passed."""
    if not isinstance(b, Graph):
        if argument.name in source.weights:
            return b.constant(np.asarray(source.weights[argument.name]))
        raise Error(f"{argument.kind} '{argument.name}' ({argument.shape}) is missing")
    for own in b.arguments:
        if own.name == argument.name and own.kind == argument.kind == "param":
            return b.argument(own.name)
    if b.mesh != source.mesh:
        argument = replace(argument, sharding=None)
    if argument.kind == "param" and argument.name in source.weights:
        value = source.weights[argument.name]
        return b.param(argument.name, argument.shape, value=value, sharding=argument.sharding)
    return b.add_argument(argument)


def _check(graph: Graph, tensors: list[Tensor]) -> None:
    for argument, tensor in zip(graph.arguments, tensors, strict=True):
        if tensor.shape != argument.shape:
            raise ShapeError(f"{argument.kind} '{argument.name}' must be {argument.shape}, got {tensor.shape}")
