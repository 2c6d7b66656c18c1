"""Kernels of elementary functions whose code is long. In loops of a program, each use of one would be compiled by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.ir.dtype import f32, i32
from rlx.kernels.buffer import Buffer, product
from rlx.kernels.case import KernelCase
from rlx.kernels.functions import ROUNDING, polynomial
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.rows import strip_width, strips
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value, where
from rlx.numerics.trigonometry import cos_series, parts_of_half_pi, sin_series

_FEWEST = 1024  # elements that pay for a dispatch
_CHUNK = 4096  # of a workgroup
_TWO_OVER_PI = 0.6366197723675814
# Up to here the reduction by three parts of π/2 is exact enough: products with integers of up to 13 bits.
_LARGEST = 12000.0

Function = Callable[[Kernel, Value], Value]


def _exactly(kind: str) -> Function:
    """Return the function of the numerics, for all numbers."""

    def function(k: Kernel, x: Value) -> Value:
        return Value(x.machine, x.machine.elementary(kind, x.data, f32, x.lanes), f32, x.lanes)

    return function


def _if_large(kind: str, of_others: Callable[[Value], Value]) -> Function:
    """Return the function of a kind: that of the numerics for vectors with large numbers, another one for all others."""
    exactly = _exactly(kind)

    def function(k: Kernel, x: Value) -> Value:
        result = k.register(of_others(x))
        for _ in k.when(k.any_lane(abs(x) > _LARGEST)):
            result.value = exactly(k, x)
        return result.value

    return function


def _sine(x: Value) -> Value:
    return where(x == 0.0, x, _of_turns(x, 0))  # the sign of a zero is kept


def _of_turns(x: Value, turns: int) -> Value:
    """sin(x + turns · π/2) of a number that is not large, to 2 ulp.

    The argument is reduced to an angle up to π/4 (W. J. Cody and W. Waite, "Software Manual for the Elementary Functions",
    1980).
    """
    shifted = x.fma(_TWO_OVER_PI, ROUNDING)
    n, angle = shifted - ROUNDING, x
    # Without an instruction for both, the products must be exact.
    for part in parts_of_half_pi(24, 3) if x.machine.cpu.has_fma else parts_of_half_pi(11, 5):
        angle = n.fma(-part, angle)
    quadrant, square = shifted.bits(i32) + turns, angle * angle
    sine = (angle * square).fma(polynomial(square, sin_series("f32")), angle)
    cosine = (square * square).fma(polynomial(square, cos_series("f32")), square.fma(-0.5, 1.0))
    value = where((quadrant & 1) == 0, sine, cosine)
    return (value.bits(i32) ^ ((quadrant & 2) << 30)).bits(f32)


_FUNCTIONS: dict[str, Function] = {
    "sin": _if_large("sin", _sine),
    "cos": _if_large("cos", lambda x: _of_turns(x, 1)),
    "atan": _exactly("atan"),
}


def _has_function(case: KernelCase) -> bool:
    return case.attributes["kind"] in _FUNCTIONS and case.are_all("f32")


def _has_elements(case: KernelCase) -> bool:
    """Whether there are enough elements. Without an instruction for both, the numerics emulate products plus sums."""
    if case.attributes["kind"] == "atan" and not case.cpu.has_fma:
        return False
    dims = case.tensors[0].dims
    known = [d for d in dims if isinstance(d, int)]
    return len(known) < len(dims) or math.prod(known) >= _FEWEST


@kernel("activation", name="elementary", takes=_has_function, pays=_has_elements)
def elementary(k: Kernel, x: Buffer, y: Buffer, *, kind: str) -> None:
    """An elementary function of each element."""
    size = product(x.shape)
    x, y, function = x.view(size), y.view(size), _FUNCTIONS[kind]
    for n in k.parallel(strips(size, _CHUNK)):
        start = n * _CHUNK
        for c in k.vectors(strip_width(k, size, start, _CHUNK), unroll=1):
            y[c + start] = function(k, x[c + start])
