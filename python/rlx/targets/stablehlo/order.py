"""Lowering rules for argmax, argmin, topk and argsort.

Floats are compared as integers with the same order. NaN is the largest key, and both zeros are equal. Subnormals, which a CPU
may flush to zero, are ordered correctly.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from rlx.ir.dtype import f32, i32, i64, u32
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.reduce import reduced
from rlx.targets.stablehlo.rules import Lowered, lowers

# A selection of more than one in this number of elements takes longer than to sort them all.
_FEW = 16


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


def _before(emit: HloEmitter, direction: str, *, total: bool = False) -> Callable[..., Lowered]:
    """The comparison of rows by their first entries, for sorting; see `HloEmitter.compare`."""

    def compare(a: Lowered, b: Lowered, *_: Lowered) -> Lowered:
        return emit.compare(direction, a, b, total=total)

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
    largest = reduced(emit, key, "max", (axis,))
    kept = [i for i in range(key.rank) if i != axis]
    is_largest = emit.compare("eq", key, emit.broadcast_in_dim(largest, key.dims, kept))
    positions = emit.select(is_largest, emit.iota(key.dims, axis, i32), i32.max)
    return emit.reshape(reduced(emit, positions, "min", (axis,)), result.static)


@lowers("topk")
def topk(emit: HloEmitter, results: list[Shape], x: Lowered, *, k: int) -> tuple[Lowered, ...]:
    if 0 in results[0].dims:
        return tuple(emit.full(r.static, r.dtype, 0) for r in results)
    key = order_key(emit, x)
    if emit.cpu and key.dtype.bits <= 32:
        return _first(emit, results, x, _word(emit, key), k)
    axis = x.rank - 1
    # Stable: equal elements stay in order.
    order = emit.sort([key, x, emit.iota(x.dims, axis, i32)], axis, _before(emit, "gt"))
    return tuple(emit.slice_axis(found, axis, 0, k) for found in order[1:])


def _first(emit: HloEmitter, results: list[Shape], x: Lowered, word: Lowered, k: int) -> tuple[Lowered, ...]:
    """The first k elements of each row of x, by descending keys."""
    rows = (prod(x.dims[:-1]), x.dims[-1])
    word = emit.reshape(word, rows)
    if k * _FEW > rows[1]:
        order = _order(emit, emit.elementwise("not", word), 1)
    else:
        # XLA's CPU client replaces this sort of two axes by a selection. It does so for f32 only.
        order = emit.sort([_as_f32(emit, word), emit.iota(rows, 1, i32)], 1, _before(emit, "gt", total=True))[1]
    first = emit.slice_axis(order, 1, 0, k)
    indices = emit.reshape(first, (*first.dims, 1))
    values = emit.gather(emit.reshape(x, rows), indices, first.dims, axis=1, offset_dims=[], batch=1)
    return emit.reshape(values, results[0].static), emit.reshape(first, results[1].static)


@lowers("argsort")
def argsort(emit: HloEmitter, results: list[Shape], x: Lowered, *, axis: int, descending: bool) -> Lowered:
    key = order_key(emit, x)
    if not emit.cpu or key.dtype.bits > 32:
        return emit.sort([key, emit.iota(x.dims, axis, i32)], axis, _before(emit, "gt" if descending else "lt"))[1]
    word = _word(emit, key)
    return _order(emit, emit.elementwise("not", word) if descending else word, axis)


def _order(emit: HloEmitter, word: Lowered, axis: int) -> Lowered:
    """The stable order of ascending keys.

    Key and index are one integer, so no two are equal. XLA's CPU client sorts one operand by `lt` without calls of the
    comparison, in a fifth of the time.
    """
    pairs = emit.either(emit.elementwise("shift_left", emit.convert(word, i64), 32), emit.iota(word.dims, axis, i64))
    order = emit.sort([pairs], axis, _before(emit, "lt"))[0]
    return emit.convert(emit.both(order, 2**32 - 1), i32)


def _word(emit: HloEmitter, key: Lowered) -> Lowered:
    """Keys of at most 32 bits as i32 in the same order."""
    if key.dtype is u32:
        return emit.elementwise("xor", emit.bitcast(key, i32), int(i32.min))
    return emit.convert(key, i32)


def _as_f32(emit: HloEmitter, word: Lowered) -> Lowered:
    """The floats whose total order is the order of integers: `-nan < -inf < -0 < 0 < inf < nan`."""
    bits = emit.select(emit.compare("lt", word, 0), emit.elementwise("xor", word, i32.max), word)
    return emit.bitcast(bits, f32)
