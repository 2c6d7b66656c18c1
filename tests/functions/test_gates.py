"""Activations, norms and PyTorch names: the evaluator against other libraries, and compiled code against the evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import rlx
from rlx.support.errors import Error
from tests.drawing import drawn

RANDOM = np.random.default_rng(11)
X = RANDOM.standard_normal((3, 4)).astype(np.float32)
Y = RANDOM.standard_normal((3, 4)).astype(np.float32)
Z = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
V = np.array([0.0, -0.0, 1.5, -2.5, 30.0, -30.0, 1e4, -1e4, np.inf, -np.inf, np.nan], np.float32)
N = np.array([[3, 0, -1], [7, 2, 0]], np.int32)
ROWS = np.array([[-np.inf, -np.inf], [np.inf, 1.0], [1e4, 1e4 + 1], [-1e4, 3.0]], np.float32)

Call = Callable[..., Any]
# The call on a graph, the call of a library, and the arrays.
ARRANGED: list[tuple[Call, Call, tuple[Any, ...]]] = [
    (lambda g, x: g.permute(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), (Z,)),
    (lambda g, x, y: g.concatenate([x, y], axis=1), lambda x, y: np.concatenate([x, y], 1), (X, Y)),
    (lambda g, x, y: g.concatenate([x, y], None), lambda x, y: np.concatenate([x, y], None), (X, Y)),
    (lambda g, x: g.unstack(x), lambda x: list(x), (X,)),
]
REDUCED: list[tuple[Call, Call, tuple[Any, ...]]] = [
    (lambda g, x: g.norm(x), lambda x: np.linalg.norm(x), (X,)),
    (lambda g, x: g.norm(x, 1, -1), lambda x: np.linalg.norm(x, 1, -1), (X,)),
    (lambda g, x: g.norm(x, 3, -1), lambda x: np.linalg.norm(x, 3, -1), (X,)),
    (lambda g, x: g.norm(x, np.inf, 0), lambda x: np.linalg.norm(x, np.inf, 0), (X,)),
    (lambda g, x: g.norm(x, 0, 0), lambda x: np.float32((x != 0).sum(0)), (X,)),
    (lambda g, x: g.log_softmax(x), lambda x: special.log_softmax(x, -1), (Z,)),
    (lambda g, x: g.log_softmax(x, 1), lambda x: special.log_softmax(x, 1), (ROWS[2:],)),
]
GATED: list[tuple[Call, Call]] = [
    (lambda g, x: g.softplus(x), jax.nn.softplus),
    (lambda g, x: g.log_sigmoid(x), jax.nn.log_sigmoid),
    (lambda g, x: g.leaky_relu(x, 0.2), lambda x: jax.nn.leaky_relu(x, 0.2)),
    (lambda g, x: g.elu(x, 1.3), lambda x: jax.nn.elu(x, 1.3)),
    (lambda g, x: g.celu(x, 0.7), lambda x: jax.nn.celu(x, 0.7)),
    (lambda g, x: g.selu(x), jax.nn.selu),
    (lambda g, x: g.relu6(x), jax.nn.relu6),
    (lambda g, x: g.hard_tanh(x), jax.nn.hard_tanh),
    (lambda g, x: g.hard_sigmoid(x), jax.nn.hard_sigmoid),
    (lambda g, x: g.hard_swish(x), jax.nn.hard_swish),
    (lambda g, x: g.mish(x), jax.nn.mish),
    (lambda g, x: g.soft_sign(x), jax.nn.soft_sign),
    (lambda g, x: g.logaddexp(x, 0.5), lambda x: jnp.logaddexp(x, 0.5)),
    (lambda g, x: g.hypot(x, -3.0), lambda x: jnp.hypot(x, jnp.float32(-3.0))),
    (lambda g, x: g.glu(g.stack([x, x], 0), 0)[0], lambda x: x * jax.nn.sigmoid(x)),
]


def graph_of(calls: list[tuple[Any, ...]]) -> tuple[rlx.Graph, dict[str, np.ndarray], list[int]]:
    """Return calls in one graph, its inputs, and the number of outputs of each call."""
    g: Any = rlx.Graph("vocabulary")
    inputs: dict[str, np.ndarray] = {}
    outputs: list[Any] = []
    counts: list[int] = []
    for number, (call, arrays) in enumerate(calls):
        names = [f"x{number}_{i}" for i in range(len(arrays))]
        inputs |= dict(zip(names, arrays, strict=True))
        made = call(g, *(g.input(n, a.shape, a.dtype) for n, a in zip(names, arrays, strict=True)))
        made = made if isinstance(made, list) else [made]
        counts.append(len(made))
        outputs += made
    g.set_outputs(outputs)
    return g, inputs, counts


def results_of(calls: list[tuple[Any, ...]]) -> list[list[np.ndarray]]:
    g, inputs, counts = graph_of(calls)
    left = iter(rlx.evaluate(g, inputs))
    return [[next(left) for _ in range(count)] for count in counts]


def test_arrangements_are_those_of_numpy() -> None:
    found = results_of([(ours, arrays) for ours, _, arrays in ARRANGED])
    for number, (got, (_, theirs, arrays)) in enumerate(zip(found, ARRANGED, strict=True)):
        wanted = theirs(*arrays)
        for one, other in zip(got, wanted if isinstance(wanted, list) else [wanted], strict=True):
            assert one.dtype == other.dtype and np.array_equal(one, other), f"case {number}"


def test_reductions_are_those_of_numpy_and_scipy() -> None:
    found = results_of([(ours, arrays) for ours, _, arrays in REDUCED])
    for number, ((got,), (_, theirs, arrays)) in enumerate(zip(found, REDUCED, strict=True)):
        with np.errstate(all="ignore"):
            wanted = np.asarray(theirs(*arrays))
        assert got.dtype.kind == wanted.dtype.kind and got.shape == wanted.shape, f"case {number}"
        np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=1e-7, err_msg=f"case {number}")


def test_functions_of_layers_are_those_of_jax() -> None:
    found = results_of([(ours, (V,)) for ours, _ in GATED])
    for number, ((got,), (_, theirs)) in enumerate(zip(found, GATED, strict=True)):
        wanted = np.asarray(theirs(jnp.asarray(V)))
        usual = np.isfinite(V)  # at infinities some JAX results are NaN where a limit exists
        np.testing.assert_allclose(got[usual], wanted[usual], rtol=2e-6, atol=1e-7, err_msg=f"case {number}")
        assert np.isnan(got[-1]), f"case {number}"


@drawn("device", ["cpu", "xla"])
def test_compilers_agree(device: str) -> None:
    # At -inf, `x * sigmoid(x)` is NaN, but `silu`, to which it is rewritten, is the limit.
    finite = V[~np.isinf(V)]
    calls = [(ours, arrays) for ours, _, arrays in (*ARRANGED, *REDUCED)] + [(ours, (finite,)) for ours, _ in GATED]
    g, inputs, _ = graph_of(calls)
    compiled = rlx.Session(device).compile(g, cache=False).run(inputs)
    for number, (one, other) in enumerate(zip(compiled, rlx.evaluate(g, inputs), strict=True)):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=4e-6, atol=1e-6, err_msg=f"output {number}")


_GRADIENTS: list[tuple[Call, Call]] = [
    *((ours, theirs) for ours, theirs in GATED),
    (lambda g, x: g.norm(x), jnp.linalg.norm),
    (lambda g, x: g.log_softmax(x), jax.nn.log_softmax),
    (lambda g, x: g.log1p(x * x), lambda x: jnp.log1p(x * x)),
    (lambda g, x: g.expm1(x), jnp.expm1),
    (lambda g, x: g.atan2(x, 0.7), lambda x: jnp.arctan2(x, 0.7)),
]


@drawn("number", range(len(_GRADIENTS)), of_each=8)
def test_gradients_are_those_of_jax(number: int) -> None:
    ours, theirs = _GRADIENTS[number]
    x = np.array([0.4, -1.3, 2.7, -3.6, 0.05, 5.5], np.float32)
    g: Any = rlx.Graph("gradient")
    y = ours(g, g.input("x", x.shape))
    weights = RANDOM.standard_normal(y.shape.static).astype(np.float32)
    g.set_outputs([g.sum(y * weights)])
    wanted = jax.grad(lambda v: (theirs(v) * weights).sum())(x)
    np.testing.assert_allclose(rlx.evaluate(rlx.grad(g, ["x"]), {"x": x})[0], wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda g, x: g.norm(x, "nuc"), "norm: ord is a number or 'fro'"),
    ],
)
def test_what_is_refused(wrong: Call, message: str) -> None:
    g: Any = rlx.Graph("wrong")
    with pytest.raises(Error, match=message):
        wrong(g, g.input("x", (3, 4)))
