"""Derivatives of `rlx.linalg` against JAX and against difference quotients, in both modes and to the second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsp
import mpmath
import numpy as np
import pytest

import rlx
from rlx import linalg
from tests.linalg.cases import BATCH, EQUAL, POSITIVES, SQUARE, TALL, WIDE, graph_of, normal, of_values

JAX: Any = jnp.linalg
RIGHT = normal(4, 2)

# The function, the same in JAX, and arguments.
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "solve": (linalg.solve, JAX.solve, (SQUARE, RIGHT)),
    "lu_solve": (lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b), JAX.solve, (SQUARE, RIGHT)),
    "lu_solve trans": (lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b, 1), lambda a, b: JAX.solve(a.mT, b),
                       (BATCH, normal(2, 3, 1))),
    "cho_solve": (lambda a, b: linalg.cho_solve(linalg.cho_factor(a @ linalg.matrix_transpose(a)), b),
                  lambda a, b: JAX.solve(a @ a.mT, b), (SQUARE, RIGHT)),
    "solve_triangular": (lambda a, b: linalg.solve_triangular(a, b, "T", lower=True),
                         lambda a, b: jsp.solve_triangular(a, b, 1, True), (SQUARE, RIGHT)),
    "cholesky": (lambda a: linalg.cholesky(a @ linalg.matrix_transpose(a), upper=True),
                 lambda a: JAX.cholesky(a @ a.mT, upper=True), (SQUARE,)),
    "pinv": (linalg.pinv, JAX.pinv, (TALL,)),
    "pinv of rank 2": (lambda a, b: linalg.pinv(a @ b, 1e-10), lambda a, b: JAX.pinv(a @ b, 1e-10),
                       (normal(4, 2), normal(2, 3))),
    "lstsq": (lambda a, b: linalg.lstsq(a, b).x, lambda a, b: JAX.pinv(a) @ b, (TALL, normal(5, 2))),
    "lstsq wide": (lambda a, b: linalg.lstsq(a, b).x, lambda a, b: JAX.pinv(a) @ b, (WIDE, normal(3))),
    "lstsq residuals": (lambda a, b: linalg.lstsq(a, b).residuals,
                        lambda a, b: jnp.sum((b - a @ (JAX.pinv(a) @ b)) ** 2, 0), (TALL, normal(5, 2))),
    "logdet": (linalg.logdet, lambda a: JAX.slogdet(a)[1], (POSITIVES,)),
    "expm": (linalg.expm, jsp.expm, (BATCH,)),
    "eigvalsh of two": (lambda a, b: linalg.eigvalsh(a, b),
                        lambda a, b: JAX.eigvalsh(_reduced(a, b)), (POSITIVES[0], POSITIVES[1])),
    "cond": (lambda a: linalg.cond(a, "fro"), lambda a: JAX.cond(a, "fro"), (SQUARE,)),
    "norm": (lambda a: linalg.norm(a, "nuc", axis=(0, 2)), lambda a: JAX.norm(a, "nuc", (0, 2)), (normal(3, 2, 3),)),
    "lu": (lambda a: linalg.lu(a).u, lambda a: jsp.lu(a)[2], (TALL,)),
    "solve_sylvester": (linalg.solve_sylvester, lambda a, b, q: _sylvester(a, b, q),
                        (SQUARE, POSITIVES[0], normal(4, 3))),
    "multi_dot": (lambda *a: linalg.multi_dot(a), lambda *a: JAX.multi_dot(a), (WIDE, TALL, WIDE)),
    "diag_set": (lambda a, v: linalg.diag_set(a, v, 1), lambda a, v: a.at[jnp.arange(3), jnp.arange(1, 4)].set(v),
                 (SQUARE, normal(3))),
    "block_diag": (linalg.block_diag, jsp.block_diag, (TALL, SQUARE)),
}  # fmt: skip


def _reduced(a: Any, b: Any) -> Any:
    """Return l⁻¹·a·l⁻ᵀ for the Cholesky factor l of b."""
    factor = JAX.cholesky(jnp.tril(b) + jnp.tril(b, -1).mT)
    whole = jnp.tril(a) + jnp.tril(a, -1).mT
    return jsp.solve_triangular(factor, jsp.solve_triangular(factor, whole, lower=True).mT, lower=True)


def _sylvester(a: Any, b: Any, q: Any) -> Any:
    size = jnp.kron(a, jnp.eye(len(b))) + jnp.kron(jnp.eye(len(a)), b.T)
    return JAX.solve(size, q.ravel()).reshape(q.shape)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_jaxs(name: str) -> None:
    """The gradient of a weighted sum, its tangent, and the tangent of the sum."""
    ours, theirs, arrays = CASES[name]
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        weights = rng.standard_normal(jax.eval_shape(theirs, *arrays).shape)
        tangents = [rng.standard_normal(a.shape) for a in arrays]

        def loss(*xs: Any) -> Any:
            return jnp.sum(jnp.sin(theirs(*xs)) * weights)

        gradients, products = jax.jvp(jax.grad(loss, tuple(range(len(arrays)))), arrays, tuple(tangents))
        slope = jax.jvp(loss, arrays, tuple(tangents))[1]
    graph = graph_of(lambda *xs: xs[0].builder.sum(xs[0].builder.sin(ours(*xs)) * weights), *arrays)
    names = [f"x{i}" for i in range(len(arrays))]
    given = dict(zip(names, arrays, strict=True)) | {f"tangent_{n}": t for n, t in zip(names, tangents, strict=True)}
    _, *found = rlx.evaluate(rlx.hvp(graph, names), given)
    for mine, wanted in zip(found, (*gradients, *products), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-8, atol=1e-8 * float(np.abs(wanted).max()))
    np.testing.assert_allclose(rlx.evaluate(rlx.jvp(graph, names), given)[1], slope, rtol=1e-9)


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "sqrtm": mpmath.sqrt,
    "logm": mpmath.log,
    "inv_sqrtm": lambda x: 1 / mpmath.sqrt(x),
}


def _derivatives(formula: Callable[[Any], Any], a: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both derivatives of a function of symmetric matrices along e, by differences with 50 digits."""
    with mpmath.workdps(50):
        step = mpmath.mpf(10) ** -14

        def at(t: Any) -> Any:
            values, vectors = mpmath.eigsy(mpmath.matrix(a.tolist()) + t * mpmath.matrix(e.tolist()))
            return vectors * mpmath.diag([formula(v) for v in values]) * vectors.T

        up, here, down = at(step), at(0), at(-step)
        first, second = (up - down) / (2 * step), (up - 2 * here + down) / step**2
        return tuple(np.array(m.tolist(), float) for m in (first, second))  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("values", [(1, 1, 2, 5), (3, 3, 3, 3), (1e-3, 1, 1.001, 40), (1, 1.02, 1.05, 1.3)])
