"""`Pipeline`: from a graph to what a target lowers, stage by stage, with reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rlx.backends import stages
from rlx.backends.artifact import Artifact
from rlx.backends.cache import DiskCache
from rlx.backends.protocol import Backend, Target, backend_of, target_of
from rlx.ir.graph import Graph
from rlx.report.dispatch import DispatchReport, analyse_dispatch
from rlx.report.fusion import FusionReport, analyse_fusion
from rlx.report.memory import MemoryReport, analyse_memory
from rlx.report.text import counts_text

# What a symbol without a size is taken to be in the memory plan.
_TYPICAL_SIZE = 64


@dataclass(frozen=True)
class Pipeline:
    """All that happens to a graph before it is compiled for a target, without compiling it.

    Args:
        target: `"cpu"`, `"cuda"`, `"rocm"`, `"vulkan"`, `"metal"`, `"vmvx"`, `"xla"` or `"stablehlo"`.
        arch: Its architecture, such as `"sm_80"`; None takes the default one.
        policy: Whether ops are fused at MIR (`"direct"`, unless the module declares otherwise), or stay primitives
            (`"fusable"`).
        passes: A pipeline of passes to run first, as text.
        bind: Sizes of symbols that are fixed; the others stay symbolic.
        precision: `"f16"` or `"bf16"`, as in `Session.compile`.

    Raises:
        Error: There is no such target, architecture or policy.
    """

    target: str = "cpu"
    arch: str | None = None
    policy: str = "direct"
    passes: str | None = None
    bind: Mapping[str, int] | None = None
    precision: Any = None

    def __post_init__(self) -> None:
        stages.check_policy(self.policy)
        target_of(self.target, self.arch)

    @property
    def backend(self) -> Backend:
        """What compiles for the target."""
        return backend_of(self.target)

    def compile(self, graph: Any) -> CompileResult:
        """Take a graph through all stages. It is not changed.

        Args:
            graph: A `Graph` or `GraphModule`, HIR or MIR.

        Raises:
            Error: An option does not fit the graph, or a pass failed.
        """
        given = stages.graph_of(graph, "Pipeline.compile", lowered=False).clone()
        prepared = stages.prepared(given, self.bind, self.precision, self.passes, self.policy)
        mir = stages.lowered_blocks(prepared, self.policy)
        lir = stages.legalised(mir, self.backend.claimed_ops(), policy="fusable")  # what is to be fused is so by now
        return CompileResult(self, given, mir, lir)


@dataclass(frozen=True)
class CompileResult:
    """A graph at every stage on its way to a target, and reports on it. `str()` is a summary.

    Attributes:
        pipeline: The options.
        hir: The graph as given.
        mir: Sizes bound, passes run, precision lowered, blocks replaced by tensor ops.
        lir: What the target lowers: ops that it does not claim are decomposed.
    """

    pipeline: Pipeline
    hir: Graph
    mir: Graph
    lir: Graph

    @property
    def target(self) -> Target:
        """What the graph is for."""
        return self.pipeline.backend.target(self.pipeline.target, self.pipeline.arch)

    @cached_property
    def fusion(self) -> FusionReport:
        """What fused on the way to MIR, and what could have."""
        return analyse_fusion(self.hir, self.mir)

    @cached_property
    def memory(self) -> MemoryReport:
        """The memory plan of the LIR, with 64 for each symbol that has no size.

        What is computed from weights alone is not in it: the compiler has it computed when the program is loaded.
        """
        sizes = dict.fromkeys(self.dynamic_symbols, _TYPICAL_SIZE)
        return analyse_memory(self.lir, sizes=sizes, hoist_weights=True)

    @cached_property
    def dispatch(self) -> DispatchReport:
        """Which way each op of the MIR goes on the target."""
        target = self.target
        named = f"{target.name} ({target.arch})"
        claimed = self.pipeline.backend.claimed_ops()
        return analyse_dispatch(self.mir, claimed, target=named, unsupported_dtypes=target.unsupported_dtypes)

    @property
    def dynamic_symbols(self) -> tuple[str, ...]:
        """The symbols that have no size yet, by name."""
        return tuple(sorted(self.lir.symbols))

    @property
    def has_dynamic_dims(self) -> bool:
        """Whether some size is not known yet."""
        return bool(self.dynamic_symbols)

    def specialise(self, bind: Mapping[str, int]) -> CompileResult:
        """The same with more symbols bound.

        Raises:
            Error: A symbol is unknown.
        """
        return replace(self.pipeline, bind={**(self.pipeline.bind or {}), **bind}).compile(self.hir)

    def artifact(self, *, cache: DiskCache | None = None, timeout: float | None = None) -> Artifact:
        """Compile the MIR for the target. The first call does the work.

        Args:
            cache: Where compiled programs are kept.
            timeout: Seconds that an attempt of the compiler may take.

        Raises:
            CompileError: It cannot be expressed or compiled for the target.
        """
        found = self.__dict__.get("_artifact")
        if found is None:
            found = self.pipeline.backend.compile_graph(
                self.mir, self.target, fusion_policy=self.pipeline.policy, cache=cache, timeout_s=timeout
            )
            self.__dict__["_artifact"] = found
        return found

    def __str__(self) -> str:
        pipeline, target = self.pipeline, self.target
        options = [f"policy {pipeline.policy}", f"precision {stages.precision_name(pipeline.precision)}"]
        if pipeline.bind:
            options.append("with " + ", ".join(f"{name} = {size}" for name, size in pipeline.bind.items()))
        if pipeline.passes:
            options.append(f"after {pipeline.passes}")
        lines = [f"@{self.hir.name_symbol} for {target.name} ({target.arch}), {', '.join(options)}"]
        lines.append(f"  given ({self.hir.stage}): {counts_text(self.fusion.before)}")
        lines.append(f"  mir: {counts_text(self.fusion.after)}")
        lines.append(f"  lir: {counts_text(analyse_fusion(self.hir, self.lir).after)}")
        lines += [f"  {report.summary()}" for report in (self.fusion, self.memory, self.dispatch)]
        return "\n".join(lines) + "\n"
