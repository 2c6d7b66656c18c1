"""`DimExpr`: integer polynomials over sizes, in canonical form. Import it from `rlx.ir.dims.dim`.

The canonical form expands products, takes whole multiples out of ``//`` and ``%``, joins nested divisions, and drops
arguments of ``max`` and ``min`` that bounds rule out. A divisor is assumed to be non-zero.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rlx.ir.dims import interval, polynomial
from rlx.ir.dims.interval import Interval
from rlx.ir.dims.polynomial import Monomial, Terms
from rlx.ir.dims.text import CALLS, operand_text, polynomial_text
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error, ShapeError

LONGEST = 4096  # maximum characters of a dimension
DEEPEST = 32  # maximum nesting of the operators `//`, `%`, `max` and `min`


@dataclass(frozen=True)
class OpaqueTerm:
    """An opaque term of a polynomial: ``a//b``, ``a%b``, ``max(...)`` or ``min(...)`` of dimensions."""

    kind: str
    args: tuple[Dim, ...]

    @cached_property
    def text(self) -> str:
        if self.kind in CALLS:
            return f"{self.kind}({','.join(map(str, self.args))})"
        return self.kind.join(operand_text(arg) for arg in self.args)

    @cached_property
    def depth(self) -> int:
        return 1 + max(arg.depth if isinstance(arg, DimExpr) else 0 for arg in self.args)

    def __str__(self) -> str:
        return self.text


Atom = str | OpaqueTerm


@dataclass(frozen=True, eq=False, repr=False)
class DimExpr:
    """A dimension that is not a constant. Immutable and hashable; created by `symbol`, `parse` and arithmetic.

    ``terms`` is the polynomial in the canonical form of `rlx.ir.dims.polynomial`.
    """

    terms: Terms

    __array_ufunc__ = None  # np.int64(2) * expr must reach __rmul__

    @cached_property
    def text(self) -> str:
        return polynomial_text(self.terms)

    @cached_property
    def depth(self) -> int:
        """The nesting depth of ``//``, ``%``, ``max`` and ``min``."""
        calls = (atom for monomial, _ in self.terms for atom in monomial if isinstance(atom, OpaqueTerm))
        return max((call.depth for call in calls), default=0)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of all symbols, including those inside ``//``, ``%``, ``max`` and ``min``."""
        names: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, str):
                    names.add(atom)
                else:
                    names.update(*(arg.symbols for arg in atom.args if isinstance(arg, DimExpr)))
        return frozenset(names)

    @cached_property
    def divisors(self) -> tuple[DimExpr, ...]:
        """The non-constant divisors of ``//`` and ``%`` at any depth, innermost first."""
        result: dict[DimExpr, None] = {}
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, OpaqueTerm):
                    inner = [arg for arg in atom.args if isinstance(arg, DimExpr)]
                    result |= dict.fromkeys(divisor for arg in inner for divisor in arg.divisors)
                    if atom.kind not in CALLS and isinstance(atom.args[1], DimExpr):
                        result[atom.args[1]] = None
        return tuple(result)

    @cached_property
    def bounds(self) -> Interval:
        """The smallest and largest value over all sizes by interval arithmetic; may be infinite."""
        total: Interval = (0, 0)
        for monomial, coefficient in self.terms:
            term: Interval = (coefficient, coefficient)
            for atom in monomial:
                term = interval.multiply(term, _atom_bounds(atom))
            total = interval.add(total, term)
        return total

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        """Return the value with every symbol replaced by its size. It may be negative.

        Raises `Error` for a symbol without a size, a negative size, or a division by zero.
        """
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                coefficient *= _evaluate_atom(atom, bindings, self)
            total += coefficient
        return total

    def substitute(self, mapping: Mapping[str, Dim]) -> Dim:
        """Return the dimension with symbols replaced by dimensions, all at once. Symbols that are not in `mapping` remain."""
        if self.symbols.isdisjoint(mapping):
            return self
        total: Dim = 0
        for monomial, coefficient in self.terms:
            term: Dim = coefficient
            for atom in monomial:
                term = term * _substitute_atom(atom, mapping)
            total = total + term
        return total

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"dim({self.text!r})"

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[object, ...]:
        return DimExpr, (self.terms,)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DimExpr) and self.text == other.text)

    def __add__(self, other: object) -> Dim:
        return NotImplemented if (right := _operand(other)) is None else _add(self, right, 1)

    def __sub__(self, other: object) -> Dim:
        return NotImplemented if (right := _operand(other)) is None else _add(self, right, -1)

    def __rsub__(self, other: object) -> Dim:
        return NotImplemented if (left := _operand(other)) is None else _add(left, self, -1)

    def __mul__(self, other: object) -> Dim:
        return NotImplemented if (right := _operand(other)) is None else _multiply(self, right)

    def __floordiv__(self, other: object) -> Dim:
        return NotImplemented if (right := _operand(other)) is None else _floordiv(self, right)

    def __rfloordiv__(self, other: object) -> Dim:
        return NotImplemented if (left := _operand(other)) is None else _floordiv(left, self)

    def __mod__(self, other: object) -> Dim:
        return NotImplemented if (right := _operand(other)) is None else _mod(self, right)

    def __rmod__(self, other: object) -> Dim:
        return NotImplemented if (left := _operand(other)) is None else _mod(left, self)

    def __neg__(self) -> Dim:
        return _multiply(self, -1)

    __radd__ = __add__
    __rmul__ = __mul__


