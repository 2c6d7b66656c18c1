"""A counter of all rewrites of a pipeline, which may end it after so many: `rlx-opt --rewrite-limit`, and what bisects over it.

Two places count: the driver of patterns (`pattern.py`) and `rewrite.replace`, which all other passes replace ops with. After
each rewrite a module is whole, and so it may be judged there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.text.assembly import write

_MOST_SHOWN = 40  # ops that one rewrite made


class RewritesStopped(BaseException):
    """The limit is reached. It is no `Exception`, which passes and the runner would take for a mistake of a pass."""


@dataclass(frozen=True)
class Rewriting:
    """One rewrite, as text.

    Attributes:
        name: Of the pattern; of the op that is replaced, where a pass does it without patterns.
        location: The user's `file:line` of the op, empty when unknown.
        before: The op, behind those that it reads.
        after: What was made instead, and the values that stand for its results.
    """

    name: str
    location: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass
class RewriteCounter:
    """Counts rewrites.

    Attributes:
        limit: After how many to stop; None for never.
        count: How many there were.
        last: The one at the limit.
    """

    limit: int | None = None
    count: int = 0
    last: Rewriting | None = field(default=None)

    def begin(
        self,
        name: str,
        op: mlir.Operation,
        values: Sequence[mlir.Value],
        made: Sequence[mlir.Operation] | None = None,
    ) -> None:
        """An op is about to be replaced.

        Args:
            name: What the rewrite is called.
            op: The op.
            values: What stands for its results.
            made: The ops that were made for it; None for those that give the values.

        Raises:
            RewritesStopped: None is allowed.
        """
        if self.count == self.limit:
            raise RewritesStopped
        self.count += 1
        if self.count == self.limit:
            self.last = _described(name, op, values, _makers(op, values) if made is None else made)

    def end(self) -> None:
        """The op is replaced, and the module is whole.

        Raises:
            RewritesStopped: It was the last one that is allowed.
        """
        if self.count == self.limit:
            raise RewritesStopped


_counter: ContextVar[RewriteCounter | None] = ContextVar("rewrite counter", default=None)


def active() -> RewriteCounter | None:
    """The counter of the pipeline that runs, if its rewrites are counted."""
    return _counter.get()


@contextlib.contextmanager
def rewrites_counted(limit: int | None = None) -> Generator[RewriteCounter]:
    """Count the rewrites inside, and leave after so many; one can see at `count` whether that was so."""
    counter = RewriteCounter(limit)
    token = _counter.set(counter)
    try:
        yield counter
    except RewritesStopped:
        pass
    finally:
        _counter.reset(token)


# --- as text --------------------------------------------------------------------------------------


def _makers(op: mlir.Operation, values: Iterable[mlir.Value]) -> list[mlir.Operation]:
    """The ops of the same block that compute values from what an op reads, in order."""
    pending, known = list(values), set(op.operands)
    makers: dict[mlir.Value, mlir.Operation] = {}
    while pending and len(makers) < _MOST_SHOWN:
        value = pending.pop()
        if value in known or not isinstance(value, mlir.ir.OpResult) or value.owner.operation.block != op.block:
            continue
        known.add(value)
        maker = value.owner.operation
        makers[maker.results[0]] = maker
        pending += maker.operands
    return _in_order(makers.values())


def _in_order(ops: Iterable[mlir.Operation]) -> list[mlir.Operation]:
    result: list[mlir.Operation] = []
    for op in ops:
        place = next((i for i, other in enumerate(result) if op.is_before_in_block(other)), len(result))
        result.insert(place, op)
    return result


def _described(
    name: str, op: mlir.Operation, values: Sequence[mlir.Value], made: Sequence[mlir.Operation]
) -> Rewriting:
    read = {v: v.owner.operation for v in op.operands if isinstance(v, mlir.ir.OpResult)}
    near = {o.results[0]: o for o in read.values() if o.block == op.block and o not in made}
    before = (*map(_text, _in_order(near.values())), _text(op))
    made = [o for o in made if o.block == op.block]  # what is in their regions is part of their text
    pairs = zip(op.results, values, strict=True)
    stands = [f"{value.get_name()} stands for {old.get_name()}" for old, value in pairs]
    return Rewriting(name, opview.place_of(op), before, (*map(_text, made), *stands))


def _text(op: mlir.Operation) -> str:
    return write(op.get_asm(large_elements_limit=16, assume_verified=True))
