"""Exact symbolic dimensions: integers, or integer expressions over named symbols.

A dimension (`Dim`) is an ``int`` or a `DimExpr`. Arithmetic with a constant result returns an ``int``, so code for
static shapes never sees a `DimExpr`. A symbol is an integer >= 0, and the same name is the same size everywhere.
Division rounds down as in Python, and a divisor is assumed to be non-zero: ``(batch*seq)//seq`` is ``batch``.

``==`` compares canonical forms (see `rlx.ir.dims.expr`); `same` proves a little more.
"""

from __future__ import annotations

import ast
import keyword
import operator
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from rlx.ir.dims import polynomial
from rlx.ir.dims.expr import CALLS, LONGEST, Dim, DimExpr, OpaqueTerm, atom_dim, exact_divide, extremum, from_terms
from rlx.ir.dims.polynomial import Monomial
from rlx.support.errors import Error, ShapeError
from rlx.support.short import short_repr

__all__ = [
    "Dim",
    "DimExpr",
    "SymbolBindings",
    "dim",
    "divisors",
    "estimate",
    "evaluate",
    "exact_divide",
    "is_multiple_of",
    "linear",
    "maximum",
    "minimum",
    "parse",
    "product",
    "same",
    "solve",
    "substitute",
    "symbol",
    "symbols",
]


# Creating dimensions


@lru_cache(maxsize=4096)
def symbol(name: str) -> DimExpr:
    """Return the dimension called `name`. Raises `Error` if `name` is not an identifier."""
    name = unicodedata.normalize("NFKC", name)  # like Python's own parser
    if not name.isidentifier() or keyword.iskeyword(name) or name in CALLS:
        raise Error(
            f"{short_repr(name)} is not a name for a symbolic dimension",
            hint="use a Python identifier that is not a keyword, such as 'batch' or 'seq_len'",
        )
    return atom_dim(name)


@lru_cache(maxsize=4096)
def parse(text: str) -> Dim:
    """Return the dimension written as `text`: names, integers, ``+ - * // %``, parentheses, ``max()`` and ``min()``.

    Raises `Error` for anything else; the message quotes `text`.
    """
    if len(text) > LONGEST:
        raise Error(f"a dimension of {len(text)} characters: at most {LONGEST} are allowed")
    try:
        return _from_ast(ast.parse(text.strip(), mode="eval").body)
    except Error as error:
        reason = error.message
    except SyntaxError as error:
        reason = error.msg
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        reason = str(error)
    raise Error(
        f"{short_repr(text)} is not a dimension: {reason}",
        hint="use names, integers, + - * // %, parentheses, max() and min(), as in '2*seq' or '(seq-1)//2+1'",
    )


_OPERATORS: dict[type, Callable[[Any, Any], Dim]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
}


def _from_ast(node: ast.expr) -> Dim:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_ast(operand)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            a, b = _from_ast(left), _from_ast(right)
            if b == 0 and isinstance(operation, (ast.FloorDiv, ast.Mod)):
                raise Error(f"'{a}' is divided by zero")
            return _OPERATORS[type(operation)](a, b)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in CALLS:
            return extremum(name, map(_from_ast, args))
        case _:
            raise Error(f"{ast.unparse(node)!r} is not allowed")


LARGEST = 2**63 - 1  # the largest size in an MLIR type


def dim(x: Any, *, signed: bool = False) -> Dim:
    """Return `x` as a dimension: an integer (NumPy's too), a `DimExpr`, or text for `parse`.

    Raises `Error` for a negative constant unless `signed`, for a constant that is too large, and for other types.
    """
    if isinstance(x, DimExpr):
        return x
    try:
        if isinstance(x, bool):
            raise TypeError
        value = parse(x) if isinstance(x, str) else operator.index(x)
    except TypeError:
        raise Error(
            f"a dimension is an integer or a symbolic expression, not {short_repr(x)} of type {type(x).__name__}",
            hint="give an int, or text such as 'seq' or '2*seq'",
        ) from None
    if isinstance(value, int) and value < 0 and not signed:
        raise ShapeError(
            f"a dimension cannot be negative, but this one is {short_repr(x)}", hint="sizes are integers >= 0"
        )
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ShapeError(f"a dimension is at most {LARGEST}, but this one is {short_repr(x)}")
    return value


