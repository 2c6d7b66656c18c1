"""Algebraic identities as rows of a table, such as `identity(x + -0.0, x, FLOATS)`, and their matcher.

A row is a left side, the right side that replaces it, and a condition: the dtypes of its tensors, and optionally a
predicate of its numbers. `expressions.py` has the language of both sides.

    x, y = variables("x", "y")
    a, b = any_numbers("a", "b")
    identity(x + -y, x - y, NUMBERS)
    identity(shift_left(shift_left(x, a), b), shift_left(x, a + b), INTEGERS, when=lambda a, b: a >= 0 and b >= 0)

* `identity` holds to the last bit. `approximation` holds for real numbers.
* A literal on the left matches a constant of this value, with the sign of a zero. An expression of numbers on the right
  becomes a constant. If the dtype lacks its value, the row does not match: identities never round a number. An
  approximation rounds it, but not to infinity, and not to less than the smallest normal number.
* The operands of a commutative op match in both orders, and operands broadcast. If the left side has a variable that
  the right side lacks, the result is expanded to the shape of the left side. Otherwise the shapes must be equal.
* A row whose right side has several ops would repeat work whose result is used elsewhere. Therefore it matches inner
  ops only if they are in the same block and have one use.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from rlx import mlir
from rlx.ir.dtype import DType
from rlx.ir.op import registry, views
from rlx.ir.op.views import View
from rlx.ir.shape import shape_of
from rlx.passes.pattern import Pattern, Rewriter, has_one_use, producer
from rlx.passes.simplification.expressions import (
    AnyNumber,
    Application,
    Expression,
    Literal,
    Real,
    Variable,
    as_expression,
    equal,
    value_in,
)
from rlx.passes.simplification.values import expand_like, splat
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error


@dataclass(frozen=True, eq=False)
class AlgebraicIdentity:
    """A row of a table: the left side is replaced by the right side.

    Attributes:
        left: The op to match.
        right: Its replacement.
        dtypes: The names of the dtypes for which it holds. The dtype of a row is that of the last operand of `left`.
        when: A predicate of the row's `AnyNumber`s, whose names are its parameters; None if it has none.
        is_exact: Whether both sides have the same bits.
        place: Where the row is, as `file:line`.
    """

    left: Application
    right: Expression
    dtypes: frozenset[str]
    when: Callable[..., bool] | None
    is_exact: bool
    place: str

    def __str__(self) -> str:
        return f"{self.left} -> {self.right}"

    @cached_property
    def pattern(self) -> Pattern:
        """The row as a pattern of the driver."""
        return Pattern(str(self), (_view_of(self.left.op),), self._rewrite, self.place)

    @cached_property
    def orders(self) -> tuple[Application, ...]:
        """The left side in each order of commutative operands."""
        return tuple(dict.fromkeys(order for order in _orders(self.left) if isinstance(order, Application)))

    @cached_property
    def drops(self) -> bool:
        """Whether the left side has a variable that the right side lacks, so that the result may be expanded."""
        sides = [{part for part in side.parts if isinstance(part, Variable)} for side in (self.left, self.right)]
        return sides[0] != sides[1]

    @cached_property
    def shared(self) -> frozenset[Expression]:
        """The parts of the left side whose values the right side uses as they are."""
        return frozenset(self.left.parts) & frozenset(self.right.parts)

    @cached_property
    def is_growing(self) -> bool:
        """Whether the right side has several ops."""
        return sum(1 for _ in self._new_ops(self.right)) > 1

    @cached_property
    def condition_names(self) -> tuple[str, ...]:
        """The names of the numbers that the predicate takes."""
        return () if self.when is None else tuple(inspect.signature(self.when).parameters)

    def _new_ops(self, part: Expression) -> Iterator[Application]:
        if isinstance(part, Application) and part not in self.shared and not part.is_number:
            yield part
            for operand in part.operands:
                yield from self._new_ops(operand)

    def _rewrite(self, op: View, rewriter: Rewriter) -> mlir.Value | None:
        operands = op.operands
        dtype = shape_of(operands[-1]).dtype
        if dtype.name not in self.dtypes:
            return None
        for left in self.orders:
            match = _Match(self, op, dtype)
            if match.binds(left, operands) and (value := match.replacement(rewriter)) is not None:
                return value
        return None


def identity(
    left: Application, right: Expression | Real, dtypes: Iterable[str], when: Callable[..., bool] | None = None
) -> AlgebraicIdentity:
    """Return a row whose sides have the same bits, for all values of its dtypes.

    Args:
        left: The op to match.
        right: Its replacement.
        dtypes: The names of the dtypes for which the row holds.
        when: A predicate of numbers, whose parameters are the names of `AnyNumber`s of the row.

    Raises:
        Error: The right side or the predicate has a name that the left side lacks.
    """
    return _row(AlgebraicIdentity(left, as_expression(right), frozenset(dtypes), when, True, _place()))


def approximation(
    left: Application, right: Expression | Real, dtypes: Iterable[str], when: Callable[..., bool] | None = None
) -> AlgebraicIdentity:
    """Return a row that holds for real numbers: its sides may differ in rounding, and for special values.

    Arguments and errors are those of `identity`.
    """
    return _row(AlgebraicIdentity(left, as_expression(right), frozenset(dtypes), when, False, _place()))


def _row(row: AlgebraicIdentity) -> AlgebraicIdentity:
    """Return a row after checks of its names."""
    names, used = _names(row.left), _names(row.right) | set(row.condition_names)
    if not used <= names:
        raise Error(f"'{row}' uses {', '.join(sorted(used - names))}, which its left side lacks", location=row.place)
    return row


def _names(side: Expression) -> set[str]:
    return {part.name for part in side.parts if isinstance(part, (Variable, AnyNumber))}


def _place() -> str:
    """Return where the caller of the caller is, as `file:line`."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None and frame.f_back.f_back is not None
    caller = frame.f_back.f_back
    return f"{caller.f_code.co_filename}:{caller.f_lineno}"


