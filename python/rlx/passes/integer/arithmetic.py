"""Patterns of `rlx-quantize-integer`: elementwise sums and products, functions by table, means."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import i8, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op import opview, views
from rlx.ir.shape import shape_of
from rlx.ops.convolution.geometry import PoolGeometry
from rlx.ops.convolution.pool import window_counts
from rlx.passes.integer.operands import Goal, Integers, constant, finite_constant, in_range
from rlx.passes.integer.quantize_values import maker_of
from rlx.passes.pattern import Rewriter, pattern, producer

# Fractional bits of the terms of a sum: 8-bit terms become 28 bits, so the sum of two terms fits into i32.
_SUM_BITS = 20
# Constant factors have 16 bits, so that their product with 9 bits fits into i32.
_FACTOR = 2**15 - 1
# Fractional bits of a number whose reciprocal is in a table.
_MANTISSA = 9


@pattern
def sum_of_two(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A sum or a difference: both terms are rescaled to one small step, and their sum is requantised."""
    found = Goal.behind(op, views.Binary)
    if found is None or found[1].kind not in ("add", "sub"):
        return None
    goal, total = found
    terms = [(Integers.of(v), finite_constant(v)) for v in (total.lhs, total.rhs)]
    if any(x is None and known is None for x, known in terms) or all(x is None for x, _ in terms):
        return None
    reach = max(float(x.scale) if x is not None else _largest(k) / 255 for x, k in terms)
    step, b = 2 * reach / 2**_SUM_BITS, rewriter.builder
    lhs, rhs = (_term(b, x, known, step) for x, known in terms)
    return goal.reached(rewriter, lhs + rhs if total.kind == "add" else lhs - rhs, step)


def _largest(known: np.ndarray | None) -> float:
    return float(np.abs(known).max(initial=0)) if known is not None else 0.0


def _term(b: Builder, x: Integers | None, known: np.ndarray | None, step: float) -> Tensor:
    """Return a term in steps, i32."""
    if x is None:
        assert known is not None
        return b.constant(in_range(known.astype(np.float64) / step))
    return b.rescale(x.centred(b), float(x.scale) / step, dtype=i32)


@pattern
def product_of_two(op: views.Quantize, rewriter: Rewriter) -> Any:
    """An elementwise product, or one with constants."""
    found = Goal.behind(op, views.Binary)
    if found is None or found[1].kind not in ("mul", "div"):
        return None
    (goal, product), b = found, rewriter.builder
    lhs, rhs = Integers.of(product.lhs), Integers.of(product.rhs)
    if lhs is not None and rhs is not None and product.kind == "mul":
        return goal.reached(rewriter, lhs.centred(b) * rhs.centred(b), lhs.scale * rhs.scale)
    pairs = ((lhs, product.rhs), (rhs, product.lhs)) if product.kind == "mul" else ((lhs, product.rhs),)
    for x, other in pairs:
        known = constant(other)
        if x is None or known is None:
            continue
        with np.errstate(divide="ignore"):
            factor = known.astype(np.float64) if product.kind == "mul" else 1 / known.astype(np.float64)
        if not np.isfinite(factor).all():
            return None
        if goal.is_multiple(x, factor):
            return goal.bounded(b, b.tensor(x.value)).value
        most = float(np.abs(factor).max(initial=0)) or 1.0
        whole = b.constant(np.rint(factor / most * _FACTOR).astype(np.int32))
        return goal.reached(rewriter, x.centred(b) * whole, float(x.scale) * most / _FACTOR)
    return None


@pattern
def scaled_anew(op: views.Quantize, rewriter: Rewriter) -> Any:
    """Requantisation from one scale to another."""
    goal = Goal.of(op)
    x = None if goal is None else Integers.of(goal.core)
    if goal is None or x is None:
        return None
    b = rewriter.builder
    if (float(x.scale), x.zero) == (goal.scale, goal.zero):
        return goal.bounded(b, b.tensor(x.value)).value
    return goal.reached(rewriter, x.centred(b), x.scale)


