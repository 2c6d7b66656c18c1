"""Gradients of elementwise ops, running sums, lookups and the cross entropy, against JAX and differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph import evaluate
from rlx.ir.graph.listing import inspect_graph
from rlx.ir.op import registry
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.backward.card import Backward
from rlx.support.errors import ShapeError
from tests.conformance.cases import cases
from tests.conformance.values import random_values
from tests.drawing import drawn
from tests.ops.formulas import cross_entropy
from tests.ops.gradients import check_rounded_once, check_twice, check_with_differences, check_with_jax, vjp
from tests.ops.references import ACTIVATIONS_IN_JAX, FLOATS, INTEGERS, agree, in_jax, random, run, samples_of

NARROW = ("f32", "f16", "bf16")

# --- one rule -----------------------------------------------------------------------------------------

GRADIENTS = [name for name, card in registry.load().items() if isinstance(card, Backward)]


def test_every_backward_op_is_a_gradient() -> None:
    assert sorted(GRADIENTS) == sorted(name for name in registry.SPECS if "_backward" in name)


@pytest.fixture
def no_kept_decompositions() -> Iterator[None]:
    """Keep decompositions that use the rules of a test out of the evaluator's cache."""
    yield
    evaluate._decomposed.cache_clear()


@pytest.mark.parametrize("op", GRADIENTS)
def test_a_gradient_is_what_the_rule_of_its_forward_op_gives(
    op: str, monkeypatch: pytest.MonkeyPatch, no_kept_decompositions: None
) -> None:
    """The rule exists only once: changing it in the forward card changes the gradient."""
    card: Any = registry.card(op)
    case = next(case for case in cases(op) if case.sample.attributes.get("ste") != "identity")
    bindings = case.bindings()[0]
    values = random_values(case, bindings).by_name()
    before = rlx.evaluate(case.graph(bindings), values)
    rule = type(card.forward).vjp

    def negated(self: Any, b: Any, *args: Any, **attributes: Any) -> Any:
        def of(entry: Any) -> Any:
            return None if entry is None else lambda: -rules.resolved(b, entry)  # type: ignore[operator]

        return [of(entry) for entry in rule(self, b, *args, **attributes)]

    monkeypatch.setattr(type(card.forward), "vjp", negated)
    evaluate._decomposed.cache_clear()
    after = rlx.evaluate(case.graph(bindings), values)
    assert all(np.any(a) and np.array_equal(-a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("op", GRADIENTS)
def test_work_of_a_gradient(op: str) -> None:
    """The cost is known for every sample, also without optional operands; moving elements has no cost."""
    card: Any = registry.card(op)
    for case in cases(op):
        graph = case.graph(case.bindings()[0])
        made: Any
        (made,) = inspect_graph(graph).ops
        is_empty = any(0 in argument.shape.dims for argument in graph.arguments)
        assert made.cost is not None and (made.cost.flops > 0 or is_empty or card.forward.name == "gather")


# --- activations ------------------------------------------------------------------------------------

# By convention, the gradient of rounding is that of the identity.
_FORMULAS = {kind: f for kind, f in ACTIVATIONS_IN_JAX.items() if kind != "round"}
_DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt"), (0.1, 5.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.95, 0.95)),
    **{"tan": (-1.4, 1.4), "log1p": (-0.9, 5.0), "acosh": (1.1, 5.0)},
}


def _points(kind: str, name: str, count: int = 60) -> np.ndarray:
    low, high = _DOMAINS.get(kind, (-5.0, 5.0))
    return random(name, (count,), low=low, high=high)


def test_every_activation_has_a_gradient() -> None:
    assert {*_FORMULAS, "round"} == set(registry.card("activation_backward").spec.attributes[0].cases)


@pytest.mark.parametrize("kind", _FORMULAS)
def test_activation_backward(kind: str) -> None:
    x, dy = _points(kind, "f64"), random("f64", (60,), seed=1)
    got = run("activation_backward", x, dy, kind=kind)
    check_twice(got, "activation", _FORMULAS[kind], (x,), dy, kind=kind)


@drawn("name", NARROW)
@pytest.mark.parametrize("kind", _FORMULAS)
def test_activation_backward_in_narrow_floats(kind: str, name: str) -> None:
    """The tolerance is relative to each element: small derivatives keep their digits too."""
    x, dy = _points(kind, name), random(name, (60,), seed=1)
    wide = [a.astype(np.float64) for a in (x, dy)]
    expected = vjp(_FORMULAS[kind], wide[:1], wide[1], 0)
    # gelu(x)/x has the errors of 1 + erf, which becomes 0.
    room = np.finfo(np.float32).eps * np.abs(wide[1]) if kind == "gelu" else None
    agree(run("activation_backward", x, dy, kind=kind), expected.astype(x.dtype), factor=4, noise=room)


def test_steep_tails_keep_their_digits() -> None:
    x = np.linspace(-30, 30, 121).astype(np.float32)
    one = np.ones_like(x)
    exact = {"tanh": 1 / np.cosh(x.astype(np.longdouble)) ** 2}
    exact["sigmoid"] = 1 / (2 + 2 * np.cosh(x.astype(np.longdouble)))
    for kind, expected in exact.items():
        agree(run("activation_backward", x, one, kind=kind), expected.astype(np.float32), factor=2)


def test_round_is_straight_through() -> None:
    dy = samples_of("f32")
    x = random("f32", dy.shape, seed=1)
    assert run("activation_backward", x, dy, kind="round").tobytes() == dy.tobytes()


@pytest.mark.parametrize("name", FLOATS)
def test_kinks_have_slope_zero(name: str) -> None:
    kind = dtype(name).numpy
    x, dy = np.array([0.0, -0.0, 2.0, -2.0]).astype(kind), np.array([3.0, 3.0, 3.0, 3.0]).astype(kind)
    assert run("activation_backward", x, dy, kind="relu").tolist() == [0, 0, 3, 0]
    assert run("activation_backward", x, dy, kind="abs").tolist() == [0, 0, 3, -3]
    assert run("relu_backward", x, dy).tolist() == [0, 0, 3, 0]


_LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("gelu", "gelu_approx", "silu", "relu"), (0.0, 1.0)),
    **dict.fromkeys(("sigmoid", "tanh", "atan"), (0.0, 0.0)),
    "exp": (0.0, np.inf),
    "abs": (-1.0, 1.0),
    "neg": (-1.0, -1.0),
}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("kind", _LIMITS)
def test_limits_at_infinity(kind: str, name: str) -> None:
    numpy_dtype = dtype(name).numpy
    limits = np.finfo(np.float16) if name == "f16" else np.finfo(np.float32) if name != "f64" else np.finfo(np.float64)
    ends = np.array([-np.inf, np.inf, -float(limits.max) / 2, float(limits.max) / 2]).astype(numpy_dtype)
    got = run("activation_backward", ends, np.ones(4, numpy_dtype), kind=kind)
    assert got.tolist() == [*_LIMITS[kind], *_LIMITS[kind]]


