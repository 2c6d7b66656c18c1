"""User programs and their derivatives compared with JAX: models, losses, loops, singular points of formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.drawing import drawn
from tests.transforms.against_jax import check, check_second

_RNG = np.random.default_rng(0)


def _array(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(dtype)


def _positive(*shape: int) -> np.ndarray:
    return _RNG.uniform(0.5, 2.0, shape)


@dataclass(frozen=True)
class Program:
    """A function in rlx and in JAX, and arrays for it.

    Attributes:
        build: A function of a graph and its inputs.
        formula: The same function in JAX.
        arrays: The inputs.
        second: Whether second derivatives are also compared.
        tolerance: Relative to the largest number.
    """

    build: Callable[..., Any]
    formula: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]
    second: bool = False
    tolerance: float = 1e-11


PROGRAMS: dict[str, Program] = {}


def program(
    name: str,
    build: Callable[..., Any],
    formula: Callable[..., Any],
    *arrays: np.ndarray,
    second: bool = False,
    tolerance: float = 1e-11,
) -> None:
    """Add a program."""
    PROGRAMS[name] = Program(build, formula, arrays, second, tolerance)


# --- models -----------------------------------------------------------------------------------------

_TARGET = _array(4, 5)
program(
    "linear regression",
    lambda g, x, w, b: g.mean((x @ w + b - _TARGET) ** 2.0),
    lambda x, w, b: jnp.mean((x @ w + b - _TARGET) ** 2),
    *(_array(4, 3), _array(3, 5), _array(5)),
    second=True,
)
program(
    "logistic regression",
    lambda g, x, w: g.mean(g.log(1.0 + g.exp(-(x @ w)))),
    lambda x, w: jnp.mean(jnp.log(1 + jnp.exp(-(x @ w)))),
    *(_array(4, 3), _array(3, 2)),
)


def _cnn(g: Any, image: Any, first: Any, second: Any, w: Any) -> Any:
    h = g.max_pool(g.relu(g.conv(image, first, padding=1)), 2)
    h = g.mean_pool(g.tanh(g.conv(h, second, padding="same")), 2)
    return g.mean(g.softmax_cross_entropy_with_logits(g.reshape(h, (2, -1)) @ w, np.array([0, 2], np.int32)))


def _jax_cnn(image: Any, first: Any, second: Any, w: Any) -> Any:
    def pooled(x: Any, start: float, kind: Any) -> Any:
        return jax.lax.reduce_window(x, start, kind, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def conv(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")

    h = pooled(jax.nn.relu(conv(image, first)), -jnp.inf, jax.lax.max)
    h = pooled(jnp.tanh(conv(h, second)), 0.0, jax.lax.add) / 4
    scores = jax.nn.log_softmax(h.reshape(2, -1) @ w)
    return -jnp.mean(scores[jnp.arange(2), jnp.array([0, 2])])


program("convolutions", _cnn, _jax_cnn, _array(2, 2, 8, 8), _array(3, 2, 3, 3), _array(4, 3, 3, 3), _array(16, 3))


def _normalised(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


program(
    "feed-forward layer",
    lambda g, x, up, down, s, b: g.mean(g.layer_norm(x + g.gelu(x @ up) @ down, s, b) ** 2.0 * x),
    lambda x, up, down, s, b: jnp.mean(_normalised(x + jax.nn.gelu(x @ up, approximate=False) @ down, s, b) ** 2 * x),
    *(_array(4, 6), _array(6, 8), _array(8, 6), _array(6), _array(6)),
    second=True,
    tolerance=1e-10,
)
program(
    "attention of masked scores",
    lambda g, q, k: g.softmax(g.where(np.tri(4, dtype=bool), q @ g.transpose(k), -np.inf)) @ k,
    lambda q, k: jax.nn.softmax(jnp.where(np.tri(4, dtype=bool), q @ k.T, -jnp.inf)) @ k,
    *(_array(4, 3), _array(4, 3)),
    second=True,
)
program(
    "embedding with repeated ids",
    lambda g, t, w: g.mean(g.tanh(g.embedding(t, np.array([0, 2, 2, 5, 0], np.int32)) @ w) ** 2.0),
    lambda t, w: jnp.mean(jnp.tanh(t[jnp.array([0, 2, 2, 5, 0])] @ w) ** 2),
    *(_array(6, 3), _array(3, 2)),
)
program(
    "radial basis functions",
    lambda g, x: g.exp(-g.sum((g.reshape(x, (4, 1, 2)) - g.reshape(x, (1, 4, 2))) ** 2.0, -1)),
    lambda x: jnp.exp(-jnp.sum((x[:, None] - x[None]) ** 2, -1)),
    _array(4, 2),
    second=True,
)
program(
    "ridge regression in closed form",
    lambda g, x, y: g.sum(g.dense_solve(g.transpose(x) @ x + np.eye(3), g.transpose(x) @ y) ** 2.0),
    lambda x, y: jnp.sum(jnp.linalg.solve(x.T @ x + jnp.eye(3), x.T @ y) ** 2),
    *(_array(5, 3), _array(5, 2)),
    second=True,
    tolerance=1e-10,
)

# --- loops ------------------------------------------------------------------------------------------


def _lstm(g: Any, scan: Any, tanh: Any, sigmoid: Any, total: Any) -> Any:
    """Return the same function for both, which differ only in names."""

    def loss(h: Any, c: Any, xs: Any, w: Any, u: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            z = x @ w + h @ u
            i, f, o, n = (z[:, 3 * j : 3 * j + 3] for j in range(4))
            c = sigmoid(f) * c + sigmoid(i) * tanh(n)
            h = sigmoid(o) * tanh(c)
            return (h, c), h

        (h, c), hs = scan(step, (h, c), xs)
        return total(hs * hs) + total(c)

    return loss


program(
    "lstm by scan",
    lambda g, *given: _lstm(g, g.scan, g.tanh, g.sigmoid, g.sum)(*given),
    _lstm(None, jax.lax.scan, jnp.tanh, jax.nn.sigmoid, jnp.sum),
    *(_array(2, 3), _array(2, 3), _array(4, 2, 5), _array(5, 12), _array(3, 12)),
)


def _nested(scan: Any, sin: Any, total: Any, start: Any) -> Any:
    def value(x: Any, w: Any) -> Any:
        def outer(c: Any, row: Any) -> Any:
            c, ys = scan(lambda d, e: (sin(d * w) + e, d * e), c, row)
            return c, total(ys * ys)

        c, ys = scan(outer, start, x)
        return total(ys) + c

    return value


program(
    "scan in a scan",
    lambda g, x, w: _nested(g.scan, g.sin, g.sum, g.constant(0.3, dtype="f64"))(x, w),
    _nested(jax.lax.scan, jnp.sin, jnp.sum, 0.3),
    *(_array(3, 4), _array()),
    second=True,
)


def _while(g: Any, x: Any) -> Any:
    _, y = g.while_(lambda i, y: i < 4, lambda i, y: (i + 1, g.sin(y) * x), 0, x, max_iterations=6)
    return g.sum(y * y)


def _unrolled(x: Any) -> Any:
    y = x
    for _ in range(4):
        y = jnp.sin(y) * x
    return jnp.sum(y * y)


program("while with a bound", _while, _unrolled, _array(3), second=True)
for _sign in (1.0, -1.0):
    program(
        f"branch on data, {_sign:+}",
        lambda g, x, w, s=_sign: g.if_(g.sum(x) * s > 0.0, lambda: g.sum(g.sin(x * w)), lambda: g.sum(x * x) * w),
        lambda x, w, s=_sign: jax.lax.cond(
            jnp.sum(x) * s > 0, lambda: jnp.sum(jnp.sin(x * w)), lambda: jnp.sum(x * x) * w
        ),
        *(_array(3), _array()),
    )
program(
    "branch in a scan",
    lambda g, x, c: g.scan(lambda c, e: (g.if_(e > 0.0, lambda: c * e, lambda: g.sin(c) + e), c), c, x)[1],
    lambda x, c: jax.lax.scan(lambda c, e: (jax.lax.cond(e > 0, lambda: c * e, lambda: jnp.sin(c) + e), c), c, x)[1],
    *(_array(6), _array()),
    second=True,
)
program(
    "scan with a count",
    lambda g, x: g.scan(
        lambda c, _: ((c[0] + 1, c[1] * x + g.cast(c[0], "f64")), c[1]), (g.constant(0), x), None, length=4
    )[1],
    lambda x: jax.lax.scan(lambda c, _: ((c[0] + 1, c[1] * x + c[0]), c[1]), (0, x), None, length=4)[1],
    _array(3),
)
program(
    "gather in a scan",
    lambda g, t, h: g.scan(
        lambda h, i: (g.tanh(h + g.gather(t, i)), g.sum(h)), h, np.array([0, 1, 1, 2], np.int32), reverse=True
    )[1],
    lambda t, h: jax.lax.scan(lambda h, i: (jnp.tanh(h + t[i]), jnp.sum(h)), h, jnp.array([0, 1, 1, 2]), reverse=True)[
        1
    ],
    *(_array(3, 2), _array(2)),
)

# --- losses -----------------------------------------------------------------------------------------


def _logsumexp(g: Any, x: Any) -> Any:
    largest = g.max(x, -1, keep_dims=True)
    return g.log(g.sum(g.exp(x - largest), -1)) + g.reshape(largest, (4,))


program("logsumexp", _logsumexp, lambda x: jax.scipy.special.logsumexp(x, -1), _array(4, 6), second=True)
program(
    "divergence of two distributions",
    lambda g, a, b: (lambda p, q: g.sum(p * (g.log(p) - g.log(q))))(g.softmax(a), g.softmax(b)),
    lambda a, b: jnp.sum(jax.nn.softmax(a) * (jax.nn.log_softmax(a) - jax.nn.log_softmax(b))),
    *(_array(3, 4), _array(3, 4)),
)
program(
    "cosine similarity",
    lambda g, a, b: g.sum(a * b, -1) / (g.sqrt(g.sum(a * a, -1)) * g.sqrt(g.sum(b * b, -1))),
    lambda a, b: jnp.sum(a * b, -1) / (jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)),
    *(_array(3, 4), _array(3, 4)),
)
program(
    "power spectrum",
    lambda g, x: g.sum(g.complex_norm_sq(g.rfft(x)), -1),
    lambda x: jnp.sum(jnp.abs(jnp.fft.rfft(x)) ** 2, -1),
    _array(3, 8, dtype=np.float32),
    tolerance=1e-5,
)
program(
    "convolution by spectra",
    lambda g, x, k: g.irfft(g.rfft(x) * g.rfft(k), 8),
    lambda x, k: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(k), 8),
    *(_array(3, 8, dtype=np.float32), _array(8, dtype=np.float32)),
    tolerance=1e-5,
)
program(
    "the largest two",
    lambda g, x: g.sum(g.topk(x, 2)[0] ** 2.0, -1),
    lambda x: jnp.sum(jax.lax.top_k(x, 2)[0] ** 2, -1),
    _array(4, 6),
)
program("sorted", lambda g, x, w: g.sum(g.sort(x, 0) * w), lambda x, w: jnp.sum(jnp.sort(x) * w), _array(7), _array(7))
program(
    "quantile",
    lambda g, x: (lambda s: s[:, 1] * 0.75 + s[:, 2] * 0.25)(g.sort(x, -1)),
    lambda x: jnp.quantile(x, 0.25, axis=-1),
    _array(3, 6),
)
program(
    "in the order of another",
    lambda g, x, y: g.gather(y, g.argsort(x, 0)) * x,
    lambda x, y: y[jnp.argsort(x)] * x,
    *(_array(5), _array(5)),
)
program(
    "rows added up where ids repeat",
    lambda g, u: g.scatter_add(u * u, np.array([0, 2, 2, 5, 0], np.int32), 7) ** 3.0,
    lambda u: jnp.zeros((7, 3)).at[jnp.array([0, 2, 2, 5, 0])].add(u * u) ** 3,
    _array(5, 3),
)
program(
    "rows set",
    lambda g, x, u: g.sin(g.scatter_nd(x, np.array([[1], [3]], np.int32), u)),
    lambda x, u: jnp.sin(x.at[jnp.array([1, 3])].set(u)),
    *(_array(5, 3), _array(2, 3)),
)

# --- singular points of formulas ----------------------------------------------------------------------

_ZEROS = np.array([[1.0, 0, 2, 0, 3], [0, 0, 1, 2, 3], [1, 2, 3, 4, 0], [-1, -2, 3, 0.5, 2]])
_TIES = np.array([[1.0, 1, 2, 2], [0, 0, 0, 0], [3, 1, 3, 3]])
program("running product over zeros", lambda g, x: g.cumprod(x, 1), lambda x: jnp.cumprod(x, 1), _ZEROS, second=True)
program(
    "product over zeros",
    lambda g, x: g.prod(x, 1) * x[:, 0],
    lambda x: jnp.prod(x, 1) * x[:, 0],
    _ZEROS,
    second=True,
)
program("ties of a maximum", lambda g, x: g.max(x, -1) * x[:, 0], lambda x: jnp.max(x, -1) * x[:, 0], _TIES)
program(
    "ties of a sort", lambda g, x: g.sort(x, -1) * np.arange(4.0), lambda x: jnp.sort(x, -1) * jnp.arange(4.0), _TIES
)
program(
    "ties of two",
    lambda g, a, b: g.maximum(a, b) * a - g.minimum(a, b),
    lambda a, b: jnp.maximum(a, b) * a - jnp.minimum(a, b),
    *(np.array([1.0, 2, 2, -1, 0]), np.array([1.0, 3, 2, -1, 0])),
)
program(
    "at the bounds",
    lambda g, x: g.clamp(x, -1.0, 1.0) * x,
    lambda x: jnp.clip(x, -1, 1) * x,
    np.array([-1.0, 1, 0, 2, -3]),
)
program(
    "huber at its kinks",
    lambda g, p: g.huber_loss(p, np.zeros(5)),
    lambda p: jnp.mean(jnp.where(jnp.abs(p) <= 1, 0.5 * p * p, jnp.abs(p) - 0.5)),
    np.array([1.0, -1, 0, 2, 0.5]),
)
program(
    "logarithm in the taken branch",
    lambda g, x: g.sum(g.where(x > 0.0, g.log(g.where(x > 0.0, x, 1.0)), 0.0)),
    lambda x: jnp.sum(jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), 0.0)),
    np.array([-1.0, 0, 2, 3]),
    second=True,
)
program(
    "norm of nothing", lambda g, x: g.sqrt(g.sum(x * x, -1)), lambda x: jnp.sqrt(jnp.sum(x * x, -1)), np.zeros((2, 3))
)
program(
    "powers of zero and below",
    lambda g, x: g.pow(x, np.array([1.0, 2, 3, 2, 3, -1, 0.5])),
    lambda x: x ** np.array([1.0, 2, 3, 2, 3, -1, 0.5]),
    np.array([0.0, 0, 0, -2, -2, 2, 3]),
)
program("square at zero", lambda g, x: x**2.0, lambda x: x**2, np.array([0.0, -1, -2]), second=True)
program(
    "far out",
    lambda g, x: g.sigmoid(x) + g.silu(x) + g.tanh(x) + g.gelu(x),
    lambda x: jax.nn.sigmoid(x) + jax.nn.silu(x) + jnp.tanh(x) + jax.nn.gelu(x, approximate=False),
    np.array([-800.0, -40, 0, 40, 800]),
    second=True,
)
program(
    "sure of the wrong class",
    lambda g, x: g.softmax_cross_entropy_with_logits(x, np.array([0, 1], np.int32)),
    lambda x: -jax.nn.log_softmax(x)[jnp.arange(2), jnp.arange(2)],
    np.array([[1000.0, -1000, 0], [-1000, 1000, 5]]),
)
program(
    "through whole numbers",
    lambda g, x: g.cast(g.cast(x, "i32"), "f64") * x,
    lambda x: x.astype(jnp.int32).astype(jnp.float64) * x,
    _RNG.uniform(-5, 5, 4),
)

# --- shapes -----------------------------------------------------------------------------------------

program(
    "broadcast both ways",
    lambda g, a, b: a * b + g.pow(b, a) / a,
    lambda a, b: a * b + b**a / a,
    *(_positive(3, 1, 4), _positive(1, 5, 1)),
    second=True,
)
program("batches of products", lambda g, a, b: a @ b, lambda a, b: a @ b, _array(5, 1, 2, 3), _array(4, 3, 2))
program(
    "vectors",
    lambda g, a, b, m: (m @ a) * (b @ a),
    lambda a, b, m: (m @ a) * (b @ a),
    *map(_array, (3, 3)),
    _array(4, 3),
)
program(
    "empty rows",
    lambda g, a, b: g.sum(a @ b) + g.sum(a * a),
    lambda a, b: jnp.sum(a @ b) + jnp.sum(a * a),
    _array(0, 3),
    _array(3, 2),
)
program(
    "nothing to add up", lambda g, a, b: a @ b + g.sum(b), lambda a, b: a @ b + jnp.sum(b), _array(2, 0), _array(0, 3)
)
program(
    "no steps",
    lambda g, c, xs: g.scan(lambda c, x: (c * x, c), c, xs)[0],
    lambda c, xs: jax.lax.scan(lambda c, x: (c * x, c), c, xs)[0],
    *(_array(3), _array(0, 3)),
)
program(
    "scalars",
    lambda g, a, b: g.sin(a) * b + a**b,
    lambda a, b: jnp.sin(a) * b + a**b,
    _positive(),
    _array(),
    second=True,
)
program("strides", lambda g, x: x[1:, ::2] * x[:-1, 1::2], lambda x: x[1:, ::2] * x[:-1, 1::2], _array(4, 6))
program(
    "reflected",
    lambda g, x: g.pad(g.reverse(x, [1]), [(1, 2), (2, 1)], mode="reflect") ** 2.0,
    lambda x: jnp.pad(x[:, ::-1], [(1, 2), (2, 1)], mode="reflect") ** 2,
    _array(4, 4),
)


@drawn("name", PROGRAMS, of_each=12)
def test_first_derivatives(name: str) -> None:
    p = PROGRAMS[name]
    check(p.build, p.formula, *p.arrays, tolerance=p.tolerance)


@drawn("name", [name for name, p in PROGRAMS.items() if p.second], of_each=4)
def test_second_derivatives(name: str) -> None:
    p = PROGRAMS[name]
    check_second(p.build, p.formula, *p.arrays, tolerance=100 * p.tolerance)
