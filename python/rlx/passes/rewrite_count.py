"""Counter of all rewrites of a pipeline, with an optional limit: `rlx-opt --rewrite-limit`, and bisection over it.

Rewrites are counted in two places: the pattern driver (`pattern.py`) and `rewrite.replace`, which all other passes use.
After each rewrite the module is consistent and can be checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.text.assembly import write

_MOST_SHOWN = 40  # maximum ops of one rewrite that are shown


class RewritesStopped(BaseException):
    """The limit is reached. It is not an `Exception`, which passes and the runner would treat as a failure of a pass."""


@dataclass(frozen=True)
class Rewriting:
    """One rewrite, as text.

    Attributes:
        name: The name of the pattern, or of the replaced op if a pass does not use patterns.
        location: The user's `file:line` of the op, empty when unknown.
        before: The producers of the op's operands, and the op.
        after: The new ops, and the values that replace the results.
    """

    name: str
    location: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass
class RewriteCounter:
    """Counts rewrites.

    Attributes:
        limit: The number of rewrites after which to stop; None for no limit.
        count: The number of rewrites so far.
        last: The rewrite at the limit.
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
        """Count a rewrite before an op is replaced.

        Args:
            name: The name of the rewrite.
            op: The op.
            values: The values that replace its results.
            made: The new ops; None for the producers of the values.

        Raises:
            RewritesStopped: The limit has been reached.
        """
        if self.count == self.limit:
            raise RewritesStopped
        self.count += 1
        if self.count == self.limit:
            self.last = _described(name, op, values, _makers(op, values) if made is None else made)

    def end(self) -> None:
        """Finish a rewrite: the op is replaced, and the module is consistent.

        Raises:
            RewritesStopped: This was the last allowed rewrite.
        """
        if self.count == self.limit:
            raise RewritesStopped


_counter: ContextVar[RewriteCounter | None] = ContextVar("rewrite counter", default=None)


def active() -> RewriteCounter | None:
    """Return the counter of the running pipeline, if its rewrites are counted."""
    return _counter.get()


@contextlib.contextmanager
def rewrites_counted(limit: int | None = None) -> Generator[RewriteCounter]:
    """Count the rewrites in this context, and stop at a limit. It was stopped if `count` equals the limit."""
    counter = RewriteCounter(limit)
    token = _counter.set(counter)
    try:
        yield counter
    except RewritesStopped:
        pass
    finally:
        _counter.reset(token)


# --- text form --------------------------------------------------------------------------------------


def _makers(op: mlir.Operation, values: Iterable[mlir.Value]) -> list[mlir.Operation]:
    """Return the ops of the same block that compute values from the operands of an op, in order."""
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
    made = [o for o in made if o.block == op.block]  # ops in regions are part of the text of their parent
    pairs = zip(op.results, values, strict=True)
    stands = [f"{value.get_name()} stands for {old.get_name()}" for old, value in pairs]
    return Rewriting(name, opview.place_of(op), before, (*map(_text, made), *stands))


def _text(op: mlir.Operation) -> str:
    return write(op.get_asm(large_elements_limit=16, assume_verified=True))
