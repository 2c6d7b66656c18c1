"""Algebraic identities: each row holds in each of its dtypes, `rlx-simplify` applies it, and nothing else matches it."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.ir.dtype import FLOATS, INTEGERS, REAL, DType, dtype
from rlx.ir.op import attributes, registry
from rlx.passes.pattern import count_rewrites, rewrite
from rlx.passes.rewrite import collect
from rlx.passes.runner import clone_module
from rlx.passes.simplification.algebra import AlgebraicIdentity, IdentityTable, approximation, identity
from rlx.passes.simplification.expressions import (
    AnyNumber,
    Application,
    Expression,
    Literal,
    Variable,
    any_numbers,
    binary,
    equal,
    represent,
    value_in,
    variables,
)
from rlx.passes.simplification.identities import EXACT, FAST, KNOWN_CHOICES
from tests.bit_patterns import bit_patterns
from tests.passes.expression_graphs import Numbers, Sides, conditions, graph_of

# Pairs of numbers for rows with two of them: the first pair is small enough for every row to match.
_PAIRS = [(3.0, 2.0), (1.0, 0.0), (0.25, -8.0), (2.0, 2.0)]
x, y, z = variables("x", "y", "z")
a, b = any_numbers("a", "b")

every_row = pytest.mark.parametrize("row", FAST.rows, ids=str)


# --- rows and numbers ---------------------------------------------------------------------------------------


def bindings(row: AlgebraicIdentity, kind: DType) -> list[dict[str, float]]:
    """Return values of the row's numbers that exist in a dtype."""
    names = sorted({part.name for part in row.left.parts if isinstance(part, AnyNumber)})
    pairs = _PAIRS if names else [(1.0, 1.0)]
    bound: list[dict[str, float]] = [dict(zip(names, pair, strict=False)) for pair in pairs]
    if not kind.is_float:
        bound = [{name: int(v) for name, v in numbers.items()} for numbers in bound]
        bound = [n for n in bound if kind.is_signed or min(n.values(), default=0) >= 0]
    return bound


def is_applicable(row: AlgebraicIdentity, kind: DType, numbers: Numbers) -> bool:
    """Whether a dtype has the values of the row's new numbers."""
    parts = [part for part in row.right.parts if part.is_number and part not in row.shared]
    return all(value_in(part, kind, numbers, rounds=not row.is_exact) is not None for part in parts)


def applied(graph: rlx.Graph, *rows: AlgebraicIdentity) -> tuple[rlx.Graph, Counter[str]]:
    """Return the graph after these rows alone, and the number of applications of each."""
    module = clone_module(graph.module)
    with mlir.entered():
        counts = rewrite(module, [IdentityTable(rows)], "test")
        assert module.operation.verify()
    return rlx.Graph.from_module(module, graph.name_symbol), counts.rewrites


# --- values ------------------------------------------------------------------------------------------------


def edge_values(kind: DType) -> np.ndarray:
    """Return the special values of a dtype, and ordinary ones."""
    if kind.storage:
        return bit_patterns(kind, 16)
    if kind.is_bool:
        return np.array([False, True])
    if kind.is_complex:
        parts = [0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, float(kind.part.max)]
        return np.array([complex(p, q) for p in parts for q in parts], kind.numpy)
    if kind.is_integer:
        low, high = int(kind.min), int(kind.max)
        return np.array(sorted({low, low + 1, *(v for v in (-1, 0, 1, 2, 7) if v >= low), high - 1, high}), kind.numpy)
    layout = kind.float_format
    assert layout is not None
    normal = layout.smallest_normal
    sizes = [0.0, normal * 2.0**-layout.mantissa, normal, 0.7, 1.0, 1 + kind.eps, 2.0, float(kind.max), math.inf]
    return np.array([s * size for size in sizes for s in (1, -1)] + [math.nan]).astype(kind.numpy)