@pytest.mark.parametrize("name", FORMULAS)
def test_functions_of_equal_and_close_eigenvalues(name: str, values: Any) -> None:
    """Eigenvectors of equal eigenvalues have no derivative, but these functions have."""
    a, weights, e = of_values(values), normal(4, 4), normal(4, 4)
    e = e + e.T
    first, second = (np.sum(weights * d) for d in _derivatives(FORMULAS[name], a, e))
    graph = graph_of(lambda a: a.builder.sum(getattr(linalg, name)(a) * weights), a)
    given = {"x0": a, "tangent_x0": e}
    _, gradient, product = rlx.evaluate(rlx.hvp(graph, "x0"), given)
    scale = np.linalg.cond(a) ** 2
    np.testing.assert_allclose(np.sum(gradient * e), first, rtol=1e-12 * scale)
    np.testing.assert_allclose(rlx.evaluate(rlx.jvp(graph, "x0"), given)[1], first, rtol=1e-12 * scale)
    np.testing.assert_allclose(np.sum(product * e), second, rtol=1e-9 * scale)
    twice = rlx.jvp(rlx.jvp(graph, "x0"), "x0")
    names = [i.name for i in twice.inputs]
    both = {n: a if n == "x0" else e for n in names}
    np.testing.assert_allclose(rlx.evaluate(twice, both)[-1], second, rtol=1e-9 * scale)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", ["turned", "tall", "wide"])
def test_polar_factors(name: str, side: str) -> None:
    """The matrix `turned` has equal singular values. The tangents are those of the two defining equations."""
    a = {"turned": 2 * np.linalg.qr(SQUARE)[0], "tall": TALL, "wide": WIDE}[name]
    da = normal(*a.shape)
    graph = graph_of(lambda a: linalg.polar(a, side), a)
    u, p, du, dp = rlx.evaluate(rlx.jvp(graph, "x0"), {"x0": a, "tangent_x0": da})
    np.testing.assert_allclose(dp, dp.T, atol=1e-12)
    product = u @ dp + du @ p if side == "right" else dp @ u + p @ du
    np.testing.assert_allclose(product, da, atol=1e-11)
    constant = u.T @ du if a.shape[0] >= a.shape[1] else du @ u.T
    np.testing.assert_allclose(constant, -constant.T, atol=1e-11)
    # The transpose, and both orders of the second derivative.
    cotangents = {"cotangent_out0": normal(*u.shape), "cotangent_out1": normal(*p.shape)}
    pulled = rlx.vjp(graph, "x0")
    names = [i.name for i in pulled.inputs if i.name != "x0"]
    weights = dict(zip(names, cotangents.values(), strict=True))
    (gradient,) = rlx.evaluate(pulled, {"x0": a, **weights})[2:]
    wanted = sum(np.sum(w * d) for w, d in zip(cotangents.values(), (du, dp), strict=True))
    np.testing.assert_allclose(np.sum(gradient * da), wanted, rtol=1e-10)
    second = rlx.evaluate(rlx.jvp(pulled, "x0"), {"x0": a, "tangent_x0": da, **weights})[-1]
    step = 1e-5
    near = [rlx.evaluate(pulled, {"x0": a + t * da, **weights})[-1] for t in (step, -step)]
    np.testing.assert_allclose(second, (near[0] - near[1]) / (2 * step), rtol=1e-5, atol=1e-5)


def test_a_gradient_along_equal_eigenvalues_is_symmetric() -> None:
    graph = graph_of(lambda a: a.builder.sum(linalg.logm(a)), EQUAL)
    (gradient,) = rlx.evaluate(rlx.grad(graph, "x0"), {"x0": EQUAL})
    np.testing.assert_allclose(gradient, gradient.T, atol=1e-12)
