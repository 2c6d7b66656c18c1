"""Lowering rules for argmax, argmin, topk and argsort.

Floats are compared as integers with the same order. NaN is the largest key, and both zeros are equal. Subnormals, which a CPU
may flush to zero, are ordered correctly.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.ir.dtype import i32
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


def order_key(emit: HloEmitter, x: Lowered) -> Lowered:
    """Integer keys with the order of the elements. NaN is the largest."""
    if not x.dtype.is_float:
        return x
    kind = x.dtype.signed_word
    bits = emit.bitcast(x, kind)
    magnitude = emit.both(bits, kind.max)
    # Floats are sign and magnitude: for negative numbers, a larger magnitude is a smaller number. Both zeros become 0.
    key = emit.select(emit.compare("lt", bits, 0), emit.neg(magnitude), magnitude)
    return emit.select(emit.compare("ne", x, x), kind.max, key)


def _before(emit: HloEmitter, direction: str) -> Callable[..., Lowered]:
    """The comparison of rows by their first entries, for sorting."""

    def compare(a: Lowered, b: Lowered, *_: Lowered) -> Lowered:
        return emit.compare(direction, a, b)

    return compare


@lowers("argmax")
def argmax(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, keep_dims: bool) -> Lowered:
    return _position(emit, results[0], order_key(emit, x), axis)


@lowers("argmin")
def argmin(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, keep_dims: bool) -> Lowered:
    key = order_key(emit, x)
    opposite = emit.elementwise("not", key)
    if x.dtype.is_float:
        opposite = emit.select(emit.compare("ne", x, x), key, opposite)
    return _position(emit, results[0], opposite, axis)


def _position(emit: HloEmitter, result: Shape, key: Lowered, axis: int) -> Lowered:
    """The position of the first of the largest keys."""
    largest = emit.reduce(key, "maximum", [axis], key.dtype.min)
    kept = [i for i in range(key.rank) if i != axis]
    is_largest = emit.compare("eq", key, emit.broadcast_in_dim(largest, key.dims, kept))
    positions = emit.select(is_largest, emit.iota(key.dims, axis, i32), i32.max)
    return emit.reshape(emit.reduce(positions, "minimum", [axis], i32.max), result.static)


@lowers("topk")
def topk(emit: HloEmitter, results: list[Shape], x: Lowered, *, k: int) -> tuple[Lowered, ...]:
    axis = x.rank - 1
    if 0 in results[0].dims:
        return tuple(emit.full(r.static, r.dtype, 0) for r in results)
    positions = emit.iota(x.dims, axis, i32)
    # Stable: equal elements stay in order.
    order = emit.sort([order_key(emit, x), x, positions], axis, _before(emit, "gt"))
    return tuple(emit.slice_axis(found, axis, 0, k) for found in order[1:])


@lowers("argsort")
def argsort(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, descending: bool) -> Lowered:
    direction = "gt" if descending else "lt"
    rows = [order_key(emit, x), emit.iota(x.dims, axis, i32)]
    return emit.sort(rows, axis, _before(emit, direction))[1]
