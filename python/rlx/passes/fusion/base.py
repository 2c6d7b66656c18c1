"""`Fusion`, a pass that combines ops into one; helpers to match values, and the record of fusions.

Fusions are recorded where they run: a listener (`record_fusions`) receives the fusions and the near misses from the patterns
that rewrite, on the module that they rewrote.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rlx import mlir
from rlx.ir.location import describe
from rlx.ir.op import opview, views
from rlx.ir.op.costs import Costs
from rlx.ir.op.views import View
from rlx.ir.shape import Shape, shape_of
from rlx.ops.lift import broadcasts_to
from rlx.passes.base import Pass
from rlx.passes.claims import fusions_of_target
from rlx.passes.fusion.cost import Estimate, only_where_it_pays
from rlx.passes.fusion.explain import explain
from rlx.passes.packages import PREFIX
from rlx.passes.pattern import Pattern, PatternSource, Rewriter, Standing, rewrite
from rlx.passes.simplification.invariants import is_parameter
from rlx.support.errors import PassError
from rlx.support.suggestions import suggestion


class Fusion(Pass, idempotent=True, abstract=True):
    """A pass of patterns, run by `rlx-fuse` or `rlx-recognize`.

    Attributes:
        makes: The op that it creates, without prefix.
        patterns: The patterns.
        helpers: Additional patterns that do not create the op.
        weighed: Whether the fusion changes how values are computed, so that it may not pay off (`cost.py`). Other
            fusions only rename a computation.
    """

    makes: ClassVar[str]
    patterns: ClassVar[tuple[Pattern, ...]]
    helpers: ClassVar[tuple[PatternSource, ...]] = ()
    weighed: ClassVar[bool] = False

    @classmethod
    def title(cls) -> str:
        """Return the name in reports: `matmul-bias-act` for `rlx-fuse-matmul-bias-act`."""
        return cls.name.removeprefix(PREFIX).removeprefix("fuse-")

    def run(self, module: mlir.Module) -> None:
        fuse(module, [[type(self)]], self.name)


def selected_fusions(
    name: str, fusions: Mapping[str, type[Fusion]], only: Iterable[str], target: str
) -> tuple[list[type[Fusion]], Costs | None]:
    """Return the fusions that options select, and the cost model of their target.

    Args:
        name: The pass, for messages.
        fusions: All fusions of the pass, by title.
        only: Titles; empty means all.
        target: The name of a target on which they must pay off; empty for none.

    Raises:
        PassError: The fusion or the target does not exist.
    """
    for title in only:
        if title not in fusions:
            raise PassError(f"{name}: there is no fusion '{title}'{suggestion(title, fusions)}")
    titles, costs = set(only) or set(fusions), None
    if target:
        known, costs = fusions_of_target(target)
        titles &= set(known)
    return [fusion for title, fusion in fusions.items() if title in titles], costs


# --- the record -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fused:
    """A fusion that was made: its title, and the user's `file:line` (empty when unknown)."""

    fusion: str
    location: str


@dataclass(frozen=True)
class Miss:
    """A fusion that was not made although its pattern matches, or nearly matches.

    Attributes:
        fusion: Its title, such as `"matmul-bias-act"`.
        reason: The reason why the ops were not fused.
        hint: How to enable the fusion.
        location: The user's `file:line` of the root op of the pattern, empty when unknown.
    """

    fusion: str
    reason: str
    hint: str
    location: str


@dataclass
class FusionRecord:
    """The record of the fusions of a pipeline.

    Attributes:
        fused: The fused ops that still existed at the end of their pass, in order.
        missed: Missed fusions, by fusion, from the last pass that ran it.
        off: The number of matches of each fusion that is disabled or does not pay off, by title.
        declined: Fusions that do not pay off: title, the user's `file:line`, and the estimate.
    """

    fused: list[Fused] = field(default_factory=list[Fused])
    missed: dict[str, list[Miss]] = field(default_factory=dict[str, list[Miss]])
    off: dict[str, int] = field(default_factory=dict[str, int])
    declined: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


_records: ContextVar[tuple[FusionRecord, ...]] = ContextVar("fusion records", default=())


@contextlib.contextmanager
def record_fusions() -> Generator[FusionRecord]:
    """Record all fusions that run in this context."""
    record = FusionRecord()
    token = _records.set((*_records.get(), record))
    try:
        yield record
    finally:
        _records.reset(token)


