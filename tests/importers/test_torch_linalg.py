"""All functions of `torch.linalg` through `rlx.from_torch`: PyTorch's results, or an error that names another way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rlx
from tests.drawing import drawn

pytestmark = pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")

linalg: Any = torch.linalg
DTYPES = {"f32": torch.float32, "f64": torch.float64, "c64": torch.complex64, "c128": torch.complex128}
TOLERANCES = {"f32": 2e-4, "c64": 2e-4, "f64": 1e-10, "c128": 1e-10}

# Matrices of the cases, by name: A is square, H hermitian, P positive definite, L and U its factors, T tall, W wide,
# B and C right-hand sides, V vectors, G and F matrices of tensors of rank 3, E and Z matrices with zero singular values.
Operands = dict[str, Any]


def _operands(kind: str) -> Operands:
    random = torch.Generator().manual_seed(38)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, dtype=DTYPES[kind], generator=random)

    a = normal(2, 3, 3)
    p, t = a @ a.mH + 2 * torch.eye(3, dtype=a.dtype), normal(2, 5, 3)
    named = {"A": a, "H": a + a.mH, "P": p, "L": linalg.cholesky(p), "U": linalg.cholesky(p, upper=True), "T": t}
    named |= {"W": normal(2, 3, 5), "B": normal(2, 3, 2), "C": normal(2, 5, 2), "V": normal(2, 3)}
    low = normal(4, 2)
    return named | {
        "G": normal(6, 2, 3),
        "F": normal(2, 3, 6),
        "D": normal(2, 3),
        "E": low @ low.mH,
        "Z": 0 * normal(3, 3),
    }


Case = tuple[Callable[..., Any], str]
CASES: dict[str, Sequence[Case]] = {
    "cholesky": [(linalg.cholesky, "P"), (lambda p: linalg.cholesky(p, upper=True), "P")],
    "cholesky_ex": [(linalg.cholesky_ex, "P")],
    "cond": [(lambda a, p=p: linalg.cond(a, p), "A") for p in (None, 1, -2, "nuc", "fro")],
    "cross": [(linalg.cross, "AH"), (lambda a, h: linalg.cross(a, h, dim=1), "AH")],
    "det": [(linalg.det, "A")],
    "diagonal": [(linalg.diagonal, "T"), (lambda t: linalg.diagonal(t, offset=-1, dim1=1, dim2=0), "T")],
    "eig": [(linalg.eig, "A")],
    "eigh": [(linalg.eigh, "H"), (lambda a: linalg.eigh(a, UPLO="U"), "A")],
    "eigvals": [(linalg.eigvals, "A")],
    "eigvalsh": [(linalg.eigvalsh, "H"), (lambda a: linalg.eigvalsh(a, UPLO="U"), "A")],
    "householder_product": [(linalg.householder_product, "TV"),
                            (lambda t, v: linalg.householder_product(t, v[:, :2]), "TV")],
    "inv": [(linalg.inv, "A")],
    "inv_ex": [(linalg.inv_ex, "A")],
    "ldl_factor": [(linalg.ldl_factor, "H")],
    "ldl_factor_ex": [(linalg.ldl_factor_ex, "H")],
    "ldl_solve": [(lambda h, b: linalg.ldl_solve(*linalg.ldl_factor(h), b), "HB")],
    "lstsq": [(linalg.lstsq, "TC")],
    "lu": [(linalg.lu, "T"), (linalg.lu, "W")],
    "lu_factor": [(linalg.lu_factor, "A"), (linalg.lu_factor, "T")],
    "lu_factor_ex": [(linalg.lu_factor_ex, "A")],
    "lu_solve": [(lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), "AB"),
                 (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True), "AB"),
                 (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False), "AB"),
                 (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False, adjoint=True), "AB")],
    "matmul": [(linalg.matmul, "AB")],
    "matrix_exp": [(linalg.matrix_exp, "A")],
    "matrix_norm": [(lambda t, p=p: linalg.matrix_norm(t, p), "T") for p in ("fro", "nuc", 2, -1)],
    "matrix_power": [(lambda a, n=n: linalg.matrix_power(a, n), "A") for n in (3, 0, -2)],
    "matrix_rank": [(linalg.matrix_rank, "E"), (lambda e: linalg.matrix_rank(e, hermitian=True), "E"),
                    (lambda t: linalg.matrix_rank(t, atol=0.1, rtol=0.5), "T"), (linalg.matrix_rank, "Z")],
    "multi_dot": [(lambda t, w, b: linalg.multi_dot([t[0], w[0], t[1], b[0]]), "TWB")],
    "norm": [(linalg.norm, "T"), (lambda t: linalg.norm(t, "nuc", dim=(0, 2)), "T")],
    "pinv": [(linalg.pinv, "T"), (lambda e: linalg.pinv(e, hermitian=True), "E"), (linalg.pinv, "Z"),
             (lambda t: linalg.pinv(t, atol=1.0), "T"), (lambda h: linalg.pinv(h, atol=1.0, hermitian=True), "H"),
             (lambda t: linalg.pinv(t, atol=0.1, rtol=0.5), "T"), (lambda t: linalg.pinv(t, rcond=0.5), "T"),
             (lambda e: linalg.pinv(e, atol=0.0), "E"), (lambda z: linalg.pinv(z, atol=1.0), "Z"),
             (lambda t: linalg.pinv(t, atol=torch.tensor([0.0, 2.0])), "T"),
             (lambda t: linalg.pinv(t, rtol=torch.tensor([0.0, 0.5])), "T")],
    "qr": [(lambda t, mode=mode: linalg.qr(t, mode), "T") for mode in ("reduced", "r")]
          + [(linalg.qr, "W"), (lambda t: linalg.qr(t, "complete").R, "T")],
    "slogdet": [(linalg.slogdet, "A")],
    "solve": [(linalg.solve, "AB"), (lambda a, b: linalg.solve(a, b.mT, left=False), "AB"), (linalg.solve, "AV")],
    "solve_ex": [(linalg.solve_ex, "AB")],
    "solve_triangular": [(lambda a, b: linalg.solve_triangular(a, b, upper=True), "AB"),
                         (lambda a, b: linalg.solve_triangular(a[:1], b, upper=False), "AB"),
                         (lambda a, b: linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
                          "AB")],
    "svd": [(linalg.svd, "A"), (lambda w: linalg.svd(w, full_matrices=False), "W")],
    "svdvals": [(linalg.svdvals, "T")],
    "tensorinv": [(lambda g: linalg.tensorinv(g, ind=1), "G")],
    "tensorsolve": [(linalg.tensorsolve, "FD")],
    "vander": [(lambda v: linalg.vander(v, N=4), "V"), (linalg.vander, "V")],
    "vecdot": [(linalg.vecdot, "TT")],
    "vector_norm": [(linalg.vector_norm, "T"), (lambda t: linalg.vector_norm(t, 3, dim=1), "T")],
    # Functions outside of `torch.linalg` with the same factors.
    "torch.cholesky_inverse": [(torch.cholesky_inverse, "L"), (lambda u: torch.cholesky_inverse(u, upper=True), "U")],
    "torch.cholesky_solve": [(torch.cholesky_solve, "BL"), (lambda b, u: torch.cholesky_solve(b, u, upper=True), "BU")],
    "torch.geqrf": [(torch.geqrf, "T"), (torch.geqrf, "W")],
    "torch.logdet": [(torch.logdet, "P")],
    "torch.lu_unpack": [(lambda t: torch.lu_unpack(*linalg.lu_factor(t)), "T"),
                        (lambda w: torch.lu_unpack(*linalg.lu_factor(w)), "W")],
    "torch.ormqr": [(lambda t, c: torch.ormqr(*torch.geqrf(t), c), "TC"),
                    (lambda t, c: torch.ormqr(*torch.geqrf(t), c, transpose=True), "TC"),
                    (lambda t, c: torch.ormqr(*torch.geqrf(t), c.mT, left=False), "TC"),
                    (lambda t, c: torch.ormqr(*torch.geqrf(t), c.mT, left=False, transpose=True), "TC")],
    "torch.triangular_solve": [(lambda b, a: torch.triangular_solve(b, a, upper=False, transpose=True), "BA")],
}  # fmt: skip

# Functions that are refused, with words of the error.
REFUSED = {
    "ldl_factor": "hint: torch.linalg.solve",
    "ldl_factor_ex": "hint: torch.linalg.solve",
    "ldl_solve": "hint: torch.linalg.solve",
    "lstsq": r"hint: torch.linalg.pinv\(a\) @ b",
}
# Results with free signs, phases or order: the factors, as a matrix that they determine.
COMPOSED: dict[str, Callable[..., np.ndarray]] = {
    "eig": lambda w, v: (v * w[..., None, :]) @ np.linalg.inv(v),
    "eigh": lambda w, v: (v * w[..., None, :]) @ np.conj(v.swapaxes(-1, -2)),
    "svd": lambda u, s, vh: (u * s[..., None, :]) @ vh,
}


class Applied(torch.nn.Module):
    """A module that applies a function."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def _imported(function: Callable[..., Any], tensors: Sequence[Any]) -> list[np.ndarray]:
    graph = rlx.from_torch(Applied(function), tuple(tensors))
    return rlx.evaluate(graph, {i.name: t.numpy() for i, t in zip(graph.inputs, tensors, strict=True)})


