"""Expressions over variables and numbers: the two sides of an algebraic identity (`algebra.py`).

    x, y = variables("x", "y")
    str(exp(x) * exp(y) + -0.0)  # "exp(x) * exp(y) + -0.0"

An expression of numbers alone has a value in a dtype: `value_in`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from rlx.ir.dtype import DType

Real: TypeAlias = "float | bool"
# The numbers that `AnyNumber`s of a row match, by name.
Bindings: TypeAlias = Mapping[str, Real]


class Expression:
    """A side of an identity, or a part of one."""

    def __add__(self, other: Expression | Real) -> Application:
        return _binary("add", self, other)

    def __radd__(self, other: Real) -> Application:
        return _binary("add", other, self)

    def __sub__(self, other: Expression | Real) -> Application:
        return _binary("sub", self, other)

    def __rsub__(self, other: Real) -> Application:
        return _binary("sub", other, self)

    def __mul__(self, other: Expression | Real) -> Application:
        return _binary("mul", self, other)

    def __rmul__(self, other: Real) -> Application:
        return _binary("mul", other, self)

    def __truediv__(self, other: Expression | Real) -> Application:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Real) -> Application:
        return _binary("div", other, self)

    def __pow__(self, other: Expression | Real) -> Application:
        return _binary("pow", self, other)

    def __neg__(self) -> Application:
        return _activation("neg", self)

    @property
    def parts(self) -> Iterator[Expression]:
        """The expression and its parts, each before its own parts."""
        yield self

    @property
    def is_number(self) -> bool:
        """Whether it has no variables."""
        return not any(isinstance(part, Variable) for part in self.parts)


@dataclass(frozen=True)
class Variable(Expression):
    """Any tensor. Repeated, it is the same tensor."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Literal(Expression):
    """A number. 0.0 and -0.0 differ.

    Attributes:
        value: The number; True and False are booleans in a row of any dtype.
        text: Its text, which distinguishes zeros.
    """

    value: Real
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class AnyNumber(Expression):
    """A tensor whose elements all equal one finite number. Repeated, it is the same number."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Limit(Expression):
    """The smallest or largest value of a dtype; for floats, an infinity."""

    name: str
    sign: int

    def of(self, dtype: DType) -> Real:
        """Return the value in a dtype, which is not complex."""
        if dtype.is_float:
            return self.sign * math.inf
        limit = dtype.max if self.sign > 0 else dtype.min
        return bool(limit) if dtype.is_bool else limit

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Application(Expression):
    """An op of expressions.

    Attributes:
        op: The name of the op.
        kind: Its attribute `kind`; empty if it has none.
        operands: Its operands.
    """

    op: str
    kind: str
    operands: tuple[Expression, ...]

    @property
    def parts(self) -> Iterator[Expression]:
        yield self
        for operand in self.operands:
            yield from operand.parts

    def __str__(self) -> str:
        infix = _INFIX.get(self.kind)
        if infix is None:
            return f"{self.kind or self.op}({', '.join(map(str, self.operands))})"
        symbol, rank = infix
        if self.kind == "neg":
            return f"{symbol}{_parenthesized(self.operands[0], rank + 1)}"
        left, right = self.operands
        return f"{_parenthesized(left, rank)} {symbol} {_parenthesized(right, rank + 1)}"


_INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "div": ("/", 2), "neg": ("-", 3), "pow": ("**", 4)}


def _parenthesized(part: Expression, rank: int) -> str:
    is_weaker = isinstance(part, Application) and _INFIX.get(part.kind, ("", rank))[1] < rank
    return f"({part})" if is_weaker else str(part)


def as_expression(x: Expression | Real) -> Expression:
    """Return a number as an expression."""
    return x if isinstance(x, Expression) else Literal(x, repr(x))


def _binary(kind: str, lhs: Expression | Real, rhs: Expression | Real) -> Application:
    return Application("binary", kind, (as_expression(lhs), as_expression(rhs)))


def _activation(kind: str, x: Expression) -> Application:
    return Application("activation", kind, (x,))


def variables(*names: str) -> tuple[Variable, ...]:
    """Return variables with these names."""
    return tuple(map(Variable, names))


def any_numbers(*names: str) -> tuple[AnyNumber, ...]:
    """Return variable numbers with these names."""
    return tuple(map(AnyNumber, names))


LEAST, GREATEST = Limit("LEAST", -1), Limit("GREATEST", 1)


def activation(kind: str) -> Callable[[Expression], Application]:
    """Return the function of one expression that is an `activation` op of this kind."""
    return lambda x: _activation(kind, x)


def binary(kind: str) -> Callable[[Expression | Real, Expression | Real], Application]:
    """Return the function of two expressions that is a `binary` op of this kind."""
    return lambda lhs, rhs: _binary(kind, lhs, rhs)


def where(condition: Expression | Real, on_true: Expression, on_false: Expression) -> Application:
    """Return the choice between two expressions."""
    return Application("where", "", (as_expression(condition), on_true, on_false))


# --- values of numbers ---------------------------------------------------------------------------------


def equal(a: Real, b: Real) -> bool:
    """Whether two numbers are equal; zeros of floats also have the same sign."""
    return a == b and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


def value_in(number: Expression, dtype: DType, bindings: Bindings, rounds: bool = False) -> Real | None:
    """Return the value of an expression of numbers in a dtype; None if the dtype lacks it.

    Args:
        number: The expression.
        dtype: A dtype that is not complex.
        bindings: The numbers of its `AnyNumber`s, by name.
        rounds: Whether the value may be rounded to a number of the dtype, which is finite, and not a subnormal.
    """
    if isinstance(number, Limit):
        return number.of(dtype)
    if isinstance(number, Literal):
        if isinstance(number.value, bool):
            return number.value
        value = represent(Fraction(number.value), dtype, rounds)
        return -0.0 if isinstance(value, float) and not value and math.copysign(1, number.value) < 0 else value
    exact = _exactly(number, bindings)
    return None if exact is None else represent(exact, dtype, rounds)


def represent(value: Fraction, dtype: DType, rounds: bool) -> Real | None:
    """Return a number as a value of a dtype that is not complex.

    Returns None where the dtype lacks it: outside its range, nearer to 0 than the smallest normal number, or, unless
    `rounds`, between two of its values.
    """
    if not dtype.is_float:
        inside = value.denominator == 1 and dtype.min <= value <= dtype.max
        return (bool(value) if dtype.is_bool else int(value)) if inside else None
    try:
        with np.errstate(over="ignore"):
            nearest = float(np.asarray(float(value)).astype(dtype.numpy))
    except OverflowError:
        return None
    layout = dtype.float_format
    if not math.isfinite(nearest) or layout is None or 0 < abs(value) < layout.smallest_normal:
        return None
    return nearest if rounds or Fraction(nearest) == value else None


_ARITHMETIC: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


def _exactly(number: Expression, bindings: Bindings) -> Fraction | None:
    """Return the exact value of an expression of numbers; None for a quotient by 0."""
    if isinstance(number, Literal):
        return Fraction(number.value)
    if isinstance(number, AnyNumber):
        return Fraction(bindings[number.name])
    if not isinstance(number, Application) or number.kind not in _ARITHMETIC:
        raise TypeError(f"{number} is not arithmetic of numbers")
    lhs, rhs = (_exactly(operand, bindings) for operand in number.operands)
    if lhs is None or rhs is None or (number.kind == "div" and not rhs):
        return None
    return _ARITHMETIC[number.kind](lhs, rhs)