def maximum(*dims: Dim) -> Dim:
    """Return the greatest of the dimensions, as an int or as ``max(...)``."""
    return extremum("max", dims)


def minimum(*dims: Dim) -> Dim:
    """Return the least of the dimensions, as an int or as ``min(...)``."""
    return extremum("min", dims)


def product(dims: Iterable[Dim]) -> Dim:
    """Return the product of the dimensions; 1 for none."""
    total: Dim = 1
    for d in dims:
        total = total * d
    return total


# Properties of dimensions


def symbols(d: Dim) -> frozenset[str]:
    """Return the names of the symbols of `d`; none for an int."""
    return d.symbols if isinstance(d, DimExpr) else frozenset()


def divisors(d: Dim) -> tuple[DimExpr, ...]:
    """Return the non-constant divisors in `d`, innermost first. `d` has a value only if none of them is 0."""
    return d.divisors if isinstance(d, DimExpr) else ()


def evaluate(d: Dim, bindings: Mapping[str, int]) -> int:
    """Return the value of `d` with every symbol replaced by its size. It may be negative.

    Raises `Error` for a symbol without a size, a negative size, or a division by zero.
    """
    return d.evaluate(bindings) if isinstance(d, DimExpr) else d


# Size of a symbol in estimates of work and memory.
TYPICAL_SIZE = 64


def estimate(d: Dim) -> int:
    """Return the value of `d` with a typical size for each symbol, for costs; 0 if that divides by zero."""
    try:
        return evaluate(d, dict.fromkeys(symbols(d), TYPICAL_SIZE))
    except Error:
        return 0


def substitute(d: Dim, mapping: Mapping[str, Dim]) -> Dim:
    """Return `d` with symbols replaced by dimensions, all at once. Symbols that are not in `mapping` remain."""
    return d.substitute(mapping) if isinstance(d, DimExpr) else d


def same(a: Dim, b: Dim) -> bool:
    """Whether `a` and `b` are equal for every size of their symbols, as far as this module can prove.

    True where ``a == b``, and also where writing ``x%y`` as ``x - y*(x//y)`` makes them equal.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return a == b or _without_mod(a - b) == 0


def is_multiple_of(a: Dim, b: Dim) -> bool:
    """Whether `a` is a whole multiple of `b` for every size, as far as this module can prove."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b == 0 if b else a == 0
    return exact_divide(_without_mod(a), b) is not None


