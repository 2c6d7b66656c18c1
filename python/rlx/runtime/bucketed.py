"""`BucketedGraph`: programs for a few sizes of a symbol, with padding up to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from rlx.ir.dims.dim import DimExpr
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, Output, argument_array, bind_symbols
from rlx.ir.shape import Shape
from rlx.runtime.arguments import checked_cast, missing_input, unknown_input
from rlx.runtime.compiled import CompiledGraph
from rlx.support.errors import Error, ShapeError
from rlx.support.printable import printable
from rlx.support.short import join_names
from rlx.weights import Weights, open_parameters
from rlx.weights.arrays import keep

Sizes = tuple[int, ...]


class BucketedGraph:
    """Programs for fixed sizes with the interface of a single program.

    Created by `Session.compile(…, buckets={"seq": [32, 128]})`.

    A run uses the smallest bucket that holds the sizes of its inputs. Inputs are padded with zeros at the end of the
    symbol's axes, and outputs are cut to the real sizes. Therefore results for real positions must not depend on later
    positions: an encoder needs an attention mask (0 for padding), a causal decoder does not.

    Attributes:
        symbols: The bucketed symbols.
        programs: The program for each combination of their sizes.
    """

    def __init__(
        self, graph: Graph, buckets: Mapping[str, Sequence[int]], compile: Callable[[dict[str, int]], CompiledGraph]
    ):
        _check(graph, buckets)
        self.symbols = tuple(buckets)
        self._buckets = {name: sorted(set(sizes)) for name, sizes in buckets.items()}
        self._inputs = tuple(a for a in graph.arguments if a.kind == "input")
        self._params = {a.name: a for a in graph.params}
        self._outputs, self._name = graph.outputs, graph.name
        self.programs: dict[Sizes, CompiledGraph] = {
            sizes: compile(dict(zip(self.symbols, sizes, strict=True))) for sizes in product(*self._buckets.values())
        }

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The inputs, in order, with their symbols."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs, in order."""
        return self._outputs

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return [o.name for o in self._outputs]

    def set_param(self, name: str, value: Any, *, copy: bool = True, cast: bool = False) -> None:
        """Set one weight in every program; see `CompiledGraph.set_param`."""
        if not isinstance(name, str):
            raise Error(f"a parameter's name is a string, not {name!r}")
        self.set_params({name: value}, copy=copy, cast=cast)

    def set_params(
        self, params: Mapping[str, Any] | str | os.PathLike[str], *, copy: bool = True, cast: bool = False
    ) -> None:
        """Set weights in every program, which share one copy; see `CompiledGraph.set_params`."""
        params, cast = open_parameters(params), checked_cast(cast)
        if isinstance(params, Weights):
            params = params.values_of(self._params.values(), cast=cast)
        else:  # each program raises an error for unknown names
            known = {name: value for name, value in params.items() if name in self._params}
            arrays = {name: argument_array(self._params[name], value, cast=cast) for name, value in known.items()}
            params = {**params, **{name: keep(array, copy) for name, array in arrays.items()}}
        for program in self.programs.values():
            program.set_params(params, copy=False)

    def program_for(self, **sizes: int) -> CompiledGraph:
        """Return the program that runs for sizes of the bucketed symbols.

        Raises:
            ShapeError: A size is larger than the largest bucket.
        """
        return self.programs[self._chosen(sizes)]

    def run(self, inputs: Mapping[str, Any] | None = None) -> list[np.ndarray]:
        """Run the program of the bucket that the inputs fit; see `CompiledGraph.run`.

        Raises:
            Error: An input is missing, unknown, of the wrong shape or dtype, or larger than the largest bucket.
        """
        arrays = self._arrays({} if inputs is None else inputs)
        sizes = bind_symbols([(a, arrays[a.name].shape) for a in self._inputs])
        chosen = self._chosen(sizes)
        padded_sizes = sizes | dict(zip(self.symbols, chosen, strict=True))
        padded = {a.name: _padded(arrays[a.name], a.shape.bind(padded_sizes).static) for a in self._inputs}
        results = self.programs[chosen].run(padded)
        return [_cut(r, o.shape, sizes) for r, o in zip(results, self._outputs, strict=True)]

    __call__ = run

    def run_named(self, inputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Run once. Returns the outputs by name."""
        return dict(zip(self.output_names, self.run(inputs), strict=True))

    def _arrays(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        arrays = {}
        for argument in self._inputs:
            name = argument.name
            if not isinstance(inputs, Mapping) or name not in inputs:
                raise missing_input(inputs, argument, self._inputs)
            arrays[name] = argument_array(argument, inputs[name])
        if len(inputs) != len(arrays):
            raise unknown_input(inputs, self._inputs, self._params)
        return arrays

    def _chosen(self, sizes: Mapping[str, int]) -> Sizes:
        chosen = []
        for name, steps in self._buckets.items():
            if name not in sizes:
                raise Error(f"the size of '{name}' is not given; bucketed are {', '.join(self.symbols)}")
            fitting = [step for step in steps if step >= sizes[name]]
            if not fitting:
                raise ShapeError(
                    f"{name} = {sizes[name]} is larger than the largest bucket",
                    hint=f"the buckets are {', '.join(map(str, steps))}: add a larger one",
                )
            chosen.append(fitting[0])
        return tuple(chosen)

    def __repr__(self) -> str:
        buckets = "; ".join(f"{name}: {', '.join(map(str, sizes))}" for name, sizes in self._buckets.items())
        inputs = join_names(f"{a.name}: {a.shape}" for a in self._inputs)
        outputs = join_names(f"{o.name}: {o.shape}" for o in self._outputs)
        target = next(iter(self.programs.values())).artifact.target
        return printable(f"<BucketedGraph {self._name}({inputs}) -> {outputs} for {target}, with {buckets}>", keep="")


def _check(graph: Graph, buckets: Mapping[str, Sequence[int]]) -> None:
    for name, sizes in buckets.items():
        if name not in graph.symbols:
            known = ", ".join(sorted(graph.symbols)) or "none"
            raise Error(f"buckets: the graph has no symbol '{name}'; it has {known}")
        if not isinstance(sizes, Iterable) or isinstance(sizes, (str, bytes)) or not list(sizes):
            raise Error(f"buckets: the sizes of '{name}' must be a list of integers, got {sizes!r}")
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
                raise Error(f"buckets: a size of '{name}' must be a positive integer, got {size!r}")
    states = [a.name for a in graph.arguments if a.kind == "state"]
    if states:
        raise Error(
            f"buckets: the graph has states ({', '.join(states)}), which its programs cannot share",
            hint="make them inputs and outputs, or leave the symbol dynamic",
        )
    for what, entry in [("input", a) for a in graph.arguments] + [("output", o) for o in graph.outputs]:
        for d in entry.shape.dims:
            if isinstance(d, DimExpr) and d.symbols & buckets.keys() and str(d) not in buckets:
                raise ShapeError(
                    f"buckets: {what} '{entry.name}' has the size {d}, of which padding is not at the end",
                    hint="only sizes that are a bucketed symbol itself can be padded and cut",
                )


def _padded(array: np.ndarray, shape: Sizes) -> np.ndarray:
    if array.shape == shape:
        return array
    result = np.zeros(shape, array.dtype)
    result[tuple(map(slice, array.shape))] = array
    return result


def _cut(array: np.ndarray, shape: Shape, sizes: Mapping[str, int]) -> np.ndarray:
    wanted = shape.bind(dict(sizes)).static
    return array if array.shape == wanted else array[tuple(map(slice, wanted))].copy()
