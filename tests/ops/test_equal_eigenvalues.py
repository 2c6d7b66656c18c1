"""Derivatives of functions of `eigh` and `svd` where eigenvalues or singular values are equal: right, or NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx

_RNG = np.random.default_rng(7)
_ROTATION = np.linalg.qr(_RNG.standard_normal((5, 5)))[0]
_OTHER = np.linalg.qr(_RNG.standard_normal((4, 4)))[0]
_WEIGHTS = _RNG.standard_normal((5, 5))
_SYMMETRIC = (_ROTATION * [1.0, 2.0, 2.0, 4.0, 4.0]) @ _ROTATION.T
_SYMMETRIC = (_SYMMETRIC + _SYMMETRIC.T) / 2
_TALL = (_ROTATION[:, :4] * [3.0, 3.0, 1.0, 0.0]) @ _OTHER.T
_SQUARE = (_OTHER * [3.0, 3.0, 1.0, 1.0]) @ np.linalg.qr(_RNG.standard_normal((4, 4)))[0]

Scalar = Callable[[Any, Any], Any]


def _gradients(function: Scalar, a: np.ndarray) -> list[np.ndarray]:
    """Return the gradient of a function of a matrix by the evaluator and by both compilers."""
    g: Any = rlx.Graph("f")
    x = g.input("a", a.shape, "f64")
    g.set_outputs([function(g, x)])
    gradient = rlx.grad(g, wrt=["a"])
    name = next(output.name for output in gradient.outputs if output.shape.dims == a.shape)
    index = [output.name for output in gradient.outputs].index(name)
    found = [rlx.evaluate(gradient, {"a": a})[index]]
    return found + [rlx.Session(device).compile(gradient).run({"a": a})[index] for device in ("cpu", "xla")]


def _along(function: Callable[[np.ndarray], float], a: np.ndarray, tangent: np.ndarray) -> float:
    """Return a derivative by central differences of NumPy's function."""
    step = 1e-5
    return (function(a + step * tangent) - function(a - step * tangent)) / (2 * step)


def _weighted(g: Any, matrix: Any) -> Any:
    rows, columns = matrix.shape.dims
    return g.sum(matrix * g.constant(_WEIGHTS[:rows, :columns]))


def _projector(first: int, end: int) -> Any:
    """Return the projector on the space of some eigenvectors, with NumPy or with ops."""

    def function(xp: Any, a: Any) -> Any:
        v = xp.linalg.eigh(a)[1] if xp is np else xp.eigh(a)[1]
        part = v[:, first:end]
        return part @ (part.T if xp is np else xp.transpose(part))

    return function


def _masked(xp: Any, a: Any) -> Any:
    """Return the projector on the space of the eigenvalues above 3."""
    values, v = np.linalg.eigh(a) if xp is np else xp.eigh(a)
    chosen = v * (xp.where(values > 3.0, 1.0, 0.0)[None, :] if xp is np else xp.where(values > 3.0, 1.0, 0.0))
    return chosen @ (v.T if xp is np else xp.transpose(v))


def _row_space(xp: Any, a: Any) -> Any:
    """Return the projector on the space of the two largest right singular vectors."""
    vt = (np.linalg.svd(a, full_matrices=False) if xp is np else xp.svd(a, full_matrices=False))[2][:2]
    return (vt.T if xp is np else xp.transpose(vt)) @ vt


def _column_space(xp: Any, a: Any) -> Any:
    u = (np.linalg.svd(a, full_matrices=False) if xp is np else xp.svd(a, full_matrices=False))[0][:, :2]
    return u @ (u.T if xp is np else xp.transpose(u))


def _polar(xp: Any, a: Any) -> Any:
    """Return the nearest orthogonal matrix."""
    u, _, vt = np.linalg.svd(a, full_matrices=False) if xp is np else xp.svd(a, full_matrices=False)
    return u @ vt