@pytest.mark.parametrize("kind", [k for k in _FORMULAS if k not in ("relu", "neg", "floor", "ceil")])
def test_nan_has_a_slope_of_nan(kind: str) -> None:
    x, one = np.array([np.nan, 1.0], np.float32), np.ones(2, np.float32)
    assert np.isnan(run("activation_backward", x, one, kind=kind)).tolist() == [True, False]


@pytest.mark.parametrize("name", FLOATS)
def test_relu_backward(name: str) -> None:
    x, dy = samples_of(name), samples_of(name)[::-1].copy()
    got = run("relu_backward", x, dy)
    with np.errstate(invalid="ignore"):
        expected = np.where(x > 0, dy, dy.dtype.type(0))
    assert got.tobytes() == expected.tobytes()
    if name == "f64":
        x, dy = random(name, (50,)), random(name, (50,), seed=1)
        check_twice(run("relu_backward", x, dy), "activation", jax.nn.relu, (x,), dy, kind="relu")


def test_complex_norm_sq_backward() -> None:
    """JAX's gradient is the conjugate. `f(x + h·u) - f(x)` is `h·Re(gradient·u)` in JAX, `h·Re(conj(gradient)·u)` here."""
    x, dy = random("c64", (4, 5)), random("f32", (4, 5), seed=1)
    got = run("complex_norm_sq_backward", x, dy)
    reference = in_jax(lambda z, t: jax.vjp(lambda v: v.real**2 + v.imag**2, z)[1](t)[0], x, dy)
    agree(got, reference.conj())
    direction, step = (
        random("c64", (4, 5), seed=2),
        np.float32(0.125),
    )  # the difference of a square has no error
    ahead, behind = (run("complex_norm_sq", x + s * step * direction).astype(np.float64) for s in (1, -1))
    expected = (got.conj() * direction).real.sum(dtype=np.float64)
    assert np.isclose((dy * (ahead - behind)).sum() / (2 * step), expected, rtol=1e-5, atol=1e-3)


# --- running sums and lookups -----------------------------------------------------------------------


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_cumsum_backward(axis: int, exclusive: bool) -> None:
    x, dy = random("f64", (4, 7)), random("f64", (4, 7), seed=1)
    got = run("cumsum_backward", dy, axis=axis, exclusive=exclusive)

    def formula(v: Any) -> Any:
        return jnp.cumsum(v, axis) - (v if exclusive else 0)

    check_twice(got, "cumsum", formula, (x,), dy, axis=axis, exclusive=exclusive)


