"""`Transform`, the base of all transforms: a pass that replaces a function by another one. Helpers for transforms."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlx import mlir
from rlx.blocks.graph_module import GraphModule
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph, module_stage
from rlx.ir.interface import Argument, Output
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.ir.op.signature import find_function
from rlx.ir.shape import Shape
from rlx.ir.sharding import Sharding
from rlx.passes import run
from rlx.passes.base import Pass
from rlx.passes.levels import to_mir
from rlx.passes.lower_blocks import LowerBlocks
from rlx.passes.runner import clone_module, run_on_module
from rlx.support.errors import Error, PassError, StageError
from rlx.support.guards import is_iterable
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.transforms.scope import ValueScope, copy_block

# Passes that clean up a transformed function, which has unused and duplicate ops.
_CLEAN_UP = (
    "builtin.module(rlx-constant-fold{max-elements=1},rlx-simplify,canonicalize,cse,rlx-prune-regions,canonicalize)"
)


class Transform(Pass, abstract=True):
    """A pass that replaces the function of a module by a derivative, or by a batched function."""

    preserves_results: ClassVar[bool] = False

    def apply(self, graph: Graph) -> Graph:
        """Return the transformed graph.

        Args:
            graph: A graph at MIR; it is not changed.

        Raises:
            Error: The derivative does not exist, or an op has no rule; the message names the op and the user's line.
        """
        raise NotImplementedError(f"{self.name} does nothing")

    def run(self, module: mlir.Module) -> None:
        if module_stage(module) == "hir":
            LowerBlocks().run(module)
        source = tensor_graph(Graph.from_module(module))
        result = clean_up(self.apply(source))
        old_function = find_function(module, source.name_symbol)
        place = mlir.ir.InsertionPoint(old_function.operation)
        result.function.operation.detach_from_parent()
        place.insert(result.function.operation)
        old_function.operation.erase()

    def __call__(self, graph: Any) -> Any:
        """Return the transformed graph, cleaned up and verified; a `GraphModule` if `graph` is one."""
        result = clean_up(self.apply(tensor_graph(graph)))
        result.verify()
        return GraphModule(result) if isinstance(graph, GraphModule) else result


def tensor_graph(graph: Any) -> Graph:
    """Return the graph of a graph or module at MIR. Blocks are replaced by primitives.

    Raises:
        StageError: The graph is at LIR.
        Error: The argument is not a graph, or has no results.
    """
    bare = getattr(graph, "_graph", graph)
    if not isinstance(bare, Graph):
        name = "f" if hasattr(graph, "graph_for") else "rlx.jit(f)"
        hint = f"{name}.grad(…) and {name}.value_and_grad(…) differentiate it, {name}.graph_for(…) is a graph"
        raise Error(
            f"expected a Graph or a GraphModule, got {type(graph).__name__}",
            hint=hint if callable(graph) else None,
        )
    if not bare.results:
        raise Error(f"graph '{bare.name}' has no outputs", hint="call set_outputs first")
    if bare.stage == "lir":
        raise StageError(f"graph '{bare.name}' is at stage lir", hint="transform it before it is lowered for a target")
    if bare.stage == "hir":
        return run(bare, to_mir(fuse=False))
    return bare


def hoist_invariants(graph: Graph) -> Graph:
    """Return a graph with loop-invariant ops moved out of loops, for reverse mode.

    In its gradient, the cotangents of an invariant value are summed over all steps, and propagated once. For a value
    computed inside the loop they are propagated in every step, and no pass can know that they may be summed first.
    """
    if not any(len(view.operation.regions) for view in graph.function.entry_block.operations):
        return graph
    return run(graph, "rlx-hoist-invariants")


def clean_up(graph: Graph) -> Graph:
    """Return a graph without unused and duplicate ops, in a new module."""
    module = clone_module(graph.module)
    run_on_module(module, _CLEAN_UP, verify_each=False)
    result = Graph.from_module(module, graph.name_symbol)
    result.take_weights(graph)
    return result


@dataclass(frozen=True)
class DerivedGraph:
    """A new graph under construction, whose first arguments are those of a source graph.

    Attributes:
        source: The graph that is transformed.
        graph: The new graph.
        arguments: The tensors of the new graph for the arguments of the source, by name.
    """

    source: Graph
    graph: Graph
    arguments: dict[str, Tensor]

    @classmethod
    def of(cls, source: Graph, changed: Mapping[str, Argument] | None = None) -> DerivedGraph:
        """Create a new graph with the arguments of another.

        Args:
            source: The graph that is transformed.
            changed: Replacements of some arguments, by name.
        """
        graph = Graph(source.name_symbol, mesh=source.mesh)
        arguments = [a if changed is None else changed.get(a.name, a) for a in source.arguments]
        tensors = {a.name: graph.add_argument(a) for a in arguments}
        graph.take_weights(source)
        return cls(source, graph, tensors)

    @property
    def block(self) -> mlir.Block:
        """The block of the source's function."""
        return self.source.function.entry_block

    def scope(self, *more: Tensor) -> ValueScope:
        """Return a scope with the tensors for the source's arguments. `more` are the last ones that the new graph lacks."""
        scope = ValueScope(self.graph)
        scope.bind(self.block.arguments, [*self.arguments.values(), *more])
        return scope

    def graph_results(self) -> list[Tensor]:
        """Copy the ops of the source into the new graph. Returns the tensors for its results."""
        return copy_block(self.graph, self.block, self.scope())

    def input(self, name: str, shape: Shape, sharding: Sharding | None = None) -> Tensor:
        """Add an input. If the name is taken, a number is appended: `tangent_x_2`."""
        fresh = _fresh(name, {a.name for a in self.graph.arguments})
        return self.graph.add_argument(Argument(fresh, "input", shape, sharding=sharding))

    def finish(self, outputs: Sequence[tuple[str, Tensor]], results: Sequence[Tensor] = ()) -> Graph:
        """Return the new graph with its outputs, and with the source's state updates.

        Args:
            outputs: Names and tensors. Repeated names get a number: `grad_x_2`.
            results: The tensors for all results of the source. If empty, states are not updated.
        """
        named: dict[str, Tensor] = {}
        for name, tensor in outputs:
            named[_fresh(name, named)] = tensor
        self.graph.set_outputs(named)
        for output, value in zip(self.source.results, results, strict=False):
            if output.updates is not None:
                self.graph.update(self.arguments[output.updates], value)
        return self.graph