@pattern
def function_of_one(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A function of each element, with other operands constant: a table of 256 entries."""
    goal = Goal.of(op)
    found = None if goal is None else _table(goal.core)
    if goal is None or found is None:
        return None
    x, values = found
    entries = np.clip(np.rint(values.astype(np.float64) / goal.scale) + goal.zero, goal.low, goal.high)
    entries = np.where(np.isnan(entries), goal.zero, entries)
    return looked_up(rewriter.builder, entries.astype(np.int8), x.value).value


def _table(core: mlir.Value) -> tuple[Integers, np.ndarray] | None:
    """Match an elementwise function of integers. Return the integers and the function's value for each i8, or None."""
    made = maker_of(core)
    if made is None or not opview.has_trait(made, "elementwise"):
        return None
    sources: dict[mlir.Value, Integers] = {}
    known: dict[mlir.Value, np.ndarray | None] = {}

    def value_of(value: mlir.Value) -> np.ndarray | None:
        if value not in known:
            known[value] = computed(value)
        return known[value]

    def computed(value: mlir.Value) -> np.ndarray | None:
        if (x := Integers.of(value)) is not None:
            sources[x.value] = x
            return (np.arange(-128, 128) - x.zero).astype(np.float32) * np.float32(x.scale)
        if (number := constant(value)) is not None:
            return number.reshape(-1)[0] if number.size and (number == number.reshape(-1)[0]).all() else None
        maker = maker_of(value)
        if maker is None or not opview.has_trait(maker, "elementwise") or len(maker.results) != 1:
            return None
        arrays = [value_of(v) for v in maker.operands]
        if any(a is None for a in arrays):
            return None
        with np.errstate(all="ignore"):
            return opview.card_of(maker).evaluate(*arrays, **opview.attributes_of(maker))

    values = value_of(core)
    if values is None or len(sources) != 1:
        return None
    (x,) = sources.values()
    return (x, values) if shape_of(x.value).dims == shape_of(core).dims else None


def looked_up(b: Builder, table: np.ndarray, x: mlir.Value) -> Tensor:
    """Look up the entry of a table for each i8. The first entry is for -128."""
    return b.gather(b.constant(table), b.cast(b.tensor(x), i32) + 128, axis=0)


@pattern
def mean(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A sum or a mean, over axes or over windows."""
    goal = Goal.of(op)
    if goal is None:
        return None
    reduce, pool = producer(goal.core, views.Reduce), producer(goal.core, views.Pool)
    maker = reduce or pool
    x = None if maker is None or maker.kind not in ("sum", "mean") else Integers.of(maker.x)
    if maker is None or x is None or not shape_of(x.value).is_static:
        return None
    b, dims = rewriter.builder, shape_of(x.value).static
    whole = x.centred(b)
    if reduce is not None:
        total = b.sum(whole, reduce.axes, keep_dims=reduce.keep_dims)
        counts: Any = prod(dims[i] for i in reduce.axes)
    else:
        assert pool is not None
        geometry = PoolGeometry(pool.kernel, pool.stride, pool.padding)
        total = b.emit("pool", (whole,), kind="sum", count_include_pad=True, **geometry.named)
        counts = prod(pool.kernel)
        if not pool.count_include_pad and any(pool.padding):
            counts = np.ones(())
            for held in window_counts(dims[2:], geometry):
                counts = np.multiply.outer(counts, held)
    if maker.kind == "sum":
        counts = 1
    return goal.reached(rewriter, total, x.scale / np.maximum(counts, 1))


@pattern
def softmax(op: views.Quantize, rewriter: Rewriter) -> Any:
    """A softmax: exponentials of the differences to the maximum, by a table, divided by their sum."""
    found = Goal.behind(op, views.Softmax)
    x = None if found is None else Integers.of(found[1].x)
    if found is None or x is None or (found[0].scale, found[0].zero) != (2.0**-8, -128):
        return None
    goal, maker = found
    count = shape_of(x.value).dims[maker.axis]
    if type(count) is not int or not 0 < count < 2**16:
        return None
    # A sum of `count` numbers up to 2^bits fits into i32.
    b, octaves = rewriter.builder, int(np.ceil(np.log2(count)))
    bits = 30 - octaves
    whole = b.cast(b.tensor(x.value), i32)
    below = whole - b.max(whole, maker.axis, keep_dims=True)
    table = np.rint(np.exp(np.arange(-255, 1) * float(x.scale)) * 2**bits).astype(np.int32)
    powers = b.gather(b.constant(table), below + 255, axis=0)
    total = b.sum(powers, maker.axis, keep_dims=True)
    multiplier, shift = _reciprocal(b, total, bits, octaves)
    result = b.requantize(powers, multiplier, shift + 8, zero_point=-128, dtype=i8)
    return goal.bounded(b, result).value


def _reciprocal(b: Builder, x: Tensor, least: int, octaves: int) -> tuple[Tensor, Tensor]:
    """Return the reciprocals of numbers as multipliers and shifts of `requantize`, with a relative error of at most 2^-10.

    Args:
        b: The builder to emit with.
        x: i32, from 2^least to 2^(least + octaves).
        least: At least `_MANTISSA`.
        octaves: The number of doublings of 2^least.
    """
    shift = b.constant(np.array(-least, np.int32))
    for octave in range(1, octaves + 1):
        shift = shift - b.cast(x >= 2 ** (least + octave), i32)
    shift = b.expand(shift, x.shape.dims)
    mantissa = b.requantize(x, 2**30, shift + (_MANTISSA + 1), mode="single", dtype=i32)
    mantissas = 1 + np.arange(2**_MANTISSA + 1) / 2**_MANTISSA
    table = np.minimum(np.rint(2.0**31 / mantissas), 2.0**31 - 1).astype(np.int32)
    return b.gather(b.constant(table), mantissa - 2**_MANTISSA, axis=0), shift


@pattern
def place_of_extreme(op: views.Argmax | views.Argmin, rewriter: Rewriter) -> Any:
    """The position of the largest or smallest element, computed from the integers, which have the same order as the floats."""
    x = Integers.of(op.x)
    return None if x is None else rewriter.emit(opview.name_of(op.operation), [x.value], **op.attributes)
