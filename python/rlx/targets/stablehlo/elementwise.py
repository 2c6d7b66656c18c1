"""Lowering rules for elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.ir.dtype import DType, f32
from rlx.ir.shape import Shape
from rlx.targets.stablehlo import complex_math, functions
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.conversion import emit_cast
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.error_function import erf
from rlx.targets.stablehlo.rules import Lowered, lowers


@lowers("cast")
def cast(emit: HloEmitter, results: list[Shape], x: Lowered, *, dtype: DType) -> Lowered:
    return emit_cast(emit, x, dtype)


@lowers("bitcast")
def bitcast(emit: HloEmitter, results: list[Shape], x: Lowered, *, dtype: DType) -> Lowered:
    return emit.elementwise("bitcast_convert", x, kind=dtype)


def _in_wide(emit: HloEmitter, x: Lowered, function: Callable[[HloEmitter, Lowered], Lowered]) -> Lowered:
    """Compute f16 and bf16 in f32, and round once."""
    return emit.convert(function(emit, emit.convert(x, accumulator(x.dtype))), x.dtype)


# --- functions of two tensors -----------------------------------------------------------------------

_BINARIES = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "max": "maximum",
    "min": "minimum",
    "rem": "remainder",
    "trunc_div": "divide",
    **{kind: kind for kind in ("and", "or", "xor", "shift_left")},
}


@lowers("binary")
def binary(emit: HloEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered, *, kind: str) -> Lowered:
    wide = accumulator(lhs.dtype)
    a, b = (emit.convert(emit.broadcast(x, results[0].static), wide) for x in (lhs, rhs))
    if kind == "div" and b.dtype.is_complex:
        return complex_math.divide(emit, a, b)
    if kind == "div" and b.dtype.is_float:
        # XLA would multiply by the inverse of a scalar or a constant. The result may be a neighbour of the quotient, and if
        # quotients are rounded to integers, another integer. XLA would also replace (a/b)/c by a/(b·c).
        a, b = emit.barrier(a), emit.barrier(b)
    if kind in ("rem", "trunc_div") and a.dtype.is_signed:
        a = emit.barrier(a)  # XLA assumes that squares and absolute values of integers are not negative
    if kind in ("add", "sub", "mul") and a.dtype.is_inexact:
        # XLA would remove `x + 0`, which is 0 for -0, and combine the constants of `(x + 1) - 1` and `(x·2)·0.5`.
        a, b = (emit.barrier(x) if _is_constant(x) else x for x in (a, b))
    if kind == "pow":
        found = power(emit, a, b)
    elif kind == "atan2":
        found = emit.elementwise("atan2", _without_denormals(emit, a), _without_denormals(emit, b))
    elif kind == "shift_right":
        found = emit.elementwise(f"shift_right_{'arithmetic' if a.dtype.is_signed else 'logical'}", a, b)
    else:
        found = emit.elementwise(_BINARIES[kind], a, b)
    return emit.convert(found, lhs.dtype)


def _is_constant(x: Lowered) -> bool:
    owner = getattr(x.value.owner, "operation", None)
    while owner is not None and owner.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert"):
        owner = getattr(owner.operands[0].owner, "operation", None)
    return owner is not None and owner.name == "stablehlo.constant"


def power(emit: HloEmitter, a: Lowered, b: Lowered) -> Lowered:
    """`a**b` for operands of one shape and dtype, except f16 and bf16."""
    if a.dtype.is_complex:
        return complex_math.power(emit, a, b)
    if a.dtype.is_integer:
        return _integer_power(emit, a, b)
    return emit.elementwise("power", _without_denormals(emit, a), _without_denormals(emit, b))


def _without_denormals(emit: HloEmitter, x: Lowered) -> Lowered:
    """Replace subnormals by 0, as in all other ops of XLA's CPU back end. Its functions return wrong results for subnormals."""
    is_denormal = emit.compare("lt", emit.elementwise("abs", x), _SMALLEST_NORMAL[x.dtype.name])
    return emit.select(is_denormal, emit.mul(x, 0.0), x)


_SMALLEST_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}


def _integer_power(emit: HloEmitter, a: Lowered, b: Lowered) -> Lowered:
    """Square and multiply while an exponent has bits left. A quotient is truncated: it is 0 unless a is 1 or -1.

    `stablehlo.power` reads only a few bits of the exponent.
    """

    def has_bits(_: Lowered, __: Lowered, rest: Lowered) -> Lowered:
        return emit.reduce(emit.compare("ne", rest, 0), "or", range(rest.rank), False)

    def step(result: Lowered, factor: Lowered, rest: Lowered) -> list[Lowered]:
        is_odd = emit.compare("ne", emit.both(rest, 1), 0)
        halved = emit.elementwise("shift_right_logical", rest, 1)
        return [emit.mul(result, emit.select(is_odd, factor, 1)), emit.mul(factor, factor), halved]

    one = emit.like(a, 1)
    found = emit.while_([one, a, emit.max(b, 0)], has_bits, step)[0]
    if not a.dtype.is_signed:
        return found
    sign = emit.select(emit.compare("ne", emit.both(b, 1), 0), -1, one)
    quotient = emit.select(emit.compare("eq", a, -1), sign, 0)
    quotient = emit.select(emit.compare("eq", a, 1), 1, quotient)
    return emit.select(emit.compare("lt", b, 0), quotient, found)


