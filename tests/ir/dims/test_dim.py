from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rlx.ir.dims.dim import (
    Dim,
    DimExpr,
    dim,
    evaluate,
    exact_divide,
    is_multiple_of,
    maximum,
    minimum,
    parse,
    product,
    same,
    substitute,
    symbol,
    symbols,
)
from rlx.support.errors import Error
from rlx.support.short import short_repr

NAMES = ("batch", "seq", "past", "x")

# Generated dimensions are nested tuples, so that tests can also compute them with plain integers.
Tree = Any

leaves = st.sampled_from(NAMES) | st.integers(-9, 9)
trees: st.SearchStrategy[Tree] = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]), inner, inner)
        # Most divisors are constants.
        | st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(-9, 9))
    ),
    max_leaves=10,
)
polynomials: st.SearchStrategy[Tree] = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner), max_leaves=8
)
bindings = st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES})

OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def compute(tree: Tree, sizes: dict[str, int]) -> int:
    """Return the value by Python's integers. Raises ZeroDivisionError if there is none."""
    if isinstance(tree, tuple):
        a, b = compute(tree[1], sizes), compute(tree[2], sizes)
        return ({"max": max, "min": min} | OPERATIONS)[tree[0]](a, b)
    return sizes[tree] if isinstance(tree, str) else tree


def build(tree: Tree) -> Dim:
    if isinstance(tree, tuple):
        a, b = build(tree[1]), build(tree[2])
        return ({"max": maximum, "min": minimum} | OPERATIONS)[tree[0]](a, b)
    return symbol(tree) if isinstance(tree, str) else tree


def attempt(tree: Tree) -> Dim:
    try:
        return build(tree)
    except (Error, ZeroDivisionError):  # a divisor that is 0 for every size
        assume(False)
        raise


def text_of(tree: Tree) -> str:
    if isinstance(tree, tuple):
        a, b = map(text_of, tree[1:])
        return f"{tree[0]}({a}, {b})" if tree[0] in ("max", "min") else f"(({a}) {tree[0]} ({b}))"
    return str(tree)


# Against plain integers


@given(trees, bindings)
@example(("//", ("-", 3, "x"), ("-", 5, "x")), {"x": 4})
@example(("%", ("*", 3, ("%", "x", 4)), 4), {"x": 7})
@example(("//", ("//", "x", 2), ("-", "past", 5)), {"x": 1, "past": 4})
def test_value_is_that_of_integer_arithmetic(tree: Tree, sizes: dict[str, int]):
    d = attempt(tree)
    try:
        expected = compute(tree, sizes)
    except ZeroDivisionError:
        return
    assert evaluate(d, sizes) == expected


@given(trees)
def test_parse_reads_what_str_prints(tree: Tree):
    d = attempt(tree)
    again = parse(str(d))
    assert again == d
    assert str(again) == str(d)
    assert hash(again) == hash(d)


@given(trees)
def test_parse_of_the_source_text_is_what_operators_build(tree: Tree):
    d = attempt(tree)
    assert parse(text_of(tree)) == d


@given(trees)
def test_constants_are_plain_ints(tree: Tree):
    d = attempt(tree)
    assert isinstance(d, int) or d.symbols
    assert type(d) in (int, DimExpr)


@given(trees, bindings)
def test_bounds_hold_the_value(tree: Tree, sizes: dict[str, int]):
    d = attempt(tree)
    if isinstance(d, DimExpr):
        try:
            value = d.evaluate(sizes)
        except Error:
            return
        assert d.bounds[0] <= value <= d.bounds[1]


@given(trees, st.dictionaries(st.sampled_from(NAMES), polynomials, max_size=3), bindings)
def test_substitution_then_evaluation_is_evaluation_of_the_substitutes(
    tree: Tree, trees_by_name: dict[str, Tree], sizes: dict[str, int]
):
    d = attempt(tree)
    values = {name: compute(sub, sizes) for name, sub in trees_by_name.items()}
    assume(all(value >= 0 for value in values.values()))
    mapping = {name: build(sub) for name, sub in trees_by_name.items()}
    try:
        expected = evaluate(d, sizes | values)
        substituted = substitute(d, mapping)
    except Error:  # a division by zero
        return
    assert evaluate(substituted, sizes) == expected