@pytest.mark.parametrize("name", [*INTEGERS, "c64"])
def test_cumsum_backward_of_other_numbers(name: str) -> None:
    dy = random(name, (40,)) if name == "c64" else samples_of(name)  # integers wrap
    wide = np.complex128 if name == "c64" else dy.dtype
    expected = np.cumsum(dy[::-1], dtype=wide)[::-1].astype(dy.dtype)
    got = run("cumsum_backward", dy, axis=0)
    agree(got, expected, noise=np.array(1e-6) if name == "c64" else None)


@pytest.mark.parametrize("name", FLOATS)
def test_cumsum_backward_of_nothing_and_of_one(name: str) -> None:
    one = np.array([3.0]).astype(dtype(name).numpy)
    assert run("cumsum_backward", one, axis=0).tolist() == [3]
    assert run("cumsum_backward", one, axis=0, exclusive=True).tolist() == [0]
    assert run("cumsum_backward", one[:0], axis=0).shape == (0,)


@pytest.mark.parametrize(
    ("table", "indices", "axis"),
    [((5, 3), (4,), 0), ((2, 5, 3), (4, 2), 1), ((2, 5), (), 1), ((3, 4), (2, 3, 2), 0), ((2, 3), (0,), 1)],
)
def test_gather_backward(table: tuple[int, ...], indices: tuple[int, ...], axis: int) -> None:
    values = random("f64", table)
    chosen = np.random.default_rng(1).integers(-3, 8, indices).astype(np.int32)  # clamped and repeated
    dy = random("f64", (*table[:axis], *indices, *table[axis + 1 :]), seed=2)
    got = run("gather_backward", dy, chosen, axis=axis, size=(table[axis],))

    def formula(v: Any) -> Any:
        return jnp.take(v, jnp.clip(chosen, 0, table[axis] - 1), axis)

    check_with_jax(got, formula, (values,), dy, 0)
    check_with_differences(got, lambda v: run("gather", v, chosen, axis=axis), values, dy)


@pytest.mark.parametrize(
    ("index", "values", "size"),
    [
        ("u8", [0, 255, 7, 254], 300),
        ("i8", [-128, 127, 0, 5], 200),
        ("u32", [2**32 - 1, 2**31, 3, 0], 6),
        ("i64", [-(2**40), 2**40, 2**32 + 1, 2], 6),
    ],
)
def test_extreme_indices_are_clamped(index: str, values: list[int], size: int) -> None:
    """Neither a narrow nor a wide index dtype wraps."""
    dy = np.array([1, 10, 100, 1000], np.float32)
    expected = np.zeros(size, np.float32)
    np.add.at(expected, np.clip(values, 0, size - 1), dy)
    got = run("gather_backward", dy, np.array(values, dtype(index).numpy), axis=0, size=(size,))
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_gather_backward_adds_in_f32(name: str) -> None:
    """With 600 ones, bf16 would stop at 256, and f16 would lose halves above 512."""
    dy = np.full(600, 1.25, dtype(name).numpy)
    got = run("gather_backward", dy, np.zeros(600, np.int32), axis=0, size=(2,))
    assert got.tolist() == [750 if name == "f16" else 752, 0]


# --- cross entropy ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 4), (7,), (0, 3)])
def test_softmax_cross_entropy_backward(shape: tuple[int, ...]) -> None:
    logits, dloss = random("f64", shape), random("f64", shape[:-1], seed=1)
    labels = np.random.default_rng(2).integers(-1, shape[-1] + 1, shape[:-1])
    got = run("softmax_cross_entropy_backward", logits, labels, dloss)
    formula = cross_entropy(labels, shape[-1])
    check_with_jax(got, formula, (logits,), dloss, 0)
    check_with_differences(got, lambda v: run("softmax_cross_entropy_with_logits", v, labels), logits, dloss)


@pytest.mark.parametrize("name", NARROW)
def test_softmax_cross_entropy_backward_in_narrow_floats(name: str) -> None:
    logits, labels = random(name, (6, 9), low=-8, high=8), np.arange(6, dtype=np.int32) * 2 - 1
    check_rounded_once("softmax_cross_entropy_backward", logits, labels, random(name, (6,), seed=1))


@pytest.mark.parametrize(
    ("index", "ignored"), [("i8", -1), ("u8", 255), ("i64", 2**32 + 1), ("i64", -(2**63)), ("u32", 2**32 - 1)]
)
def test_ignored_labels_have_no_gradient(index: str, ignored: int) -> None:
    """The gradient is 0 for any gradient of their loss, and a label that is out of range does not come into range in i32."""
    logits = random("f32", (2, 4))
    labels = np.array([ignored, 1], dtype(index).numpy)
    got = run("softmax_cross_entropy_backward", logits, labels, np.array([np.nan, 2.0], np.float32))
    assert not got[0].any() and got[1].all()
    assert np.isclose(got[1].sum(), 0, atol=1e-6) and got[1, 1] < 0


