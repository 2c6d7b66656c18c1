"""Compilation of several graphs into entry points that share parameters and states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.ir.checks import check_name
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import argument_array
from rlx.runtime.entry_point import EntryPoint
from rlx.support.errors import Error
from rlx.targets.artifacts.archive import MOST_ENTRIES
from rlx.targets.artifacts.signature import shared_arguments
from rlx.targets.options import CompileOptions
from rlx.targets.stages import graph_of
from rlx.weights import Weight

# Compiles graphs with their options: the entry points, and the graphs with their sizes bound.
Compile = Callable[[Mapping[str, tuple[Graph, CompileOptions]]], Mapping[str, tuple[EntryPoint, Graph]]]


def compiled_together(
    graphs: Mapping[str, Any], options: CompileOptions, compile: Compile
) -> tuple[dict[str | None, EntryPoint], dict[str, Any]]:
    """Return entry points for some graphs, and the weights that came with them.

    Args:
        graphs: A `Graph` or `GraphModule` for each entry point.
        options: The options; the sizes in `bind` are for all graphs that have these symbols.
        compile: The function that compiles the graphs.

    Raises:
        Error: Graphs differ in shared arguments, the options have a name, or `compile` raises it.
    """
    given = _checked(graphs)
    if options.name is not None:
        raise Error(
            f"name={options.name!r} is for one graph, not for {len(given)} entry points",
            hint="entry points have the names of the mapping",
        )
    sizes = _sizes(given, options.bind)
    bound = {
        name: [replace(a, shape=a.shape.bind(sizes[name] or {})) for a in graph.arguments]
        for name, graph in given.items()
    }
    shared_arguments(bound)  # checked before any slow step
    _check_weights(given)
    made = compile({name: (graph, replace(options, bind=sizes[name])) for name, graph in given.items()})
    known = {a.name for entry, _ in made.values() for a in entry.signature.of_kind("param")}
    came: dict[str, Any] = {}
    for _, source in made.values():
        came = {**{name: value for name, value in source.weights.items() if name in known}, **came}
    return {name: entry for name, (entry, _) in made.items()}, came


def _checked(graphs: Mapping[str, Any]) -> dict[str, Graph]:
    """Return the graphs by name.

    Raises:
        Error: A name is not text, a value is not a graph, or there are too few or too many.
    """
    if not 0 < len(graphs) <= MOST_ENTRIES:
        raise Error(f"{len(graphs)} entry points; from 1 to {MOST_ENTRIES} are compiled together")
    found = {}
    for name, graph in graphs.items():
        check_name(name, "the name of an entry point")
        try:
            found[name] = graph_of(graph, "compile")
        except Error as problem:
            raise Error(f"entry point '{name}': {problem.message}", hint=problem.hint) from None
    return found


def _sizes(graphs: Mapping[str, Graph], bind: Mapping[str, int] | None) -> dict[str, dict[str, int] | None]:
    """Return the sizes that are bound in each graph.

    Raises:
        Error: No graph has the symbol.
    """
    if bind is None:
        return dict.fromkeys(graphs)
    known = set().union(*(graph.symbols for graph in graphs.values()))
    if unknown := set(bind) - known:
        there = ", ".join(sorted(known)) or "none"
        raise Error(f"bind: no graph has a symbol {', '.join(sorted(map(str, unknown)))}; they have {there}")
    return {name: {s: n for s, n in bind.items() if s in graph.symbols} for name, graph in graphs.items()}


def _check_weights(graphs: Mapping[str, Graph]) -> None:
    """Check that weights of the same name that came with several graphs are equal.

    Raises:
        Error: They differ; the message names both graphs.
    """
    first: dict[str, tuple[str, Any]] = {}
    for entry, graph in graphs.items():
        arguments = {a.name: a for a in graph.params}
        for name, value in graph.weights.items():
            if name not in arguments:
                continue
            other, known = first.setdefault(name, (entry, value))
            if value is known or _reads_the_same(value, known):
                continue
            if not _equal(*(argument_array(arguments[name], v) for v in (value, known))):
                raise Error(
                    f"parameter '{name}' came with other values in '{entry}' than in '{other}'",
                    hint="entry points share parameters by name: give them the same weights, or rename one",
                )


def _reads_the_same(a: Any, b: Any) -> bool:
    """Whether two values are the same tensor of a file, which may take long to convert."""
    if not isinstance(a, Weight) or not isinstance(b, Weight):
        return False
    return a.read is b.read and (a.encoding, a.shape) == (b.encoding, b.shape)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    if a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides:
        return True
    a, b = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (a, b))
    return np.array_equal(a, b)  # compared as bytes, so that NaN equals itself
