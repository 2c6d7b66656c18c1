"""Programs of the JAX primitive: graphs, and derived graphs from RLX's transforms. This module does not use JAX.

A derived graph is created on first use: JAX requests the tangents of everything that it differentiates, but usually
transposes them, so the graph of the tangents itself is not needed. Deriving a program again returns the same object, so
that JAX, whose caches compare by identity, compiles it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape
from rlx.passes.runner import clone_module
from rlx.runtime.jax.splitting import split
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error
from rlx.support.printable import printable
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_of
from rlx.targets.xla.backend import portable
from rlx.transforms.base import DerivedGraph, clean_up, with_outputs
from rlx.transforms.jvp import Jvp
from rlx.transforms.vjp import Vjp
from rlx.transforms.vmap import Vmap

T = TypeVar("T")


class JaxProgram:
    """A function of tensors of static sizes.

    Attributes:
        name: The function's name in the text of JAX's programs.
        arguments: The shapes of its arguments.
        results: The shapes of its results.
        linear: The positions of the arguments in which it is linear, taken together; it may be linear in others too.
        options: Those of its compilation.
    """

    name: str
    arguments: tuple[Shape, ...]
    results: tuple[Shape, ...]
    linear: tuple[int, ...] = ()
    options: CompileOptions = CompileOptions()

    def __init__(self) -> None:
        self._derived: dict[Any, Any] = {}

    def _graph(self) -> Graph:
        raise NotImplementedError(f"{type(self).__name__} has no graph")

    @cached_property
    def graph(self) -> Graph:
        """The graph at MIR, whose arguments are inputs.

        Raises:
            Error: An op has no rule for the transform; the message names it.
        """
        return self._graph()

    @cached_property
    def artifact(self) -> bytes:
        """StableHLO as a portable artifact, with shardings as text.

        Raises:
            UnsupportedError: Ops have neither a lowering nor a decomposition; the message lists them with their
                locations.
        """
        return portable(Compilation(self.graph, target_of("stablehlo"), self.options))

    def linearized(self, wrt: Sequence[int]) -> LinearizedProgram:
        """Return the program and its derivative with respect to some arguments.

        Args:
            wrt: The positions of the arguments that have tangents.
        """
        return self._once(("linearized", *wrt), lambda: _linearized(self, tuple(wrt)))

    def cotangents(self, wrt: Sequence[int]) -> Cotangents:
        """Return the program that computes cotangents of some arguments; see `Cotangents`.

        Args:
            wrt: The positions of these arguments.
        """
        return self._once(("cotangents", *wrt), lambda: Cotangents(self, tuple(wrt)))

    def batched(self, axes: Sequence[int | None], size: int) -> Batched:
        """Return the program for a batch of arguments. All results have the batch as their first axis.

        Args:
            axes: The batch axis of each argument, None for shared ones.
            size: The size of the batch.
        """
        return self._once(("batched", *axes, size), lambda: Batched(self, tuple(axes), size))

    def restricted(self, results: Sequence[int]) -> Restricted:
        """Return the program with some of its results only.

        Args:
            results: Their positions.
        """
        return self._once(("restricted", *results), lambda: Restricted(self, tuple(results)))

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        found = self._derived.get(key)
        return self._derived.setdefault(key, make()) if found is None else found

    @property
    def float_results(self) -> tuple[int, ...]:
        """The positions of the differentiable results."""
        return tuple(i for i, shape in enumerate(self.results) if shape.dtype.is_inexact)

    def __repr__(self) -> str:
        return printable(f"<{self.name}>", keep="")


class Given(JaxProgram):
    """A user's graph, with all arguments as inputs, and the next values of its states as results."""

    def __init__(self, source: Graph, options: CompileOptions):
        super().__init__()
        self.name, self.options = source.name, options
        self.arguments = tuple(a.shape for a in source.arguments)
        self.results = tuple(o.shape for o in source.results)
        # The graph does not carry its weights, because JAX keeps programs in its caches. The weights are arguments.
        self._source = Graph.from_module(clone_module(source.module), source.name_symbol)

    def _graph(self) -> Graph:
        source = self._source
        graph = Graph(source.name_symbol, mesh=source.mesh)
        shardings = {a.name: a.sharding for a in source.arguments if a.sharding is not None}

        def spread(tensor: Tensor, name: str | None) -> Tensor:
            return graph.shard(tensor, shardings[name]) if name in shardings else tensor

        arguments = {a.name: spread(graph.input(a.name, a.shape), a.name) for a in source.arguments}
        results = DerivedGraph(source, graph, arguments).graph_results()
        # The next value of a state is sharded like the state.
        results = [spread(tensor, o.updates) for tensor, o in zip(results, source.results, strict=True)]
        graph.set_outputs({f"result{i}": tensor for i, tensor in enumerate(results)})
        return clean_up(graph)


class Graphed(JaxProgram):
    """A part of a derivative with a known graph."""

    def __init__(self, name: str, graph: Graph, linear: tuple[int, ...] = ()):
        super().__init__()
        self.name, self.linear = name, linear
        self.arguments = tuple(a.shape for a in graph.arguments)
        self.results = tuple(o.shape for o in graph.outputs)
        self._known = graph

    def _graph(self) -> Graph:
        return self._known