def _without_mod(d: Dim) -> Dim:
    """Return `d` with every ``x%y`` that is not inside another opaque term written as ``x - y*(x//y)``."""
    if isinstance(d, int):
        return d
    total: Dim = 0
    for monomial, coefficient in d.terms:
        term: Dim = coefficient
        for atom in monomial:
            if isinstance(atom, OpaqueTerm) and atom.kind == "%":
                x, y = atom.args
                term = term * (x - y * (x // y))
            else:
                term = term * atom_dim(atom)
        total = total + term
    return total


# Solving for sizes


def linear(d: DimExpr, name: str) -> tuple[Dim, Dim] | None:
    """Return `slope` and `rest` such that `d` is ``slope*name + rest`` and neither contains `name`, or None."""
    slope: dict[Monomial, int] = {}
    for monomial, coefficient in d.terms:
        if name in monomial:
            others = list(monomial)
            others.remove(name)
            slope[tuple(others)] = coefficient
    factor = from_terms(polynomial.canonical(slope))
    rest = d - factor * symbol(name)
    return None if not slope or name in symbols(factor) | symbols(rest) else (factor, rest)


def solve(d: Dim, value: int, bindings: Mapping[str, int]) -> dict[str, int] | None:
    """Return sizes that make `d` equal to `value`, given `bindings`.

    Returns ``{}`` if `d` has no unknown symbol and equals `value`, ``{name: size}`` if it is linear in its
    one unknown symbol, and None if it cannot be solved.

    Raises `ShapeError` if no size >= 0 solves the equation.
    """
    bound = substitute(d, bindings)
    if isinstance(bound, int):
        if bound != value:
            raise ShapeError(f"dimension '{d}' is {bound}, not {value}")
        return {}
    if len(bound.symbols) > 1:
        return None
    (name,) = bound.symbols
    line = linear(bound, name)
    if line is None:
        return None
    slope, constant = line
    assert isinstance(slope, int) and isinstance(constant, int)  # no other symbol is left
    size, rest = divmod(value - constant, slope)
    if rest or size < 0:
        raise ShapeError(f"no size of symbol {short_repr(name)} makes dimension '{d}' equal to {value}")
    return {name: size}


class SymbolBindings:
    """Sizes of symbols, solved from facts. A fact is an expression, its size, and the source of that size.

    Facts may be added in any order. `solve` finds the sizes and checks every fact against them.
    """

    def __init__(self) -> None:
        self._facts: list[tuple[Dim, int, str]] = []

    def add(self, expression: Dim, size: int, place: str) -> None:
        """Record that `expression` is `size` at `place`, such as ``"input 'x' dimension 1"``."""
        self._facts.append((expression, operator.index(size), place))

    def solve(self, *, partial: bool = False) -> dict[str, int]:
        """Return the size of every symbol.

        Raises `ShapeError` if facts contradict each other, naming both places, or if a symbol has no size, naming where
        it occurs. With `partial`, symbols without a size are left out instead.
        """
        sizes: dict[str, int] = {}
        origins: dict[str, str] = {}
        # Facts about a symbol alone come first, so that messages name the simplest fact.
        pending = sorted(self._facts, key=lambda fact: str(fact[0]) not in symbols(fact[0]))
        while True:
            waiting = [fact for fact in pending if not _settle(*fact, sizes, origins)]
            if len(waiting) == len(pending):
                break
            pending = waiting
        # A true fact may leave a symbol undetermined: if batch is 0, batch*seq is 0 for any seq.
        waiting = [fact for fact in self._facts if symbols(fact[0]) - sizes.keys()]
        if waiting and not partial:
            facts = "; ".join(f"'{expression}' is {size} at {place}" for expression, size, place in waiting)
            names = sorted({name for expression, _, _ in waiting for name in symbols(expression) - sizes.keys()})
            raise ShapeError(
                f"cannot tell the size of {_quoted(names)} from: {facts}",
                hint=f"give the size of {_quoted(names)} by name",
            )
        return sizes

    def unresolved(self) -> dict[str, list[str]]:
        """Return the symbols without a size, each with the places where it occurs. Raises like `solve`."""
        sizes = self.solve(partial=True)
        places: dict[str, list[str]] = {}
        for expression, _, place in self._facts:
            for name in sorted(symbols(expression) - sizes.keys()):
                places.setdefault(name, []).append(place)
        return places


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _settle(expression: Dim, size: int, place: str, sizes: dict[str, int], origins: dict[str, str]) -> bool:
    """Check one fact, or solve it for a size. Returns False if it needs sizes that are not known yet."""
    if isinstance(expression, int):
        if expression != size:
            raise ShapeError(f"{place} is {size}, but {expression} is expected")
        return True
    solution: dict[str, int] | None = {}
    expected = None
    try:
        if expression.symbols <= sizes.keys():
            expected = expression.evaluate(sizes)
        else:
            solution = solve(expression, size, sizes)
    except Error as error:
        reasons = "".join(f"; {reason}" for reason in _reasons(expression, sizes, origins))
        raise ShapeError(f"{place}: {error.message}{reasons}", hint=error.hint) from None
    if expected is not None and expected != size:
        name = str(expression)
        if name in sizes:
            raise ShapeError(f"symbol '{name}' is {expected} from {origins[name]}, but {size} from {place}")
        reasons = ", ".join(_reasons(expression, sizes, origins))
        raise ShapeError(f"dimension '{name}' is {expected} because {reasons}, but {size} from {place}")
    for name, value in (solution or {}).items():
        sizes[name] = value
        origins[name] = place if str(expression) == name else f"{place}, where '{expression}' is {size}"
    return solution is not None


def _reasons(expression: DimExpr, sizes: dict[str, int], origins: dict[str, str]) -> list[str]:
    known = sorted(expression.symbols & sizes.keys())
    return [f"'{name}' is {sizes[name]} from {origins[name]}" for name in known]
