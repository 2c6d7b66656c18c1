"""Symbolic sizes: the compiled program agrees with Python's integers, for every operator and sign."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dims.dim import Dim, evaluate, maximum, minimum, parse, symbol
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_names, target_of
from tests.drawing import drawn

S, T = symbol("s"), symbol("t")
SIZES = ((0, 0), (1, 0), (9, 2), (5, 7), (13, 1), (3, 12))
DIVISORS: tuple[Dim, ...] = (2, 3, 4, 7, -2, -3, -5, T + 1, S + 2, -T - 1, S - T + 20)


def _expression(draw: random.Random, depth: int) -> Dim:
    """A random dimension. Half of its parts are negative."""
    if not depth:
        return draw.choice([S, T, draw.randint(-7, 7)])
    a, b = _expression(draw, depth - 1), _expression(draw, draw.randrange(depth))
    operators: list[Callable[[], Dim]] = [
        lambda: a + b,
        lambda: a - b,
        lambda: a * b,
        lambda: minimum(a, b),
        lambda: maximum(a, b),
        *[lambda: a // draw.choice(DIVISORS), lambda: a % draw.choice(DIVISORS)] * 2,
    ]
    return draw.choice(operators)()


def _graph(build: Callable[[Any], list[Any]]) -> Any:
    """A graph whose inputs `a` and `b` have the sizes `s` and `t`."""
    g: Any = rlx.Graph()
    g.input("a", ("s",))
    g.input("b", ("t",))
    g.set_outputs(build(g))
    return g


def _values(s: int, t: int) -> dict[str, np.ndarray]:
    return {"a": np.zeros(s, np.float32), "b": np.zeros(t, np.float32)}


@pytest.fixture(scope="module")
def expressions() -> list[Dim]:
    draw = random.Random(0)
    written = ["(-s)%4", "(3*s)%4+4", "-((-s)%4)", "((s-t)%5-2)%3", "(s-9)//2", "(t-s)//(t+1)", "max(s-9,-t)%4"]
    drawn = [_expression(draw, draw.randint(1, 3)) for _ in range(230)]
    return [*map(parse, written), *(d for d in drawn if type(d) is not int)]


def test_sizes_as_the_compiled_program_computes_them(expressions: list[Dim]) -> None:
    g = _graph(lambda g: [g.dim_size(d) for d in expressions])
    compiled = rlx.Session("cpu").compile(g)
    for s, t in SIZES:
        expected = [evaluate(d, {"s": s, "t": t}) for d in expressions]
        for run in (compiled.run, lambda values: rlx.evaluate(g, values)):
            found = [int(x) for x in run(_values(s, t))]
            wrong = [(str(d), f, e) for d, f, e in zip(expressions, found, expected, strict=True) if f != e]
            assert not wrong, f"s = {s}, t = {t}: {wrong[:3]}"


def test_sizes_bound_for_xla(expressions: list[Dim]) -> None:
    g = _graph(lambda g: [g.dim_size(d) for d in expressions])
    compiled = rlx.Session("xla").compile(g)
    found = [int(x) for x in compiled.run(_values(5, 7))]
    assert found == [evaluate(d, {"s": 5, "t": 7}) for d in expressions]


@drawn("device", ["cpu", "xla"])
def test_shapes_from_floors_and_remainders(device: str) -> None:
    def build(g: Any) -> list[Any]:
        x = g.iota(("s",), dtype="f32") * 2.0 + 1.0
        return [
            g.pad(x, [(0, (-S) % 4)]),
            g.narrow(x, 0, 0, (3 * S) % 4 + 4),
            g.narrow(x, 0, (-S - 1) % 3, minimum(S - 3, (-T) % 5)),
            g.reshape(g.pad(x, [(-(-S // 4) * 4 - S, 0)]), ((S - 1) // 4 + 1, 4)),
            g.expand(x[0], (maximum(S - 2 * T, T - S) % 3, -((-T) // 2))),
        ]

    g = _graph(build)
    compiled = rlx.Session(device).compile(g)
    for s, t in ((9, 2), (8, 7), (11, 20)):
        for got, wanted in zip(compiled.run(_values(s, t)), rlx.evaluate(g, _values(s, t)), strict=True):
            assert got.shape == wanted.shape and np.array_equal(got, wanted), f"s = {s}, t = {t}"


@drawn("device", ["evaluate", "cpu", "xla"])
def test_sizes_that_have_to_be_solved_for(device: str) -> None:
    """Sizes with a coefficient, a negative coefficient, and another symbol. Inexact divisions are rejected."""
    for text, good, bad in (("3*s-4", 11, 12), ("20-4*s", 8, 7), ("t*s+t//2", 14, 12), ("(t+1)*s-s", 12, 11)):
        g: Any = rlx.Graph()
        g.input("b", ("t",))
        g.input("a", (text,))
        g.set_outputs([g.iota(("s",))])
        run = rlx.Session(device).compile(g).run if device != "evaluate" else lambda v, g=g: rlx.evaluate(g, v)
        b = np.zeros(4, np.float32)
        (found,) = run({"a": np.zeros(good, np.float32), "b": b})
        assert found.tolist() == list(range(5 if text == "3*s-4" else 3))
        with pytest.raises(rlx.ShapeError, match="no size of symbol 's'"):
            run({"a": np.zeros(bad, np.float32), "b": b})


@drawn("device", ["evaluate", "cpu", "xla"])
@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g: g.iota((S // T,)), "divides by t, which is 0"),
        (lambda g: g.narrow(g.iota((99,)), 0, S % (S - 9), 1), "divides by s-9, which is 0"),
        (lambda g: g.dim_size(3 * (4 // (2 // T))), "divides by t, which is 0"),
        (lambda g: g.dim_size(minimum(S, S // (T - S + 9))), "which is 0"),
        (lambda g: g.narrow(g.iota((4,)), 0, S, 2), "9:11 does not fit|range s:s.2 does not fit"),
        (lambda g: g.slice(g.iota((8,)), (S - 2,), (S,)), "does not fit"),
    ],
)
def test_sizes_that_have_no_value_are_refused(device: str, build: Callable[[Any], Any], reason: str) -> None:
    """A program that divided by zero would crash, and a read out of bounds would return arbitrary memory."""
    g = _graph(lambda g: [build(g)])
    run = rlx.Session(device).compile(g).run if device != "evaluate" else lambda v: rlx.evaluate(g, v)
    with pytest.raises(rlx.ShapeError, match=reason):
        run(_values(9, 0))


@pytest.mark.parametrize("sizes", [(2**63 - 1, 5), (2**62, 1), (2**31, 2**31)])
def test_more_than_can_be_addressed_is_refused(sizes: tuple[int, int]) -> None:
    g = rlx.Graph()
    g.set_outputs(g.rng_normal(sizes, g.input("seed", (), "i64")))
    with pytest.raises(rlx.Error, match="cannot be addressed"):
        rlx.Session("cpu").compile(g, cache=False)


LARGEST = 2**63 - 1


@pytest.mark.parametrize("shape", [(0, LARGEST), (LARGEST, 0), (2**40, 0, 2**40), (LARGEST,), (2**40, 2**40)], ids=str)
def test_arguments_that_cannot_be_addressed_are_refused_by_every_target(shape: tuple[int, ...]) -> None:
    """An empty axis does not help: NumPy, XLA and MLIR's layouts multiply all sizes."""
    text = f"tensor<{'x'.join(map(str, shape))}xf64>"
    module = f"func.func @f(%x: {text}) -> {text} {{ %0 = stablehlo.negate %x : {text} return %0 : {text} }}"
    g: Any = rlx.Graph()
    x = g.input("x", ("a", *shape[1:]), "f64")
    g.set_outputs([g.neg(x)])
    for graph, bind in ((rlx.from_stablehlo(module), None), (g, {"a": shape[0]})):
        for name in target_names():
            with pytest.raises(
                rlx.ShapeError, match=r"input '\w+': f64\[.*\] cannot be addressed: .* more than 9223372"
            ):
                _ = Compilation(graph, target_of(name), CompileOptions(bind=bind)).lir


@drawn("device", ["evaluate", "cpu", "xla"])
def test_empty_tensors_may_have_any_other_sizes_that_can_be_addressed(device: str) -> None:
    shapes = [
        (2**31, 0),
        (0, 2**31 + 1),
        (0, 2**60 - 1),
        (2**10, 0, 2**49),
    ]  # XLA iterates over the axes before the empty one
    g: Any = rlx.Graph()
    xs = [g.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    g.set_outputs([g.reverse(x + 1.0, (0,)) for x in xs])
    run = rlx.Session(device).compile(g).run if device != "evaluate" else lambda v: rlx.evaluate(g, v)
    found = run({f"x{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)})
    assert [f.shape for f in found] == shapes


@drawn("device", ["cpu", "xla", "c"])
def test_results_that_cannot_be_addressed_are_refused(device: str) -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (1,))
    g.set_outputs([g.expand(x, (0, LARGEST)) + 1.0])
    with pytest.raises(rlx.Error, match=r"test_sizes\.py:\d+.* cannot be addressed"):
        rlx.Session(device).compile(g, cache=False)
