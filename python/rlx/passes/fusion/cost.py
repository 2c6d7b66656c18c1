"""Cost model of fusions: an estimate of the time before and after.

The model uses three numbers of a target (`Costs`, measured by `tools/bench_fusion.py --costs`): operations per second
in products, bytes per second, and fixed seconds per kernel. It assumes that a compiler creates one kernel for each
product and each reduction, together with the elementwise ops that read its result; that connected elementwise ops form
one kernel; that moved data (a slice of a tensor) is copied, unless elementwise ops read it; and that values that depend
only on weights are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import estimate as typical
from rlx.ir.op import opview
from rlx.ir.op.costs import Costs
from rlx.ir.op.views import View
from rlx.passes.pattern import Pattern, Rewriter
from rlx.passes.simplification.invariants import bytes_of, depends_on_weights

# Smaller gains are ignored: they are within measurement noise, and joined weights take memory.
_LEAST_SECONDS, _LEAST_SHARE = 1e-6, 0.02


@dataclass(frozen=True)
class TargetWork:
    """The cost of some ops on a target: seconds, bytes moved, and kernels."""

    seconds: float
    bytes: int
    kernels: int


@dataclass(frozen=True)
class Estimate:
    """The effect of a fusion.

    Attributes:
        before: The cost of the ops that it replaces.
        after: The cost of the new ops.
    """

    before: TargetWork
    after: TargetWork

    @property
    def pays(self) -> bool:
        """Whether the gain exceeds noise."""
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
    """Estimate the effect of a match, before anything is replaced.

    Args:
        op: The op that the pattern has matched.
        rewriter: The rewriter, with the emitted and the replaced ops.
        costs: The cost model of the target.
    """
    replaced = [op.operation, *(other.operation for other, _ in rewriter.replaced)]
    new = [o for o in rewriter.new_ops if not all(depends_on_weights(r) for r in o.results)]
    old = _replaced(replaced)
    readers = [use.owner.operation for o in replaced for r in o.results for use in r.uses]
    return Estimate(_work(old, readers, costs), _work(new, readers, costs))


def _replaced(roots: Sequence[mlir.Operation]) -> list[mlir.Operation]:
    """Return ops that are replaced, and ops that only they use."""
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
    """Return the cost of ops.

    Args:
        ops: All ops.
        readers: The ops that read the results of all of them together, which are the same before and after.
        costs: The cost model of the target.
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
    """Whether a value is the result of a product or reduction in a set of ops.

    The kernel of that op may absorb an elementwise op.
    """
    op = value.owner.operation if isinstance(value, mlir.ir.OpResult) else None
    if op is None or opview.key(op) not in inside:
        return False
    return opview.has_trait(op, "product") or opview.has_trait(op, "reduction")


def only_where_it_pays(pattern: Pattern, costs: Costs) -> Pattern:
    """Return a pattern that matches only where it pays off."""

    def function(op: Any, rewriter: Rewriter) -> Any:
        given = pattern.function(op, rewriter)
        return given if given is None or estimate(op, rewriter, costs).pays else None

    return replace(pattern, function=function)