def _view_of(op: str) -> type[View]:
    return getattr(views, views.class_name(op))


def _orders(part: Expression) -> Iterator[Expression]:
    if not isinstance(part, Application):
        yield part
        return
    trait = registry.SPECS[part.op].trait("commutative")
    commutes = trait is not None and part.kind in trait.cases
    for operands in product(*map(_orders, part.operands)):
        yield Application(part.op, part.kind, operands)
        if commutes:
            yield Application(part.op, part.kind, operands[::-1])


# --- the matcher -------------------------------------------------------------------------------------------


@dataclass
class _Match:
    """The values for which a row matches an op."""

    row: AlgebraicIdentity
    op: View
    dtype: DType
    values: dict[Expression, mlir.Value] = field(default_factory=dict[Expression, mlir.Value])
    numbers: dict[str, Real] = field(default_factory=dict[str, Real])

    def binds(self, left: Application, operands: Sequence[mlir.Value]) -> bool:
        """Whether expressions match the operands of the op, and the condition holds."""
        if not all(map(self._binds, left.operands, operands)):
            return False
        when = self.row.when
        return when is None or when(*(self.numbers[name] for name in self.row.condition_names))

    def _binds(self, part: Expression, value: mlir.Value) -> bool:
        if isinstance(part, Variable):
            return self.values.setdefault(part, value) == value
        if part in self.row.shared:
            self.values.setdefault(part, value)
        if isinstance(part, Application):
            return self._binds_op(part, value)
        number = splat(value)
        if number is None:
            return False
        if isinstance(part, AnyNumber):
            return math.isfinite(number) and equal(self.numbers.setdefault(part.name, number), number)
        expected = value_in(part, self.dtype, self.numbers)
        return expected is not None and equal(number, expected)

    def _binds_op(self, part: Application, value: mlir.Value) -> bool:
        inner = producer(value, _view_of(part.op))
        if inner is None or getattr(inner, "kind", "") != part.kind:
            return False
        if self.row.is_growing and (inner.operation.block != self.op.operation.block or not has_one_use(value)):
            return False
        return all(map(self._binds, part.operands, inner.operands))

    def replacement(self, rewriter: Rewriter) -> mlir.Value | None:
        """Return the value of the right side; None if it cannot replace the op."""
        constants: dict[Expression, Real] = {}
        for part in _numbers_of(self.row.right):
            if part not in self.values:
                number = value_in(part, self.dtype, self.numbers, rounds=not self.row.is_exact)
                if number is None:
                    return None
                constants[part] = number
        result = self.op.operation.results[0]
        value = self._emit(self.row.right, constants, rewriter)
        if self.row.drops:
            return expand_like(rewriter, value, result)
        return value if value.type == result.type else None

    def _emit(self, part: Expression, constants: dict[Expression, Real], rewriter: Rewriter) -> mlir.Value:
        if part in self.values:
            return self.values[part]
        if part in constants:
            return rewriter.builder.constant(self.dtype.numpy.type(constants[part])).value
        assert isinstance(part, Application)
        operands = [self._emit(operand, constants, rewriter) for operand in part.operands]
        return rewriter.emit(part.op, operands, **({"kind": part.kind} if part.kind else {}))


