"""Dry runs of patterns: the ops that match, and the reasons why others nearly match.

Reports use the same pattern functions as the passes. On a module that a pass has rewritten, they show the ops that were
not rewritten, and the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op.costs import Costs
from rlx.ir.op.views import View
from rlx.passes.fusion.cost import Estimate, estimate
from rlx.passes.pattern import Pattern, Rewriter, apply_pattern, by_root
from rlx.passes.rewrite import collect, is_unread


@dataclass(frozen=True)
class FusionFinding:
    """The result of a pattern on an op.

    Attributes:
        pattern: The pattern.
        operation: The op.
        reason: The reason why the pattern does not match; empty if it matches.
        hint: How to make it match.
        estimate: The estimated effect, if requested and the pattern matches.
    """

    pattern: Pattern
    operation: mlir.Operation
    reason: str = ""
    hint: str = ""
    estimate: Estimate | None = None


def explain(module: mlir.Module, patterns: Iterable[Pattern], costs: Costs | None = None) -> Iterator[FusionFinding]:
    """Try patterns on every op, without changing the module.

    Only the first reason of a pattern for an op is reported. After a match or near miss, the other patterns are still
    tried.
    """
    by_op, everywhere = by_root(patterns)
    for op in collect(module):
        if is_unread(op):
            continue
        for source, root in by_op.get(op.name, everywhere):
            view = root(op)
            for entry in source.candidates(view):
                yield from _findings(entry, view, costs)


def _findings(entry: Pattern, view: View, costs: Costs | None) -> Iterator[FusionFinding]:
    """Yield the result of a pattern on an op if it matches or nearly matches."""
    misses: list[tuple[str, str]] = []
    rewriter = Rewriter(view.operation, "explain", misses)
    result = apply_pattern(entry, view, rewriter)
    weighed = None if result is None or costs is None else estimate(view, rewriter, costs)
    rewriter.clear()
    if result is not None:
        yield FusionFinding(entry, view.operation, estimate=weighed)
    elif misses:
        yield FusionFinding(entry, view.operation, *misses[0])
