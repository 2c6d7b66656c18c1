"""Lowering rules for reductions."""

from __future__ import annotations

from math import prod

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter, Scalar
from rlx.targets.stablehlo.rules import Lowered, lowers

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
        totals = [_reduced(emit, part, kind, axes) for part in parts]
        total = emit.elementwise("complex", *totals, kind=x.dtype)
    else:
        total = emit.convert(_reduced(emit, emit.convert(x, accumulator(x.dtype)), kind, axes), x.dtype)
    return emit.reshape(total, results[0].static)


def _reduced(emit: HloEmitter, x: Lowered, kind: str, axes: tuple[int, ...]) -> Lowered:
    if x.dtype.is_float and JOIN[kind] == "add" and _is_repeated(x):
        x = emit.barrier(x)  # XLA would replace it by a product, which is -0 for -0
    total = emit.reduce(x, JOIN[kind], axes, neutral(kind, x.dtype))
    return emit.div(total, prod(x.shape.static[a] for a in axes)) if kind == "mean" else total


def _is_repeated(x: Lowered) -> bool:
    owner = getattr(x.value.owner, "operation", None)
    while owner is not None and owner.name in ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.convert"):
        owner = getattr(owner.operands[0].owner, "operation", None)
    return owner is not None and owner.name == "stablehlo.broadcast_in_dim"