def arrays(row: AlgebraicIdentity, kind: DType, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of `Sides` in a dtype: all combinations of values of the row's variables."""
    parts, booleans = [p for p in dict.fromkeys(row.left.parts) if isinstance(p, Variable)], conditions(row.left)
    grids = [np.array([False, True]) if part in booleans else values for part in parts]
    points = [grid.ravel() for grid in np.meshgrid(*grids, indexing="ij")]
    return {f"{part.name}_{kind}": point for part, point in zip(parts, points, strict=True)}


def bits(array: np.ndarray) -> bytes:
    """Return the bits of all elements, with one NaN for all."""
    parts: Any = np.array(array).view(dtype(array.dtype).part.numpy)
    parts[parts != parts] = math.nan if dtype(array.dtype).is_inexact else 0
    return parts.tobytes()


def filled(result: np.ndarray, size: int) -> np.ndarray:
    return np.ascontiguousarray(np.broadcast_to(result, (size,)))


# --- every row ---------------------------------------------------------------------------------------------


def test_rows_have_different_names_and_dtypes() -> None:
    assert len({str(row) for row in FAST.rows}) == len(FAST.rows)
    assert all(row.dtypes for row in FAST.rows)
    assert {row.is_exact for row in EXACT.rows} == {True}


@pytest.mark.parametrize("row", EXACT.rows, ids=str)
def test_both_sides_of_an_identity_have_the_same_bits(row: AlgebraicIdentity) -> None:
    sides = Sides(conditions(row.left))
    inputs: dict[str, np.ndarray] = {}
    cases: list[tuple[DType, Numbers]] = []
    for kind in map(dtype, sorted(row.dtypes)):
        inputs |= arrays(row, kind, edge_values(kind))
        cases += [(kind, n) for n in bindings(row, kind) if row.when is None or row.when(**n)]
    for kind, numbers in cases:
        sides.add(row.left, kind, numbers)
        sides.add(row.right, kind, numbers)
    graph = sides.graph()
    rewritten, counts = applied(graph, row)
    with np.errstate(all="ignore"):
        before, after = (rlx.evaluate(g, inputs) for g in (graph, rewritten))
    matches: Counter[DType] = Counter()
    for (kind, numbers), expected, right, result in zip(cases, before[::2], before[1::2], after[::2], strict=True):
        where = f"{row} in {kind} with {numbers}"
        assert expected.dtype == right.dtype == result.dtype, where
        assert bits(filled(right, expected.size)) == bits(expected) == bits(result), where
        matches[kind] += is_applicable(row, kind, numbers)
    assert counts[str(row)] == matches.total(), f"{row} was not applied in some of {cases}"
    assert all(matches[kind] for kind, _ in cases) and {kind.name for kind in matches} == row.dtypes


@pytest.mark.parametrize("row", [row for row in FAST.rows if not row.is_exact], ids=str)
def test_both_sides_of_an_approximation_are_close(row: AlgebraicIdentity) -> None:
    """Elements where a part of a side is NaN or infinite are not compared."""
    sides, lefts = Sides(conditions(row.left)), Sides(conditions(row.left))
    cases = [(kind, numbers) for kind in map(dtype, sorted(row.dtypes)) for numbers in bindings(row, kind)]
    parts = list(dict.fromkeys([row.left, row.right, *row.left.parts, *row.right.parts]))
    inputs: dict[str, np.ndarray] = {}
    for kind, numbers in cases:
        values = np.array([0.0, -0.0, 0.25, 0.7, 1.0, 1.5, 2.0, -0.6, -1.9]).astype(kind.numpy)
        inputs |= arrays(row, kind, values)
        lefts.add(row.left, kind, numbers)
        for part in parts:
            sides.add(part, kind, numbers)
    rewritten, counts = applied(lefts.graph(), row)
    with np.errstate(all="ignore"):
        before, after = (rlx.evaluate(g, inputs) for g in (sides.graph(), rewritten))
    for (kind, numbers), result, *values in zip(
        cases, after, *(before[i :: len(parts)] for i in range(len(parts))), strict=True
    ):
        where = f"{row} in {kind} with {numbers}"
        result, *results = (filled(value, result.size).astype(np.complex128) for value in (result, *values))
        usable = np.isfinite(results).all(0)
        allowed = np.max(np.abs(results), 0) * 16 * kind.eps
        assert usable.any(), where
        for value in (result, results[1]):
            assert (np.abs(value[usable] - results[0][usable]) <= allowed[usable]).all(), where
    matches = Counter(kind for kind, numbers in cases if is_applicable(row, kind, numbers))
    assert counts[str(row)] == matches.total() and {kind.name for kind in matches} == row.dtypes, row


@every_row
def test_the_pass_applies_the_row(row: AlgebraicIdentity) -> None:
    sides, kinds = Sides(conditions(row.left)), [*map(dtype, sorted(row.dtypes))]
    for kind in kinds:
        sides.add(row.left, kind, bindings(row, kind)[0])
    with count_rewrites() as counts:
        rlx.passes.run(sides.graph(), "rlx-simplify" if row.is_exact else "rlx-simplify{fast-math}")
    assert counts.rewrites[str(row)] == len(kinds), f"{row} in {len(kinds)} dtypes: {dict(counts.rewrites)}"


@every_row
def test_other_dtypes_do_not_match(row: AlgebraicIdentity) -> None:
    sides = Sides(conditions(row.left))
    for kind in (k for k in map(dtype, (*REAL, "bool", "c64")) if k.name not in row.dtypes):
        if kind.is_complex and "abs(abs(x))" in str(row):
            continue  # the inner absolute value is real
        with contextlib.suppress(rlx.Error):  # the op does not accept the dtype
            sides.add(row.left, kind, {"a": 3, "b": 2})
    assert not applied(sides.graph(), row)[1], row


# --- neighbours --------------------------------------------------------------------------------------------


def renamed(side: Expression) -> str:
    """Return the text of an expression with its variables numbered in order."""
    names: dict[Expression, Expression] = {}

    def number(part: Expression) -> Expression:
        if isinstance(part, Application):
            return Application(part.op, part.kind, tuple(map(number, part.operands)))
        if isinstance(part, (Variable, AnyNumber)):
            return names.setdefault(part, Variable(f"{type(part).__name__}{len(names)}"))
        return part

    return str(number(side))


def neighbours(part: Expression, once: frozenset[Expression]) -> Iterator[Expression]:
    """Yield expressions that differ in one place: a number, one occurrence of a variable, a kind, the order of operands."""
    if isinstance(part, Literal) and not isinstance(part.value, bool):
        for value in (part.value + 1, -part.value, 0.5 * part.value):
            if not equal(value, part.value):
                yield Literal(value, repr(value))
    elif isinstance(part, Literal) or (isinstance(part, Variable) and part not in once):
        yield Variable("other")
    elif isinstance(part, Application):
        for index, operand in enumerate(part.operands):
            for changed in neighbours(operand, once):
                yield Application(part.op, part.kind, (*part.operands[:index], changed, *part.operands[index + 1 :]))
        if part.op == "binary":
            yield Application(part.op, part.kind, part.operands[::-1])
        if part.kind:
            for kind in registry.card(part.op).kinds:  # type: ignore[attr-defined]
                if kind != part.kind:
                    yield Application(part.op, kind, part.operands)


@every_row
def test_neighbours_do_not_match(row: AlgebraicIdentity) -> None:
    occurrences = Counter(part for part in row.left.parts if isinstance(part, Variable))
    once = frozenset(part for part, count in occurrences.items() if count == 1)
    orders, kind = {renamed(order) for order in row.orders}, dtype(min(row.dtypes & {*REAL} or row.dtypes))
    tried: list[str] = []
    every = Sides(conditions(row.left))
    for other in neighbours(row.left, once):
        assert isinstance(other, Application)
        literals = [part for part in other.parts if isinstance(part, Literal)]
        if renamed(other) in orders or any(value_in(part, kind, {}) is None for part in literals):
            continue
        every.conditions |= conditions(other)
        with contextlib.suppress(rlx.Error):  # the op does not accept the dtype
            every.add(other, kind, bindings(row, kind)[0])
            tried.append(str(other))
    assert not applied(every.graph(), row)[1], f"{row} matches one of {tried}"
    assert tried or row.left.op == "where"


def test_zeros_match_with_their_sign() -> None:
    row = identity(x + -0.0, x, FLOATS)
    for kind in map(dtype, FLOATS):
        assert applied(graph_of(x + -0.0, kind), row)[1] and applied(graph_of(-0.0 + x, kind), row)[1]
        assert not applied(graph_of(x + 0.0, kind), row)[1]


def test_a_repeated_number_matches_equal_numbers_only() -> None:
    row = identity(x * a - y * a, (x - y) * a, INTEGERS)
    for second, matches in ((3, True), (2, False)):
        graph = graph_of(x * a - y * b, "i32", {"a": 3, "b": second})
        assert bool(applied(graph, row)[1]) == matches


def test_numbers_in_other_forms_match() -> None:
    """A constant of several equal elements, an expanded one, and not one of different elements."""
    row = identity(x * 1, x, FLOATS)
    for number, matches in ((np.ones(3), True), (np.ones((1, 3)), False), (np.array([1.0, 1.0, 2.0]), False)):
        g: Any = rlx.Graph("main")
        g.set_outputs([g.input("x", (3,)) * g.constant(number.astype(np.float32))])
        assert bool(applied(g, row)[1]) == matches
    g = rlx.Graph("main")
    g.set_outputs([g.input("x", (2, 3)) * g.expand(g.constant(np.ones(3, np.float32)), (2, 3))])
    assert applied(g, row)[1]


# --- shapes ------------------------------------------------------------------------------------------------

_SHAPES = [(2, 3), (3,), (2, 1), ()]


@every_row
def test_operands_that_broadcast_keep_the_type_of_the_result(row: AlgebraicIdentity) -> None:
    kind = dtype(min(row.dtypes & {"f32", "i32"}) if row.dtypes & {"f32", "i32"} else min(row.dtypes))
    names = sorted({part.name for part in row.left.parts if isinstance(part, Variable)})
    rng = np.random.default_rng(0)
    sides, cases = Sides(conditions(row.left)), [*itertools.product(_SHAPES, repeat=len(names))]
    for shapes in cases:
        sides.add(row.left, kind, bindings(row, kind)[0], dict(zip(names, shapes, strict=True)))
    graph = sides.graph()
    inputs = {arg.name: rng.uniform(0.5, 3, arg.shape.static).astype(arg.dtype.numpy) for arg in graph.arguments}
    rewritten, counts = applied(graph, row)
    assert counts[str(row)] == len(cases)
    assert [str(t.shape) for t in rewritten.outputs] == [str(t.shape) for t in graph.outputs]
    tolerance = 0 if row.is_exact else 1e-5
    for shapes, result, expected in zip(
        cases, rlx.evaluate(rewritten, inputs), rlx.evaluate(graph, inputs), strict=True
    ):
        np.testing.assert_allclose(result, expected, tolerance, tolerance, err_msg=f"{row} with shapes {shapes}")


def test_a_number_that_widens_a_variable_does_not_match() -> None:
    g: Any = rlx.Graph("main")
    g.set_outputs([g.input("x", (3,)) * g.constant(np.ones((2, 3), np.float32))])
    assert not applied(g, *EXACT.rows)[1]


# --- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*map(dtype, FLOATS)], ids=str)
def test_new_numbers_are_finite_and_normal(kind: DType) -> None:
    layout = kind.float_format
    assert layout is not None
    large, small = float(kind.max), layout.smallest_normal
    rows = [row for row in FAST.rows if any(isinstance(part, AnyNumber) for part in row.left.parts)]
    assert rows
    for row, first, second in itertools.product(rows, (large, small, 0.0, 3.0), (large, -large, small, 0.0, 3.0)):
        if kind.name not in row.dtypes:
            continue
        graph = graph_of(row.left, kind, {"a": first, "b": second})
        rewritten, _ = applied(graph, row)
        for op in collect(rewritten.module, ("constant",)):
            number = float(attributes.read(registry.card("constant").spec, op)["value"])
            assert number == 0 or small <= abs(number) <= large, f"{row} with {first} and {second}: {number}"


@pytest.mark.parametrize(("kind", "numbers"), [("f16", (200, 400)), ("f32", (1e30, 1e30)), ("f16", (1e-4, 1e-4))])
def test_products_of_numbers_stay_where_they_leave_the_range(kind: str, numbers: tuple[float, float]) -> None:
    row = approximation(x * a * b, x * (a * b), FLOATS)
    graph = graph_of(x * a * b, kind, dict(zip("ab", numbers, strict=True)))
    assert not applied(graph, row)[1]


def test_an_identity_does_not_round_or_wrap_a_number() -> None:
    row = identity(x + a + b, x + (a + b), (*INTEGERS, *FLOATS))
    for kind, numbers, matches in (
        *(("f32", (2.0**24, 1.0), False), ("f32", (2.0**24, 2.0), True), ("f16", (65504.0, 32.0), False)),
        *(("i8", (100, 27), True), ("i8", (100, 28), False), ("u8", (200, 55), True), ("u8", (200, 56), False)),
    ):
        graph = graph_of(x + a + b, kind, dict(zip("ab", numbers, strict=True)))
        assert bool(applied(graph, row)[1]) == matches, (kind, numbers)


def test_numbers_are_represented_as_they_are_or_not_at_all() -> None:
    for kind in map(dtype, (*INTEGERS, "bool")):
        assert represent(Fraction(int(kind.max)), kind, True) == kind.max
        assert represent(Fraction(int(kind.max) + 1), kind, True) is None
        assert represent(Fraction(1, 2), kind, True) is None
    for kind in map(dtype, FLOATS):
        assert represent(Fraction(10) ** 400, kind, True) is None
        assert represent(Fraction(1, 3), kind, False) is None
        assert represent(Fraction(1, 3), kind, True) == float(np.array(1 / 3).astype(kind.numpy))


# --- ops with other users ------------------------------------------------------------------------------------


def test_work_is_not_repeated() -> None:
    """`exp(x)·exp(y)` stays where one of the functions has another user; a row with one op on the right applies."""
    g: Any = rlx.Graph("main")
    u, v = g.input("u", (3,)), g.input("v", (3,))
    e, n = g.exp(u), g.neg(v)
    g.set_outputs([e * g.exp(v), e, u + n, n])
    names = [str(row) for row in FAST.rows]
    assert {"exp(x) * exp(y) -> exp(x + y)", "x + -y -> x - y"} <= {*names}
    assert dict(applied(g, *FAST.rows)[1]) == {"x + -y -> x - y": 1}


# --- rows ----------------------------------------------------------------------------------------------------


def test_a_row_with_an_unknown_name_is_an_error() -> None:
    with pytest.raises(rlx.Error, match="uses y, which its left side lacks"):
        identity(x + 0, y, INTEGERS)
    with pytest.raises(rlx.Error, match="uses b, which its left side lacks"):
        identity(x + a, x, INTEGERS, when=lambda b: b == 0)


def test_a_condition_reads_the_numbers() -> None:
    row = identity(x + a, x, INTEGERS, when=lambda a: a == 0)
    for number, matches in ((0, True), (1, False)):
        assert bool(applied(graph_of(x + a, "i32", {"a": number}), row)[1]) == matches


def test_the_text_of_a_row_reads_as_mathematics() -> None:
    shift = binary("shift_left")
    texts = {
        "x - (y - z) -> x": identity(x - (y - z), x, INTEGERS),
        "(x + y) * z -> x * z + y * z": identity((x + y) * z, x * z + y * z, INTEGERS),
        "-(x + -y) -> y - x": identity(-(x + -y), y - x, INTEGERS),
        "shift_left(x, 0) -> x": identity(shift(x, 0), x, INTEGERS),
    }
    assert [str(row) for row in texts.values()] == [*texts]


def test_tables_are_patterns_in_other_passes() -> None:
    g: Any = rlx.Graph("main")
    u = g.input("u", (3,))
    g.set_outputs([g.where(np.array(True), u, g.neg(u))])
    with mlir.entered():
        assert rewrite(g.module, [KNOWN_CHOICES], "test").rewrites == {"where(True, x, y) -> x": 1}