def _numbers_of(part: Expression) -> Iterator[Expression]:
    """Return the largest expressions of numbers in an expression."""
    if part.is_number:
        yield part
    elif isinstance(part, Application):
        for operand in part.operands:
            yield from _numbers_of(operand)


# --- selection -----------------------------------------------------------------------------------------------

_ANY_NUMBER = "number"


class IdentityTable:
    """Rows, selected by the ops and numbers that they name. The driver takes a table like a pattern.

    An op is compared only with the rows whose left side is an op of its kind, and only with those among them that
    require no number or inner op, or one that an operand is.
    """

    def __init__(self, rows: Iterable[AlgebraicIdentity]):
        self.rows = tuple(rows)
        self.roots = tuple(dict.fromkeys(root for row in self.rows for root in row.pattern.roots))
        self._patterns = [row.pattern for row in self.rows]
        self._by_kind: dict[tuple[str, str], _RowsOfKind] = {}
        for number, row in enumerate(self.rows):
            self._by_kind.setdefault((row.left.op, row.left.kind), _RowsOfKind()).add(number, row)

    def candidates(self, op: View) -> Sequence[Pattern]:
        """Return the rows that may match an op, in the order of the table."""
        selection = self._by_kind.get((op.spec.name, getattr(op, "kind", "")))
        if selection is None:
            return ()
        return [self._patterns[number] for number in selection.numbers(op.operation.operands)]


class _RowsOfKind:
    """The numbers of the rows for ops of one kind, by what an operand has to be, or by two operands that are the same."""

    def __init__(self) -> None:
        self.unconditional: list[int] = []
        self.by_pair: dict[tuple[int, int], list[int]] = {}
        self.by_op: list[dict[tuple[str, str], list[int]]] = []
        self.by_number: list[dict[object, list[int]]] = []

    def add(self, number: int, row: AlgebraicIdentity) -> None:
        """Add a row."""
        for _ in row.left.operands[len(self.by_op) :]:
            self.by_op.append({})
            self.by_number.append({})
        for left in row.orders:
            rows = self._rows_like(left)
            if number not in rows:
                rows.append(number)

    def _rows_like(self, left: Application) -> list[int]:
        for index, part in enumerate(left.operands):
            if isinstance(part, Application):
                return self.by_op[index].setdefault((f"rlx.{part.op}", part.kind), [])
            if part.is_number:
                key = part.value if isinstance(part, Literal) else _ANY_NUMBER
                return self.by_number[index].setdefault(key, [])
        pairs = combinations(enumerate(left.operands), 2)
        pair = next(((i, j) for (i, first), (j, second) in pairs if first == second), None)
        return self.unconditional if pair is None else self.by_pair.setdefault(pair, [])

    def numbers(self, operands: Sequence[mlir.Value]) -> Sequence[int]:
        """Return the numbers of the rows that may match an op with these operands, in ascending order."""
        chosen = [*self.unconditional]
        for (i, j), rows in self.by_pair.items():
            if operands[i] == operands[j]:
                chosen += rows
        for value, by_op, by_number in zip(operands, self.by_op, self.by_number, strict=True):
            if not (by_op or by_number) or not isinstance(value, mlir.ir.OpResult):
                continue
            inner = value.owner.operation
            name = inner.name
            if (has_kind := _HAS_KIND.get(name)) is not None:
                if by_op:
                    chosen += by_op.get((name, inner.attributes["kind"].value if has_kind else ""), ())
            elif by_number and (number := splat(value)) is not None:
                chosen += by_number.get(number, ())
                chosen += by_number.get(_ANY_NUMBER, ())
        return chosen if len(chosen) < 2 else sorted(set(chosen))


# The ops of expressions, and whether they have kinds.
_HAS_KIND = {"rlx.binary": True, "rlx.activation": True, "rlx.where": False}
