"""JAX functions with arguments, by name: all kinds of primitives that RLX supports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.ops
import jax.scipy.linalg
import jax.scipy.sparse.linalg
import jax.scipy.special
import numpy as np
from jax import lax

_RANDOM = np.random.default_rng(0)

Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Case] = {}


def f(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def i(*shape: int) -> np.ndarray:
    return _RANDOM.integers(0, 5, shape).astype(np.int32)


def case(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    assert name not in CASES, name
    CASES[name] = (function, arguments)


x, v, matrix, key = f(3, 4), f(5), f(4, 4), jax.random.PRNGKey(3)
positive = (matrix @ matrix.T + 4 * np.eye(4)).astype(np.float32)

case("gather_take", lambda x, i: jnp.take(x, i, axis=1), x, i(2, 3) % 4)
case("gather_index", lambda x, i: x[i], x, i(5) % 3)
case("gather_2", lambda x, i, j: x[i, j], x, i(5) % 3, i(5) % 4)
case("take_along", lambda x, i: jnp.take_along_axis(x, i, 1), x, i(3, 2) % 4)
case("approx_max_k", lambda x: lax.approx_max_k(x, 2), f(3, 20))
case("approx_min_k", lambda x: lax.approx_min_k(x, 3, reduction_dimension=1), f(2, 8, 3))
case("at_set", lambda x, i: x.at[i].set(1.0), x, i(2) % 3)
case("at_add", lambda x, i: x.at[i, 1].add(2.0), x, i(6) % 3)
case("at_max", lambda x, i: x.at[:, i].max(0.0), x, i(6) % 4)
case("at_mul", lambda x, i: x.at[i].mul(2.0, mode="drop"), x, i(6))
case("dyn_slice", lambda x, i: lax.dynamic_slice(x, (i, i), (2, 2)), x, np.int32(9))
case("dyn_slice_neg", lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 2)), x, np.int32(-1))
case("dyn_upd", lambda x, i: lax.dynamic_update_slice(x, x[:1, :2] * 2, (i, i)), x, np.int32(2))
case("sort", lambda x: jnp.sort(x, axis=0), x)
case("sort_desc", lambda x: jnp.sort(x, axis=0, descending=True), x)
case("argsort", lambda x: jnp.argsort(x, axis=1), x)
case("sort2", lambda x, y: lax.sort((x, y), dimension=0, num_keys=2), i(9), f(9))
case("sort_nan", lambda x: jnp.sort(x), np.array([3, np.nan, -0.0, 0.0, -np.inf, 1, np.inf], np.float32))
case("argmax", lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 1)), x)
case("cumsum", lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, axis=0), lax.cumlogsumexp(x, axis=0)), x)
case("while", lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 1.1), (0, x)), x)
case("fori", lambda x: lax.fori_loop(0, 4, lambda i, c: c * 1.5 + i, x), x)
case("fori_dyn", lambda x, n: lax.fori_loop(0, n, lambda i, c: c * 1.5 + i, x), x, np.int32(3))
case("scan", lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), x), x)
case("scan_rev", lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), x, reverse=True), x)
case("cond", lambda x, p: lax.cond(p > 0, lambda a: a * 2, lambda a: a + 1, x), x, np.float32(1))
case("switch", lambda x, p: lax.switch(p, [lambda a: a * 2, lambda a: a + 1, lambda a: -a], x), x, np.int32(7))
case("map", lambda x: lax.map(lambda r: r.sum(), x), x)
case("assoc", lambda x: lax.associative_scan(jnp.add, x), x)
case("conv_same", lambda x, w: lax.conv_general_dilated(x, w, (2, 1), "SAME"), f(2, 3, 8, 7), f(4, 3, 3, 2))
case(
    "conv_nhwc",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")),
    f(2, 8, 7, 3),
    f(3, 3, 3, 5),
)
case(
    "conv_dil",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), ((1, 2), (0, -1)), lhs_dilation=(2, 3), rhs_dilation=(2, 1)),
    f(2, 3, 5, 6),
    f(4, 3, 2, 3),
)
case(
    "conv_group",
    lambda x, w: lax.conv_general_dilated(
        x, w, (1,), "SAME", feature_group_count=2, dimension_numbers=("NCH", "OIH", "NCH")
    ),
    f(2, 4, 8),
    f(6, 2, 3),
)
case(
    "conv_batchgroup",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", batch_group_count=2),
    f(4, 3, 5, 5),
    f(6, 3, 3, 3),
)
case(
    "conv_transpose",
    lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
    f(1, 4, 4, 3),
    f(3, 3, 3, 2),
)
case(
    "conv_grad",
    jax.grad(lambda x, w: (lax.conv_general_dilated(x, w, (2, 2), "SAME") ** 2).sum(), argnums=(0, 1)),
    f(2, 3, 8, 7),
    f(4, 3, 3, 2),
)
case("maxpool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"), f(2, 8, 7, 3))
case("avgpool", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 1, 2, 1), "VALID"), f(2, 8, 7, 3))
case(
    "redwin_dil",
    lambda x: lax.reduce_window(
        x, 0.0, lax.add, (3, 2), (1, 2), ((2, 1), (0, 1)), base_dilation=(2, 1), window_dilation=(1, 2)
    ),
    f(5, 7),
)
case(
    "maxpool_grad",
    jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME") ** 2).sum()),
    f(2, 8, 7, 3),
)
case("pad", lambda x: lax.pad(x, 2.0, ((1, 2, 1), (-1, 3, 2))), x)
case("pad_dyn", lambda x, v: lax.pad(x, v, ((1, 2, 0), (0, 1, 1))), x, np.float32(3))
case("fft", lambda x: jnp.abs(jnp.fft.fft(x)), x)
case("rfft2", lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x)), f(4, 6))
case("chol", lambda a: jnp.linalg.cholesky(a), positive)
case("trisolve", lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), positive, f(4, 2))
case(
    "trisolve_t",
    lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=False, trans=1, unit_diagonal=True),
    positive,
    f(4, 2),
)
case("chosolve", lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b), positive, f(4))
case("solve", lambda a, b: jnp.linalg.solve(a, b), positive, f(4))
case("inv", lambda a: jnp.linalg.inv(a), positive)
case("det_positive", lambda a: jnp.linalg.det(a), positive)
case("rand_uniform", lambda k: jax.random.uniform(k, (5,)), key)
case("rand_normal", lambda k: jax.random.normal(k, (5,)), key)
case("rand_perm", lambda k: jax.random.permutation(k, 8), key)
case("rand_int", lambda k: jax.random.randint(k, (7,), 0, 10), key)
case("rand_cat", lambda k, x: jax.random.categorical(k, x), key, x)
case("rand_gamma", lambda k: jax.random.gamma(k, 2.0, (3,)), key)
case("bernoulli", lambda k: jax.random.bernoulli(k, 0.3, (9,)), key)
case("dropout", lambda k, x: jnp.where(jax.random.bernoulli(k, 0.5, x.shape), x, 0), key, x)
case(
    "special",
    lambda x: (
        jax.scipy.special.erf(x),
        jax.scipy.special.erfinv(jnp.tanh(x)),
        jax.scipy.special.gammaln(jnp.abs(x) + 0.1),
        jax.scipy.special.digamma(jnp.abs(x) + 0.1),
        jnp.arccosh(jnp.abs(x) + 1),
        jnp.arcsinh(x),
        jnp.arctanh(jnp.tanh(x)),
        jnp.arcsin(jnp.tanh(x)),
        jnp.arccos(jnp.tanh(x)),
        jnp.sinh(x),
        jnp.cosh(x),
        lax.erfc(x),
    ),
    x,
)
case("topk", lambda x: lax.top_k(x, 2), x)
case(
    "bits",
    lambda a, b: (
        a & b,
        a | b,
        a ^ b,
        ~a,
        a << 2,
        a >> 1,
        lax.population_count(a),
        lax.clz(a),
        a // (b + 1),
        a % (b + 1),
    ),
    i(6),
    i(6),
)
case("bitcast", lambda x: lax.bitcast_convert_type(x, jnp.int32), x)
case("bitcast8", lambda x: lax.bitcast_convert_type(x, jnp.int8), x)
case(
    "redprec",
    lambda x: (lax.reduce_precision(x, 5, 10), lax.reduce_precision(x, 8, 7), lax.reduce_precision(x * 1e5, 4, 3)),
    x,
)
case("nextafter", lambda x: jnp.nextafter(x, 1.0), x)
case("round", lambda x: (jnp.round(x * 3), jnp.floor(x), jnp.ceil(x), jnp.trunc(x), lax.round(x * 2)), x)
case("einsum", lambda a, b: jnp.einsum("bij,bjk->bki", a, b), f(2, 3, 4), f(2, 4, 5))
case("dotgen", lambda a, b: lax.dot_general(a, b, (((1,), (2,)), ((0,), (1,)))), f(2, 3, 4), f(5, 2, 3))
case("logsumexp", lambda x: jax.nn.logsumexp(x, axis=1), x)
case("softmax", lambda x: jax.nn.softmax(x), x)
case(
    "gelu",
    lambda x: (jax.nn.gelu(x, approximate=False), jax.nn.selu(x), jax.nn.swish(x), jax.nn.softplus(x), jax.nn.glu(x)),
    x,
)
case("onehot", lambda i: jax.nn.one_hot(i, 6), i(4))
case("ln_grad", jax.grad(lambda x: (jax.nn.standardize(x) ** 3).sum()), x)
case("hist", lambda x: jnp.histogram(x, bins=4, range=(-2, 2)), x.ravel())
case("unique", lambda i: jnp.unique(i, size=4, fill_value=-1), i(8))
case("searchsorted", lambda a, b: jnp.searchsorted(a, b), np.sort(v), f(4))
case("nonzero", lambda i: jnp.nonzero(i, size=4), i(6))
case("bincount", lambda i: jnp.bincount(i, length=6), i(8))
case("median", lambda x: (jnp.median(x), jnp.quantile(x, 0.3, axis=1), jnp.percentile(x, 40)), x)
case("interp", lambda a: jnp.interp(a, jnp.array([0.0, 1, 2]), jnp.array([3.0, 5, 4])), v)
case("roll", lambda x: (jnp.roll(x, 1, 0), jnp.flip(x, 1), jnp.rot90(x), jnp.tile(x, (2, 1)), jnp.repeat(x, 2, 1)), x)
case(
    "complex",
    lambda x: (
        jnp.abs(lax.complex(x, x)),
        jnp.real(jnp.exp(1j * x)),
        jnp.angle(lax.complex(x, x + 1)),
        jnp.conj(lax.complex(x, x)).imag,
    ),
    x,
)
case("complex_dot", lambda x: jnp.abs(lax.complex(x, x) @ lax.complex(x, -x).T), x)
case(
    "reduce_gen",
    lambda x: lax.reduce((x, x * 2), (jnp.float32(0), jnp.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)),
    x,
)
case("reduce_bool", lambda x: ((x > 0).any(1), (x > 0).all(0), (x > 0).sum(), lax.reduce_xor(x > 0, (0,))), x)
case("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 5), v, i(5))
case("image_resize", lambda x: jax.image.resize(x, (6, 5), "bilinear"), x)
case("lstm", lambda x: lax.scan(lambda h, t: (jnp.tanh(h + t), jnp.tanh(h + t)), jnp.zeros(4), x)[1], x)
case(
    "grad_scan",
    jax.grad(lambda x: lax.scan(lambda h, t: (jnp.tanh(h + t), jnp.tanh(h + t)), jnp.zeros(4), x)[1].sum()),
    x,
)
case("remat", jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()), x)
case("custom_jvp", lambda x: jax.nn.relu6(x), x)
case("vmap", jax.vmap(lambda r, s: jnp.convolve(r, s)), x, f(3, 2))
case("hessian", jax.hessian(lambda a: jnp.sum(a**3)), v)
case("expm", lambda a: jax.scipy.linalg.expm(a), matrix * 0.1)
case("matpow", lambda a: jnp.linalg.matrix_power(a, 3), matrix)
case("norm", lambda a: (jnp.linalg.norm(a), jnp.linalg.norm(a, axis=1)), matrix)
case("lu_factor", lambda a: jax.scipy.linalg.lu_factor(a)[0], positive)
case("attn", lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), f(1, 6, 2, 8))
case("int_pow", lambda x, i: (x**3, lax.integer_pow(x, -2), i**2, jnp.power(i, i)), x, i(4))
case("poly", lambda x: jnp.polyval(jnp.array([1.0, 2, 3]), x), x)
case("i64", lambda i: i.sum() + jnp.int32(2**31 - 1), i(4))
case("clip", lambda x: (jnp.clip(x, -1, 1), jnp.where(x > 0, x, 0), jnp.sign(x), jnp.copysign(x, -1.0)), x)
case(
    "logical",
    lambda x: (jnp.isnan(x), jnp.isinf(x), jnp.isfinite(x), jnp.nan_to_num(x)),
    np.array([1, np.nan, np.inf], np.float32),
)
case("split", lambda x: jnp.split(x, 2, 1), x)
case("kron", lambda x: jnp.kron(x, x), x)
case("tri", lambda x: (jnp.tril(x), jnp.triu(x, 1), jnp.diag(x[0]), jnp.eye(3), jnp.diagonal(x)), x)
case("outer", lambda a: (jnp.outer(a, a), jnp.cross(a[:3], a[1:4]), jnp.trace(jnp.outer(a, a))), v)

tall, square = f(5, 3), f(4, 4)


@jax.custom_vjp
def _five_times(x: Any) -> Any:
    return x * 2


_five_times.defvjp(lambda x: (x * 2, x), lambda x, c: (c * 5 * x,))


def _with_arrays_of_its_own(decorator: Any) -> Any:
    """Return a function under a decorator that closes over arrays. JAX passes these to it as arguments."""

    def function(x: Any) -> Any:
        @decorator
        def inner(x: Any) -> Any:
            return jnp.sin(x @ jnp.asarray(square)) * jnp.array([2.0, 3.0, 4.0, 5.0])

        if decorator is jax.custom_vjp:
            inner.defvjp(lambda x: (inner(x), x), lambda x, c: ((c * jnp.cos(x @ square)) @ square.T * 7,))
        else:
            inner.defjvp(lambda x, t: (inner(*x), jnp.cos(x[0] @ square) * (t[0] @ square) * 7))
        return inner(x)

    return function


def _positive_of(a: Any) -> Any:
    return a @ a.T + jnp.eye(len(a))


# Signs of eigenvectors and singular vectors are arbitrary. Compare the spanned spaces.
case("eigh", lambda a: (jnp.linalg.eigvalsh(a), jnp.abs(jnp.linalg.eigh(a)[1])), square)
case("svd", lambda a: [jnp.abs(t) for t in jnp.linalg.svd(a, full_matrices=False)], f(2, 3, 5))
case("svd_full", lambda a: [jnp.abs(t)[..., :3] for t in jnp.linalg.svd(a)], tall)
case("qr", lambda a: tuple(jnp.linalg.qr(a)), tall)
case("qr_full", lambda a: tuple(jnp.linalg.qr(a, mode="complete")), tall)
case("qr_wide", lambda a: tuple(jnp.linalg.qr(a)), f(2, 3, 5))
case("lu", lambda a: tuple(lax.linalg.lu(a)), f(2, 4, 3))
case("householder", lambda a, t: lax.linalg.householder_product(a, t), tall, f(3))
case("det", lambda a: (jnp.linalg.det(a), jnp.linalg.slogdet(a)), square)
case("pinv", jnp.linalg.pinv, tall)
case("lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], tall, f(5))
case("cholesky_as_it_is", lambda a: lax.linalg.cholesky(_positive_of(a), symmetrize_input=False), square)
case("cholesky_of_none", jnp.linalg.cholesky, -positive)
case("norms", lambda a: [jnp.linalg.norm(a, ord=o) for o in ("nuc", 2, -2)], tall)
case("conjugate_gradients", lambda b: jax.scipy.sparse.linalg.cg(lambda x: x * 2, b)[0], v)
case("stop_gradient", lambda x: lax.stop_gradient(x) * x, x)
case("relu_at_zero", lambda x: (jax.nn.relu(x), jax.nn.relu6(x), jax.nn.softmax(x)), np.zeros((2, 3), np.float32))
case("custom_vjp", _five_times, x)
case("custom_vjp_of_constants", _with_arrays_of_its_own(jax.custom_vjp), x)
case("custom_jvp_of_constants", _with_arrays_of_its_own(jax.custom_jvp), x)
case("clamp_of_three", lambda x, low, high: lax.clamp(low, x, high), x, f(3, 4), f(3, 4))
case("round_times", lambda x: (jnp.round(x) * x, lax.bitcast_convert_type(x, jnp.float32) * x), x)
case("igamma", lambda x: (lax.igamma(x, x + 1), lax.igammac(x, x + 1)), np.abs(x) + np.float32(0.5))
case("random_gamma", lambda x: jax.random.gamma(key, x), np.abs(x) + np.float32(0.5))
case("betainc", lambda x, a, b: lax.betainc(a, b, x), np.float32(1) / (1 + x**2), np.abs(x) + np.float32(0.5), x**2 + 1)
case("dot_bool", lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ()))), x > 0, x.T > 0)
case("topk_bool", lambda a: lax.top_k(a, 2), x > 0)
_edges = np.array([-3, -1, -1e-6, 0, 1e-6, 0.3, 1, 3], np.float32)
case(
    "erf_family",
    lambda x: [lax.erfc(x), lax.erf_inv(x / 4), lax.bessel_i0e(x), lax.bessel_i1e(x), lax.digamma(x - 0.4)],
    _edges,
)
