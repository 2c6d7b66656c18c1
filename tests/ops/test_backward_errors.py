"""Backward errors of factorisations on hard matrices: within ten times those of LAPACK in the same precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate_decomposition
from rlx.ir.op import registry
from tests.drawing import drawn

Factors = tuple[np.ndarray, ...]
DTYPES = ("f64", "f32", "c128", "c64")


def _matrices(size: int, name: str) -> dict[str, np.ndarray]:
    """Return square matrices by name: scaled, rank-deficient, graded, with clustered and equal eigenvalues."""
    kind, rng = dtype(name).numpy, np.random.default_rng(size)
    drawn_one = rng.standard_normal((size, size))
    if kind.kind == "c":
        drawn_one = drawn_one + 1j * rng.standard_normal((size, size))
    is_wide, places = kind.itemsize // (2 if kind.kind == "c" else 1) == 8, np.arange(size)
    huge, digits = (1e150, 12) if is_wide else (1e15, 6)
    q = np.linalg.qr(drawn_one)[0]

    def with_values(values: np.ndarray) -> np.ndarray:
        return (q * values) @ q.conj().T

    found = {
        "random": drawn_one,
        "huge": drawn_one * huge,
        "tiny": drawn_one / huge,
        "rank 1": np.outer(drawn_one[0], drawn_one[0].conj()),
        "half the rank": with_values(np.where(places < size // 2, 1.0 + places, 0.0)),
        "one cluster": with_values(1 + 1e-10 * rng.standard_normal(size)),
        "two clusters": with_values(1 + places % 2 + 1e-6 * rng.standard_normal(size)),
        "equal": with_values(1.0 + places % 2),
        "graded columns": drawn_one * 10.0 ** -np.linspace(0, digits, size),
        "graded values": with_values(10.0 ** -np.linspace(0, digits, size)),
        "hilbert": scipy.linalg.hilbert(size),
        "ones": np.ones((size, size)),
        "identity": np.eye(size),
        "zeros": np.zeros((size, size)),
    }
    return {key: value.astype(kind) for key, value in found.items()}


def _adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2).conj()


def _size(a: np.ndarray) -> float:
    return float(np.linalg.norm(a.astype(np.complex128)))


def _orthogonality(q: np.ndarray) -> float:
    wide = q.astype(np.clongdouble)
    return _size(_adjoint(wide) @ wide - np.eye(q.shape[1]))


def _eigh(a: np.ndarray, factors: Factors) -> list[np.ndarray]:
    return [factors[1] * factors[0].astype(np.longdouble), _adjoint(factors[1])]


def _svd(a: np.ndarray, factors: Factors) -> list[np.ndarray]:
    return [factors[0] * factors[1].astype(np.longdouble), factors[2]]


def _unpacked(a: np.ndarray, factors: Factors) -> list[np.ndarray]:
    """Return the rows of `l` in the order of the matrix, and `u`."""
    packed, order = factors[0], factors[-1].astype(int)
    return [(np.tril(packed, -1) + np.eye(len(a)))[np.argsort(order)], np.triu(packed)]


def _lapack_lu(a: np.ndarray) -> Factors:
    factors: Any = scipy.linalg.lu(a)
    p, lower, upper = factors
    return np.tril(lower, -1) + upper, np.argmax(p, axis=0)


# By op: what it factorises, LAPACK's factors, which factors have orthonormal columns, and two matrices whose product is the
# matrix.
OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "eigh": (lambda a: np.tril(a, -1) + _adjoint(np.tril(a)) - 1j * np.diag(np.imag(np.diag(_adjoint(a)))),
             lambda a: scipy.linalg.eigh(a, driver="evd"), lambda f: [f[1]], _eigh),
    "svd": (lambda a: a, lambda a: scipy.linalg.svd(a, full_matrices=False), lambda f: [f[0], _adjoint(f[2])], _svd),
    "qr": (lambda a: a, scipy.linalg.qr, lambda f: [f[0]], lambda a, f: list(f)),
    "lu": (lambda a: a, _lapack_lu, lambda f: [], _unpacked),
    "cholesky": (lambda a: a @ _adjoint(a) + np.eye(len(a)) * _size(a) ** 2 / 100,
                 lambda a: (scipy.linalg.cholesky(a, lower=True),), lambda f: [],
                 lambda a, f: [f[0], _adjoint(f[0])]),
}  # fmt: skip


def _errors(op: str, a: np.ndarray, factors: Factors) -> tuple[float, float]:
    """Return the distance from orthonormal columns, and the residual relative to the matrix."""
    first, second = (x.astype(np.clongdouble) for x in OPS[op][3](a, factors))
    scale = float(np.abs(a).max()) or 1.0
    residual = _size((first / np.sqrt(scale)) @ (second / np.sqrt(scale)) - a.astype(np.clongdouble) / scale)
    return max([0.0, *map(_orthogonality, OPS[op][2](factors))]), residual / (_size(a / scale) or 1.0)


def _given(op: str, size: int, name: str) -> dict[str, np.ndarray]:
    kind = dtype(name).numpy
    given = {key: OPS[op][0](a) for key, a in _matrices(size, name).items()}
    given = {key: np.where(np.isfinite(a), a, 1) if kind.kind == "c" else np.real(a) for key, a in given.items()}
    if op == "cholesky":  # squares of the largest and smallest are not numbers of the dtype, and zeros are not definite
        given = {key: a for key, a in given.items() if key not in ("huge", "tiny") and a.any()}
    return {key: a.astype(kind) for key, a in given.items()}


def _judge(op: str, given: dict[str, np.ndarray], results: Factors) -> None:
    for i, (key, a) in enumerate(given.items()):
        rounding = float(np.finfo(a.dtype).eps)
        ours = _errors(op, a, tuple(r[i] for r in results))
        theirs = _errors(op, a, OPS[op][1](a))
        for mine, other, least, what in zip(
            ours, theirs, (len(a) ** 0.5, 1.0), ("orthogonality", "residual"), strict=True
        ):
            assert mine <= 10 * max(other, least * rounding), f"{key}: {what} {mine / rounding} eps, {other / rounding}"


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 7, 32])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")
def test_decompositions(op: str, size: int, name: str) -> None:
    given = _given(op, size, name)
    found = evaluate_decomposition(registry.load()[op], (np.stack(list(given.values())),), {})
    _judge(op, given, found if isinstance(found, tuple) else (found,))


@drawn("device", ["cpu", "xla"])
def test_compiled(device: str) -> None:
    """A size at which rotations are many: errors without correction are 5 to 25 times LAPACK's."""
    given = _given("eigh", 64, "f64")
    g = rlx.Graph()
    g.set_outputs(list(g.eigh(g.input("a", (len(given), 64, 64), "f64"))))
    _judge("eigh", given, tuple(rlx.Session(device).compile(g).run({"a": np.stack(list(given.values()))})))


@pytest.mark.parametrize("size", [64, 100])
def test_singular_values_of_ones(size: int) -> None:
    """All but one are zero up to rounding, and none is NaN."""
    u, s, vt = evaluate_decomposition(registry.load()["svd"], (np.ones((size, size), np.float32),), {})
    assert abs(s[0] - size) <= 1e-5 * size and np.abs(s[1:]).max() <= 1e-5 * size
    np.testing.assert_allclose((u * s) @ vt, np.ones((size, size)), atol=1e-5)