@lowers("compare")
def compare(emit: HloEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered, *, kind: str) -> Lowered:
    # XLA assumes that squares and absolute values are not negative, even if they wrapped around or are NaN.
    return emit.compare(kind, *(emit.barrier(emit.broadcast(x, results[0].static)) for x in (lhs, rhs)))


@lowers("where")
def where(emit: HloEmitter, results: list[Shape], condition: Lowered, on_true: Lowered, on_false: Lowered) -> Lowered:
    return emit.select(*(emit.broadcast(x, results[0].static) for x in (condition, on_true, on_false)))


# --- functions of one tensor ------------------------------------------------------------------------


@lowers("activation")
def activation(emit: HloEmitter, results: list[Shape], x: Lowered, *, kind: str) -> Lowered:
    if kind == "abs":
        return _absolute(emit, x)
    if x.dtype.is_complex and kind in complex_math.FUNCTIONS:
        return complex_math.FUNCTIONS[kind](emit, x)
    return _in_wide(emit, x, _FUNCTIONS[kind])


@lowers("popcount")
def popcount(emit: HloEmitter, results: list[Shape], x: Lowered) -> Lowered:
    return emit.elementwise("popcnt", x)


def _absolute(emit: HloEmitter, x: Lowered) -> Lowered:
    if x.dtype.is_complex:
        return complex_math.modulus(emit, x)
    if x.dtype.is_integer:
        return emit.elementwise("abs", emit.barrier(x)) if x.dtype.is_signed else x  # maybe a wrapped square
    return emit.elementwise("abs", x)


def _exp(emit: HloEmitter, x: Lowered) -> Lowered:
    # XLA would merge exp(x)·exp(y) to exp(x + y), and remove log(exp(x)). Both change results if an exponential overflows.
    return emit.barrier(emit.elementwise("exponential", x))


def _after_barrier(name: str) -> Callable[[HloEmitter, Lowered], Lowered]:
    """A function with an opaque operand. XLA's identities for √(x·x) and log(x**y) fail if the operand overflows."""
    return lambda emit, x: emit.elementwise(name, emit.barrier(x))


def _zero_at_minus_infinity(emit: HloEmitter, x: Lowered, value: Lowered) -> Lowered:
    """Replace a value at -inf by -0, the limit of x·sigmoid(x) and similar functions. x·0 would be NaN there."""
    return emit.select(emit.compare("eq", x, -math.inf), -0.0, value)


def _sigmoid(emit: HloEmitter, x: Lowered) -> Lowered:
    return emit.div(emit.like(x, 1), emit.add(_exp(emit, emit.neg(x)), 1))


def _silu(emit: HloEmitter, x: Lowered) -> Lowered:
    # One division: x·sigmoid(x) would lose small results where sigmoid(x) alone is subnormal. Where exp(-x) is near
    # infinity, the result x·exp(x) is still a normal number.
    near = emit.div(x, emit.add(_exp(emit, emit.neg(x)), 1))
    root = _exp(emit, emit.mul(x, 0.5))
    far = emit.compare("lt", x, -80.0 if x.dtype is f32 else -700.0)
    return _zero_at_minus_infinity(emit, x, emit.select(far, emit.mul(emit.mul(x, root), root), near))


def _gelu(emit: HloEmitter, x: Lowered) -> Lowered:
    bracket = emit.add(erf(emit, emit.mul(x, math.sqrt(0.5))), 1)
    return _zero_at_minus_infinity(emit, x, emit.mul(emit.mul(x, 0.5), bracket))


def _gelu_approx(emit: HloEmitter, x: Lowered) -> Lowered:
    cube = emit.mul(emit.mul(x, x), x)
    inner = emit.mul(emit.add(x, emit.mul(cube, 0.044715)), math.sqrt(2 / math.pi))
    bracket = emit.add(emit.elementwise("tanh", inner), 1)
    return _zero_at_minus_infinity(emit, x, emit.mul(emit.mul(x, 0.5), bracket))


def _named(name: str) -> Callable[[HloEmitter, Lowered], Lowered]:
    return lambda emit, x: emit.elementwise(name, x)


_FUNCTIONS: dict[str, Callable[[HloEmitter, Lowered], Lowered]] = {
    "gelu": _gelu,
    "gelu_approx": _gelu_approx,
    "silu": _silu,
    "relu": lambda emit, x: emit.max(x, 0),
    "sigmoid": _sigmoid,
    "tanh": _named("tanh"),
    "exp": _exp,
    "log": _after_barrier("log"),
    "sqrt": _after_barrier("sqrt"),
    "rsqrt": lambda emit, x: emit.div(emit.like(x, 1), emit.elementwise("sqrt", emit.barrier(x))),
    "neg": _named("negate"),
    "sin": _named("sine"),
    "cos": _named("cosine"),
    "tan": _named("tan"),
    "atan": lambda emit, x: emit.elementwise("atan2", x, 1),
    "round": _named("round_nearest_even"),
    "floor": _named("floor"),
    "ceil": _named("ceil"),
    "expm1": _named("exponential_minus_one"),
    "cbrt": lambda emit, x: emit.elementwise("cbrt", _without_denormals(emit, x)),
    **functions.FUNCTIONS,
}

__all__ = ["emit_cast", "erf", "power"]