Dim = int | DimExpr


# Conversion between dimensions and polynomials


def _operand(x: Any) -> Dim | None:
    if isinstance(x, (int, DimExpr)):
        return None if isinstance(x, bool) else x
    try:
        return operator.index(x)
    except TypeError:
        return None


def _terms(d: Dim) -> Terms:
    return d.terms if isinstance(d, DimExpr) else polynomial.constant(d)


def from_terms(terms: Terms) -> Dim:
    """Return the dimension of a canonical polynomial."""
    if not terms:
        return 0
    monomial, coefficient = terms[0]
    return _checked(DimExpr(terms)) if monomial else coefficient


def atom_dim(atom: Atom) -> DimExpr:
    """Return the dimension that is one symbol or one opaque term."""
    return _checked(DimExpr((((atom,), 1),)))


def _checked(d: DimExpr) -> DimExpr:
    """Return the dimension unchanged. Raises `ShapeError` if it is too large to compute with."""
    if d.depth > DEEPEST or len(d.text) > LONGEST:
        size = f"{len(d.text)} characters" if len(d.text) > LONGEST else f"{d.depth} nested operators"
        raise ShapeError(
            f"a size has {size}; at most {LONGEST} and {DEEPEST} are allowed",
            hint="give a size that is so complicated a symbol of its own",
        )
    return d


