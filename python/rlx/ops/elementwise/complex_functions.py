"""Elementary functions of complex numbers without lowering rules, as compositions on real and imaginary parts.

There is one composition for each function, or for each pair of functions that differ by a rotation. With
`t(x + iy) = y + ix`, `sinh z` is `t(sin(t z))`. The same holds for `tan` and `tanh`, `asinh` and `asin`, `atan` and
`atanh`. Functions that would lose digits in f32 are computed in f64, which holds the squares of f32 without rounding
and overflow. For c128, whose squares may overflow or vanish, some use limits of the functions from `_HUGE` on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from rlx.ir.dtype import DType, c128, f64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.numerics.arithmetic import OperatorArithmetic, sum_error
from rlx.ops.lift import cast

_Parts = tuple[Tensor, Tensor]

# From here on 1 is negligible next to a square.
_HUGE = 2.0**100


def _wide(b: Builder, z: Tensor) -> _Parts:
    """Return real and imaginary part in f64."""
    return cast(b, b.real(z), f64), cast(b, b.imag(z), f64)


def _narrow(b: Builder, part: Tensor, z: Tensor) -> Tensor:
    """Return a real tensor in the dtype of the parts of `z`."""
    return cast(b, part, z.dtype.part)


def _turned(function: Callable[[Builder, Tensor], Tensor]) -> Callable[[Builder, Tensor], Tensor]:
    """Return `t(f(t z))`, where t swaps real and imaginary part.

    This equals `-i·f(i·z)` if f is odd, and real on the real axis.
    """

    def turned(b: Builder, z: Tensor) -> Tensor:
        found = function(b, b.complex(b.imag(z), b.real(z)))
        return b.complex(b.imag(found), b.real(found))

    return turned


def _cosh(b: Builder, z: Tensor) -> Tensor:
    return b.cos(b.complex(-b.imag(z), b.real(z)))


def _logarithm(base: float) -> Callable[[Builder, Tensor], Tensor]:
    def logarithm(b: Builder, z: Tensor) -> Tensor:
        natural = b.log(z)
        return b.complex(b.real(natural) * (1 / math.log(base)), b.imag(natural) * (1 / math.log(base)))

    return logarithm


V = TypeVar("V", Tensor, np.ndarray)


def _sum_and_error(x: V, y: V) -> tuple[V, V]:
    """Return `x + y` and its rounding error (D. E. Knuth's two-sum)."""
    total = x + y
    return total, sum_error(OperatorArithmetic(), x, y, total)


def _expm1(b: Builder, z: Tensor) -> Tensor:
    """`expm1(x)·cos(y) - 2·sin²(y/2) + i·exp(x)·sin(y)`."""
    x, y = _wide(b, z)
    half = b.sin(y * 0.5)
    real = b.expm1(x) * b.cos(y) - 2.0 * half * half
    real = b.where(real == 0.0, 0.0, real)  # +0 in place of -0, as in the array API
    imaginary = b.where(y == 0.0, y, b.exp(x) * b.sin(y))
    endless = b.exp(z)  # for an infinite or NaN angle the result is that of the exponential
    finite = b.isfinite(b.imag(z))
    return b.complex(
        b.where(finite, _narrow(b, real, z), b.real(endless) - 1.0),
        b.where(finite, _narrow(b, imaginary, z), b.imag(endless)),
    )


def _log1p(b: Builder, z: Tensor) -> Tensor:
    """Return `log|1 + z| + i·arg(1 + z)`.

    Except near -1, the real part is computed from `|1 + z|² - 1 = 2x + x² + y²`. The terms of this sum may cancel.
    """
    x, y = _wide(b, z)
    one_more, squared = x + 1.0, y * y
    total, lost = _sum_and_error(2.0 * x, x * x)  # for c64 the products are exact
    total, lost_then = _sum_and_error(total, squared)
    size_squared = one_more * one_more + squared
    real = b.where(size_squared < 0.5, b.log(size_squared), b.log1p(total + (lost + lost_then))) * 0.5
    if z.dtype is c128:  # the squares may overflow, or vanish near -1
        other = b.real(b.log(b.complex(one_more, y)))
        real = b.where((size_squared < _HUGE) & (size_squared > 1 / _HUGE), real, other)
    real = b.where(b.isinf(z), math.inf, real)
    return b.complex(_narrow(b, real, z), _narrow(b, b.atan2(y, one_more), z))


def _distance(b: Builder, kind: DType, x: Tensor, y: Tensor) -> Tensor:
    """Return √(x² + y²) of f64 parts of a dtype. The squares of c128 may overflow or vanish."""
    return b.abs(b.complex(x, y)) if kind is c128 else b.sqrt(x * x + y * y)


def _inverse_sine_parts(b: Builder, kind: DType, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """For nonnegative x and y, return two quantities for acos and asin.

    The first is the side whose angle to x is the real part. The second is the magnitude of the imaginary part.

    T. E. Hull, T. F. Fairgrieve and P. T. P. Tang, "Implementing the complex arcsine and arccosine functions using
    exception handling", 1997. Let r and s be the distances from -1 and 1, and `a = (r + s)/2`. The real part of the
    arcsine is the angle whose tangent is `x / √(a² - x²)`, and the imaginary part is `acosh a`. `a - x` and `a - 1` are
    written so that nothing cancels, and without the square of y, which may vanish.
    """
    left, right = x + 1.0, b.abs(x - 1.0)
    r, s = _distance(b, kind, left, y), _distance(b, kind, right, y)
    a = (r + s) * 0.5
    inside = x < 1.0
    other = s + right  # s - (1 - x) is y²/other inside, s + (x - 1) outside
    near = y / (r + left)
    steep = near + y / b.where(inside, other, 1.0)  # 2·(a - 1)/y inside
    twice = y * near + other  # 2·(a - 1) outside
    product = b.sqrt(b.where(inside, steep, twice) * (0.5 * (a + 1.0)))
    root = b.where(inside, b.sqrt(y) * product, product)  # √(a² - 1)
    within = b.sqrt(0.5 * (a + x) * twice)
    beyond = y * b.sqrt(0.5 * ((a + x) / (r + left) + (a + x) / other))
    side = b.where(x <= 1.0, within, beyond)
    return side, b.log1p(0.5 * b.where(inside, y * steep, twice) + root)


def _quadrant(b: Builder, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return real and imaginary part in f64, the side of `_inverse_sine_parts`, and acosh of a.

    If a part of z is infinite, the side is the magnitude of the imaginary part, and acosh is infinite. So it is for c128 if
    a part is huge, where acosh is `log 2|z|`.
    """
    x, y = _wide(b, z)
    across, up = b.abs(x), b.abs(y)
    side, size = _inverse_sine_parts(b, z.dtype, across, up)
    infinite = b.isinf(z)
    size = b.where(infinite, math.inf, size)
    if z.dtype is c128:
        huge = b.maximum(across, up) > _HUGE
        size = b.where(huge, b.real(b.log(z)) + math.log(2), size)
        infinite = infinite | huge
    return x, y, b.where(infinite, up, side), size


def _asin(b: Builder, z: Tensor) -> Tensor:
    x, y, side, size = _quadrant(b, z)
    real = b.where(x == 0.0, x, b.atan2(x, side))  # also if y is NaN
    return b.complex(_narrow(b, real, z), _narrow(b, b.copysign(size, y), z))


def _arccosine(b: Builder, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the real part of the arccosine, the magnitude of its imaginary part, and the imaginary part of z."""
    x, _, side, size = _quadrant(b, z)
    real = b.where(x == 0.0, math.pi / 2, b.atan2(side, x))
    return _narrow(b, real, z), _narrow(b, size, z), b.imag(z)


def _acos(b: Builder, z: Tensor) -> Tensor:
    real, size, y = _arccosine(b, z)
    return b.complex(real, -b.copysign(size, y))


def _acosh(b: Builder, z: Tensor) -> Tensor:
    real, size, y = _arccosine(b, z)
    return b.complex(size, b.copysign(real, y))


def _atanh(b: Builder, z: Tensor) -> Tensor:
    """`log1p(4x/((1 - x)² + y²))/4 + i·atan2(2y, (1 - x)(1 + x) - y²)/2` for x and y that are not negative."""
    x, y = _wide(b, z)
    across, up = b.abs(x), b.abs(y)
    less, squared = 1.0 - across, up * up
    real = 0.25 * b.log1p(4.0 * across / (less * less + squared))
    angle = 0.5 * b.atan2(2.0 * up, less * (1.0 + across) - squared)
    infinite = b.isinf(z)
    if z.dtype is c128:  # squares may overflow, or vanish near 1
        size, distance = b.abs(z), b.abs(b.complex(less, up))
        real = b.where(distance < 1 / _HUGE, 0.5 * (math.log(2) - b.log(distance)), real)
        huge = b.maximum(across, up) > _HUGE
        real = b.where(huge, across / size / size, real)
        angle = b.where(huge, math.pi / 2, angle)
    real = b.where(infinite | (x == 0.0), 0.0, real)
    angle = b.where(b.isinf(up) | (b.isinf(across) & (up == up)), math.pi / 2, angle)
    return b.complex(_narrow(b, b.copysign(real, x), z), _narrow(b, b.copysign(angle, y), z))


def _exp2(b: Builder, z: Tensor) -> Tensor:
    x, y = _wide(b, z)
    return cast(b, b.exp(b.complex(x * math.log(2), y * math.log(2))), z.dtype)


def _rsqrt(b: Builder, z: Tensor) -> Tensor:
    """Return the conjugate of the root, divided twice by its modulus. At 0 it is infinite, and its direction is undefined."""
    root = b.sqrt(b.complex(*_wide(b, z)))
    a, c, size = b.real(root), b.imag(root), b.abs(root)
    infinite = b.isinf(size)
    real = b.where(infinite, 0.0, b.where(size == 0.0, math.inf, a / size / size))
    imaginary = b.where(infinite, b.copysign(0.0, c), c / size / size)
    return b.complex(_narrow(b, real, z), _narrow(b, -imaginary, z))


def _sigmoid(b: Builder, z: Tensor) -> Tensor:
    """Return the sigmoid of `z = x + iy`.

    With `r = exp(-|x|)`, `c = cos(y)`, `s = sin(y)` and `q = 1 + 2·r·c + r²`, it is `(1 + r·c + i·r·s)/q` for `x ≥ 0`,
    and `(r·(c + r) + i·r·s)/q` otherwise. It is written so that nothing cancels except in `c + r`.
    """
    x, y = _wide(b, z)
    across, half = -b.abs(x), b.cos(y * 0.5)
    r, less = b.exp(across), -b.expm1(across)  # 1 - r
    more = 2.0 * half * half  # 1 + c
    under = less * less + 2.0 * r * more
    real = b.where(x < 0.0, r * (more - less), less + r * more) / under
    imaginary = r * b.sin(y) / under
    infinite = b.isinf(x)  # for any angle
    real = b.where(infinite, b.where(x > 0.0, 1.0, 0.0), real)
    return b.complex(_narrow(b, real, z), _narrow(b, b.where(infinite, 0.0, imaginary), z))


COMPOSITIONS: dict[str, Callable[[Builder, Tensor], Tensor]] = {
    "tan": _turned(lambda b, z: b.tanh(z)),
    "atan": _turned(_atanh),
    "expm1": _expm1,
    "log2": _logarithm(2),
    "log10": _logarithm(10),
    "log1p": _log1p,
    "asin": _asin,
    "acos": _acos,
    "sinh": _turned(lambda b, z: b.sin(z)),
    "cosh": _cosh,
    "asinh": _turned(_asin),
    "acosh": _acosh,
    "atanh": _atanh,
    "exp2": _exp2,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
}


# --- evaluator: NumPy in c128, except for functions that lose digits or are NaN in c128
# ----------------------------------------------


def _evaluated_expm1(z: np.ndarray) -> np.ndarray:
    x, y = np.real(z), np.imag(z)
    endless, finite = np.exp(z) - 1, np.isfinite(y)
    real = np.expm1(x) * np.cos(y) - 2 * np.sin(y / 2) ** 2
    imaginary = np.where(y == 0, y, np.exp(x) * np.sin(y))
    real = np.where(real == 0, 0.0, real)
    return _joined(np.where(finite, real, np.real(endless)), np.where(finite, imaginary, np.imag(endless)))


def _evaluated_log1p(z: np.ndarray) -> np.ndarray:
    x, y = np.real(z), np.imag(z)  # of c64, the products below are exact
    total, lost = _sum_and_error(2 * x, x * x)
    total, lost_then = _sum_and_error(total, y * y)
    size_squared = (1 + x) * (1 + x) + y * y
    real = np.where(size_squared < 0.5, np.log(size_squared), np.log1p(total + (lost + lost_then))) / 2
    squarable = (size_squared < _HUGE) & (size_squared > 1 / _HUGE)
    real = np.where(squarable, real, np.real(np.log(_joined(1 + x, y))))
    return _joined(np.where(np.isinf(x) | np.isinf(y), np.inf, real), np.arctan2(y, 1 + x))


def _evaluated_rsqrt(z: np.ndarray) -> np.ndarray:
    root = np.sqrt(z)
    size, infinite = np.abs(root), np.isinf(root)
    real = np.where(infinite, 0.0, np.where(size == 0, np.inf, np.real(root) / size / size))
    imaginary = np.where(infinite, np.copysign(0.0, np.imag(root)), np.imag(root) / size / size)
    return _joined(real, -imaginary)


def _evaluated_sigmoid(z: np.ndarray) -> np.ndarray:
    x, y = np.real(z), np.imag(z)
    r, less, more = np.exp(-np.abs(x)), -np.expm1(-np.abs(x)), 2 * np.cos(y / 2) ** 2
    under = less * less + 2 * r * more
    real, imaginary = np.where(x < 0, r * (more - less), less + r * more) / under, r * np.sin(y) / under
    return _joined(np.where(np.isinf(x), x > 0, real), np.where(np.isinf(x), 0, imaginary))


def _joined(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    result = np.empty(np.shape(real), np.complex128)
    result.real, result.imag = real, imaginary
    return result


_IN_WIDE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tan": np.tan,
    "atan": np.arctan,
    "expm1": _evaluated_expm1,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": _evaluated_log1p,
    "asin": np.arcsin,
    "acos": np.arccos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp2": lambda z: np.exp(_joined(np.real(z) * np.log(2), np.imag(z) * np.log(2))),
    "rsqrt": _evaluated_rsqrt,
    "sigmoid": _evaluated_sigmoid,
}


def evaluated(kind: str, z: np.ndarray) -> np.ndarray:
    """Return a function of c64, rounded once."""
    return np.asarray(_IN_WIDE[kind](z.astype(np.complex128))).astype(z.dtype)


# --- derivatives ------------------------------------------------------------------------------------------------


def _less_one(b: Builder, z: Tensor) -> Tensor:
    """Return `z - 1`, and keep the sign of a zero imaginary part, which a sum of complex numbers may lose."""
    return b.complex(b.real(z) - 1.0, b.imag(z))


def _one_more(b: Builder, z: Tensor) -> Tensor:
    return b.complex(b.real(z) + 1.0, b.imag(z))


def _of_roots(b: Builder, first: Tensor, second: Tensor) -> Tensor:
    """Return 1/(√first·√second). The root of the product may be on the other side of the branch cut."""
    return 1.0 / b.sqrt(first) / b.sqrt(second)


def _times_i(b: Builder, z: Tensor) -> Tensor:
    return b.complex(-b.imag(z), b.real(z))


def _of_arcsine(b: Builder, z: Tensor) -> Tensor:
    return _of_roots(b, -_less_one(b, z), _one_more(b, z))


def _of_inverse_tanh(b: Builder, z: Tensor) -> Tensor:
    """Return 1/(1 - z²), without a square that may overflow."""
    return 1.0 / -_less_one(b, z) / _one_more(b, z)


def _of_tangent(b: Builder, z: Tensor) -> Tensor:
    """Return 1/cos(z)², without loss of digits where tan z is near i. It is 0 where the cosine overflows f32."""
    secant = 1.0 / b.cos(b.complex(b.real(z), b.minimum(b.maximum(b.imag(z), -80.0), 80.0)))
    return secant * secant


DERIVATIVES: dict[str, Callable[[Builder, Tensor], Tensor]] = {
    "tan": lambda b, z: _of_tangent(b, z),
    "atan": lambda b, z: _of_inverse_tanh(b, _times_i(b, z)),
    "expm1": lambda b, z: b.exp(z),
    "log2": lambda b, z: (1 / math.log(2)) / z,
    "log10": lambda b, z: (1 / math.log(10)) / z,
    "log1p": lambda b, z: 1.0 / _one_more(b, z),
    "asin": lambda b, z: _of_arcsine(b, z),
    "acos": lambda b, z: -_of_arcsine(b, z),
    "sinh": lambda b, z: b.cosh(z),
    "cosh": lambda b, z: b.sinh(z),
    "asinh": lambda b, z: _of_arcsine(b, _times_i(b, z)),
    "acosh": lambda b, z: _of_roots(b, _less_one(b, z), _one_more(b, z)),
    "atanh": lambda b, z: _of_inverse_tanh(b, z),
    "exp2": lambda b, z: b.exp2(z) * math.log(2),
    "rsqrt": lambda b, z: b.rsqrt(z) / z * -0.5,
    "sigmoid": lambda b, z: b.sigmoid(z) * b.sigmoid(-z),
}