def _fresh(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken."""
    numbered = (name if i == 1 else f"{name}_{i}" for i in itertools.count(1))
    return next(n for n in numbered if n not in taken)


# --- checks of users' arguments -------------------------------------------------------------------


def names_of(names: object, what: str) -> tuple[str, ...]:
    """Return the names passed by a user: one name, or several.

    Raises:
        Error: They are not names.
    """
    if isinstance(names, str):
        return (names,)
    if not is_iterable(names) or not all(isinstance(n, str) for n in names):
        raise Error(
            f"{what} must be a list of names of arguments, got {short_repr(names)}",
            hint=f"{what}=['x'] of a graph; of a Python function, rlx.jit(f).grad(wrt=…) takes its arguments by name",
        )
    return tuple(names)


def arguments_of(graph: Graph, names: Sequence[str], what: str) -> list[Argument]:
    """Return the arguments of a graph with these names; without names, all parameters.

    Raises:
        PassError: An argument does not exist, is named twice, or is not floating-point.
    """
    by_name = {a.name: a for a in graph.arguments}
    chosen = list(names) or [a.name for a in graph.params if a.shape.dtype.is_inexact]
    if not chosen:
        hint = f"name arguments: {', '.join(by_name)}" if by_name else None
        raise PassError(f"{what}: graph '{graph.name}' has no parameters", hint=hint)
    for i, name in enumerate(chosen):
        if name not in by_name:
            raise PassError(
                f"{what}: the graph has no argument '{name}'{suggestion(name, by_name)}; it has {', '.join(by_name)}"
            )
        if name in chosen[:i]:
            raise PassError(f"{what}: argument '{name}' is named twice")
        if not by_name[name].shape.dtype.is_inexact:
            shape = by_name[name].shape
            raise PassError(f"{what}: argument '{name}' is {shape}; only floats and complex numbers have derivatives")
    return [by_name[name] for name in chosen]


def with_outputs(graph: Graph, chosen: Mapping[str, int]) -> Graph:
    """Keep only some outputs of a graph, with new names. Returns the same graph.

    Args:
        graph: The graph, which is changed.
        chosen: The position of each output, by its new name.
    """
    tensors = graph.output_tensors
    graph.set_outputs({name: tensors[i] for name, i in chosen.items()})
    return graph


def float_outputs(graph: Graph, what: str) -> list[tuple[int, Output]]:
    """Return the differentiable outputs, with their positions among the results.

    Raises:
        PassError: There is none.
    """
    outputs = [(i, o) for i, o in enumerate(graph.results) if o.updates is None and o.shape.dtype.is_inexact]
    if not outputs:
        raise PassError(f"{what}: graph '{graph.name}' has no output of floats")
    return outputs


def place_of(graph: Graph, index: int) -> str | None:
    """Return the user's line of the op that computes a result of a graph, as `file:line`."""
    value = opview.yielded(graph.function.entry_block)[index]
    owner = getattr(value.owner, "operation", None)
    return describe((graph.function.operation if owner is None else owner).location)


def outputs_of(graph: Graph, results: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    """Return the names of a graph's outputs, each with its tensor in the new graph, without state updates."""
    return [(o.name, r) for o, r in zip(graph.results, results, strict=True) if o.updates is None]