def exact_divide(a: Dim, b: Dim) -> Dim | None:
    """Return the quotient ``a/b`` if it is exact for every size, else None (also if `b` is 0)."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 or a % b else a // b
    quotient = polynomial.exact_divide(_terms(a), _terms(b)) if b != 0 else None
    return None if quotient is None else from_terms(quotient)


def _add(a: Dim, b: Dim, sign: int) -> Dim:
    return from_terms(polynomial.add(_terms(a), _terms(b), sign))


def _multiply(a: Dim, b: Dim) -> Dim:
    return from_terms(polynomial.multiply(_terms(a), _terms(b)))


# Division


@lru_cache(maxsize=4096)
def _floordiv(a: Dim, b: Dim) -> Dim:
    if b == 0:
        raise Error(f"dimension '{a}' is divided by zero")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    exact = exact_divide(a, b)
    if exact is not None:
        return exact
    if _terms(b)[0][1] < 0:
        return _floordiv(-a, -b)
    factor = from_terms(polynomial.common_factor(_terms(a), _terms(b)))
    if factor != 1:
        return _floordiv(_divide(a, factor), _divide(b, factor))
    whole, rest = _split_multiples(a, b)
    constant = _constant_quotient(rest, b)
    if constant is not None:
        return whole + constant
    if isinstance(b, int):
        scale = math.gcd(b, *(c for m, c in _terms(rest) if m))
        if scale > 1:  # (g*x + c)//(g*b) is (x + c//g)//b
            rest = from_terms(polynomial.canonical({m: c // scale for m, c in _terms(rest)}))
            return whole + _floordiv(rest, b // scale)
        if all(c < 0 for m, c in _terms(rest) if m):  # for example, -(-x//b) becomes (x+b-1)//b
            return whole - _floordiv(b - 1 - rest, b)
    if _bounds(b)[0] >= 0:
        for monomial, coefficient in _terms(rest):
            inner = _as_call(monomial, "//")
            if inner and coefficient == 1:  # (x//p + r)//b is (x + p*r)//(p*b)
                x, p = inner.args
                return whole + _floordiv(x + p * (rest - atom_dim(inner)), p * b)
    if whole == 0 and rest == a:
        return atom_dim(OpaqueTerm("//", (a, b)))
    return whole + _floordiv(rest, b)


@lru_cache(maxsize=4096)
def _mod(a: Dim, b: Dim) -> Dim:
    if b == 0:
        raise Error(f"dimension '{a}' is divided by zero")
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if exact_divide(a, b) is not None:
        return 0
    if _terms(b)[0][1] < 0:
        return -_mod(-a, -b)
    # First remove multiples of b, so that x % b and (x + k*b) % b get the same form.
    rest = _residue(a, b)
    for monomial, coefficient in _terms(rest):
        inner = _as_call(monomial, "%")
        if inner and exact_divide(coefficient * inner.args[1], b) is not None:  # (x % (k*b)) % b is x % b
            rest = rest + coefficient * (inner.args[0] - atom_dim(inner))
    if rest != a:
        return _mod(rest, b)
    constant = _constant_quotient(a, b)
    if constant is not None:
        return a - constant * b
    factor = from_terms(polynomial.common_factor(_terms(a), _terms(b)))
    if factor != 1:
        return factor * _mod(_divide(a, factor), _divide(b, factor))
    if isinstance(b, int):
        scale = math.gcd(b, *(c for m, c in _terms(a) if m))
        if scale > 1:
            rest = from_terms(polynomial.canonical({m: c // scale for m, c in _terms(a)}))
            return scale * _mod(rest, b // scale) + dict(_terms(a)).get((), 0) % scale
    return atom_dim(OpaqueTerm("%", (a, b)))


def _divide(a: Dim, b: Dim) -> Dim:
    quotient = exact_divide(a, b)
    assert quotient is not None
    return quotient


def _split_multiples(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Return (whole, rest) with a == whole*b + rest. `rest` has no multiples of `b` if `b` has a single term.

    For a constant `b`, coefficients are between -b and b and keep their sign, and the constant is in [-b/2, b/2).
    (seq+1)//2 and (seq-1)//2+1 both become the latter.
    """
    if len(_terms(b)) > 1:
        return 0, a
    ((lead, divisor),) = _terms(b)
    whole: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(a):
        factor = polynomial.divide_monomial(monomial, lead)
        if factor is None or (lead and coefficient % divisor):
            continue
        if monomial:
            whole[factor] = coefficient // divisor if coefficient > 0 else -(-coefficient // divisor)
        else:
            whole[factor] = (2 * coefficient + divisor) // (2 * divisor)
    quotient = from_terms(polynomial.canonical(whole))
    return quotient, a - quotient * b


def _residue(a: Dim, b: Dim) -> Dim:
    """Return `a` without multiples of `b`, if `b` has a single term.

    For a constant `b`, coefficients are in (-b/2, b/2] and the constant is in [0, b).
    """
    if not isinstance(b, int):
        return _split_multiples(a, b)[1]
    rest = {m: c % b - (b if m and 2 * (c % b) > b else 0) for m, c in _terms(a)}
    return from_terms(polynomial.canonical(rest))