class Restricted(JaxProgram):
    """See `JaxProgram.restricted`."""

    def __init__(self, of: JaxProgram, kept: tuple[int, ...]):
        super().__init__()
        self.of, self.kept, self.name = of, kept, of.name
        self.arguments, self.linear = of.arguments, of.linear
        self.results = tuple(of.results[i] for i in kept)

    def _graph(self) -> Graph:
        return clean_up(with_outputs(self.of.graph.clone(), {f"result{i}": k for i, k in enumerate(self.kept)}))


class Tangents(JaxProgram):
    """The tangents of the float results, as a function of the arguments, tangents of some of them, and residuals.

    Args:
        of: The program that is differentiated.
        wrt: The positions of the arguments that have tangents.
        residuals: The shapes of the residuals, which only the transpose uses.
        transpose: The transpose, a function of the arguments, the cotangents of the results, and the residuals.
    """

    def __init__(self, of: JaxProgram, wrt: tuple[int, ...], residuals: tuple[Shape, ...], transpose: JaxProgram):
        super().__init__()
        self.of, self.wrt, self.residuals, self.transpose = of, wrt, residuals, transpose
        self.name = f"{of.name}_jvp"
        tangents = tuple(of.arguments[i] for i in wrt)
        self.arguments = (*of.arguments, *tangents, *residuals)
        self.results = tuple(of.results[i] for i in of.float_results)
        self.linear = tuple(range(len(of.arguments), len(of.arguments) + len(wrt)))

    def _graph(self) -> Graph:
        of = self.of
        graph = Jvp(tangents=_names(of.graph, self.wrt)).apply(of.graph)
        graph = _last_outputs(graph, len(of.results), len(self.results))
        for shape in self.residuals:
            graph.input(graph.new_name("residual"), shape)
        return graph


class Cotangents(JaxProgram):
    """The cotangents of some arguments, as a function of the arguments and of cotangents of the float results.

    Args:
        of: The program that is differentiated.
        wrt: The positions of the arguments that get cotangents.
    """

    def __init__(self, of: JaxProgram, wrt: tuple[int, ...]):
        super().__init__()
        self.of, self.wrt, self.name = of, wrt, f"{of.name}_vjp"
        self.arguments = (*of.arguments, *(of.results[i] for i in of.float_results))
        self.results = tuple(of.arguments[i] for i in wrt)
        self.linear = tuple(range(len(of.arguments), len(self.arguments)))

    @cached_property
    def with_results(self) -> Graph:
        """The graph that returns the results, then the cotangents.

        Raises:
            Error: An op has no derivative in reverse mode.
        """
        return clean_up(Vjp(wrt=_names(self.of.graph, self.wrt)).apply(self.of.graph))

    def _graph(self) -> Graph:
        return _last_outputs(self.with_results.clone(), len(self.of.results), len(self.results))


@dataclass(frozen=True)
class LinearizedProgram:
    """A program and its derivative.

    Attributes:
        forward: Returns the results, then the residuals that the transpose of `tangents` reuses.
        tangents: The derivative.
    """

    forward: JaxProgram
    tangents: Tangents


def _linearized(of: JaxProgram, wrt: tuple[int, ...]) -> LinearizedProgram:
    cotangents = of.cotangents(wrt)
    try:
        parts = split(cotangents.with_results, len(of.arguments), len(of.results))
    except Error:  # forward mode may still work; the transpose raises the error
        return LinearizedProgram(of, Tangents(of, wrt, (), cotangents))
    forward = Graphed(f"{of.name}_forward", parts.forward)
    residuals = forward.results[len(of.results) :]
    return LinearizedProgram(
        forward, Tangents(of, wrt, residuals, Graphed(f"{of.name}_backward", parts.backward, cotangents.linear))
    )


class Batched(JaxProgram):
    """See `JaxProgram.batched`."""

    def __init__(self, of: JaxProgram, axes: tuple[int | None, ...], size: int):
        super().__init__()
        self.of, self.axes, self.size, self.name = of, axes, size, f"{of.name}_vmap"
        self.arguments = tuple(
            shape if axis is None else _with_axis(shape, axis, size)
            for shape, axis in zip(of.arguments, axes, strict=True)
        )
        self.results = tuple(_with_axis(shape, 0, size) for shape in of.results)
        self.linear = of.linear

    def _graph(self) -> Graph:
        source = self.of.graph
        names = [a.name for a in source.arguments]
        entries = tuple(f"{n}:{axis}" for n, axis in zip(names, self.axes, strict=True) if axis is not None)
        return clean_up(Vmap(batched=entries, size=str(self.size)).apply(source))


def _names(graph: Graph, positions: Sequence[int]) -> tuple[str, ...]:
    return tuple(graph.arguments[i].name for i in positions)


def _last_outputs(graph: Graph, before: int, count: int) -> Graph:
    """Return a graph of the outputs that a transform has added after those of its source."""
    return clean_up(with_outputs(graph, {f"result{i}": before + i for i in range(count)}))


def _with_axis(shape: Shape, axis: int, size: int) -> Shape:
    return shape.with_dims((*shape.dims[:axis], size, *shape.dims[axis:]))
