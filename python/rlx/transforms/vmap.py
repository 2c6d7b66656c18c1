"""`rlx-vmap`: batching of a function."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.dims.dim import Dim, dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.sharding import with_axis
from rlx.passes.base import option
from rlx.support.errors import Error, PassError
from rlx.support.guards import is_mapping, is_sequence
from rlx.support.suggestions import suggestion
from rlx.transforms.base import DerivedGraph, Transform, names_of, outputs_of
from rlx.transforms.batching import Batching


@dataclass(frozen=True)
class Vmap(Transform, name="rlx-vmap"):
    """Compute a function for a batch of arguments at once: `rlx-vmap{batched=x:0,y:1 size=8}`.

    Batched arguments get one more axis, and so do all outputs.
    """

    batched: tuple[str, ...] = option((), "arguments with an axis for the batch: name, or name:axis")
    size: str = option("1", "the size of the batch, a number or a symbol")
    out_axes: tuple[str, ...] = option(
        ("0",), "the batch axis of the outputs: one axis for all, or output:axis for each"
    )

    def apply(self, graph: Graph) -> Graph:
        axes = self._axes(graph)
        size = dim(int(self.size) if _is_integer(self.size) else self.size)
        batched = {a.name: _batched(a, axes[a.name], size) for a in graph.arguments if a.name in axes}
        derived = DerivedGraph.of(graph, batched)
        b, engine, scope = derived.graph, Batching(derived.graph, size), derived.scope()
        for value, (name, tensor) in zip(derived.block.arguments, derived.arguments.items(), strict=True):
            if name in axes:
                scope[value] = argument = _moved(tensor, axes[name], 0)
                engine.mark([argument])
        with b.scratchpad():
            results = engine.run(derived.block, scope)
        self._check_states(graph, axes, engine, results)
        out_axes = self._out_axes(graph)
        filled = [engine.full(r) for r in results]
        outputs = [(name, _moved(r, 0, out_axes[name])) for name, r in outputs_of(graph, filled)]
        updates = [
            _moved(f, 0, axes[o.updates]) if o.updates in axes else r
            for o, f, r in zip(graph.results, filled, results, strict=True)
        ]
        return derived.finish(outputs, updates)

    def _axes(self, graph: Graph) -> dict[str, int]:
        known = {a.name: a for a in graph.arguments}
        if not self.batched:
            raise PassError(f"{self.name}: no argument is batched", hint=f"name some of {', '.join(known)}")
        axes: dict[str, int] = {}
        for entry in self.batched:
            name, axis = _entry(entry, self.name)
            if name not in known:
                raise PassError(f"{self.name}: the graph has no argument '{name}'{suggestion(name, known)}")
            if name in axes:
                raise PassError(f"{self.name}: argument '{name}' is named twice")
            axes[name] = _axis(axis, known[name].shape.rank, f"{self.name}: argument '{name}'")
        return axes

    def _out_axes(self, graph: Graph) -> dict[str, int]:
        outputs = {o.name: o.shape.rank for o in graph.outputs}
        entries = [(*_entry(e, self.name),) for e in self.out_axes if not _is_integer(e)]
        common = [int(e) for e in self.out_axes if _is_integer(e)]
        axis = common[0] if len(common) == 1 else 0
        if len(common) != 1 and not (entries and not common):
            if entries or len(common) != len(outputs):
                message = f"{self.name}: {len(common)} axes for {len(outputs)} outputs"
                raise PassError(message, hint="give one axis for all, or one for each output")
            entries = list(zip(outputs, common, strict=True))
        chosen = dict.fromkeys(outputs, axis)
        for name, output_axis in entries:
            if name not in outputs:
                raise PassError(f"{self.name}: the graph has no output '{name}'{suggestion(name, outputs)}")
            chosen[name] = output_axis
        return {n: _axis(a, outputs[n], f"{self.name}: output '{n}'") for n, a in chosen.items()}

    def _check_states(self, graph: Graph, axes: dict[str, int], engine: Batching, results: list[Tensor]) -> None:
        for output, result in zip(graph.results, results, strict=True):
            if output.updates is not None and output.updates not in axes and engine.is_batched(result):
                message = f"{self.name}: the next value of state '{output.updates}' is batched, and the state is not"
                raise PassError(message, hint=f"batch it as well: {output.updates}:0")


def _entry(entry: str, what: str) -> tuple[str, int]:
    name, _, axis = entry.rpartition(":") if ":" in entry else (entry, "", "0")
    if not _is_integer(axis):
        raise PassError(f"{what}: '{entry}' is not a name and an axis, such as x:0")
    return name, int(axis)


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+", text) is not None


def _axis(axis: int, rank: int, what: str) -> int:
    if not -rank - 1 <= axis <= rank:
        raise PassError(f"{what}: the batch axis {axis} is out of range for rank {rank + 1}")
    return axis % (rank + 1)


def _batched(a: Argument, axis: int, size: Dim) -> Argument:
    """Return an argument with one more axis, which is not sharded."""
    shape = a.shape.with_dims((*a.shape.dims[:axis], size, *a.shape.dims[axis:]))
    return replace(a, shape=shape, sharding=with_axis(a.sharding, axis))


def _moved(x: Tensor, source: int, destination: int) -> Tensor:
    """Return `x` with one axis moved to another position."""
    if source == destination:
        return x
    order = [i for i in range(x.rank) if i != source]
    order.insert(destination, source)
    return x.builder.transpose(x, order)


@with_call_errors
def vmap(graph: Any, batched: Any, size: Any, out_axes: Any = 0) -> Any:
    """Return a graph that computes another graph for a batch of arguments at once.

    Args:
        graph: A `Graph` or `GraphModule`, HIR or MIR.
        batched: The batch axis of each batched argument, by name; or names, for axis 0. Other arguments are shared.
        size: The size of the batch: an integer, or the name of a symbol.
        out_axes: The batch axis of the outputs: one for all, by name, or in order.

    Returns:
        A graph with the same arguments and outputs, where batched arguments and all outputs have one more axis.

    Raises:
        Error: An argument or axis does not exist, or an op has no rule.
    """
    if is_mapping(batched):
        entries = tuple(f"{n}:{a}" for n, a in batched.items())
    else:
        entries = tuple(f"{n}:0" for n in names_of(batched, "batched"))
    axes: list[Any] = list(
        out_axes.values() if is_mapping(out_axes) else out_axes if is_sequence(out_axes) else [out_axes]
    )
    if any(isinstance(a, bool) or not hasattr(a, "__index__") for a in axes):
        raise Error(f"out_axes must be an axis, or axes by name or in order, got {out_axes!r}")
    outs = [f"{n}:{a}" for n, a in out_axes.items()] if is_mapping(out_axes) else [str(a) for a in axes]
    if isinstance(size, bool) or not (isinstance(size, str) or hasattr(size, "__index__") or hasattr(size, "symbols")):
        raise Error(f"size must be an integer or the name of a symbol, got {size!r}")
    return Vmap(batched=entries, size=str(size), out_axes=tuple(outs))(graph)
