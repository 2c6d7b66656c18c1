"""Rounding of activations to integers in kernels of products with packed weights, as `dequant_matmul` defines it."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.dtype import f32, i32
from rlx.kernels.functions import ROUNDING
from rlx.kernels.kernel import Kernel, joined_in_pairs
from rlx.kernels.values import Value
from rlx.ops.quantization.packed import LEAST_TOP

_ROUNDING_BITS = 0x4B400000  # of ROUNDING, as an integer


def rounding(k: Kernel, vectors: Sequence[Value], limit: int) -> tuple[list[Value], Value]:
    """Round the vectors of a block to integers of at most `limit`, as floats, and return these and their scale."""
    lanes = vectors[0].lanes
    assert lanes is not None
    join = k.join("max")
    top = joined_in_pairs([abs(vector) for vector in vectors], join).joined(join)
    factor = k.where(top < LEAST_TOP, 0.0, float(limit) / top).splat(lanes)
    # NaN if the greatest number is infinite.
    scale = (top - top) + top / float(limit)
    # As `fma`, the product is rounded before the sum.
    return [(vector.fma(factor, -0.0) + ROUNDING) - ROUNDING for vector in vectors], scale


def as_integers(values: Value) -> Value:
    """Return floats that are integers below 2^22 as i32. Others, such as NaN, become any integers."""
    assert values.element is f32
    return (values + ROUNDING).bits(i32) - _ROUNDING_BITS
