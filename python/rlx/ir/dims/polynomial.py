"""Polynomials with integer coefficients over atoms, the representation of `rlx.ir.dims.expr`.

A polynomial is a sorted tuple of (monomial, coefficient) pairs without zero coefficients. A monomial is a sorted tuple
of atoms; a power repeats its atom, and ``()`` is the constant term. An atom is a name, or a hashable object whose
``str`` is unique among atoms. Equal polynomials are equal tuples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlx.support.errors import ShapeError

# Sizes in real models have a few terms. Without a limit, repeated products of sums could use up all time and memory.
TERMS = 128
PRODUCTS = 4096  # maximum terms times terms in one multiplication
BITS = 1024  # maximum bits of a coefficient

Monomial = tuple[Any, ...]
Terms = tuple[tuple[Monomial, int], ...]

_HINT = "give a size that is so complicated a symbol of its own"


def _order(atom: Any) -> tuple[bool, str]:
    return not isinstance(atom, str), str(atom)  # names first: seq+(-seq)%8


def canonical(terms: Mapping[Monomial, int]) -> Terms:
    """Return the polynomial with these coefficients. Raises `ShapeError` if it is too large to compute with.

    Terms are sorted by degree, then by atoms, so the constant is last. Multiplication preserves this order, which long
    division needs.
    """
    nonzero = [term for term in terms.items() if term[1]]
    if len(nonzero) > TERMS:
        raise ShapeError(f"a size has {len(nonzero)} terms; at most {TERMS} are allowed", hint=_HINT)
    if any(coefficient.bit_length() > BITS for _, coefficient in nonzero):
        raise ShapeError(f"a size has a coefficient of more than {BITS} bits", hint=_HINT)
    nonzero.sort(key=lambda term: (-len(term[0]), [_order(atom) for atom in term[0]]))
    return tuple(nonzero)


def constant(value: int) -> Terms:
    """Return the constant polynomial `value`."""
    return (((), value),) if value else ()


def add(a: Terms, b: Terms, sign: int = 1) -> Terms:
    """``a + sign*b``."""
    total = dict(a)
    for monomial, coefficient in b:
        total[monomial] = total.get(monomial, 0) + sign * coefficient
    return canonical(total)


def multiply(a: Terms, b: Terms) -> Terms:
    """``a * b``, expanded."""
    if len(a) * len(b) > PRODUCTS:
        raise ShapeError(f"a size is a product of {len(a)} and {len(b)} terms; that is too many", hint=_HINT)
    total: dict[Monomial, int] = {}
    for left, left_coefficient in a:
        for right, right_coefficient in b:
            monomial = tuple(sorted(left + right, key=_order)) if left and right else left + right
            total[monomial] = total.get(monomial, 0) + left_coefficient * right_coefficient
    return canonical(total)


def divide_monomial(a: Monomial, b: Monomial) -> Monomial | None:
    """Return the quotient of two monomials, or None if `b` does not divide `a`."""
    quotient = list(a)
    for atom in b:
        if atom not in quotient:
            return None
        quotient.remove(atom)
    return tuple(quotient)


def exact_divide(a: Terms, b: Terms) -> Terms | None:
    """Return the quotient of two polynomials, or None if it is not exact (or is too large); `b` is not zero.

    Long division: if a quotient exists, the leading term of `b` divides the leading term of every remainder.
    """
    quotient: dict[Monomial, int] = {}
    lead, lead_coefficient = b[0]
    remainder = a
    while remainder:
        monomial, coefficient = remainder[0]
        factor = divide_monomial(monomial, lead)
        if factor is None or coefficient % lead_coefficient or len(quotient) >= TERMS:
            return None
        quotient[factor] = coefficient // lead_coefficient
        remainder = add(remainder, multiply(((factor, quotient[factor]),), b), -1)
    return canonical(quotient)


def common_factor(a: Terms, b: Terms) -> Terms:
    """Return the greatest single term, with a positive coefficient, that divides every term of both."""
    terms = a + b
    shared = terms[0][0]
    for monomial, _ in terms[1:]:
        unmatched = list(monomial)
        common: list[Any] = []
        for atom in shared:
            if atom in unmatched:
                unmatched.remove(atom)
                common.append(atom)
        shared = tuple(common)
    return ((shared, math.gcd(*(coefficient for _, coefficient in terms))),)