def _sorted(values: Any) -> Any:
    """Return eigenvalues in one order. Their parts are rounded, so that the order does not depend on rounding."""
    order = np.lexsort((np.round(values.imag, 2), np.round(values.real, 2)))
    return np.take_along_axis(values, order, -1)


def test_all_functions_are_here() -> None:
    others = {"LinAlgError", "common_notes"}
    assert {n for n in dir(linalg) if not n.startswith("_")} - others == {n for n in CASES if "." not in n}


@drawn("kind", list(DTYPES))
@pytest.mark.parametrize("name", [n for n in CASES if n not in REFUSED])
def test_results_are_pytorchs(name: str, kind: str) -> None:
    operands, tolerance = _operands(kind), TOLERANCES[kind]
    for function, names in CASES[name]:
        tensors = [operands[n] for n in names]
        wanted = [t.resolve_conj().numpy() for t in torch.utils._pytree.tree_leaves(function(*tensors))]
        found = _imported(function, tensors)
        assert [f.dtype for f in found] == [w.dtype for w in wanted]
        assert [f.shape for f in found] == [w.shape for w in wanted]
        if name in COMPOSED:
            values = [_sorted(r[name == "svd"]) for r in (found, wanted)]
            found, wanted = ([v, COMPOSED[name](*r)] for v, r in zip(values, (found, wanted), strict=True))
        if name == "eigvals":
            found, wanted = ([_sorted(r[0])] for r in (found, wanted))
        for ours, theirs in zip(found, wanted, strict=True):
            scale = max(1.0, float(np.abs(theirs).max(initial=0)))
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused(name: str) -> None:
    operands = _operands("f64")
    for function, names in CASES[name]:
        with pytest.raises(rlx.Error, match=REFUSED[name]):
            rlx.from_torch(Applied(function), tuple(operands[n] for n in names))


def test_complete_factors_of_tall_matrices() -> None:
    """The columns after the first ones are any orthonormal ones."""
    t = _operands("c128")["T"]
    q, r = _imported(lambda t: linalg.qr(t, "complete"), [t])
    u, s, vh = _imported(linalg.svd, [t])
    for unitary in (q, u):
        np.testing.assert_allclose(np.conj(unitary.swapaxes(-1, -2)) @ unitary, [np.eye(5)] * 2, atol=1e-12)
    np.testing.assert_allclose(q @ r, t.numpy(), atol=1e-12)
    np.testing.assert_allclose((u[..., :3] * s[..., None, :]) @ vh, t.numpy(), atol=1e-12)