@given(polynomials, polynomials, st.sampled_from("+-*"), st.dictionaries(st.sampled_from(NAMES), polynomials))
def test_substitution_is_a_homomorphism_of_polynomials(
    a: Tree, b: Tree, operation: str, trees_by_name: dict[str, Tree]
):
    mapping = {name: build(sub) for name, sub in trees_by_name.items()}
    joined = substitute(build((operation, a, b)), mapping)
    assert joined == OPERATIONS[operation](substitute(build(a), mapping), substitute(build(b), mapping))


# At most 8 leaves give a degree of at most 8 and coefficients below 10**9. Two polynomials then have the same value at
# this point (Kronecker's substitution) only if they have the same coefficients.
KRONECKER = {name: 10 ** (10 * 9**i) for i, name in enumerate(NAMES)}


@given(polynomials, polynomials)
@example(("*", ("+", "x", "seq"), ("-", "x", "seq")), ("-", ("*", "x", "x"), ("*", "seq", "seq")))
def test_polynomials_are_equal_exactly_when_their_values_are(a: Tree, b: Tree):
    assert (build(a) == build(b)) == (compute(a, KRONECKER) == compute(b, KRONECKER))
    assert same(build(a), build(b)) == (build(a) == build(b))


@given(polynomials, polynomials)
def test_exact_division_undoes_multiplication(a: Tree, b: Tree):
    x, y = build(a), build(b)
    assume(y != 0)
    assert exact_divide(x * y, y) == x
    assert (x * y) // y == x
    assert (x * y) % y == 0
    assert is_multiple_of(x * y, y)


@given(polynomials, st.integers(1, 9), st.integers(0, 8))
def test_remainder_below_a_constant_divisor_is_dropped(a: Tree, q: int, r: int):
    assume(r < q)
    assert (build(a) * q + r) // q == build(a)
    assert (build(a) * q + r) % q == r


@given(trees, st.integers(1, 12), polynomials)
@example(("+", 1, ("%", "batch", -2)), 2, "batch")
def test_whole_multiples_leave_a_remainder(a: Tree, q: int, m: Tree):
    x = attempt(a)
    assert (x + q * build(m)) % q == x % q


