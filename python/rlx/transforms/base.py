"""What every transform is: a pass that puts another function in the place of one."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlx import mlir
from rlx.blocks.graph_module import GraphModule
from rlx.ir import opview
from rlx.ir.attributes import suggestion
from rlx.ir.builder import Tensor
from rlx.ir.errors import Error, PassError, StageError
from rlx.ir.graph import Graph, find_function, module_stage
from rlx.ir.guards import is_iterable
from rlx.ir.location import describe
from rlx.ir.shape import Shape
from rlx.ir.signature import Argument, Output
from rlx.passes.base import Pass
from rlx.passes.lower_blocks import LowerBlocks
from rlx.passes.runner import clone_module, run_on_module
from rlx.transforms.scope import Scope, copied

# What runs on a function that a transform has made: it leaves what nobody needs, and some things twice.
_CLEAN_UP = (
    "builtin.module(rlx-constant-fold{max-elements=1},rlx-simplify,canonicalize,cse,rlx-prune-regions,canonicalize)"
)


class Transform(Pass):
    """A pass that puts a derivative, or a batched function, in the place of a module's function."""

    preserves_results: ClassVar[bool] = False

    def apply(self, graph: Graph) -> Graph:
        """The new graph.

        Args:
            graph: At MIR; it is not changed.

        Raises:
            Error: It has no such derivative, or an op has no rule; the message names the op and the user's line.
        """
        raise NotImplementedError(f"{self.name} does nothing")

    def run(self, module: mlir.Module) -> None:
        if module_stage(module) == "hir":
            LowerBlocks().run(module)
        found = tensor_graph(Graph.from_module(module))
        made = cleaned(self.apply(found))
        old = find_function(module, found.name_symbol)
        place = mlir.ir.InsertionPoint(old.operation)
        made.function.operation.detach_from_parent()
        place.insert(made.function.operation)
        old.operation.erase()

    def __call__(self, graph: Any) -> Any:
        """The new graph, cleaned up and verified; of a `GraphModule` a `GraphModule`."""
        made = cleaned(self.apply(tensor_graph(graph)))
        made.verify()
        return GraphModule(made) if isinstance(graph, GraphModule) else made


def tensor_graph(graph: Any) -> Graph:
    """A graph or module at MIR; blocks become primitives.

    Raises:
        StageError: It is at LIR.
        Error: It is no graph, or gives nothing.
    """
    found = getattr(graph, "_graph", graph)
    if not isinstance(found, Graph):
        raise Error(f"expected a Graph or a GraphModule, got {type(graph).__name__}")
    if not found.results:
        raise Error(f"graph '{found.name}' has no outputs", hint="call set_outputs first")
    if found.stage == "lir":
        raise StageError(f"graph '{found.name}' is at stage lir", hint="transform it before it is lowered for a target")
    if found.stage == "hir":
        return importlib.import_module("rlx.passes").run(found, "builtin.module(rlx-lower-blocks)")
    return found


def cleaned(graph: Graph) -> Graph:
    """A graph without what nobody needs, over a module of its own."""
    module = clone_module(graph.module)
    run_on_module(module, _CLEAN_UP, verify_each=False)
    result = Graph.from_module(module, graph.name_symbol)
    result.take_weights(graph)
    return result


