"""The dispatch report: how each op of a graph is lowered for a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview, registry
from rlx.ir.op.opview import place_of
from rlx.ir.shape import shape_of
from rlx.passes import run
from rlx.passes.decompose import Decompose
from rlx.passes.pipeline import PassPipeline
from rlx.passes.rewrite import collect
from rlx.passes.runner import run_on_module
from rlx.report import html
from rlx.report.text import counts_text, short_place, table
from rlx.support.errors import Error
from rlx.support.printable import printable_lines
from rlx.support.short import report_repr
from rlx.targets import stages
from rlx.targets.compilation import Compilation
from rlx.targets.dispatch import KernelDispatchPolicy, kernel_passes

PATHS = ("native", "kernel", "decomposed", "unsupported")
_SHOWN_PLACES = 3
_HEADER = ("op", "count", "path", "into")


@dataclass(frozen=True)
class OpDispatch:
    """All ops of one name that are lowered in the same way.

    Attributes:
        name: The name of the op, without prefix.
        path: `"native"`: the target lowers the op itself. `"kernel"`: a kernel implements it. `"decomposed"`: the target
            lowers the ops of the decomposition. `"unsupported"`: none of these.
        count: The number of ops.
        into: The total numbers of the resulting ops, by name; the op itself when it is native, the name of its kernel.
        reason: The reason why they are not supported, else empty.
        locations: The user's lines, without duplicates, in order.
    """

    name: str
    path: str
    count: int
    into: Counter[str]
    reason: str
    locations: tuple[str, ...]


@dataclass(frozen=True)
class DispatchReport:
    """How each op is lowered. `str()` is a table.

    Attributes:
        target: The name of the target.
        rows: By name and path; unsupported ops first, then the most frequent.
    """

    target: str
    rows: tuple[OpDispatch, ...]

    @property
    def compile_ready(self) -> bool:
        """Whether every op can be lowered."""
        return not any(row.path == "unsupported" for row in self.rows)

    def count(self, path: str) -> int:
        """Return the number of ops with one path: `"native"`, `"kernel"`, `"decomposed"` or `"unsupported"`."""
        return sum(row.count for row in self.rows if row.path == path)

    def summary(self) -> str:
        """Return the report on one line."""
        counts = ", ".join(f"{self.count(path)} {path}" for path in PATHS if self.count(path)) or "no ops"
        return f"dispatch for {self.target}: {counts}; {'ready to compile' if self.compile_ready else 'cannot compile'}"

    def _cells(self) -> list[tuple[str, str, str, str]]:
        rows = []
        for row in self.rows:
            if row.path == "unsupported":
                places = [short_place(p) for p in row.locations[:_SHOWN_PLACES]]
                hidden = [f"{len(row.locations) - len(places)} more"] if len(row.locations) > len(places) else []
                note = row.reason + (f" ({', '.join([*places, *hidden])})" if places else "")
            else:
                note = "" if row.path == "native" else counts_text(row.into)
            rows.append((row.name, str(row.count), row.path, note))
        return rows

    def html_body(self) -> str:
        """Return the report as HTML, without its summary."""
        return html.table(self._cells(), _HEADER, right=(1,), wrapped=True)

    def _repr_html_(self) -> str:
        return html.fragment(self.summary(), self.html_body())

    def __repr__(self) -> str:
        return report_repr(self, self.summary())

    def __str__(self) -> str:
        rows = self._cells()
        lines = table(rows, _HEADER, right=(1,), indent="  ") if rows else []
        return printable_lines([self.summary(), *lines])


def analyse_dispatch(
    graph: Graph,
    claimed: Collection[str],
    *,
    target: str = "linalg",
    unsupported_dtypes: Collection[str] = (),
    policy: KernelDispatchPolicy | None = None,
) -> DispatchReport:
    """Report how every op is lowered.

    Args:
        graph: MIR (or HIR, whose blocks count as composite ops), with the marks of rlx-iree-kernels; it is not changed.
        claimed: Names of the ops that the target lowers itself.
        target: The name of the target, for the report.
        unsupported_dtypes: Names of the dtypes that the target does not support.
        policy: The composite ops to decompose; None decomposes those that are not claimed.
    """
    analysis = _Analysis(frozenset(claimed), frozenset(unsupported_dtypes), policy or KernelDispatchPolicy())
    groups: dict[tuple[str, str, str], tuple[int, Counter[str], dict[str, None]]] = {}
    for op in collect(graph.module):
        name = opview.name_of(op)
        path, into, reason = analysis.path(op)
        count, total, places = groups.get((name, path, reason), (0, Counter[str](), dict[str, None]()))
        total.update(into)
        if place := place_of(op):
            places[place] = None
        groups[name, path, reason] = (count + 1, total, places)
    rows = [
        OpDispatch(name, path, count, into, reason, tuple(places))
        for (name, path, reason), (count, into, places) in groups.items()
    ]
    rows.sort(key=lambda row: (row.path != "unsupported", -row.count, row.name))
    return DispatchReport(target, tuple(rows))


def dispatch_of(compilation: Compilation) -> DispatchReport:
    """Return how each op of a compilation's MIR is lowered."""
    target, check = compilation.target, stages.check_of(compilation.target.pipeline)
    return analyse_dispatch(
        run(compilation.mir, kernel_passes(compilation.passes_to_lir)),
        check.accepted,
        target=f"{target.name} ({target.arch})",
        unsupported_dtypes=check.unsupported_dtypes,
        policy=compilation.dispatch_policy,
    )