def _constant_quotient(a: Dim, b: Dim) -> int | None:
    """Return the value of a//b if the bounds allow only one."""
    low, high = _bounds(a)
    if isinstance(b, int):
        if -math.inf < low and high < math.inf and low // b == high // b:
            return int(low // b)
        return None
    return 0 if low >= 0 and _bounds(b - 1 - a)[0] >= 0 else None


def _as_call(monomial: Monomial, kind: str) -> OpaqueTerm | None:
    if len(monomial) == 1 and isinstance(monomial[0], OpaqueTerm) and monomial[0].kind == kind:
        return monomial[0]
    return None


# max and min


def extremum(kind: str, dims: Iterable[Dim]) -> Dim:
    """Return ``max`` or ``min`` of dimensions, flattened, without arguments that another argument dominates."""
    flat: list[Dim] = []
    for d in dims:
        inner = _as_call(d.terms[0][0], kind) if isinstance(d, DimExpr) and d == atom_dim(d.terms[0][0][0]) else None
        flat.extend(inner.args if inner else (d,))
    flat.sort(key=lambda d: (isinstance(d, int), str(d)))

    def dominates(a: Dim, b: Dim) -> bool:
        return _bounds(a - b if kind == "max" else b - a)[0] >= 0

    undominated: list[Dim] = []
    for d in flat:
        if not any(dominates(other, d) for other in undominated):
            undominated = [other for other in undominated if not dominates(d, other)] + [d]
    if not undominated:
        raise Error(f"{kind}() needs at least one dimension")
    return undominated[0] if len(undominated) == 1 else atom_dim(OpaqueTerm(kind, tuple(undominated)))


# Bounds


def _bounds(d: Dim) -> Interval:
    return d.bounds if isinstance(d, DimExpr) else (d, d)


def _atom_bounds(atom: Atom) -> Interval:
    if isinstance(atom, str):
        return interval.NON_NEGATIVE
    bounds = [_bounds(arg) for arg in atom.args]
    if atom.kind in CALLS:
        pick = max if atom.kind == "max" else min
        return pick(low for low, _ in bounds), pick(high for _, high in bounds)
    return interval.floordiv(*bounds) if atom.kind == "//" else interval.mod(*bounds)


# Replacement of symbols


def _evaluate_atom(atom: Atom, bindings: Mapping[str, int], whole: DimExpr) -> int:
    if isinstance(atom, str):
        if atom not in bindings:
            known = ", ".join(f"{name}={size}" for name, size in sorted(bindings.items())) or "none"
            raise Error(f"symbol {atom!r} of dimension '{whole}' has no size; known: {known}", hint=f"bind {atom!r}")
        size = operator.index(bindings[atom])
        if size < 0:
            raise Error(f"symbol {atom!r} is bound to {size}", hint="sizes are integers >= 0")
        return size
    values = [arg.evaluate(bindings) if isinstance(arg, DimExpr) else arg for arg in atom.args]
    if atom.kind in CALLS:
        return max(values) if atom.kind == "max" else min(values)
    if values[1] == 0:
        raise Error(f"dimension '{whole}' divides by '{atom.args[1]}', which is 0")
    return values[0] // values[1] if atom.kind == "//" else values[0] % values[1]


def _substitute_atom(atom: Atom, mapping: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, str):
        replacement = mapping.get(atom)
        return atom_dim(atom) if replacement is None else replacement
    args = [arg.substitute(mapping) if isinstance(arg, DimExpr) else arg for arg in atom.args]
    if atom.kind in CALLS:
        return extremum(atom.kind, args)
    if args[1] == 0:
        raise Error(f"dimension '{atom}' divides by '{atom.args[1]}', which is 0")
    return args[0] // args[1] if atom.kind == "//" else args[0] % args[1]