RIGHT: dict[str, tuple[Any, np.ndarray]] = {
    "space of two vectors": (_projector(1, 3), _SYMMETRIC),
    "space of the largest": (_projector(3, 5), _SYMMETRIC),
    "space of four": (_projector(1, 5), _SYMMETRIC),
    "a vector of its own": (_projector(0, 1), _SYMMETRIC),
    "chosen by values": (_masked, _SYMMETRIC),
    "row space": (_row_space, _TALL),
    "column space": (_column_space, _TALL),
    "row space of a square": (_row_space, _SQUARE),
    "nearest orthogonal matrix": (_polar, _SQUARE),
    "nearest orthogonal matrix of a tall one": (_polar, _TALL + 0.5 * _ROTATION[:, 3:4] @ _OTHER[:, 3:4].T),
}


@pytest.mark.parametrize("name", RIGHT)
def test_functions_of_whole_spaces(name: str) -> None:
    function, a = RIGHT[name]
    tangent = _RNG.standard_normal(a.shape)
    if a is _SYMMETRIC:
        tangent = tangent + tangent.T
    size = function(np, a).shape
    expected = _along(lambda x: float((function(np, x) * _WEIGHTS[: size[0], : size[1]]).sum()), a, tangent)
    for gradient in _gradients(lambda g, x: _weighted(g, function(g, x)), a):
        np.testing.assert_allclose((gradient * tangent).sum(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["exp", "square", "log"])
def test_symmetric_functions_of_values(name: str) -> None:
    tangent = _RNG.standard_normal((5, 5))
    tangent = tangent + tangent.T
    expected = _along(lambda x: float(getattr(np, name)(np.linalg.eigvalsh(x)).sum()), _SYMMETRIC, tangent)
    for gradient in _gradients(lambda g, x: g.sum(getattr(g, name)(g.eigh(x)[0])), _SYMMETRIC):
        np.testing.assert_allclose((gradient * tangent).sum(), expected, rtol=1e-6)
    singular = _along(lambda x: float(np.linalg.svd(x)[1].sum()), _SQUARE, tangent[:4, :4])
    for gradient in _gradients(lambda g, x: g.sum(g.svd(x)[1]), _SQUARE):
        np.testing.assert_allclose((gradient * tangent[:4, :4]).sum(), singular, rtol=1e-5)


@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_values_and_vectors_of_unlike_values(name: str) -> None:
    a = _ROTATION[:4, :4] + np.diag([1.0, 2.0, 3.0, 4.0])
    a = a + a.T
    tangent = _RNG.standard_normal((4, 4))
    tangent = tangent + tangent.T

    def ours(g: Any, x: Any) -> Any:
        values, vectors = g.eigh(x) if name == "eigh" else g.svd(x)[1::-1]
        return _weighted(g, (vectors * g.exp(values)) @ g.transpose(vectors))

    def numpys(x: np.ndarray) -> float:
        values, vectors = np.linalg.eigh(x) if name == "eigh" else np.linalg.svd(x)[1::-1]
        return float(((vectors * np.exp(values)) @ vectors.T * _WEIGHTS[:4, :4]).sum())

    expected = _along(numpys, a, tangent)
    for gradient in _gradients(ours, a):
        np.testing.assert_allclose((gradient * tangent).sum(), expected, rtol=1e-5)


UNKNOWN: dict[str, tuple[Scalar, np.ndarray]] = {
    "one of two equal vectors": (lambda g, a: g.sum(g.eigh(a)[1][:, 1] * g.constant(_WEIGHTS[0])), _SYMMETRIC),
    "the space of a part": (lambda g, a: _weighted(g, _projector(2, 4)(g, a)), _SYMMETRIC),
    # Here the result depends on a derivative of log, which eigenvectors and eigenvalues do not determine.
    "a function of the matrix": (
        lambda g, a: _weighted(g, (g.eigh(a)[1] * g.log(g.eigh(a)[0])) @ g.transpose(g.eigh(a)[1])),
        _SYMMETRIC,
    ),
    "one of two equal left vectors": (lambda g, a: g.sum(g.svd(a)[0][:, 0] * g.constant(_WEIGHTS[0, :4])), _SQUARE),
    "the vector of a zero": (
        lambda g, a: g.sum(g.svd(a, full_matrices=False)[0][:, 3] * g.constant(_WEIGHTS[0])),
        _TALL,
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_unknown_is_nan(name: str) -> None:
    for gradient in _gradients(*UNKNOWN[name]):
        assert np.isnan(gradient).any()


def test_a_hollow_matrix_of_weights_does_not_hide_that_a_derivative_is_unknown() -> None:
    """The diagonal of the cotangent is zero, and the derivative of the square root of the identity is not."""
    weights = np.array([[0.0, 1.0], [1.0, 0.0]])

    def root(g: Any, a: Any) -> Any:
        values, v = g.eigh(a)
        return g.sum(((v * g.sqrt(values)) @ g.transpose(v)) * g.constant(weights))

    for gradient in _gradients(root, np.eye(2)):
        assert np.isnan(gradient).any()


@pytest.mark.parametrize("shape", [(3, 3), (2, 3)])
def test_functions_that_vanish_where_values_are_equal(shape: tuple[int, int]) -> None:
    """The cotangents of the vectors are zero, and that of the matrix is not."""
    weights = _WEIGHTS[: shape[0], : shape[1]]

    def whole(g: Any, a: Any) -> Any:
        u, s, vt = g.svd(a, full_matrices=False)
        return g.sum(((u * s) @ vt) * g.constant(weights))

    def logarithm(g: Any, a: Any) -> Any:
        values, v = g.eigh(a)
        return g.sum(((v * g.log(values)) @ g.transpose(v)) * g.constant(weights))

    for gradient in _gradients(whole, np.zeros(shape)):
        assert np.isnan(gradient).any()
    if shape == (3, 3):
        for gradient in _gradients(logarithm, np.eye(3)):
            assert np.isnan(gradient).any()


def test_values_and_vectors_of_other_spaces() -> None:
    """The two smallest eigenvalues are equal, and the function does not depend on them or their vectors."""
    a = (_ROTATION * [0.0, 0.0, 1.0, 2.0, 4.0]) @ _ROTATION.T
    a, tangent = (a + a.T) / 2, _RNG.standard_normal((5, 5))
    tangent = tangent + tangent.T

    def ours(g: Any, x: Any) -> Any:
        values, v = g.eigh(x)
        return _weighted(g, (v[:, 2:] * g.sqrt(values[2:])) @ g.transpose(v[:, 2:]))

    def numpys(x: np.ndarray) -> float:
        values, v = np.linalg.eigh(x)
        return float(((v[:, 2:] * np.sqrt(values[2:])) @ v[:, 2:].T * _WEIGHTS).sum())

    for gradient in _gradients(ours, a):
        np.testing.assert_allclose((gradient * tangent).sum(), _along(numpys, a, tangent), rtol=1e-5)


def test_tangents_are_right_or_nan() -> None:
    """Forward mode does not know which function follows: vectors that a tangent mixes are NaN."""
    tangent = _RNG.standard_normal((5, 5))
    tangent = tangent + tangent.T
    inside = _ROTATION[:, 1:3] @ np.diag([1.0, -2.0]) @ _ROTATION[:, 1:3].T  # mixes no vectors of _ROTATION
    g: Any = rlx.Graph("f")
    a = g.input("a", (5, 5), "f64")
    g.set_outputs([*g.eigh(a)])
    forward = rlx.jvp(g, ["a"])
    names = [argument.name for argument in forward.inputs]
    for direction, is_known in ((tangent, False), (np.zeros((5, 5)), True), (inside, None)):
        found = rlx.evaluate(forward, dict(zip(names, (_SYMMETRIC, direction), strict=True)))
        values, vectors = found[-2:]
        expected = np.einsum("ij,ik,kj->j", np.linalg.eigh(_SYMMETRIC)[1], direction, np.linalg.eigh(_SYMMETRIC)[1])
        assert np.isfinite(values).all() and np.isclose(values.sum(), expected.sum())
        assert np.isfinite(vectors[:, 0]).all()  # its eigenvalue is unlike the others
        if is_known is not None:
            assert np.isfinite(vectors[:, 1:]).all() == is_known