class _Analysis:
    """The lowering of ops by a target."""

    def __init__(self, claimed: frozenset[str], unsupported_dtypes: frozenset[str], policy: KernelDispatchPolicy):
        self._cards = registry.load()
        self._policy = policy
        self._claimed = claimed
        self._native = frozenset(name for name in claimed if not self._is_common(name))
        self._unsupported = unsupported_dtypes
        self._parts: dict[Any, tuple[Counter[str], str]] = {}

    def _is_common(self, name: str) -> bool:
        card = self._cards.get(name)
        return card is not None and card.composite and self._policy.is_common(name, self._claimed)

    def path(self, op: Any) -> tuple[str, Counter[str], str]:
        """Return the path of an op, the resulting ops, and the reason why it is not supported."""
        name = opview.name_of(op)
        dtypes = sorted({shape_of(r).dtype.name for r in op.results} & self._unsupported)
        if dtypes:
            return "unsupported", Counter(), f"no {', '.join(dtypes)}"
        if kernel := opview.kernel_of(op):
            return "kernel", Counter({kernel: 1}), ""
        if name in self._native:
            return "native", Counter({name: 1}), ""
        if not opview.card_of(op).composite:
            return "unsupported", Counter(), "no lowering, and it is a primitive"
        if registry.is_ours(op) and not self._is_common(name):
            return "unsupported", Counter(), f"no lowering, and the dispatch policy '{self._policy}' keeps it"
        key = (name, tuple(o.type for o in op.operands), tuple((n, op.attributes[n]) for n in op.attributes))
        if key not in self._parts:
            self._parts[key] = self._decomposed(op)
        into, reason = self._parts[key]
        return ("unsupported" if reason else "decomposed"), into, reason

    def _decomposed(self, op: Any) -> tuple[Counter[str], str]:
        """Return the ops that an op becomes when it is lowered alone, and the unsupported ops among them."""
        if len(op.regions):
            return Counter(), ""  # the op becomes the ops of its regions, which have separate rows
        alone = _alone(op)
        try:
            run_on_module(alone, PassPipeline.of(Decompose(except_=tuple(self._native))))
        except Error as problem:
            return Counter(), f"its decomposition fails: {problem.message}"
        into: Counter[str] = Counter()
        missing: dict[str, None] = {}
        for inner in collect(alone):
            name = opview.name_of(inner)
            into[name] += 1
            dtypes = {shape_of(r).dtype.name for r in inner.results} & self._unsupported
            if dtypes:
                missing[f"{name} of {', '.join(sorted(dtypes))}"] = None
            elif name not in self._native:
                missing[name] = None
        return into, f"becomes {', '.join(missing)}, without a lowering" if missing else ""


def _alone(op: Any) -> Any:
    """Return a module with only a copy of one op, whose operands are arguments."""
    ir = mlir.ir
    with mlir.entered():
        module = ir.Module.create(loc=op.location)
        stage = opview.card_of(op).spec.stage
        module.operation.attributes["rlx.stage"] = ir.StringAttr.get(stage)
        types, results = [o.type for o in op.operands], [r.type for r in op.results]
        function_type = ir.FunctionType.get(types, results)
        function = mlir.dialect("func").FuncOp("alone", function_type, ip=ir.InsertionPoint(module.body))
        block = function.add_entry_block()
        copy = op.clone(ip=ir.InsertionPoint(block))
        copied = copy.operation
        for i, argument in enumerate(block.arguments):
            copied.operands[i] = argument
        mlir.dialect("func").ReturnOp(list(copied.results), ip=ir.InsertionPoint(block))
        return module
