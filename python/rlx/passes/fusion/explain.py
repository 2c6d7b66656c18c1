"""What patterns have to say of each op of a module, without a rewrite: which match, and why others nearly do.

A report asks the very functions that rewrite. Run on a module where they have been applied, it tells what they left and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op.costs import Costs
from rlx.passes.fusion.cost import Estimate, estimate
from rlx.passes.pattern import Pattern, Rewriter, applied, by_root
from rlx.passes.rewrite import collect, is_unread


@dataclass(frozen=True)
class FusionFinding:
    """What a pattern says of an op.

    Attributes:
        pattern: The pattern.
        operation: The op.
        reason: What is in the way; empty where the pattern matches.
        hint: What would make it match.
        estimate: What it would change, where that was asked for and it matches.
    """

    pattern: Pattern
    operation: mlir.Operation
    reason: str = ""
    hint: str = ""
    estimate: Estimate | None = None


def explain(module: mlir.Module, patterns: Iterable[Pattern], costs: Costs | None = None) -> Iterator[FusionFinding]:
    """Try patterns on every op, and leave the module as it is.

    Of what a pattern says of one op, the first counts; where it matches, or nearly does, the others are tried all the same.
    """
    by_op, everywhere = by_root(patterns)
    for op in collect(module):
        if is_unread(op):
            continue
        for entry, root in by_op.get(op.name, everywhere):
            misses: list[tuple[str, str]] = []
            rewriter = Rewriter(op, "explain", misses)
            view = root(op)
            given = applied(entry, view, rewriter)
            weighed = None if given is None or costs is None else estimate(view, rewriter, costs)
            rewriter.clear()
            if given is not None:
                yield FusionFinding(entry, op, estimate=weighed)
            elif misses:
                yield FusionFinding(entry, op, *misses[0])
