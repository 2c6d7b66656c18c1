"""Lowering rules for reductions."""

from __future__ import annotations

import functools
from math import prod

import numpy as np

from rlx.ir.dtype import DType, f32, f64, i32
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter, Scalar
from rlx.targets.stablehlo.rules import Lowered, lowers

# The sizes of sums that are computed as products: the least number of elements, and the least and the greatest length.
_LARGE, _SHORT, _LONG = 4096, 32, 2048
# The greatest numbers of parts of an axis that are combined elementwise, first and then, and the least length of a part.
_PARTS, _LINE = (8, 5), 16
# The op that combines two numbers.
JOIN = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def neutral(kind: str, dtype: DType) -> Scalar:
    """The initial value of a reduction."""
    if kind in ("sum", "mean"):
        return 0
    if kind == "prod":
        return 1
    if dtype.is_float:
        return -np.inf if kind == "max" else np.inf
    return dtype.min if kind == "max" else dtype.max


@lowers("reduce")
def reduce(
    emit: HloEmitter, results: list[Shape], x: Lowered, *, kind: str, axes: tuple[int, ...], keep_dims: bool
) -> Lowered:
    if x.dtype.is_complex and kind in ("sum", "mean"):
        # Complex numbers by parts: XLA would replace the sum of a broadcast by a product, and a mean by a division. Both give
        # NaN for inf.
        parts = (emit.elementwise(part, x, kind=x.dtype.part) for part in ("real", "imag"))
        totals = [reduced(emit, part, kind, axes) for part in parts]
        total = emit.elementwise("complex", *totals, kind=x.dtype)
    else:
        total = emit.convert(reduced(emit, emit.convert(x, accumulator(x.dtype)), kind, axes), x.dtype)
    return emit.reshape(total, results[0].static)


def reduced(emit: HloEmitter, x: Lowered, kind: str, axes: tuple[int, ...]) -> Lowered:
    """A reduction over axes, which are removed, in the dtype of x."""
    total = None
    if x.dtype.is_float and JOIN[kind] == "add":
        if _is_repeated(x):
            x = emit.barrier(x)  # XLA would replace it by a product, which is -0 for -0
        elif emit.cpu and x.dtype in (f32, f64):
            total = _summed(emit, x, axes)
    elif emit.cpu and kind in ("max", "min") and x.dtype in (f32, f64, i32):
        x, axes = _joined(emit, x, JOIN[kind], axes)
    if total is None:
        total = emit.reduce(x, JOIN[kind], axes, neutral(kind, x.dtype))
    return emit.div(total, prod(x.shape.static[a] for a in axes)) if kind == "mean" else total


def _summed(emit: HloEmitter, x: Lowered, axes: tuple[int, ...]) -> Lowered | None:
    """The sum over the first or the last axes as a product with ones; None for sizes that this suits less.

    XLA's CPU client has vector code for the product, and takes three times as long for a sum. A product adds in order, some
    numbers at a time, so a long axis is split.
    """
    first, last = range(len(axes)), range(x.rank - len(axes), x.rank)
    length = prod(x.dims[a] for a in axes)
    if prod(x.dims) < _LARGE or length < _SHORT or sorted(axes) not in (list(first), list(last)):
        return None
    others = [d for i, d in enumerate(x.dims) if i not in axes]
    if sorted(axes) != list(last):
        if length > _LONG:
            return None
        return emit.reshape(_product(emit, emit.reshape(x, (length, prod(others))), 0), others)
    rows = emit.reshape(x, (prod(others), length))
    while rows.dims[1] > _LONG:
        part = next((d for d in range(_LONG, _SHORT, -1) if rows.dims[1] % d == 0), None)
        if part is None:
            return None
        rows = _product(emit, emit.reshape(rows, (prod(rows.dims) // part, part)), 1)
        rows = emit.reshape(rows, (prod(others), rows.dims[0] // prod(others)))
    return emit.reshape(_product(emit, rows, 1), others)


def _joined(emit: HloEmitter, x: Lowered, name: str, axes: tuple[int, ...]) -> tuple[Lowered, tuple[int, ...]]:
    """Combine parts of the last axes of x elementwise, and return a shorter x, and the axes that remain to be reduced.

    XLA's CPU client computes maxima of integers, and those that keep NaN, with vectors if they are elementwise, and in a
    reduction with scalars.
    """
    length = prod(x.dims[a] for a in axes)
    if prod(x.dims) < _LARGE or sorted(axes) != list(range(x.rank - len(axes), x.rank)):
        return x, axes
    others = [d for i, d in enumerate(x.dims) if i not in axes]
    x = emit.reshape(x, (*others, length))
    for most in _PARTS:
        count = next((c for c in range(most, 1, -1) if length % c == 0 and length >= c * _LINE), 1)
        length //= count
        parts = [emit.slice_axis(x, x.rank - 1, i * length, (i + 1) * length) for i in range(count)]
        x = functools.reduce(lambda a, b: emit.elementwise(name, a, b), parts)
    return x, (x.rank - 1,)


def _product(emit: HloEmitter, x: Lowered, axis: int) -> Lowered:
    """The sum of a matrix over an axis, as a product with a vector of ones."""
    return emit.dot_general(x, emit.full((x.dims[axis],), x.dtype, 1), ((axis,), (0,)))


def _is_repeated(x: Lowered) -> bool:
    owner = getattr(x.value.owner, "operation", None)
    while owner is not None and owner.name in ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.convert"):
        owner = getattr(owner.operands[0].owner, "operation", None)
    return owner is not None and owner.name == "stablehlo.broadcast_in_dim"