# --- forms that users may write ---------------------------------------------------------------------

_X, _WEIGHT, _IMAGE, _W = (2, 3, 4), (4,), (1, 2, 6, 6), (4, 2, 3, 3)
_CALLS: list[tuple[str, list[tuple[int, ...]], dict[str, Any], tuple[int, ...]]] = [
    ("layer_norm_backward_input", [_X, _WEIGHT, _X], {}, _X),
    ("layer_norm_backward_gamma", [_X, _X], {"axis": -2}, (3,)),
    ("rms_norm_backward_beta", [_X, _WEIGHT, _WEIGHT, _X], {"axis": -1, "eps": 1e-6}, _WEIGHT),
    ("cumsum_backward", [_X], {"axis": -1}, _X),
    ("max_pool2d_backward", [_IMAGE, (1, 2, 3, 3)], {"kernel": 2}, _IMAGE),
    (
        "max_pool2d_backward",
        [_IMAGE, (1, 2, 3, 7)],
        {"kernel": (3, 2), "stride": (2, 1), "padding": (1, (0, 2))},
        _IMAGE,
    ),
    ("conv2d_backward_input", [(1, 4, 4, 4), _W], {"size": (6, 6)}, _IMAGE),
    ("conv2d_backward_input", [(1, 4, 3, 3), _W], {"size": (6, 6), "stride": 2, "padding": "same"}, _IMAGE),
    ("conv2d_backward_weight", [_IMAGE, (1, 4, 6, 6)], {"kernel": 3, "padding": 1}, _W),
    ("conv2d_backward_weight", [_IMAGE, (1, 4, 2, 2)], {"kernel": (3, 3), "dilation": 2}, _W),
    ("attention_backward", [(2, 5, 8)] * 4, {"num_heads": 2, "head_dim": 4, "wrt": "key"}, (2, 5, 8)),
    ("rope_backward", [(2, 5, 8), (5, 2), (5, 2)], {"head_dim": 4}, (2, 5, 8)),
    ("activation_backward", [_X, _X], {"kind": "gelu"}, _X),
    ("fake_quantize_backward", [_X, _X], {"axis": -1}, _X),
]


@pytest.mark.parametrize(("op", "shapes", "attributes", "expected"), _CALLS, ids=str)
def test_defaults_and_negative_axes(op: str, shapes: Any, attributes: dict[str, Any], expected: Any) -> None:
    graph = rlx.Graph()
    made = getattr(graph, op)(*(graph.input(f"x{i}", shape) for i, shape in enumerate(shapes)), **attributes)
    assert made.shape == expected


def test_an_axis_of_the_table_may_be_negative() -> None:
    graph = rlx.Graph()
    dy, indices = graph.input("dy", (2, 3, 4, 5)), graph.input("indices", Shape((3, 4), "i32"))
    assert graph.gather_backward(dy, indices, axis=-2, size=9).shape == (2, 9, 5)
    assert graph.gather_backward(dy, np.zeros((4, 5), np.int64), axis=-1, size=["n"]).shape == (2, 3, "n")


def test_a_number_is_a_learned_scale() -> None:
    graph = rlx.Graph()
    x, dy = graph.input("x", _X), graph.input("dy", _X)
    assert graph.fake_quantize_lsq_backward_x(x, 0.1, dy, bits=4).shape == _X
    assert graph.fake_quantize_lsq_backward_scale(x, 0.1, dy).shape == ()


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("relu_backward", [(2, 3), (3,)], {}),
        ("activation_backward", [(2, 3), (2, 1)], {"kind": "tanh"}),
        ("softmax_cross_entropy_backward", [(2, 3), (2,), (3,)], {}),
        ("layer_norm_backward_gamma", [(2, 3), (3, 2)], {}),
        (
            "attention_backward",
            [(2, 5, 8), (2, 5, 8), (2, 5, 6), (2, 5, 8)],
            {"num_heads": 2, "head_dim": 4, "wrt": "key"},
        ),
    ],
)
def test_cotangents_have_the_shape_of_the_forward_result(op: str, shapes: Any, attributes: dict[str, Any]) -> None:
    graph = rlx.Graph()
    kinds = ["i32" if op.startswith("softmax") and i == 1 else "f32" for i in range(len(shapes))]
    tensors = [graph.input(f"x{i}", Shape(s, k)) for i, (s, k) in enumerate(zip(shapes, kinds, strict=True))]
    with pytest.raises(ShapeError, match=r"must be f32\[.*\], as the result of the forward op, got f32"):
        getattr(graph, op)(*tensors, **attributes)
