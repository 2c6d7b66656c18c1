"""Control flow: against Python and JAX, as users write it, and refusals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.dialect.spec import RUNS
from tests.drawing import drawn

DEVICES = ("evaluator", rlx.Device.CPU, rlx.Device.XLA)


def run(graph: rlx.Graph, device: Any, **values: Any) -> list[np.ndarray]:
    if device == "evaluator":
        return rlx.evaluate(graph, values)
    return rlx.Session(device).compile(graph).run(values)


def _array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@drawn("device", DEVICES)
def test_only_the_taken_branch_runs(device: Any) -> None:
    """The other branch would never end."""
    g = rlx.Graph()
    x, taken = g.input("x", (3,)), g.input("taken", (), rlx.bool_)
    forever = lambda x: g.while_(lambda x: g.sum(x) == g.sum(x), lambda x: x, x)  # noqa: E731
    g.set_outputs([g.if_(taken, lambda x: x + 1.0, forever, x), g.if_(~taken, forever, lambda x: x * 2.0, x)])
    x = _array(3)
    first, second = run(g, device, x=x, taken=np.array(True))
    np.testing.assert_array_equal(first, x + 1)
    np.testing.assert_array_equal(second, x * 2)


@drawn("device", DEVICES)
def test_collatz(device: Any) -> None:
    """A loop of unknown length, with a branch inside."""
    g = rlx.Graph()
    n = g.input("n", (), rlx.i32)

    def step(n: Any, count: Any) -> Any:
        half = g.cast(g.cast(n, "f64") * 0.5, "i32")
        return g.if_(half * 2 == n, lambda: half, lambda: n * 3 + 1), count + 1

    g.set_outputs([*g.while_(lambda n, count: n != 1, step, n, 0)])
    for start, steps in ((1, 0), (6, 8), (27, 111)):
        assert [int(r) for r in run(g, device, n=np.array(start, np.int32))] == [1, steps]


@drawn("device", DEVICES)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_that_of_jax(device: Any, reverse: bool) -> None:
    g = rlx.Graph()
    h, c, w = g.input("h", (2, 3)), g.input("c", (2,)), g.input("w", (3, 3))
    xs, ys = g.input("xs", (5, 2, 3)), g.input("ys", (5, 2))

    def body(o: Any) -> Any:
        def step(carry: Any, slices: Any) -> Any:
            h, c = carry
            x, y = slices
            h = o.tanh(h @ w_of[o] + x)
            c = c + y * o.sum(h, 1)
            return (h, c), (h * 2.0, c)

        return step

    w_of: dict[Any, Any] = {g: w}
    carries, stacked = g.scan(body(g), (h, c), (xs, ys), reverse=reverse)
    g.set_outputs([*carries, *stacked])
    values = {"h": _array(2, 3), "c": _array(2), "w": _array(3, 3, seed=1), "xs": _array(5, 2, 3), "ys": _array(5, 2)}

    w_of[jnp] = jnp.asarray(values["w"])
    expected = jax.lax.scan(body(jnp), (values["h"], values["c"]), (values["xs"], values["ys"]), reverse=reverse)
    for got, wanted in zip(run(g, device, **values), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)


@drawn("device", DEVICES)
@pytest.mark.parametrize("bound", [0, 1, 3, 100, None])
def test_while_ends_at_its_bound_or_before(device: Any, bound: int | None) -> None:
    g = rlx.Graph()
    n = g.input("n", (), rlx.i64)
    g.set_outputs([g.while_(lambda n: n < 5, lambda n: n + 1, n, max_iterations=bound)])
    for start in (0, 4, 9):
        expected = max(start, min(5, start + (100 if bound is None else bound)))
        assert int(run(g, device, n=np.array(start))[0]) == expected


@drawn("device", DEVICES)
def test_symbolic_lengths_and_carries(device: Any) -> None:
    g = rlx.Graph()
    xs, start = g.input("xs", ("t", "n")), g.input("start", ("n",))
    last, sums = g.scan(lambda c, x: (c + x, c + x), start, xs)
    g.set_outputs([last, sums])
    assert [str(o.shape) for o in g.outputs] == ["f32[n]", "f32[t, n]"]
    for t, n in ((4, 3), (1, 1), (0, 2)):
        values = {"xs": _array(t, n), "start": _array(n, seed=1)}
        got = run(g, device, **values)
        np.testing.assert_allclose(got[1], values["start"] + np.cumsum(values["xs"], 0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[0], values["start"] + values["xs"].sum(0), rtol=1e-5, atol=1e-6)


def test_bodies_may_take_and_give_everything_flat() -> None:
    g = rlx.Graph()
    a, b, xs = g.input("a", ()), g.input("b", ()), g.input("xs", (3,))
    nested = g.scan(lambda carry, x: ((carry[0] + x, carry[1]), carry[0]), (a, b), xs)
    flat = g.scan(lambda a, b, x: (a + x, b, a), (a, b), xs)
    g.set_outputs([*nested[0], nested[1], *flat[0], *flat[1]])
    results = rlx.evaluate(g, {"a": np.float32(1), "b": np.float32(2), "xs": np.arange(3, dtype=np.float32)})
    for one, other in zip(results[:3], results[3:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_parameters_may_be_two_tensors() -> None:
    g = rlx.Graph()
    a, b, xs = g.input("a", ()), g.input("b", ()), g.input("xs", (3,))
    (p, q), nothing = g.scan(lambda a, b: (b, a + b), (a, b), length=5)  # no xs: two carries
    assert nothing is None
    (c,), (ys,) = g.scan(lambda c, x: ([c + x], [c]), [a], [xs])  # lists of one
    g.set_outputs([p, q, c, ys])
    fibonacci = rlx.evaluate(g, {"a": np.float32(0), "b": np.float32(1), "xs": np.ones(3, np.float32)})
    assert [r.tolist() for r in fibonacci] == [5.0, 8.0, 3.0, [0.0, 1.0, 2.0]]
    with pytest.raises(ZeroDivisionError):  # an error in the body
        g.scan(lambda c, x: (c, 1 / 0), a, xs)


def test_numbers_are_carries() -> None:
    g = rlx.Graph()
    x = g.input("x", (2,))
    i, f, flag, total = g.while_(
        lambda i, f, flag, t: flag, lambda i, f, flag, t: (i + 1, f * 0.5, i < 3, t + x), 0, 1.0, True, x
    )
    assert [t.dtype.name for t in (i, f, flag, total)] == ["i32", "f32", "bool", "f32"]
    g.set_outputs([i, f, total])
    count, half, total = rlx.evaluate(g, {"x": np.ones(2, np.float32)})
    assert (int(count), float(half), float(total[0])) == (4, 0.5**4, 5.0)


# --- refusals ---------------------------------------------------------------------------------------


def _graph() -> tuple[rlx.Graph, Any, Any]:
    g = rlx.Graph()
    return g, g.input("x", (2, 3)), g.input("flag", (), rlx.bool_)


def test_refusals_say_what_was_expected() -> None:
    g, x, flag = _graph()
    with pytest.raises(rlx.ShapeError, match=r"test_control.py:\d+.*the branches yield f32\[2, 3\] and f32\[3, 2\]"):
        g.if_(flag, lambda: x, lambda: g.transpose(x))
    with pytest.raises(rlx.ShapeError, match=r"the condition must be a scalar, got bool\[2, 3\]"):
        g.if_(x > 0.0, lambda: x, lambda: x)
    with pytest.raises(rlx.ShapeError, match="must return tensors, got str"):
        g.if_(flag, lambda: "x", lambda: x)
    with pytest.raises(rlx.ShapeError, match=r"must yield one scalar bool, got f32\[2, 3\]"):
        g.while_(lambda x: x, lambda x: x, x)
    with pytest.raises(rlx.ShapeError, match=r"must yield the carries f32\[2, 3\], got f16\[2, 3\]"):
        g.while_(lambda x: flag, lambda x: g.cast(x, "f16"), x)
    with pytest.raises(rlx.ShapeError, match="must return 1 carries, got 2"):
        g.while_(lambda x: flag, lambda x: (x, x), x)
    with pytest.raises(rlx.ShapeError, match=r"'max_iterations': -. is not in"):
        g.while_(lambda x: flag, lambda x: x, x, max_iterations=-1)
    with pytest.raises(rlx.ShapeError, match=r"cond is called with 1 arguments, but is cond\(x, y\)"):
        g.while_(lambda x, y: flag, lambda x: x, x)
    with pytest.raises(rlx.ShapeError, match=r"els must be a function of tensors, got Tensor"):
        g.if_(flag, lambda: x, x)
    with pytest.raises(rlx.ShapeError, match=r"body is called with 2 arguments, but is body\(\)"):
        g.scan(lambda: x, x, x)
    with pytest.raises(rlx.ShapeError, match="a scan without xs needs a length"):
        g.scan(lambda c, _: (c, None), x)
    with pytest.raises(rlx.ShapeError, match="xs 1 must have the leading axis 2"):
        g.scan(lambda c, x: (c, None), x, (x, g.transpose(x)))
    with pytest.raises(rlx.ShapeError, match="as a pair"):
        g.scan(lambda c, x: None, x, x)


def test_a_tensor_of_a_region_does_not_leave_it() -> None:
    g, x, flag = _graph()
    kept: list[Any] = []

    def branch() -> Any:
        kept.append(x * 2.0)
        return kept[0]

    g.if_(flag, branch, lambda: x)
    with pytest.raises(rlx.ShapeError, match=r"test_control.py:\d+.*made inside a region that has ended"):
        _ = kept[0] + x


def test_what_fails_leaves_the_graph_as_it_was() -> None:
    """Tensors of a discarded region are refused, not read. Their memory must stay valid."""
    for _ in range(20):
        g, x, _flag = _graph()
        kept: list[Any] = []

        def body(i: Any, y: Any, g: Any = g, x: Any = x, kept: Any = kept) -> Any:
            kept.append(g.if_(i < 2, lambda: y + x, lambda: y))
            return i + 1, g.scan(lambda c, row: (g.transpose(c), row), y, x)

        with pytest.raises(rlx.ShapeError, match="must yield the carries"):
            g.while_(lambda i, y: i < 3, body, 0, x)
        with pytest.raises(rlx.ShapeError, match="inside a region that has ended"):
            _ = kept[0] * 2.0
        g.set_outputs([x])
        g.verify()
        assert "rlx.while" not in str(g)


def test_the_number_of_different_types_has_a_limit() -> None:
    g = rlx.Graph()
    tensors = [g.input(f"x{i}", (i + 1,)) for i in range(RUNS + 1)]
    with pytest.raises(rlx.ShapeError, match=f"change their type {RUNS} times.*"):
        g.while_(lambda *c: g.sum(c[0]) < 1.0, lambda *c: c, *tensors)
    same = [g.input(f"y{i}", (3,)) for i in range(100)]
    results = g.while_(lambda *c: g.sum(c[0]) < 1.0, lambda *c: c[1:] + c[:1], *same)
    assert len(results) == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"rlx.if"(%flag) ({\n}, {\n}) {resultSegmentSizes = array<i32: SIZES>} : (tensor<i1>) -> ()', "must not be empty"),
        ('"rlx.yield"() {operandSegmentSizes = array<i32: SIZES>} : () -> ()', "must be the last operation"),
        ('"rlx.while"() ({\n}) {} : () -> ()', "operandSegmentSizes"),
        ('"rlx.if"(%flag) ({\n"rlx.iota"() {axis = 0, dtype = f32, shape = [2]} : () -> tensor<2xf32>\n}, {\n}) '
         '{resultSegmentSizes = array<i32: SIZES>} : (tensor<i1>) -> ()', "must end in 'rlx.yield'"),
    ],
)  # fmt: skip
def test_text_is_checked(text: str, message: str) -> None:
    text = text.replace("SIZES", ", ".join("0" * RUNS))
    with pytest.raises(rlx.ParseError, match=message):
        rlx.parse(f"func.func @f(%flag: tensor<i1>) {{\n  {text}\n  return\n}}")
