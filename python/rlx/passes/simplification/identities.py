"""The tables of `rlx-simplify`: identities that are exact, and those of real numbers for `fast-math`.

Both sides of an exact row have the same bits for all values, including NaN, infinities and the signs of zeros; a NaN
may be another NaN. `algebra.py` explains rows.
"""

from __future__ import annotations

from rlx.ir.dtype import COMPLEXES, EVERY, FLOATS, INTEGERS, NUMBERS, REAL, dtype
from rlx.passes.simplification.algebra import IdentityTable, approximation, identity
from rlx.passes.simplification.expressions import (
    GREATEST,
    LEAST,
    activation,
    any_numbers,
    binary,
    variables,
    where,
)

BOOL = ("bool",)
SIGNED = tuple(name for name in REAL if dtype(name).is_signed)

c, x, y, z = variables("c", "x", "y", "z")
a, b = any_numbers("a", "b")
neg, relu, round_, exp, log, sqrt, rsqrt = map(activation, ("neg", "relu", "round", "exp", "log", "sqrt", "rsqrt"))
abs_, maximum, minimum = activation("abs"), binary("max"), binary("min")
shift_left, shift_right = binary("shift_left"), binary("shift_right")


def _not_negative(a: float, b: float) -> bool:
    return a >= 0 and b >= 0


# --- exact ------------------------------------------------------------------------------------------------

# Choices by a known condition, and between equal values.
KNOWN_CHOICES = IdentityTable(
    (
        identity(where(True, x, y), x, EVERY),
        identity(where(False, x, y), y, EVERY),
        identity(where(c, x, x), x, EVERY),
    )
)

_EXACT_ROWS = (
    # Neutral elements. 0 is not neutral for the addition of floats, since -0 + 0 is 0, nor is -0 for the difference.
    identity(x + 0, x, (*INTEGERS, *BOOL)),
    identity(x + -0.0, x, FLOATS),
    identity(x - 0, x, REAL),
    identity(x * 1, x, (*REAL, *BOOL)),
    identity(x / 1, x, FLOATS),
    identity(x**1, x, REAL),
    identity(maximum(x, LEAST), x, (*REAL, *BOOL)),
    identity(minimum(x, GREATEST), x, (*REAL, *BOOL)),
    # Zeros. The product of a float and 0 may be NaN, and so may the difference of a float from itself.
    identity(x * 0, 0, (*INTEGERS, *BOOL)),
    identity(x - x, 0, INTEGERS),
    # Signs
    identity(x + -y, x - y, NUMBERS),
    identity(x - -y, x + y, NUMBERS),
    identity(x * -1, -x, SIGNED),
    identity(-0.0 - x, -x, FLOATS),
    identity(neg(neg(x)), x, NUMBERS),
    identity(abs_(-x), abs_(x), (*SIGNED, *COMPLEXES)),
    # Functions that do not change their own results
    identity(maximum(x, x), x, (*REAL, *BOOL)),
    identity(minimum(x, x), x, (*REAL, *BOOL)),
    identity(abs_(abs_(x)), abs_(x), REAL),
    identity(relu(relu(x)), relu(x), REAL),
    identity(round_(round_(x)), round_(x), FLOATS),
    # Shifts in a row. A shift by a negative number gives 0 or -1, as one by all bits does.
    identity(shift_left(shift_left(x, a), b), shift_left(x, a + b), INTEGERS, when=_not_negative),
    identity(shift_right(shift_right(x, a), b), shift_right(x, a + b), INTEGERS, when=_not_negative),
    # Choices. IREE 3.13 gives `where(c, where(c, x, y), y)` the value of `y` if a third choice reads `y` in a kernel.
    *KNOWN_CHOICES.rows,
    identity(where(c, where(c, x, y), z), where(c, x, z), EVERY),
    identity(where(c, x, where(c, y, z)), where(c, x, z), EVERY),
)

# --- fast math --------------------------------------------------------------------------------------------

# These assume that no value is NaN or infinite, and that the sign of a zero does not matter.
_APPROXIMATE_ROWS = (
    # Zeros of the other sign
    approximation(x + 0.0, x, FLOATS),
    approximation(x - -0.0, x, FLOATS),
    approximation(0.0 - x, -x, FLOATS),
    approximation(x * 0.0, 0.0, FLOATS),
    approximation(x * -0.0, -0.0, FLOATS),
    approximation(0.0 / x, 0.0, FLOATS),
    approximation(-0.0 / x, -0.0, FLOATS),
    approximation(x - x, 0.0, FLOATS),
    approximation(x / x, 1.0, FLOATS),
    # Numbers in a row, and quotients. In narrower floats, the rounded inverse would change the last digits of results.
    approximation((x + a) + b, x + (a + b), FLOATS),
    approximation((x * a) * b, x * (a * b), FLOATS),
    approximation(x / a, x * (1 / a), ("f32", "f64")),
    approximation(1.0 / sqrt(x), rsqrt(x), FLOATS),
    approximation(y / sqrt(x), y * rsqrt(x), FLOATS),
    # Functions and their inverses. The logarithm of complex numbers is periodic.
    approximation(exp(log(x)), x, (*FLOATS, *COMPLEXES)),
    approximation(log(exp(x)), x, FLOATS),
    approximation(exp(x) * exp(y), exp(x + y), (*FLOATS, *COMPLEXES)),
    approximation(sqrt(x * x), abs_(x), FLOATS),
    # Powers
    approximation(x**2.0, x * x, FLOATS),
    approximation(x**0.5, sqrt(x), FLOATS),
    approximation(x**-0.5, rsqrt(x), FLOATS),
    approximation(x**-1.0, 1.0 / x, FLOATS),
    # Common factors
    # In dtypes of few exponents, the sum may be infinite where the products are finite.
    approximation(x * y + x * z, x * (y + z), ("bf16", "f32", "f64")),
    approximation(x * y - x * z, x * (y - z), ("bf16", "f32", "f64")),
)

EXACT = IdentityTable(_EXACT_ROWS)
FAST = IdentityTable((*_EXACT_ROWS, *_APPROXIMATE_ROWS))
