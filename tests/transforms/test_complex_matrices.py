"""Derivatives of factorisations of complex matrices, against JAX's, and batches of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest

import rlx
from rlx.ir.graph.graph import Graph
from tests.transforms.against_jax import check, check_second

RNG = np.random.default_rng(8)


def _complex(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


SQUARE, RIGHT, TALL = _complex(4, 4), _complex(4, 2), _complex(5, 3)
DEFINITE = _complex(4, 4)
DEFINITE = DEFINITE @ DEFINITE.conj().T + np.eye(4)


def _lower(g: Any, a: Any) -> Any:
    """Return the Hermitian matrix of the lower triangle, with JAX or with ops."""
    below, conjugated = g.tril(a, -1), g.conj if g is jnp else g.conjugate
    return below + conjugated(g.swapaxes(below, -1, -2)) + g.real(g.tril(a) - below)


def _projector(g: Any, v: Any) -> Any:
    """Return the projector on the first two columns, which does not depend on their phases."""
    part = v[:, :2]
    return g.matmul(part, g.conj(jnp.swapaxes(part, 0, 1)) if g is jnp else g.conjugate(g.swapaxes(part, 0, 1)))


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (lambda g, a: g.cholesky(a), lambda a: jnp.linalg.cholesky(_lower(jnp, a)), (DEFINITE,)),
    "qr, q": (lambda g, a: g.qr(a)[0], lambda a: jnp.linalg.qr(a)[0], (TALL,)),
    "qr, r": (lambda g, a: g.qr(a)[1], lambda a: jnp.linalg.qr(a)[1], (TALL,)),
    "lu": (lambda g, a: g.lu(a)[0], lambda a: jax.lax.linalg.lu(a)[0], (SQUARE,)),
    "eigenvalues": (lambda g, a: g.eigh(a)[0], lambda a: jnp.linalg.eigh(_lower(jnp, a))[0], (SQUARE,)),
    "eigenspace": (
        lambda g, a: _projector(g, g.eigh(a)[1]),
        lambda a: _projector(jnp, jnp.linalg.eigh(_lower(jnp, a))[1]),
        (SQUARE,),
    ),
    "singular values": (lambda g, a: g.svd(a)[1], lambda a: jnp.linalg.svd(a, full_matrices=False)[1], (TALL,)),
    "left space": (
        lambda g, a: _projector(g, g.svd(a, full_matrices=False)[0]),
        lambda a: _projector(jnp, jnp.linalg.svd(a, full_matrices=False)[0]),
        (TALL,),
    ),
    "nearest unitary matrix": (
        lambda g, a: g.matmul(*g.svd(a, full_matrices=False)[::2]),
        lambda a: jnp.matmul(*jnp.linalg.svd(a, full_matrices=False)[::2]),
        (TALL,),
    ),
    "triangular_solve": (
        lambda g, a, b: g.triangular_solve(a, b, lower=False),
        lambda a, b: jax.scipy.linalg.solve_triangular(a, b),
        (SQUARE, RIGHT),
    ),
    "dense_solve": (lambda g, a, b: g.dense_solve(a, b), jnp.linalg.solve, (SQUARE, RIGHT)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_jaxs(name: str) -> None:
    build, formula, arrays = FUNCTIONS[name]
    check(build, formula, *arrays, tolerance=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_jaxs(name: str) -> None:
    """As functions of real and imaginary parts."""
    build, formula, arrays = FUNCTIONS[name]

    def of_parts(g: Any, *parts: Any) -> Any:
        result = build(g, *(g.complex(re, im) for re, im in zip(parts[::2], parts[1::2], strict=True)))
        return g.real(result) + 2.0 * g.imag(result) if result.dtype.is_complex else result

    def formula_of_parts(*parts: Any) -> Any:
        result = formula(*(jax.lax.complex(re, im) for re, im in zip(parts[::2], parts[1::2], strict=True)))
        return result.real + 2 * result.imag if jnp.iscomplexobj(result) else result

    check_second(
        of_parts, formula_of_parts, *(part for a in arrays for part in (np.real(a), np.imag(a))), tolerance=1e-9
    )


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches(name: str, kind: type[np.generic]) -> None:
    """`vmap` returns what each matrix alone returns."""
    build, _, arrays = FUNCTIONS[name]
    given: list[Any] = [a.astype(kind) for a in arrays]
    g = Graph()
    g.set_outputs([build(g, *(g.input(f"x{i}", a.shape, rlx.dtype(a.dtype)) for i, a in enumerate(given)))])
    batched = {f"x{i}": np.stack([a, a * 2, a + 1]) for i, a in enumerate(given)}
    (found,) = rlx.evaluate(rlx.vmap(g, dict.fromkeys(batched, 0), size=3), batched)
    alone = [rlx.evaluate(g, {key: x[i] for key, x in batched.items()})[0] for i in range(3)]
    np.testing.assert_allclose(found, np.stack(alone), rtol=1e-5, atol=1e-5)
