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
from rlx.targets.artifacts.buckets import Buckets
from rlx.targets.artifacts.signature import Signature
from rlx.targets.cache import DiskCache
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileOptions
from rlx.targets.protocol import Target
from rlx.targets.stages import prepare_graph


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
            return compiled_together(self.graph, self.options, self._entry_point)
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