def fuse(
    module: mlir.Module,
    groups: Sequence[Sequence[type[Fusion]]],
    note: str,
    off: Iterable[type[Fusion]] = (),
    costs: Costs | None = None,
) -> None:
    """Apply the patterns of fusions, each group to a fixpoint, and notify listeners.

    Args:
        module: The module to rewrite.
        groups: The fusions; a later group matches the ops that an earlier one creates.
        note: The name in the locations of new ops.
        off: Disabled fusions; the number of their matches is reported.
        costs: The cost model of the target. Weighed fusions are applied where they pay off; without costs, wherever
            they match.
    """
    records = _records.get()
    standing: Standing | None = {} if records else None
    for group in groups:
        patterns = dict.fromkeys(p for fusion in group for p in (*fusion.helpers, *_weighed(fusion, costs)))
        if patterns:
            rewrite(module, patterns, note, standing)
    if not records:
        return
    active = [fusion for group in groups for fusion in group]
    owners = {pattern.name: fusion.title() for fusion in active for pattern in fusion.patterns}
    still_there = [(owners[name], location) for name, location in (standing or {}).values() if name in owners]
    fused = [Fused(title, describe(location) or "") for title, location in still_there]
    missed, matching = (
        [miss for _, miss in misses(module, active)],
        Counter(title for title, _, _ in matches(module, off)),
    )
    weighed = [fusion for fusion in active if fusion.weighed and costs is not None]
    declined = [(title, place, str(said)) for title, place, said in matches(module, weighed, costs)]
    matching.update(title for title, _, _ in declined)
    for record in records:
        record.fused += fused
        record.missed |= {fusion.title(): [m for m in missed if m.fusion == fusion.title()] for fusion in active}
        known = {title for title, _, _ in declined} | (matching.keys() - record.missed.keys())
        record.off |= {title: count for title, count in matching.items() if title in known}
        record.declined += declined


def _weighed(fusion: type[Fusion], costs: Costs | None) -> tuple[Pattern, ...]:
    if costs is None or not fusion.weighed:
        return fusion.patterns
    return tuple(only_where_it_pays(pattern, costs) for pattern in fusion.patterns)


def misses(module: mlir.Module, fusions: Iterable[type[Fusion]]) -> Iterator[tuple[mlir.Location, Miss]]:
    """Yield near misses of fusions in a module, in program order, each with the location of its op."""
    owners = {pattern: fusion.title() for fusion in fusions for pattern in fusion.patterns}
    for said in explain(module, owners):
        if said.reason:
            place = opview.place_of(said.operation)
            yield said.operation.location, Miss(owners[said.pattern], said.reason, said.hint, place)


def matches(
    module: mlir.Module, fusions: Iterable[type[Fusion]], costs: Costs | None = None
) -> Iterator[tuple[str, str, Estimate | None]]:
    """Yield matches of fusions in a module: title, the user's line and, with costs, the estimate."""
    owners = {pattern: fusion.title() for fusion in fusions for pattern in fusion.patterns}
    for said in explain(module, owners, costs):
        if not said.reason:
            yield owners[said.pattern], opview.place_of(said.operation), said.estimate


# --- inspection of values -----------------------------------------------------------------------

ELSEWHERE = "a value in between is read elsewhere too"
USE_RESULT = "use the result instead of that value, or compute it once more"


def is_vector(value: mlir.Value, size: Any) -> bool:
    """Whether a value is a vector of the given size, such as a bias or a scale."""
    return shape_of(value).dims == (size,)


def is_row(value: mlir.Value, like: Shape) -> bool:
    """Whether a value varies only along the last axis of a shape, such as a bias with leading axes of size 1."""
    shape = shape_of(value)
    return shape.rank <= like.rank and all(d == 1 for d in shape.dims[:-1]) and broadcasts_to(shape.dims, like.dims)


def is_weight(value: mlir.Value) -> bool:
    """Whether a value depends only on parameters and constants, through ops that only move or convert elements."""
    while isinstance(value, mlir.ir.OpResult):
        op = value.owner.operation
        if op.name == "rlx.constant":
            return True
        if not opview.has_trait(op, "rearranges") and op.name != "rlx.cast":
            return False
        value = op.operands[0]
    return is_parameter(value)


def weight_before(rewriter: Rewriter, op: View, value: mlir.Value) -> mlir.Value:
    """Return a weight (`is_weight`) at a matched op; it is recomputed there if it is defined later."""
    if isinstance(value, mlir.ir.BlockArgument):
        return value
    maker = value.owner.operation
    if maker.block == op.operation.block and maker.is_before_in_block(op.operation):
        return value
    operands = [weight_before(rewriter, op, v) for v in maker.operands]
    return rewriter.emit(opview.name_of(maker), operands, **opview.attributes_of(maker))


def runs_once(op: View) -> bool:
    """Whether an op is in the function body, and not in the body of a loop or a branch."""
    return op.operation.block.owner.operation.name == "func.func"


def readers(value: mlir.Value) -> list[mlir.Operation]:
    """Return the ops that read a value, without duplicates."""
    return list(dict.fromkeys(use.owner.operation for use in value.uses))


def operand_pairs(op: views.Binary) -> tuple[tuple[mlir.Value, mlir.Value], ...]:
    """Return the operands of a binary op in either order."""
    return (op.lhs, op.rhs), (op.rhs, op.lhs)
