"""Reductions."""

from __future__ import annotations

from math import prod

import numpy as np

from rlx.ir.dtype import DType, f32
from rlx.ir.shape import Shape
from rlx.lower.stablehlo.contraction import accumulator
from rlx.lower.stablehlo.emitter import Emitter, Scalar
from rlx.lower.stablehlo.rules import Lowered, lowers

# The op that joins two numbers.
JOIN = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def neutral(kind: str, dtype: DType) -> Scalar:
    """What a reduction starts from."""
    if kind in ("sum", "mean"):
        return 0
    if kind == "prod":
        return 1
    if dtype.is_float:
        return -np.inf if kind == "max" else np.inf
    return dtype.min if kind == "max" else dtype.max


def _divided(emit: Emitter, total: Lowered, count: int) -> Lowered:
    """A sum over a count; of complex numbers part by part, for their own division makes inf NaN."""
    if not total.dtype.is_complex:
        return emit.div(total, count)
    real, imag = (emit.div(emit.elementwise(part, total, kind=f32), count) for part in ("real", "imag"))
    return emit.elementwise("complex", real, imag, kind=total.dtype)


@lowers("reduce")
def reduce(
    emit: Emitter, results: list[Shape], x: Lowered, *, kind: str, axes: tuple[int, ...], keep_dims: bool
) -> Lowered:
    wide = emit.convert(x, accumulator(x.dtype))
    total = emit.reduce(wide, JOIN[kind], axes, neutral(kind, wide.dtype))
    if kind == "mean":
        total = _divided(emit, total, prod(x.shape.static[a] for a in axes))
    return emit.reshape(emit.convert(total, x.dtype), results[0].static)
