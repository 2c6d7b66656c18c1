"""Transform rules of user ops: every transform uses them, and a wrong one is an error that names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from examples import custom_op  # registers example.swish and example.soft_maximum
from rlx.ops import rules
from tests.transforms.checks import check_jvp, check_second, check_vjp, check_vmap

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal(3), RNG.standard_normal(3)


class Product(rlx.CustomOp, name="tests.product"):
    """x·y, with rules set by the tests."""

    dtypes = ("f64",)

    def infer(self, x: rlx.Shape, y: rlx.Shape) -> rlx.Shape:
        if x != y:
            raise rlx.ShapeError(f"x and y must have one shape, got {x} and {y}")
        return x

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x * y


@pytest.fixture(autouse=True)
def _no_rules_stay() -> Iterator[None]:
    yield
    for name in ("jvp", "vjp", "vmap", "linear"):
        if name in Product.__dict__:
            delattr(Product, name)


def _give(**given: Any) -> None:
    """Set the rules of the product."""
    for name, rule in given.items():
        setattr(Product, name, rule)


def _product(op: type[rlx.CustomOp] = Product) -> tuple[rlx.Graph, int]:
    """Return a graph of one product, and the line where it is made."""
    import sys

    g = rlx.Graph("product")
    x, y = g.input("x", (3,), "f64"), g.input("y", (3,), "f64")
    result, line = g.custom(op, x, y), sys._getframe().f_lineno
    g.set_outputs([g.sum(g.sin(result))])
    return g, line


def _vjp(self: Any, b: Any, operands: Any, results: Any, cotangents: Any) -> Any:
    return cotangents[0] * operands[1], lambda: cotangents[0] * operands[0]


def _jvp(self: Any, b: Any, operands: Any, tangents: Any, results: Any) -> Any:
    terms = [t * o for t, o in zip(tangents, reversed(operands), strict=True) if t is not None]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _vmap(self: Any, b: Any, operands: Any, batched: Any, *, size: Any) -> Any:
    full = (rules.batch(b, x, own, size) for x, own in zip(operands, batched, strict=True))
    return b.custom(Product, *full)


@pytest.mark.parametrize(
    "given",
    [{"vjp": _vjp}, {"jvp": _jvp}, {"vjp": _vjp, "jvp": _jvp}, {"linear": ("x", "y"), "vjp": _vjp}],
    ids=lambda given: "+".join(given),
)
def test_rules_hold_under_every_transform(given: dict[str, Any]) -> None:
    _give(**given, vmap=_vmap)
    g, _ = _product()
    values = {"x": X, "y": Y}
    check_jvp(g, values)
    check_vjp(g, values)
    check_second(g, values)
    for axes in ({"x": 0}, {"x": 1, "y": 0}):
        check_vmap(g, values, axes)
        check_vmap(rlx.grad(g, ["x", "y"]), values, axes)
    gradient = np.cos(X * Y) * Y
    np.testing.assert_allclose(rlx.evaluate(rlx.grad(rlx.checkpoint(g), "x"), values)[0], gradient)
    for dense in (rlx.jacfwd, rlx.jacrev):
        np.testing.assert_allclose(rlx.evaluate(dense(g, "x"), values)[0], gradient)
    second = -np.diag(np.sin(X * Y) * Y * Y)
    np.testing.assert_allclose(rlx.evaluate(rlx.hessian(g, "x"), values)[0], second, atol=1e-15)
    directions = {"dir_0": X, "dir_1": np.ones(3)}
    twice = rlx.evaluate(rlx.directional_nth_grad(g, "x", 2), {**values, **directions})[0]
    np.testing.assert_allclose(twice, (np.ones(3) @ second) @ X)
    split = rlx.linearize(g, "x")
    residuals = dict(zip(split.residuals, rlx.evaluate(split.primal, values)[1:], strict=True))
    np.testing.assert_allclose(rlx.evaluate(split.linear, {**residuals, "tangent_x": X})[0], gradient @ X)


def test_rules_inside_loops() -> None:
    _give(vjp=_vjp, vmap=_vmap)
    g = rlx.Graph()
    x, w = g.input("x", (3,), "f64"), g.param("w", (3,), "f64")
    last, _ = g.scan(lambda c, _: (g.custom(Product, c, g.sin(w)), None), x, None, length=4)
    g.set_outputs([g.sum(last)])
    values = {"x": X, "w": Y}
    np.testing.assert_allclose(rlx.evaluate(rlx.grad(g, "x"), values)[0], np.sin(Y) ** 4)
    check_second(g, values)
    check_vmap(g, values, {"w": 0})


class ElementwiseProduct(Product, name="tests.elementwise_product"):
    """A product with a batching rule."""

    elementwise = True


def test_elementwise_alone_gives_a_batch() -> None:
    g, line = _product(ElementwiseProduct)
    check_vmap(g, {"x": X, "y": Y}, {"x": 0, "y": 1})
    # One operand is batched, and this op requires equal shapes.
    with pytest.raises(
        rlx.Error, match=rf"test_custom_rules.py:{line}: vmap of rlx.tests.elementwise_product: .*one shape"
    ):
        rlx.vmap(g, {"x": 0}, 2)


def test_the_example() -> None:
    """A composite op needs no rule; a primitive has its own."""
    g = rlx.Graph("example")
    x, y = g.input("x", (4,)), g.input("y", (4,))
    g.set_outputs([g.custom(custom_op.SoftMaximum, g.custom("example.swish", x, beta=2.0), y)])
    values = {name: RNG.standard_normal(4).astype(np.float32) for name in ("x", "y")}
    ones = np.ones(4, np.float32)
    _, by_x, by_y = rlx.evaluate(rlx.vjp(g, ["x", "y"]), {**values, "cotangent_output0": ones})
    wide, other = values["x"].astype(np.float64), values["y"].astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-2 * wide))
    share = 1 / (1 + np.exp(other - wide * sigmoid))
    np.testing.assert_allclose(by_y, 1 - share, rtol=1e-5)
    np.testing.assert_allclose(by_x, share * (sigmoid + 2 * wide * sigmoid * (1 - sigmoid)), rtol=1e-5, atol=1e-6)
    check_jvp(g, values, step=1e-2, tolerance=1e-3)
    check_vjp(g, values, tolerance=1e-5)
    check_vmap(rlx.vjp(g, ["x", "y"]), {**values, "cotangent_output0": ones}, {"x": 0}, tolerance=1e-6)


# --- wrong rules ------------------------------------------------------------------------------------


def _raises(*_: Any, **__: Any) -> Any:
    return {}["missing"]


WRONG_VJPS = {
    "none": (lambda self, b, o, r, c: None, "it returns None; expected a tuple with a cotangent for each of x, y"),
    "a tensor": (lambda self, b, o, r, c: c[0], "it returns a Tensor; expected a tuple"),
    "too few": (lambda self, b, o, r, c: (c[0],), r"it gives 1 cotangent for 2 operands \(x, y\)"),
    "too many": (lambda self, b, o, r, c: (c[0],) * 3, "it gives 3 cotangents for 2 operands"),
    "shape": (lambda self, b, o, r, c: (b.sum(c[0]), None), r"the cotangent of 'x' must be f64\[3\], got f64\[\]"),
    "rank": (
        lambda self, b, o, r, c: (None, b.expand(c[0], (2, 3))),
        r"the cotangent of 'y' must be f64\[3\], got f64\[2, 3\]\n  hint: sum what was broadcast",
    ),
    "dtype": (lambda self, b, o, r, c: (b.cast(c[0], "f32"), None), r"must be f64\[3\], got f32\[3\]"),
    "an array": (lambda self, b, o, r, c: (np.ones(3), None), "the cotangent of 'x' must be a tensor, got ndarray"),
    "another graph": (
        lambda self, b, o, r, c: (rlx.Graph().input("x", (3,), "f64"), None),
        "the cotangent of 'x' belongs to another graph",
    ),
    "raises": (_raises, r"raised KeyError: 'missing'\n  hint: see .*test_custom_rules.py:\d+"),
    "raises later": (lambda self, b, o, r, c: (_raises, None), "raised KeyError: 'missing'"),
    "a wrong op": (lambda self, b, o, r, c: (b.matmul(c[0], b.constant(np.ones((2, 2)))), None), "rlx.matmul: .*rows"),
    "signature": (lambda self, b: None, "raised TypeError"),
}


@pytest.mark.parametrize("name", WRONG_VJPS)
def test_a_wrong_vjp(name: str) -> None:
    rule, message = WRONG_VJPS[name]
    _give(vjp=rule)
    g, line = _product()
    for call in (rlx.grad, rlx.vjp, rlx.jvp, rlx.hvp, rlx.jacfwd, rlx.linearize):
        with pytest.raises(
            rlx.Error, match=rf"(?s)test_custom_rules.py:{line}: vjp of rlx.tests.product:? .*{message}"
        ):
            call(g, ["x", "y"])


WRONG_JVPS = {
    "none": (lambda self, b, o, t, r: None, "it returns None; expected a tangent"),
    "too many": (lambda self, b, o, t, r: (r[0],) * 2, "it gives 2 tangents for 1 result"),
    "shape": (lambda self, b, o, t, r: b.sum(t[0]), r"the tangent of the result must be f64\[3\], got f64\[\]"),
    "dtype": (lambda self, b, o, t, r: b.cast(t[0], "f32"), r"must be f64\[3\], got f32\[3\]"),
    "an array": (lambda self, b, o, t, r: np.ones(3), "must be a tensor, got ndarray"),
    "raises": (_raises, "raised KeyError: 'missing'"),
    "a tangent that is none": (lambda self, b, o, t, r: t[0] * o[1] + t[1] * o[0], "got NoneType"),
}


@pytest.mark.parametrize("name", WRONG_JVPS)
def test_a_wrong_jvp(name: str) -> None:
    rule, message = WRONG_JVPS[name]
    _give(jvp=rule)
    g, line = _product()
    for call in (rlx.grad, rlx.vjp, rlx.jvp, rlx.hvp, rlx.jacrev, rlx.linearize):
        with pytest.raises(rlx.Error, match=rf"test_custom_rules.py:{line}: jvp of rlx.tests.product:? .*{message}"):
            call(g, ["x"])


@pytest.mark.parametrize(
    "function",
    [
        lambda b, t: t * t,
        lambda b, t: b.tanh(t),
        lambda b, t: b.where(t > 0.0, t, 0.0),
        lambda b, t: t * b.cast(b.argmax(t), "f64"),
    ],
    ids=["square", "tanh", "sign", "argmax"],
)
def test_a_rule_that_is_transposed_must_be_linear(function: Any) -> None:
    g, line = _product()
    told = "a rule that is transposed must be linear in tangents and cotangents"
    _give(vjp=lambda self, b, o, r, c: (function(b, c[0]), None))
    with pytest.raises(rlx.Error, match=rf"test_custom_rules.py:{line}: vjp of rlx.tests.product: {told}"):
        rlx.jvp(g, "x")
    del Product.vjp
    _give(jvp=lambda self, b, o, t, r: function(b, t[0]))
    with pytest.raises(rlx.Error, match=rf"test_custom_rules.py:{line}: jvp of rlx.tests.product: {told}"):
        rlx.grad(g, "x")
    h = rlx.Graph()
    x = h.input("x", (3,), "f64")
    h.set_outputs(
        [h.custom_fn(lambda x: h.sin(x), x, vjp=lambda args, results, cotangents: function(h, cotangents[0]))]
    )
    with pytest.raises(rlx.Error, match=f"test_custom_rules.py:.*jvp of rlx.custom_fn: {told}"):
        rlx.jvp(h, "x")


WRONG_VMAPS = {
    "none": (lambda self, b, o, m, *, size: None, "the result must be a tensor, got NoneType"),
    "too many": (lambda self, b, o, m, *, size: (o[0],) * 2, "it gives 2 tensors for 1 result"),
    "no batch": (lambda self, b, o, m, *, size: o[1], r"the result must be f64\[2, 3\], got f64\[3\]"),
    "dtype": (lambda self, b, o, m, *, size: b.cast(o[0], "f32"), r"must be f64\[2, 3\], got f32\[2, 3\]"),
    "raises": (_raises, "raised KeyError: 'missing'"),
    "signature": (lambda self, b, o, m: o[0], "raised TypeError"),
}


@pytest.mark.parametrize("name", WRONG_VMAPS)
def test_a_wrong_vmap(name: str) -> None:
    rule, message = WRONG_VMAPS[name]
    _give(vmap=rule)
    g, line = _product()
    with pytest.raises(rlx.Error, match=rf"test_custom_rules.py:{line}: vmap of rlx.tests.product:? .*{message}"):
        rlx.vmap(g, {"x": 0}, 2)
    _give(vjp=_vjp)
    with pytest.raises(rlx.Error, match=r"test_custom_rules.py:\d+: vmap of rlx.tests.product"):
        rlx.vmap(rlx.grad(g, "x"), {"x": 0}, 2)


def test_an_op_that_declines_a_batch_and_has_no_decomposition() -> None:
    _give(vmap=lambda self, b, o, m, *, size: NotImplemented)
    g, line = _product()
    with pytest.raises(rlx.Error, match=rf"test_custom_rules.py:{line}: rlx.tests.product has no vmap rule"):
        rlx.vmap(g, {"x": 0}, 2)


@pytest.mark.parametrize(
    ("linear", "message"),
    [
        ("x", "must be a tuple of names"),
        (5, "must be a tuple of names"),
        (("x", "z"), "names 'z', which is no operand"),
    ],
)
def test_linear_names_operands(linear: Any, message: str) -> None:
    members = {"infer": Product.infer, "evaluate": Product.evaluate, "linear": linear}
    with pytest.raises(rlx.Error, match=f"linear {message}"):
        type("Wrong", (rlx.CustomOp,), members, name="tests.wrong_linear")


def test_linear_is_for_one_result() -> None:
    members = {"infer": lambda self, x: (x, x), "evaluate": lambda self, x: (x, x), "linear": ("x",), "num_results": 2}
    with pytest.raises(rlx.Error, match="linear is for ops with one result"):
        type("Wrong", (rlx.CustomOp,), members, name="tests.wrong_results")


WRONG_DECOMPOSITIONS = {
    "none": (lambda self, b, x: None, "must be tensors, got NoneType"),
    "shape": (lambda self, b, x: b.sum(x), r"gives f64\[3\], its replacement f64\[\]"),
    "dtype": (lambda self, b, x: b.cast(x, "f32"), r"gives f64\[3\], its replacement f32\[3\]"),
    "too many": (lambda self, b, x: (x, x), r"gives f64\[3\], its replacement f64\[3\], f64\[3\]"),
    "another graph": (lambda self, b, x: rlx.Graph().input("x", (3,), "f64"), "belongs to another graph"),
    "raises": (_raises, "raised KeyError: 'missing'"),
    "signature": (lambda self: None, "raised TypeError"),
}


class Composite(rlx.CustomOp, name="tests.composite"):
    """An op with a decomposition set by the tests."""

    dtypes = ("f64",)

    def infer(self, x: rlx.Shape) -> rlx.Shape:
        return x

    def decompose(self, b: Any, x: Any) -> Any:
        return x


@pytest.mark.parametrize("name", WRONG_DECOMPOSITIONS)
def test_a_wrong_decomposition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, message = WRONG_DECOMPOSITIONS[name]
    monkeypatch.setattr(Composite, "decompose", rule)
    g = rlx.Graph()
    g.set_outputs([g.sum(g.custom(Composite, g.input("x", (3,), "f64")))])
    for call in (
        lambda: rlx.grad(g, "x"),
        lambda: rlx.jvp(g, "x"),
        lambda: rlx.vmap(g, {"x": 0}, 2),
        lambda: rlx.passes.run(g, "rlx-decompose"),
    ):
        with pytest.raises(rlx.Error, match=rf"test_custom_rules.py:\d+: .*'rlx.tests.composite' {message}"):
            call()


def test_functions_that_are_none() -> None:
    g = rlx.Graph()
    x = g.input("x", (3,))
    given: dict[str, Any]
    for given in ({"fwd": 3}, {"fwd": g.sin, "vjp": 3}, {"fwd": g.sin, "jvp": "x"}):
        with pytest.raises(rlx.Error, match=r"rlx.custom_fn: (fwd|vjp|jvp) must be a function of tensors"):
            g.custom_fn(given.pop("fwd"), x, **given)


def test_a_function_without_a_derivative_says_why() -> None:
    g = rlx.Graph()
    x, y = g.input("x", (3,)), g.input("y", (3,))
    g.set_outputs([g.sum(g.custom_fn(lambda x: g.sin(x), x, no_derivative="it is a table") * y)])
    g = rlx.parse(str(g))
    batched = rlx.vmap(g, {"x": 0}, 2)
    for derive in (rlx.grad, rlx.jvp):
        for graph in (g, batched) if derive is rlx.jvp else (g,):
            with pytest.raises(
                rlx.Error, match=r"(jvp|vjp) of rlx.custom_fn: the function has no derivative: it is a table"
            ):
                derive(graph, ["x"])
    given = {"x": np.ones(3, np.float32), "y": np.ones(3, np.float32)}
    np.testing.assert_allclose(rlx.evaluate(rlx.grad(g, "y"), given), [np.sin(given["x"])], rtol=1e-6)
    with pytest.raises(rlx.Error, match="no_derivative is for a function without rules"):
        g.custom_fn(lambda x: x, g.input("z", (3,)), vjp=lambda a, r, c: c[0], no_derivative="it is a table")


class Total(rlx.CustomOp, name="tests.total"):
    """The sum of any number of tensors, with a vjp set by the tests."""

    dtypes = ("f64",)

    def infer(self, first: rlx.Shape, *others: rlx.Shape) -> rlx.Shape:
        return first

    def evaluate(self, first: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
        return sum(others, first)


def test_operands_of_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph()
    x, y = g.input("x", (3,), "f64"), g.input("y", (3,), "f64")
    g.set_outputs([g.sum(g.sin(g.custom(Total, x, [y, x])))])
    values = {"x": X, "y": Y}
    monkeypatch.setattr(Total, "vjp", lambda self, b, o, r, c: (c[0], [c[0], lambda: c[0]]), raising=False)
    check_jvp(g, values)
    check_vjp(g, values)
    np.testing.assert_allclose(rlx.evaluate(rlx.grad(g, "x"), values)[0], 2 * np.cos(2 * X + Y))
    for rule, message in (
        (lambda self, b, o, r, c: (c[0], c[0]), "for 'others' it gives a Tensor; expected a list of 2"),
        (lambda self, b, o, r, c: (c[0], [c[0]]), "for 'others' it gives 1 cotangent; expected 2"),
        (lambda self, b, o, r, c: (c[0], [None, b.sum(c[0])]), r"the cotangent of 'others' \(1 of 2\) must be"),
    ):
        monkeypatch.setattr(Total, "vjp", rule)
        for call in (rlx.grad, rlx.jvp):
            with pytest.raises(rlx.Error, match=f"vjp of rlx.tests.total: {message}"):
                call(g, ["x", "y"])


def test_derivatives_of_a_gradient_by_a_vjp_that_is_not_linear() -> None:
    """They are the derivatives of the gradient as a function, in compiled programs and under `vmap` too."""
    g: Any = rlx.Graph("rules")
    x = g.input("x", (4,))

    def vjp(args: Any, results: Any, cotangents: Any) -> Any:
        return g.custom_fn(lambda c: g.clamp(c, -1.0, 1.0), cotangents[0] * results[0]) + cotangents[0] ** 3

    y = g.custom_fn(lambda a: g.exp(a), x, vjp=vjp)
    g.set_outputs({"loss": g.sum(y * y)})
    point, direction = np.array([-2.0, -0.6, 0.1, 0.4]), np.array([1.0, -1.0, 0.5, 2.0])

    def gradient(at: np.ndarray) -> np.ndarray:
        cotangent = 2 * np.exp(at)
        return np.clip(cotangent * np.exp(at), -1, 1) + cotangent**3

    expected = (gradient(point + 1e-6 * direction) - gradient(point - 1e-6 * direction)) / 2e-6
    values = {"x": point.astype(np.float32), "tangent_x": direction.astype(np.float32)}
    product = rlx.hvp(g, "x")
    np.testing.assert_allclose(rlx.evaluate(product, values)[2], expected, rtol=1e-4)
    np.testing.assert_allclose(rlx.Session("xla").compile(product).run(values)[2], expected, rtol=1e-4)
    batched = rlx.vmap(product, {"x": 0, "tangent_x": 0}, 3)
    stacked = {name: np.stack([value] * 3) for name, value in values.items()}
    np.testing.assert_allclose(rlx.evaluate(batched, stacked)[2], [expected] * 3, rtol=1e-4)
    (hessian,) = rlx.evaluate(rlx.hessian(g, "x"), {"x": values["x"]})
    np.testing.assert_allclose(hessian @ direction, expected, rtol=1e-4)
    with pytest.raises(rlx.Error, match="its derivative depends on a tangent or cotangent"):
        rlx.jvp(g, "x")
