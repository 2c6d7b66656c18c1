"""Origins of tensors: the value that views are derived from, and the mapping of its axes.

Graphs of different importers differ mainly in views.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlx import mlir
from rlx.ir.dims.dim import product
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.pattern import producer
from rlx.passes.simplification.values import splat


@dataclass(frozen=True)
class Origin:
    """A value from which a tensor is derived by transposes, broadcasts, and reshapes that only add or remove axes of size 1.

    Attributes:
        value: The value.
        axes: For each axis of the original tensor, the corresponding axis of `value`; None if it does not vary along
            it.
    """

    value: mlir.Value
    axes: tuple[int | None, ...]

    def through(self, x: mlir.Value) -> Origin:
        """Return the origin at an operand of the elementwise op that computes `value`. The operand may broadcast."""
        inner, dims, whole = origin_of(x), shape_of(x).dims, shape_of(self.value).dims
        added = len(whole) - len(dims)

        def axis(a: int | None) -> int | None:
            repeats = a is None or a < added or dims[a - added] != whole[a]
            return None if a is None or repeats else inner.axes[a - added]

        return Origin(inner.value, tuple(map(axis, self.axes)))


def origin_of(value: mlir.Value) -> Origin:
    """Return the origin of a tensor."""
    found = Origin(value, tuple(range(shape_of(value).rank)))
    while (inner := _step(found.value)) is not None:
        x, axes = inner
        found = Origin(x, tuple(None if a is None else axes[a] for a in found.axes))
    return found


def _step(value: mlir.Value) -> tuple[mlir.Value, list[int | None]] | None:
    """Return the operand of a view, and for each axis of the value the operand's axis."""
    transpose = producer(value, views.Transpose)
    if transpose is not None:
        return transpose.x, list(transpose.perm)
    expand = producer(value, views.Expand)
    if expand is not None:
        dims, source = shape_of(value).dims, shape_of(expand.x).dims
        added = len(dims) - len(source)
        kept = [None if i < added or source[i - added] != d else i - added for i, d in enumerate(dims)]
        return expand.x, list[int | None](kept)
    reshape = producer(value, views.Reshape)
    if reshape is None:
        return None
    dims, source = shape_of(value).dims, shape_of(reshape.x).dims
    large = [i for i, d in enumerate(source) if d != 1]
    if [d for d in dims if d != 1] != [source[i] for i in large]:
        return None
    remaining = iter(large)
    return reshape.x, [None if d == 1 else next(remaining) for d in dims]


# --- statistics along axes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Statistic:
    """A reduction that is broadcast back to the tensor that was reduced, with axes of size 1 in place of the reduced ones.

    Attributes:
        kind: `"sum"`, `"mean"`, `"max"` …
        x: The reduced tensor.
        axes: The reduced axes.
        factor: The factor that the result is multiplied by.
        kept: For each axis of the original tensor, the corresponding axis of `x`; None if it does not vary along it.
    """

    kind: str
    x: mlir.Value
    axes: tuple[int, ...]
    factor: float
    kept: tuple[int | None, ...]


def statistic_of(found: Origin) -> Statistic | None:
    """Return the reduction from which a tensor is derived, also through scaling by a number and bounds without effect."""
    factor, stopped = 1.0, False
    while True:
        barrier, scaled = producer(found.value, views.StopGradient), without_scale(found.value)
        if barrier is not None:
            found, stopped = found.through(barrier.x), True
        elif scaled is not None:
            found, factor = found.through(scaled[0]), factor * scaled[1]
        else:
            break
    reduce = producer(found.value, views.Reduce)
    if reduce is None or (stopped and reduce.kind != "max"):  # the result of a softmax does not depend on the maximum
        return None
    rank = shape_of(reduce.x).rank
    left = [a if reduce.keep_dims else None for a in range(rank)] if reduce.keep_dims else []
    remaining = left or [a for a in range(rank) if a not in reduce.axes]
    kept = tuple(None if a is None or remaining[a] in reduce.axes else remaining[a] for a in found.axes)
    return Statistic(reduce.kind, reduce.x, reduce.axes, factor, kept)


def without_scale(value: mlir.Value) -> tuple[mlir.Value, float] | None:
    """If a value is the product of another value and a number, return these two, else None."""
    op = producer(value, views.Binary)
    if op is None:
        return None
    for x, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        number = splat(other)
        if number is None or isinstance(number, bool) or shape_of(x).rank != shape_of(value).rank:
            continue
        if op.kind == "mul":
            return x, float(number)
        if op.kind == "div" and x == op.lhs and number:
            return x, 1.0 / number
        if op.kind == "max" and number == -math.inf:
            return x, 1.0
    return None


def mean_of(shown: Origin) -> Statistic | None:
    """Return the mean from which a tensor is derived: a mean reduction, or a sum divided by the number of elements."""
    found = statistic_of(shown)
    if found is None:
        return None
    if found.kind == "sum":
        count = product(shape_of(found.x).dims[a] for a in found.axes)
        return found if isinstance(count, int) and math.isclose(found.factor * count, 1.0, rel_tol=1e-5) else None
    return found if found.kind == "mean" and found.factor == 1.0 else None


def stands_beside(found: Statistic, x: mlir.Value, *axes: int) -> bool:
    """Whether a statistic is that of `x` along some axes and broadcasts against `x`, also through views."""
    shown, reduced = origin_of(x), origin_of(found.x)
    if shown.value != reduced.value or len(found.axes) != len(axes) or len(found.kept) != len(shown.axes):
        return False
    if {reduced.axes[axis] for axis in found.axes} != {shown.axes[axis] for axis in axes}:
        return False
    dims = shape_of(x).dims
    kept = [None if a is None or dims[i] == 1 else reduced.axes[a] for i, a in enumerate(found.kept)]
    return kept == [None if i in axes or dims[i] == 1 else a for i, a in enumerate(shown.axes)]