@given(trees, trees, bindings)
def test_quotient_and_remainder_make_the_whole(a: Tree, b: Tree, sizes: dict[str, int]):
    x, y = attempt(a), attempt(b)
    assume(y != 0)
    try:
        expected = evaluate(x, sizes)
        whole = evaluate((x // y) * y + x % y, sizes)
    except Error:  # a division by zero
        return
    assert whole == expected


@given(trees, trees, bindings)
def test_what_is_proved_holds(a: Tree, b: Tree, sizes: dict[str, int]):
    x, y = attempt(a), attempt(b)
    try:
        left, right = evaluate(x, sizes), evaluate(y, sizes)
    except Error:
        return
    if same(x, y):
        assert left == right
    if is_multiple_of(x, y) and right:
        assert left % right == 0


# Proofs


def test_same_proves_more_than_equality():
    padded = parse("seq+(-seq)%8")
    assert padded != parse("8*((seq+7)//8)")
    assert same(padded, parse("8*((seq+7)//8)"))
    assert is_multiple_of(padded, 8)
    assert not is_multiple_of(padded, 16)
    assert not same(padded, parse("8*(seq//8)"))


def test_multiples():
    assert is_multiple_of(12, 4) and not is_multiple_of(12, 5)
    assert is_multiple_of(0, 0) and not is_multiple_of(3, 0)
    assert is_multiple_of(parse("4*seq+8"), 4) and not is_multiple_of(parse("4*seq+6"), 4)
    assert is_multiple_of(parse("batch*seq"), symbol("seq"))


def test_exact_divide():
    assert exact_divide(12, 4) == 3
    assert exact_divide(12, 5) is None
    assert exact_divide(12, 0) is None
    assert exact_divide(parse("seq"), 0) is None
    assert exact_divide(parse("6*batch*seq"), parse("2*seq")) == parse("3*batch")
    assert exact_divide(parse("seq+1"), parse("seq")) is None
    assert exact_divide(0, parse("seq")) == 0
    assert exact_divide(7, parse("seq")) is None


def test_product():
    assert product([]) == 1
    assert product([2, 3, 4]) == 24
    assert product([2, symbol("seq"), 3, symbol("batch")]) == parse("6*batch*seq")
    assert product([symbol("seq"), 0]) == 0


# Values in Python


def test_numpy_integers_are_integers():
    seq = symbol("seq")
    assert type(dim(np.int64(3))) is int
    assert np.int64(2) * seq == seq * np.int32(2) == parse("2*seq")
    assert np.int64(7) - seq == parse("7-seq")
    assert np.int64(0) // seq == 0
    assert np.int64(7) % seq == parse("7%seq")
    assert type(dim(np.array(5))) is int


@pytest.mark.parametrize("other", [1.5, "seq", True, None, np.float32(2)])
def test_operands_are_integers_or_dims(other: Any):
    seq = symbol("seq")
    for operation in OPERATIONS.values():
        with pytest.raises(TypeError):
            operation(seq, other)
        with pytest.raises(TypeError):
            operation(other, seq)


def test_a_dim_is_immutable_and_hashable():
    d = parse("2*seq+1")
    with pytest.raises(AttributeError):
        d.terms = ()  # type: ignore[misc]
    assert {d: 1}[parse("1+seq*2")] == 1
    assert d != 1 and d != "2*seq+1"
    assert pickle.loads(pickle.dumps(d)) == d
    assert copy.deepcopy(d) == d
    assert repr(d) == "dim('2*seq+1')"


def test_symbols():
    assert symbols(4) == frozenset()
    assert symbols(parse("max(a, b//c) + d%2 - d%2")) == {"a", "b", "c"}
    assert substitute(parse("batch*seq"), {"seq": 1}) == symbol("batch")
    assert substitute(parse("a-b"), {"a": symbol("b"), "b": symbol("a")}) == parse("b-a")
    assert substitute(3, {"a": 1}) == 3


@pytest.mark.parametrize("value", [-1, "-3", "2-5", np.int64(-2)])
def test_negative_constants_are_refused(value: Any):
    with pytest.raises(Error, match="negative"):
        dim(value)


@pytest.mark.parametrize("value", [1.0, None, True, [1], np.float32(1), (2,)])
def test_other_types_are_refused(value: Any):
    with pytest.raises(Error, match=type(value).__name__):
        dim(value)


REFUSED = """
a b|seq/2|seq**2|f(x)|max()|max(a, key=b)|max(*a)|1.5|'a'|True|a<b|a if b else c|x.y|x[0]|a,b|a:=1|class
batch-size+|a//0|a%(b-b)|~a|+a|max|a;b|(a|2x|lambda: a|...
"""


@pytest.mark.parametrize("text", [*REFUSED.strip().replace("\n", "|").split("|"), "", " ", "\0", "(" * 500])
def test_other_text_is_refused_and_quoted(text: str):
    with pytest.raises(Error) as caught:
        parse(text)
    assert short_repr(text) in str(caught.value)


@pytest.mark.parametrize("name", ["", "2x", "batch-size", "a b", "for", "max", "min", "a+b"])
def test_a_symbol_has_an_identifier_for_a_name(name: str):
    with pytest.raises(Error, match="not a name"):
        symbol(name)


def test_names_may_be_of_any_script():
    assert parse("länge*2") == 2 * symbol("länge")


def test_parse_is_cached():
    assert parse("3*seq+past//2") is parse("3*seq+past//2")


def test_evaluate_names_what_is_missing():
    with pytest.raises(Error, match=r"'past' of dimension 'past\+seq'.*seq=3"):
        evaluate(parse("past+seq"), {"seq": 3})
    with pytest.raises(Error, match="'seq' is bound to -1"):
        evaluate(symbol("seq"), {"seq": -1})
    with pytest.raises(Error, match=r"divides by 'past', which is 0"):
        evaluate(parse("seq//past"), {"seq": 3, "past": 0})
    with pytest.raises(Error, match="zero"):
        _ = symbol("seq") // 0
    with pytest.raises(Error, match="zero"):
        _ = symbol("seq") % 0
    with pytest.raises(Error, match="at least one"):
        maximum()
    assert evaluate(5, {}) == 5
    sizes: dict[str, Any] = {"seq": np.int32(4)}
    assert type(evaluate(parse("2*seq"), sizes)) is int
