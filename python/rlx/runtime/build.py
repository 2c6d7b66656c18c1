"""`Build`: compilation of a graph, or of several, into entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.report.progress import waiting
from rlx.runtime.entry_point import CompiledFunction, EntryPoint
from rlx.runtime.together import compiled_together
from rlx.support.errors import Error
from rlx.support.short import join_names
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.buckets import Buckets
from rlx.targets.artifacts.signature import Signature
from rlx.targets.building import calls_lapack
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
        compilation = Compilation(graph, self.target, options, in_session=True)
        if self.only_cached and not compilation.is_cached(self.cache):
            raise NotCachedError(f"'{graph.name}' is not in the cache")
        with waiting(f"compiling {graph.name} for {self.target.name}"):
            artifact = compilation.artifact(cache=self.cache, timeout=self.timeout)
        (function,) = self._functions([compilation], [artifact])
        return EntryPoint.of(function), compilation.prepared

    def _entry_points(self, graphs: Mapping[str, tuple[Graph, CompileOptions]]) -> dict[str, tuple[EntryPoint, Graph]]:
        """Return compiled graphs: of one program, if the compiler can do that, and else of one each."""
        if len(graphs) == 1 or not isinstance(backend_of(self.target.name).compiler, JointCompiler):
            return {name: self._entry_point(*each) for name, each in graphs.items()}
        symbols = _distinct({name: graph.name_symbol for name, (graph, _) in graphs.items()})
        compilations = {
            name: Compilation(graph, self.target, options, symbol=symbols[name], in_session=True)
            for name, (graph, options) in graphs.items()
        }
        joint = JointCompilation(list(compilations.values()))
        if self.only_cached and not joint.is_cached(self.cache):
            raise NotCachedError(f"the program of {join_names(graphs)} is not in the cache")
        with waiting(f"compiling {', '.join(graphs)} for {self.target.name}"):
            artifacts = joint.artifacts(cache=self.cache, timeout=self.timeout)
        functions = self._functions(list(compilations.values()), artifacts)
        each = zip(compilations.items(), functions, strict=True)
        return {name: (EntryPoint.of(function), compilation.prepared) for (name, compilation), function in each}

    def _functions(self, compilations: Sequence[Compilation], artifacts: Sequence[Artifact]) -> list[CompiledFunction]:
        """Return the functions of one program."""
        for_files: list[Callable[[], Artifact] | None] = [None] * len(artifacts)
        if any(c.may_call_lapack for c in compilations) and any(map(calls_lapack, artifacts)):
            again = JointCompilation([c.for_file() for c in compilations])
            for_files = [partial(self._for_file, again, i) for i in range(len(artifacts))]
        return [
            CompiledFunction(a, threads=self.threads, compilation=c, cache=self.cache, for_file=f)
            for c, a, f in zip(compilations, artifacts, for_files, strict=True)
        ]

    def _for_file(self, again: JointCompilation, number: int) -> Artifact:
        (only, *others), cache, timeout = again.compilations, self.cache, self.timeout
        if not others:
            return only.artifact(cache=cache, timeout=timeout)
        return again.artifacts(cache=cache, timeout=timeout)[number]

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
