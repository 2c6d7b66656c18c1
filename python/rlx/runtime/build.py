"""`Build`: compilation of a graph, or of several, into entry points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.report.progress import waiting
from rlx.runtime.entry_point import CompiledFunction, EntryPoint
from rlx.runtime.together import compiled_together
from rlx.support.errors import Error
from rlx.support.short import join_names
from rlx.targets.artifacts.buckets import Buckets
from rlx.targets.artifacts.signature import Signature
from rlx.targets.cache import DiskCache
from rlx.targets.compilation import Compilation
from rlx.targets.joint import JointCompilation
from rlx.targets.options import CompileOptions
from rlx.targets.protocol import JointCompiler, Target
from rlx.targets.registry import backend_of
from rlx.targets.stages import prepare_graph


def _distinct(symbols: Mapping[str, str]) -> dict[str, str]:
    """Return names of functions: those of the graphs, with the names of the entry points where they are equal."""
    found: dict[str, str] = {}
    for entry, symbol in symbols.items():
        is_alone = list(symbols.values()).count(symbol) == 1
        name = symbol if is_alone else f"{symbol}_{entry}"
        while name in found.values():
            name += "_"
        found[entry] = name
    return found


class NotCachedError(Error):
    """A program is not in the cache."""


@dataclass(frozen=True)
class Build:
    """A call of `Session.compile`.

    Attributes:
        graph: The graph, or graphs by name, which are the entry points.
        target: The target.
        options: The options of the compilation.
        buckets: Sizes of symbols, for a single graph.
        cache: The cache of compiled programs; None for none.
        timeout: Seconds that an attempt of the compiler may take.
        threads: Threads that the program may use on the CPU.
        only_cached: Whether nothing is compiled.
    """

    graph: Graph | Mapping[str, Any]
    target: Target
    options: CompileOptions
    buckets: Mapping[str, Iterable[int]] | None = None
    cache: DiskCache | None = None
    timeout: float | None = None
    threads: int | None = None
    only_cached: bool = False

    def entries(self) -> tuple[Mapping[str | None, EntryPoint], Mapping[str, Any]]:
        """Return the entry points, and the weights that came with the graphs.

        Raises:
            CompileError: A graph cannot be expressed or compiled for the target.
            NotCachedError: Nothing is to be compiled, and a program is not in the cache.
            Error: Graphs differ in shared arguments, or buckets are wrong.
        """
        if isinstance(self.graph, Mapping):
            return compiled_together(self.graph, self.options, self._entry_points)
        entry, source = self._bucketed(self.graph) if self.buckets else self._entry_point(self.graph, self.options)
        return {None: entry}, source.weights

    def _entry_point(self, graph: Graph, options: CompileOptions) -> tuple[EntryPoint, Graph]:
        """Return the compiled graph, and the graph with its sizes bound."""
        compilation = Compilation(graph, self.target, options)
        if self.only_cached and not compilation.is_cached(self.cache):
            raise NotCachedError(f"'{graph.name}' is not in the cache")
        with waiting(f"compiling {graph.name} for {self.target.name}"):
            artifact = compilation.artifact(cache=self.cache, timeout=self.timeout)
        function = CompiledFunction(artifact, threads=self.threads, compilation=compilation, cache=self.cache)
        return EntryPoint.of(function), compilation.prepared

    def _entry_points(self, graphs: Mapping[str, tuple[Graph, CompileOptions]]) -> dict[str, tuple[EntryPoint, Graph]]:
        """Return compiled graphs: of one program, if the compiler can do that, and else of one each."""
        if len(graphs) == 1 or not isinstance(backend_of(self.target.name).compiler, JointCompiler):
            return {name: self._entry_point(*each) for name, each in graphs.items()}
        symbols = _distinct({name: graph.name_symbol for name, (graph, _) in graphs.items()})
        compilations = {
            name: Compilation(graph, self.target, options, symbol=symbols[name])
            for name, (graph, options) in graphs.items()
        }
        joint = JointCompilation(list(compilations.values()))
        if self.only_cached and not joint.is_cached(self.cache):
            raise NotCachedError(f"the program of {join_names(graphs)} is not in the cache")
        with waiting(f"compiling {', '.join(graphs)} for {self.target.name}"):
            artifacts = joint.artifacts(cache=self.cache, timeout=self.timeout)
        entries: dict[str, tuple[EntryPoint, Graph]] = {}
        for (name, compilation), artifact in zip(compilations.items(), artifacts, strict=True):
            function = CompiledFunction(artifact, threads=self.threads, compilation=compilation, cache=self.cache)
            entries[name] = EntryPoint.of(function), compilation.prepared
        return entries

    def _bucketed(self, graph: Graph) -> tuple[EntryPoint, Graph]:
        """Return a graph, prepared and compiled for each combination of sizes, and the prepared graph.

        Raises:
            Error: The buckets are wrong, or too many. Nothing has been compiled.
        """
        assert self.buckets is not None
        source, options = prepare_graph(graph, self.options), self.options.prepared
        signature = Signature.of(source)
        buckets = Buckets.of(self.buckets, signature)
        functions = {}
        for each in buckets.combinations:
            entry, _ = self._entry_point(source, replace(options, bind=buckets.named(each)))
            functions[each] = entry.functions[()]
        return EntryPoint(signature, functions, buckets), source
