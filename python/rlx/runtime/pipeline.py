"""`Pipeline`: the stages from a graph to the module that a target lowers, with reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlx.ir.calls import Answered
from rlx.ir.graph.graph import Graph
from rlx.passes.dtypes.precision_policies import precision_policy
from rlx.report import html
from rlx.report.dispatch import DispatchReport, dispatch_of
from rlx.report.fusion import FusionReport, analyse_fusion, op_counts
from rlx.report.history import CompileHistory, analyse_history
from rlx.report.memory import MemoryReport, memory_of_program
from rlx.report.profile import ProfileReport
from rlx.report.text import counts_text
from rlx.runtime.profiling import profile
from rlx.support.cached_property import cached_property
from rlx.support.errors import UnsupportedError
from rlx.support.options import documents_options
from rlx.support.printable import printable, printable_lines
from rlx.targets import stages
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.cache import DiskCache
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_of


@documents_options(CompileOptions)
@dataclass(frozen=True)
class Pipeline(CompileOptions, Answered):
    """All that happens to a graph before it is compiled for a target, without compiling it.

    Args:
        target: The name of a target, such as `"cpu"`, `"cuda"` or `"stablehlo"`; `docs/targets.md` lists them.
        arch: Its architecture, such as `"sm_80"`; None takes the default one.
        options: As in `Session.compile`, by name.
        assert_fusion_clean: Whether to refuse a graph in which a fusion nearly matches: `FusionReport.assert_clean`.

    Raises:
        Error: The target, architecture, policy or level does not exist.
    """

    target: str = "cpu"
    arch: str | None = None
    assert_fusion_clean: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        target_of(self.target, self.arch)

    def compile(self, graph: Any) -> CompileResult:
        """Lower a graph to MIR. LIR, reports and the artifact are created on demand. The graph is not changed.

        Args:
            graph: A `Graph` or `GraphModule`, HIR or MIR.

        Raises:
            Error: An option does not fit the graph, a pass failed, or a required fusion was missed.
        """
        result = CompileResult(self, stages.graph_of(graph, "Pipeline.compile").clone())
        _ = result.mir
        if self.assert_fusion_clean:
            result.fusion.assert_clean()
        return result


class CompileResult(Compilation):
    """A graph at every stage on its way to a target, with reports. `str()` is a summary.

    `mir` is the graph after binding of sizes, passes and precision lowering, with blocks replaced by tensor ops. `lir`
    is the graph that the target lowers, with other ops decomposed; it raises an `UnsupportedError` if the target does
    not support the graph.

    Attributes:
        pipeline: The options.
        hir: The given graph.
    """

    def __init__(self, pipeline: Pipeline, graph: Graph):
        super().__init__(graph, target_of(pipeline.target, pipeline.arch), pipeline, in_session=True)
        self.pipeline = pipeline

    def artifact(self, *, cache: DiskCache | None = None, timeout: float | None = None) -> Artifact:
        """Compile the graph for the target, without calls of LAPACK: see `Compilation.artifact`."""
        if not self.may_call_lapack:
            return super().artifact(cache=cache, timeout=timeout)
        return self._for_file.artifact(cache=cache, timeout=timeout)

    @cached_property
    def _for_file(self) -> Compilation:
        return self.for_file()

    @property
    def hir(self) -> Graph:
        """The given graph."""
        return self.given

    @cached_property
    def fusion(self) -> FusionReport:
        """Fusions on the way to MIR, near misses and how to enable them. The passes run again for this."""
        return analyse_fusion(self.hir, self.passes_to_mir)

    @cached_property
    def memory(self) -> MemoryReport:
        """The memory plan of the program, with 64 for each symbol without a size: that of the target's own planner.

        For targets without one it is the plan stored in the LIR, else a new one without the values that depend only on
        weights: they are computed when the program is loaded.
        """
        return memory_of_program(self)

    @cached_property
    def dispatch(self) -> DispatchReport:
        """The way in which the target implements each op of the MIR."""
        return dispatch_of(self)

    @cached_property
    def history(self) -> CompileHistory:
        """The changes of each pass on the way to LIR. The passes run again for this."""
        return analyse_history(self.hir, self.passes_to_lir)

    def profile(
        self,
        inputs: Mapping[str, Any] | None = None,
        params: Any = None,
        *,
        runs: int = 20,
        threads: int | None = None,
    ) -> ProfileReport:
        """Compile the graph, and measure each kernel: its time, and the user's lines that it computes.

        Args:
            inputs: Arrays by name; missing ones are random.
            params: Weights, by name or as the path of a file. Those that came with the graph are optional.
            runs: The number of runs.
            threads: The number of threads, as for `Session`.

        Raises:
            Error: An array does not fit, or the target cannot be measured here.
        """
        return profile(self, inputs, params, runs=runs, threads=threads)

    @property
    def dynamic_symbols(self) -> tuple[str, ...]:
        """The symbols without a size, by name."""
        return tuple(sorted(self.lir.symbols))

    @property
    def has_dynamic_dims(self) -> bool:
        """Whether some size is unknown."""
        return bool(self.dynamic_symbols)

    def specialise(self, bind: Mapping[str, int]) -> CompileResult:
        """Return the result with more symbols bound.

        Raises:
            Error: A symbol is unknown.
        """
        return replace(self.pipeline, bind={**(self.pipeline.bind or {}), **bind}).compile(self.hir)

    def __repr__(self) -> str:
        return f"<CompileResult {self._title()}>"

    def _repr_html_(self) -> str:
        reports: list[FusionReport | DispatchReport | MemoryReport | CompileHistory] = [self.history, self.fusion]
        try:
            reports += [self.dispatch, self.memory]
        except UnsupportedError:
            reports = [self.history, self.fusion, self.dispatch]
        return html.fragment(self._title(), "".join(html.details(r.summary(), r.html_body()) for r in reports))

    def _title(self) -> str:
        pipeline, target = self.pipeline, self.target
        precision = f"precision {precision_policy(pipeline.precision).name}"
        options = [f"O{pipeline.opt}", f"policy {pipeline.policy}", precision]
        if pipeline.bind:
            options.append("with " + ", ".join(f"{name} = {size}" for name, size in pipeline.bind.items()))
        if pipeline.passes:
            options.append(f"after {pipeline.passes}")
        return printable(f"@{self.hir.name_symbol} for {target.name} ({target.arch}), {', '.join(options)}", keep="")

    def __str__(self) -> str:
        lines = [self._title()]
        lines.append(f"  given ({self.hir.stage}): {counts_text(self.fusion.before)}")
        lines.append(f"  mir: {counts_text(self.fusion.after)}")
        try:
            lines.append(f"  lir: {counts_text(op_counts(self.lir))}")
            reports = (self.fusion, self.memory, self.dispatch)
        except UnsupportedError as problem:
            lines += ("  lir: " + problem.message.replace("\n", "\n  ")).split("\n")
            reports = (self.fusion, self.dispatch)
        return printable_lines([*lines, *(f"  {report.summary()}" for report in reports)])
