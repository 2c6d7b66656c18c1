from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlx.ir.dims.dim import SymbolBindings, evaluate, parse, solve, symbol
from rlx.support.errors import ShapeError


def test_solve():
    assert solve(symbol("seq"), 7, {}) == {"seq": 7}
    assert solve(parse("2*seq+1"), 7, {}) == {"seq": 3}
    assert solve(parse("past+seq"), 7, {"past": 3}) == {"seq": 4}
    assert solve(parse("batch*seq"), 12, {"batch": 4}) == {"seq": 3}
    assert solve(parse("9-seq"), 4, {}) == {"seq": 5}
    assert solve(parse("past+seq"), 7, {}) is None
    assert solve(parse("seq//2"), 7, {}) is None
    assert solve(parse("seq*seq"), 9, {}) is None
    assert solve(parse("seq+seq%2"), 9, {}) is None
    assert solve(parse("past+seq"), 7, {"past": 3, "seq": 4}) == {}
    assert solve(7, 7, {}) == {}


@pytest.mark.parametrize(
    ("text", "value", "known"),
    [
        ("2*seq", 7, {}),
        ("seq+8", 7, {}),
        ("past+seq", 7, {"past": 8}),
        ("past+seq", 7, {"past": 1, "seq": 1}),
        ("4", 5, {}),
    ],
)
def test_solve_refuses_what_has_no_solution(text: str, value: int, known: dict[str, int]):
    with pytest.raises(ShapeError, match=str(value)):
        solve(parse(text), value, known)


@given(st.integers(-5, 5), st.integers(-9, 9), st.integers(0, 40))
def test_solve_inverts_linear_expressions(slope: int, offset: int, size: int):
    assume(slope)
    d = slope * symbol("seq") + offset
    assert solve(d, evaluate(d, {"seq": size}), {}) == {"seq": size}


FACTS: list[tuple[str, int, str]] = [
    ("past+seq", 10, "input 'mask' dimension 1"),
    ("batch*seq", 12, "input 'rows' dimension 0"),
    ("2*past", 8, "input 'cache' dimension 1"),
    ("(seq-1)//2+1", 3, "input 'half' dimension 1"),
    ("64", 64, "input 'x' dimension 2"),
]


@given(st.permutations(FACTS))
def test_bindings_are_found_in_any_order(facts: list[tuple[str, int, str]]):
    found = SymbolBindings()
    for text, size, place in facts:
        found.add(parse(text), size, place)
    assert found.solve() == {"past": 4, "seq": 6, "batch": 2}
    assert found.unresolved() == {}


def bindings_of(*facts: tuple[str, int, str]) -> SymbolBindings:
    found = SymbolBindings()
    for text, size, place in facts:
        found.add(parse(text), size, place)
    return found


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            [("seq", 128, "input 'x' dimension 1"), ("seq", 64, "input 'mask' dimension 1")],
            "symbol 'seq' is 128 from input 'x' dimension 1, but 64 from input 'mask' dimension 1",
        ),
        (
            [("2*seq", 250, "input 'y' dimension 0"), ("seq", 128, "input 'x' dimension 1")],
            "dimension '2*seq' is 256 because 'seq' is 128 from input 'x' dimension 1, "
            "but 250 from input 'y' dimension 0",
        ),
        (
            [("past+seq", 9, "'m'"), ("seq", 4, "'x'"), ("past", 4, "'y'")],
            "dimension 'past+seq' is 8 because 'past' is 4 from 'y', 'seq' is 4 from 'x', but 9 from 'm'",
        ),
        (
            [("2*seq", 8, "'x'"), ("seq+1", 6, "'y'")],
            "dimension 'seq+1' is 5 because 'seq' is 4 from 'x', where '2*seq' is 8, but 6 from 'y'",
        ),
        (
            [("2*seq", 7, "'x'")],
            "'x': no size of symbol 'seq' makes dimension '2*seq' equal to 7",
        ),
        (
            [("past+seq", 7, "'m'"), ("past", 9, "'y'")],
            "'m': no size of symbol 'seq' makes dimension 'past+seq' equal to 7; 'past' is 9 from 'y'",
        ),
        (
            [("seq//batch", 2, "'x'"), ("batch", 0, "'y'"), ("seq", 4, "'z'")],
            "'x': dimension 'seq//batch' divides by 'batch', which is 0; 'batch' is 0 from 'y'; 'seq' is 4 from 'z'",
        ),
        (
            [("64", 32, "input 'x' dimension 2")],
            "input 'x' dimension 2 is 32, but 64 is expected",
        ),
        (
            [("seq//2", 7, "'x'"), ("past", 1, "'y'")],
            "cannot tell the size of 'seq' from: 'seq//2' is 7 at 'x'",
        ),
    ],
)
def test_contradictions_name_both_places(facts: list[tuple[str, int, str]], message: str):
    with pytest.raises(ShapeError) as caught:
        bindings_of(*facts).solve()
    assert caught.value.message == message


def test_unresolved_symbols_are_reported():
    found = bindings_of(("seq//2", 7, "'x'"), ("past", 1, "'y'"), ("seq*batch", 4, "'z'"))
    assert found.solve(partial=True) == {"past": 1}
    assert found.unresolved() == {"seq": ["'x'", "'z'"], "batch": ["'z'"]}
    found.add(symbol("seq"), 14, "bind")
    with pytest.raises(ShapeError, match="'batch'"):
        found.solve()


def test_a_size_that_only_a_zero_product_uses_is_unresolved():
    found = bindings_of(("batch", 0, "'x'"), ("batch*seq", 0, "'y'"))
    assert found.solve(partial=True) == {"batch": 0}
    with pytest.raises(ShapeError, match="'seq' from: 'batch\\*seq' is 0 at 'y'"):
        found.solve()
