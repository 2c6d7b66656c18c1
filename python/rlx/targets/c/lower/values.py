"""The parts of C expressions: numbers with their ranges, array offsets, and C types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.ir.dtype import DType, f32, i32, i64, u32
from rlx.support.errors import UnsupportedError

# The types of elements in memory.
STORED = {
    **{"i8": "int8_t", "u8": "uint8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "u32": "uint32_t"},
    **{"bool": "uint8_t", "f32": "float"},
}


def stored_type(dtype: DType) -> str:
    """Return the type of an element in memory.

    Raises:
        UnsupportedError: C has no type for the dtype.
    """
    if dtype.name not in STORED:
        raise UnsupportedError(f"C has no {dtype.name}", hint=f"cast to one of {', '.join(STORED)}")
    return STORED[dtype.name]


def computed_in(dtype: DType) -> DType:
    """Return the dtype of variables for elements: integers of less than 32 bits are computed in i32."""
    return dtype if dtype in (f32, i64, u32) else i32


@dataclass(frozen=True)
class Affine:
    """An index or an array offset: a sum of variables, each times a factor, and a constant."""

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0

    @classmethod
    def of(cls, variable: str) -> Affine:
        return cls(((variable, 1),))

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.offset + other)
        factors = dict(self.terms)
        for variable, factor in other.terms:
            factors[variable] = factors.get(variable, 0) + factor
        return Affine(tuple((v, f) for v, f in factors.items() if f), self.offset + other.offset)

    def __mul__(self, factor: int) -> Affine:
        terms = tuple((v, f * factor) for v, f in self.terms) if factor else ()
        return Affine(terms, self.offset * factor)

    def factor(self, variable: str) -> int:
        """The factor of a variable."""
        return dict(self.terms).get(variable, 0)

    def __str__(self) -> str:
        text = ""
        for variable, factor in self.terms:
            term = variable if abs(factor) == 1 else f"{abs(factor)} * {variable}"
            sign = ("-" if factor < 0 else "") if not text else (" - " if factor < 0 else " + ")
            text += sign + term
        if self.offset or not text:
            number = str(abs(self.offset))
            text += (
                ("-" if self.offset < 0 else "") + number
                if not text
                else f" {'-' if self.offset < 0 else '+'} {number}"
            )
        return text


Index = tuple[Affine, ...]


def strides_of(dims: Sequence[int]) -> list[int]:
    """Return the stride of each axis in elements, in a contiguous array."""
    strides = [1] * len(dims)
    for axis in reversed(range(len(dims) - 1)):
        strides[axis] = strides[axis + 1] * dims[axis + 1]
    return strides


def flat(index: Index, dims: Sequence[int]) -> Affine:
    """Return the offset of an element in a contiguous array."""
    place = Affine()
    for at, stride in zip(index, strides_of(dims), strict=True):
        place = place + at * stride
    return place


def broadcast(index: Index, dims: Sequence[int]) -> Index:
    """Return the index of an operand of these sizes, which is broadcast to the result. Axes are aligned at the last one."""
    chosen = index[len(index) - len(dims) :]
    return tuple(Affine() if d == 1 else at for at, d in zip(chosen, dims, strict=True))


@dataclass(frozen=True)
class Scalar:
    """A number in C.

    Attributes:
        text: The expression. Integers of less than 32 bits, and bools, are an `int32_t` with a value of their dtype.
        dtype: Its dtype.
        low: The least possible value, for integers and bools.
        high: The greatest possible value.
        simple: Whether it needs no parentheses inside another expression.
    """

    text: str
    dtype: DType
    low: int
    high: int
    simple: bool = True

    @property
    def term(self) -> str:
        """The expression for use inside another one."""
        return self.text if self.simple else f"({self.text})"

    @property
    def fixed(self) -> bool:
        """Whether it has a single possible value, known at compile time."""
        return self.low == self.high and not self.dtype.is_float


def limits(dtype: DType) -> tuple[int, int]:
    """Return the least and greatest integer of a dtype. Floats have no bounds."""
    if dtype.is_float:
        return 0, 0
    return (0, 1) if dtype.is_bool else (int(dtype.min), int(dtype.max))


def scalar(text: str, dtype: DType, bounds: Iterable[int] | None = None, *, simple: bool = True) -> Scalar:
    """Return a number with its bounds, by default the limits of its dtype."""
    low, high = limits(dtype) if bounds is None else bounds
    return Scalar(text, dtype, low, high, simple)


def literal(value: object, dtype: DType) -> Scalar:
    """Return a constant."""
    if dtype.is_float:
        return Scalar(float_text(float(np.float32(value))), dtype, 0, 0)  # type: ignore[arg-type]
    number = int(value)  # type: ignore[call-overload]
    return Scalar(integer_text(number, dtype), dtype, number, number, number >= 0)


# Cppcheck reports the macro INT64_MIN as a violation of MISRA's rule 7.2.
LEAST_I64 = "(-INT64_C(9223372036854775807) - 1)"


def integer_text(number: int, dtype: DType) -> str:
    """Return an integer as C text."""
    if dtype is i64:
        return f"INT64_C({number})" if number > -(2**63) else LEAST_I64
    if dtype is u32:
        return f"{number}u"
    return str(number) if number > -(2**31) else "INT32_MIN"


def float_text(number: float) -> str:
    """Return a float as C text, exact to the last bit."""
    if number != number or number in (float("inf"), float("-inf")):
        return "NAN" if number != number else ("INFINITY" if number > 0 else "-INFINITY")
    text = repr(float(number))
    shortest = str(np.float32(number))
    text = shortest if np.float32(shortest) == np.float32(number) else text
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"
