"""Casts to float8e8m0 by the rounding modes of ONNX. Its values are the powers of two from 2**-127 to 2**127, and NaN."""

from __future__ import annotations

from rlx.ir.dtype import f8e8m0fnu, f64
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError

_MODES = ("up", "down", "nearest")
_LAYOUT, _WIDE = f8e8m0fnu.float_format, f64.float_format
assert _LAYOUT is not None and _WIDE is not None
_LARGEST, _NAN, _MANTISSA = _LAYOUT.largest_code, _LAYOUT.nan_code, _WIDE.mantissa
_SMALLEST = _WIDE.bias - _LAYOUT.bias  # the exponent field of 2**-127 in f64


def power_of_two(g: Graph, x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """The magnitude of each element, rounded once to a power of two.

    A power out of range becomes the nearest one in range if `saturate` is true, else NaN. This also holds for zero and
    infinity. The reference evaluator of ONNX gives NaN for infinity, which contradicts the table in the specification.
    Signs are dropped as in the reference evaluator; the specification does not define them.

    Raises:
        UnsupportedError: The rounding mode is not one of ONNX's.
    """
    if round_mode not in _MODES:
        raise UnsupportedError(
            f"with the rounding mode {round_mode!r} cannot be imported", hint=f"ONNX has {', '.join(_MODES)}"
        )
    magnitude = g.abs(_as_f64(g, x))
    bits = g.bitcast(magnitude, "i64")
    code = g.right_shift(bits, _MANTISSA) - _SMALLEST  # f64 denormals are below 2**-1022: any code below 0 is right
    fraction = g.bitwise_and(bits, (1 << _MANTISSA) - 1)
    if round_mode != "down":
        least = 1 if round_mode == "up" else 1 << (_MANTISSA - 1)  # `nearest` rounds a tie up
        code = code + g.cast(g.ge(fraction, least), "i64")
    code = (
        g.clamp(code, 0, _LARGEST)
        if saturate
        else g.where(g.logical_or(g.lt(code, 0), g.gt(code, _LARGEST)), _NAN, code)
    )
    return g.bitcast(g.cast(g.where(g.isnan(magnitude), _NAN, code), "u8"), f8e8m0fnu)


def _as_f64(g: Graph, x: Tensor) -> Tensor:
    """The elements as f64; of integers of 64 bits the lowest 12 become one, which says whether any of them was set.

    Direct rounding to f64 would round a number just above a power of two down to it.
    """
    if not (x.dtype.is_integer and x.dtype.bits == 64):
        return g.cast(x, "f64")
    low = g.bitwise_and(x, 0xFFF)
    odd = g.add(g.sub(x, low), g.where(g.eq(low, 0), g.zeros_like(low), g.full_like(low, 0x800)))
    is_small = g.lt(x, 1 << 52) if not x.dtype.is_signed else g.logical_and(g.lt(x, 1 << 52), g.gt(x, -(1 << 52)))
    return g.cast(g.where(is_small, x, odd), "f64")