@dataclass(frozen=True)
class Derived:
    """A graph under construction whose first arguments are those of another one.

    Attributes:
        source: The graph that is read.
        graph: The new one.
        arguments: Its tensors that stand for the arguments of the source, by name.
    """

    source: Graph
    graph: Graph
    arguments: dict[str, Tensor]

    @classmethod
    def of(cls, source: Graph, shapes: Mapping[str, Shape] | None = None) -> Derived:
        """A new graph with the arguments of another.

        Args:
            source: The graph that is read.
            shapes: New shapes of some arguments.
        """
        graph = Graph(source.name_symbol)
        tensors: dict[str, Tensor] = {}
        for a in source.arguments:
            shape = a.shape if shapes is None else shapes.get(a.name, a.shape)
            tensors[a.name] = graph.add_argument(Argument(a.name, a.kind, shape, a.donate, a.init))
        graph.take_weights(source)
        return cls(source, graph, tensors)

    @property
    def block(self) -> mlir.Block:
        """The block of the source's function."""
        return self.source.function.entry_block

    def scope(self, *more: Tensor) -> Scope:
        """What stands for the arguments of the source; `more` for those behind them that the new graph has not."""
        scope = Scope(self.graph)
        scope.bind(self.block.arguments, [*self.arguments.values(), *more])
        return scope

    def graph_results(self) -> list[Tensor]:
        """A copy of the source's ops; what stands for its results."""
        return copied(self.graph, self.block, self.scope())

    def input(self, name: str, shape: Shape) -> Tensor:
        """A new input; a name that is taken gets a number: `tangent_x_2`."""
        return self.graph.input(_fresh(name, {a.name for a in self.graph.arguments}), shape)

    def finish(self, outputs: Sequence[tuple[str, Tensor]], results: Sequence[Tensor] = ()) -> Graph:
        """The new graph with its outputs, and with the source's updates of states.

        Args:
            outputs: Names and tensors; of two of one name, the second gets a number: `grad_x_2`.
            results: What stands for all results of the source; empty leaves the updates of states out.
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
    """A name that is not taken."""
    numbered = (name if i == 1 else f"{name}_{i}" for i in itertools.count(1))
    return next(n for n in numbered if n not in taken)


# --- what transforms are asked --------------------------------------------------------------------


def names_of(names: object, what: str) -> tuple[str, ...]:
    """Names as a user may give them: one, or several.

    Raises:
        Error: They are no names.
    """
    if isinstance(names, str):
        return (names,)
    if not is_iterable(names) or not all(isinstance(n, str) for n in names):
        raise Error(f"{what} must be a list of names of arguments, got {names!r}")
    return tuple(names)


def arguments_of(graph: Graph, names: Sequence[str], what: str) -> list[Argument]:
    """The arguments of a graph with these names; of no names, all parameters.

    Raises:
        PassError: One does not exist, is named twice, or holds no floats.
    """
    known = {a.name: a for a in graph.arguments}
    chosen = list(names) or [a.name for a in graph.params if a.shape.dtype.is_inexact]
    if not chosen:
        hint = f"name arguments: {', '.join(known)}" if known else None
        raise PassError(f"{what}: graph '{graph.name}' has no parameters", hint=hint)
    for i, name in enumerate(chosen):
        if name not in known:
            raise PassError(
                f"{what}: the graph has no argument '{name}'{suggestion(name, known)}; it has {', '.join(known)}"
            )
        if name in chosen[:i]:
            raise PassError(f"{what}: argument '{name}' is named twice")
        if not known[name].shape.dtype.is_inexact:
            shape = known[name].shape
            raise PassError(f"{what}: argument '{name}' is {shape}; only floats and complex numbers have derivatives")
    return [known[name] for name in chosen]


def with_outputs(graph: Graph, chosen: Mapping[str, int]) -> Graph:
    """A graph with some of its outputs, under names of their own. It is changed.

    Args:
        graph: The graph.
        chosen: The position of an output, by its new name.
    """
    tensors = graph.output_tensors
    graph.set_outputs({name: tensors[i] for name, i in chosen.items()})
    return graph


def float_outputs(graph: Graph, what: str) -> list[tuple[int, Output]]:
    """The outputs that have derivatives, with their positions among the results.

    Raises:
        PassError: There is none.
    """
    found = [(i, o) for i, o in enumerate(graph.results) if o.updates is None and o.shape.dtype.is_inexact]
    if not found:
        raise PassError(f"{what}: graph '{graph.name}' has no output of floats")
    return found


def place_of(graph: Graph, index: int) -> str | None:
    """Where a result of a graph was made, as `file:line`."""
    value = opview.yielded(graph.function.entry_block)[index]
    owner = getattr(value.owner, "operation", None)
    return describe((graph.function.operation if owner is None else owner).location)


def outputs_of(graph: Graph, results: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    """The names of a graph's outputs with what stands for them."""
    return [(o.name, r) for o, r in zip(graph.results, results, strict=True) if o.updates is None]
