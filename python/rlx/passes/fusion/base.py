"""`Fusion`: a pass that makes one op out of others, what fusions ask of values, and the record of what they did.

A fusion is judged where it runs: whoever listens (`recorded`) gets what fused and what nearly did, from the patterns that
rewrite, on the module that they rewrote.
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
from rlx.passes.fusion.cost import Estimate, priced
from rlx.passes.fusion.explain import explain
from rlx.passes.packages import PREFIX
from rlx.passes.pattern import Pattern, Rewriter, Standing, rewrite
from rlx.passes.simplification.invariants import is_parameter
from rlx.support.errors import PassError
from rlx.support.suggestions import suggestion


class Fusion(Pass, idempotent=True):
    """A pass of patterns, one of those that `rlx-fuse` or `rlx-recognize` runs.

    Attributes:
        makes: The op that it makes, without prefix.
        patterns: How.
        helpers: Patterns that are applied beside those, which make nothing of their own.
        weighed: Whether it computes in another way, so that it pays here and not there (`cost.py`); others make a name for what
            is computed in any case.
    """

    makes: ClassVar[str]
    patterns: ClassVar[tuple[Pattern, ...]]
    helpers: ClassVar[tuple[Pattern, ...]] = ()
    weighed: ClassVar[bool] = False

    @classmethod
    def title(cls) -> str:
        """What reports call it: `matmul-bias-act` of `rlx-fuse-matmul-bias-act`."""
        return cls.name.removeprefix(PREFIX).removeprefix("fuse-")

    def run(self, module: mlir.Module) -> None:
        fuse(module, [[type(self)]], self.name)


def chosen(
    name: str, fusions: Mapping[str, type[Fusion]], only: Iterable[str], target: str
) -> tuple[list[type[Fusion]], Costs | None]:
    """The fusions that options name, and what work costs on their target.

    Args:
        name: The pass, for messages.
        fusions: All that it knows, by title.
        only: Titles; none means all.
        target: The name of a target, for which they have to pay; empty for none.

    Raises:
        PassError: There is no such fusion, or no such target.
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
    """A fusion that was not made though its pattern is there, or nearly.

    Attributes:
        fusion: Its title, such as `"matmul-bias-act"`.
        reason: What is in the way.
        hint: What would make it fuse.
        location: The user's `file:line` of the op that the pattern starts from, empty when unknown.
    """

    fusion: str
    reason: str
    hint: str
    location: str


@dataclass
class FusionRecord:
    """What the fusions of a pipeline did.

    Attributes:
        fused: What they made and what still stood when their pass ended, in order.
        missed: What they did not make, by fusion: what the last pass left that ran it.
        off: How often a fusion matches that is off, or does not pay, by its title.
        declined: What was estimated where one does not pay: its title, the user's `file:line`, and the estimate.
    """

    fused: list[Fused] = field(default_factory=list[Fused])
    missed: dict[str, list[Miss]] = field(default_factory=dict[str, list[Miss]])
    off: dict[str, int] = field(default_factory=dict[str, int])
    declined: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


_records: ContextVar[tuple[FusionRecord, ...]] = ContextVar("fusion records", default=())


@contextlib.contextmanager
def recorded() -> Generator[FusionRecord]:
    """A record of all fusions that run inside."""
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
    """Apply the patterns of fusions, each group until none matches, and tell whoever listens.

    Args:
        module: What is rewritten.
        groups: The fusions; a later group looks for what an earlier one makes.
        note: What the locations of new ops say.
        off: Fusions that are not to be made; how often they match is told.
        costs: Of the target: fusions that are weighed are made where they pay there. Without, wherever they match.
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
    return tuple(priced(pattern, costs) for pattern in fusion.patterns)


def misses(module: mlir.Module, fusions: Iterable[type[Fusion]]) -> Iterator[tuple[mlir.Location, Miss]]:
    """What fusions would not make of a module though it nearly is there, in program order, each at its op's location."""
    owners = {pattern: fusion.title() for fusion in fusions for pattern in fusion.patterns}
    for said in explain(module, owners):
        if said.reason:
            place = opview.place_of(said.operation)
            yield said.operation.location, Miss(owners[said.pattern], said.reason, said.hint, place)


def matches(
    module: mlir.Module, fusions: Iterable[type[Fusion]], costs: Costs | None = None
) -> Iterator[tuple[str, str, Estimate | None]]:
    """Where fusions match in a module: the title of each, the user's line, and with costs what it would change."""
    owners = {pattern: fusion.title() for fusion in fusions for pattern in fusion.patterns}
    for said in explain(module, owners, costs):
        if not said.reason:
            yield owners[said.pattern], opview.place_of(said.operation), said.estimate


# --- looking at values ----------------------------------------------------------------------------

ELSEWHERE = "a value in between is read elsewhere too"
USE_RESULT = "use the result instead of that value, or compute it once more"


def is_vector(value: mlir.Value, size: Any) -> bool:
    """Whether a value is a vector of so many elements, as a bias or a scale is."""
    return shape_of(value).dims == (size,)


def is_row(value: mlir.Value, like: Shape) -> bool:
    """Whether a value varies along the last axis of a shape at most, as a bias does that is written with leading ones."""
    shape = shape_of(value)
    return shape.rank <= like.rank and all(d == 1 for d in shape.dims[:-1]) and broadcasts_to(shape.dims, like.dims)


def is_weight(value: mlir.Value) -> bool:
    """Whether a value depends on parameters and constants alone, and only moves or converts their elements."""
    while isinstance(value, mlir.ir.OpResult):
        op = value.owner.operation
        if op.name == "rlx.constant":
            return True
        if not opview.has_trait(op, "rearranges") and op.name != "rlx.cast":
            return False
        value = op.operands[0]
    return is_parameter(value)


def weight_before(rewriter: Rewriter, op: View, value: mlir.Value) -> mlir.Value:
    """A weight (`is_weight`) in front of an op that a pattern has matched: computed there once more, where it comes later."""
    if isinstance(value, mlir.ir.BlockArgument):
        return value
    maker = value.owner.operation
    if maker.block == op.operation.block and maker.is_before_in_block(op.operation):
        return value
    operands = [weight_before(rewriter, op, v) for v in maker.operands]
    return rewriter.emit(opview.name_of(maker), operands, **opview.attributes_of(maker))


def runs_once(op: View) -> bool:
    """Whether an op stands in the function itself, not in the body of a loop or a branch."""
    return op.operation.block.owner.operation.name == "func.func"


def readers(value: mlir.Value) -> list[mlir.Operation]:
    """The ops that read a value, each once."""
    return list(dict.fromkeys(use.owner.operation for use in value.uses))


def operand_pairs(op: views.Binary) -> tuple[tuple[mlir.Value, mlir.Value], ...]:
    """The operands of an op with two, in either order."""
    return (op.lhs, op.rhs), (op.rhs, op.lhs)
