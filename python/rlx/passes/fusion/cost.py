"""What a fusion is worth on a target, by an estimate of the time before and after it.

The model knows three numbers of a target (`Costs`, measured by `tools/bench_fusion.py --costs`): operations a second of its
products, bytes a second, and seconds that a kernel costs by itself. It takes it that a compiler makes one kernel of each
product and each reduction, with the elementwise ops that read its result; that elementwise ops among themselves are one
kernel; that what is moved (a part of a tensor) is copied, unless elementwise ops read it; and that what depends on weights
alone costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import estimate as typical
from rlx.ir.op import opview
from rlx.ir.op.costs import Costs
from rlx.ir.op.views import View
from rlx.passes.pattern import Pattern, Rewriter
from rlx.passes.simplification.invariants import bytes_of, depends_on_weights

# A gain below one of these is none: within what measurements show, and joined weights take memory.
_LEAST_SECONDS, _LEAST_SHARE = 1e-6, 0.02


@dataclass(frozen=True)
class TargetWork:
    """What some ops take on a target: seconds, bytes that are moved, and kernels."""

    seconds: float
    bytes: int
    kernels: int


@dataclass(frozen=True)
class Estimate:
    """What a fusion changes.

    Attributes:
        before: What the ops take that it replaces.
        after: What it puts in their place.
    """

    before: TargetWork
    after: TargetWork

    @property
    def pays(self) -> bool:
        """Whether it gains more than noise."""
        gain = self.before.seconds - self.after.seconds
        return gain >= max(_LEAST_SECONDS, _LEAST_SHARE * self.before.seconds)

    def __str__(self) -> str:
        more, kernels = (
            self.after.bytes - self.before.bytes,
            f"{self.before.kernels} kernels become {self.after.kernels}",
        )
        moved = f"{abs(more) / 1e6:.3g} MB {'more' if more > 0 else 'less'} moved"
        return f"{self.before.seconds * 1e3:.3g} ms become {self.after.seconds * 1e3:.3g}: {kernels}, {moved}"


def estimate(op: View, rewriter: Rewriter, costs: Costs) -> Estimate:
    """What a match changes: asked before anything is replaced.

    Args:
        op: The op that the pattern has matched.
        rewriter: What it has emitted, and what it replaces besides.
        costs: Of the target.
    """
    replaced = [op.operation, *(other.operation for other, _ in rewriter.replaced)]
    new = [o for o in rewriter.new_ops if not all(depends_on_weights(r) for r in o.results)]
    old = _replaced(replaced)
    readers = [use.owner.operation for o in replaced for r in o.results for use in r.uses]
    return Estimate(_work(old, readers, costs), _work(new, readers, costs))


def _replaced(roots: Sequence[mlir.Operation]) -> list[mlir.Operation]:
    """Ops that are replaced, and those that only they read."""
    gone = {opview.key(op): op for op in roots}
    waiting = list(roots)
    while waiting:
        for value in waiting.pop().operands:
            maker = value.owner.operation if isinstance(value, mlir.ir.OpResult) else None
            if maker is None or opview.key(maker) in gone or depends_on_weights(value):
                continue
            users = [use.owner.operation for r in maker.results for use in r.uses]
            if all(len(u.results) and opview.key(u) in gone for u in users):
                gone[opview.key(maker)] = maker
                waiting.append(maker)
    return list(gone.values())


def _work(ops: Sequence[mlir.Operation], readers: Sequence[mlir.Operation], costs: Costs) -> TargetWork:
    """What ops take.

    Args:
        ops: All of them.
        readers: What reads the results of all of them together, which is the same before and after.
        costs: Of the target.
    """
    inside = {opview.key(op) for op in ops}
    seconds, moved, kernels = 0.0, 0, 0
    for op in ops:
        if opview.has_trait(op, "view") or op.name == "rlx.constant":
            continue
        cost = opview.cost_of(op)
        flops, size = float(typical(cost.flops)), typical(cost.bytes)
        if opview.has_trait(op, "product") or opview.has_trait(op, "reduction"):
            rate = flops / costs.flops if opview.has_trait(op, "product") else 0.0
            seconds += costs.kernel_s + max(rate, size / costs.bytes)
            kernels, moved = kernels + 1, moved + size
            continue
        users = [use.owner.operation for r in op.results for use in r.uses if opview.key(use.owner.operation) in inside]
        if opview.has_trait(op, "moves_data"):
            if all(opview.has_trait(user, "elementwise") for user in users or readers):
                continue
            size = 2 * sum(map(bytes_of, op.results))
        elif any(_is_kernel(v, inside) for v in op.operands):
            size = sum(bytes_of(v) for v in op.operands if not _is_kernel(v, inside))
            seconds, moved = seconds + size / costs.bytes, moved + size
            continue
        seconds += costs.kernel_s + size / costs.bytes
        kernels, moved = kernels + 1, moved + size
    return TargetWork(seconds, moved, kernels)


def _is_kernel(value: mlir.Value, inside: Iterable[Any]) -> bool:
    """Whether a value is the result of a product or a reduction among some ops, in whose kernel an elementwise op can be."""
    op = value.owner.operation if isinstance(value, mlir.ir.OpResult) else None
    if op is None or opview.key(op) not in inside:
        return False
    return opview.has_trait(op, "product") or opview.has_trait(op, "reduction")


def priced(pattern: Pattern, costs: Costs) -> Pattern:
    """A pattern that matches only where it pays."""

    def function(op: Any, rewriter: Rewriter) -> Any:
        given = pattern.function(op, rewriter)
        return given if given is None or estimate(op, rewriter, costs).pays else None

    return Pattern(pattern.name, pattern.roots, function)
