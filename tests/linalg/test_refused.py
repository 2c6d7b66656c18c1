"""Wrong arguments of `rlx.linalg`: errors at the caller's line, and answers for names of other libraries."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx

linalg: Any = rlx.linalg  # for calls with wrong arguments

REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "qr mode": (lambda s, t: linalg.qr(t, "raw"), "mode is 'reduced', 'complete' or 'r'"),
    "UPLO": (lambda s, t: linalg.eigh(s, UPLO="X"), "UPLO is 'L' or 'U'"),
    "eigh not square": (lambda s, t: linalg.eigh(t), "expected square matrices"),
    "eigh of two sizes": (lambda s, t: linalg.eigh(s, linalg.matmul(t, linalg.matrix_transpose(t))), "expected b"),
    "cholesky by place": (lambda s, t: linalg.cholesky(s, True), "too many positional"),
    "solve": (lambda s, t: linalg.solve(s, t), "expected a right-hand side"),
    "trans": (lambda s, t: linalg.solve_triangular(s, s, "X"), "trans is 0, 1, 2"),
    "lu_solve": (lambda s, t: linalg.lu_solve(s, s), r"expected the pair \(lu, piv\)"),
    "piv": (lambda s, t: linalg.lu_solve((s, s), s), "expected piv"),
    "cho_solve": (lambda s, t: linalg.cho_solve(s, s), r"expected the pair \(c, lower\)"),
    "sqrtm": (lambda s, t: linalg.sqrtm(s, hermitian=False), "not implemented"),
    "side": (lambda s, t: linalg.polar(s, side="both"), "side is 'right' or 'left'"),
    "sylvester": (lambda s, t: linalg.solve_sylvester(s, s, t), "expected q"),
    "lstsq": (lambda s, t: linalg.lstsq(t, s), "expected a right-hand side"),
    "cond": (lambda s, t: linalg.cond(t, 1), "expected square"),
    "cond of no norm": (lambda s, t: linalg.cond(s, 3), "is no norm"),
    "norm of three axes": (lambda s, t: linalg.norm(rlx.ops.reshape(s, (3, 3, 1)), 1), "expected one or two axes"),
    "norm of vectors": (lambda s, t: linalg.norm(s, "nuc", axis=0), "is a number"),
    "vector_norm": (lambda s, t: linalg.vector_norm(s, "fro"), "is a number"),
    "multi_dot of one": (lambda s, t: linalg.multi_dot([s]), "at least two"),
    "multi_dot sizes": (lambda s, t: linalg.multi_dot([s, t]), "have no product"),
    "block_diag of none": (lambda s, t: s.builder.block_diag(), "at least one"),
    "diag_set": (lambda s, t: linalg.diag_set(s, np.ones(2, np.float32)), "has 3 elements"),
    "trace of a vector": (lambda s, t: linalg.trace(s[0]), "expected matrices"),
    "transpose of a vector": (lambda s, t: linalg.matrix_transpose(s[0]), "expected matrices"),
    "pinv": (lambda s, t: linalg.pinv(t, hermitian=True), "are square"),
    "a keyword": (lambda s, t: linalg.lu(s, overwrite_a=True), "unexpected keyword argument 'overwrite_a'"),
    "no tensor": (lambda s, t: linalg.inv("a"), "takes tensors of a graph"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments(name: str) -> None:
    call, message = REFUSED[name]
    g = rlx.Graph()
    with pytest.raises(rlx.Error, match=message) as refused:
        call(g.input("s", (3, 3)), g.input("t", (5, 3)))
    assert "test_refused.py" in str(refused.value)  # the caller's line


def test_a_call_without_a_graph() -> None:
    with pytest.raises(rlx.Error, match=r"rlx.linalg.lu takes tensors of a graph"):
        linalg.lu(np.eye(2))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("dot", "rlx.linalg.matmul"),
        ("matrix_exp", "rlx.linalg.expm"),
        ("lu_unpack", "rlx.linalg.lu"),
        ("cholesky_inverse", "rlx.linalg.cho_solve"),
        ("solve_continuous_lyapunov", "rlx.linalg.solve_sylvester"),
        ("null_space", "rlx.linalg.svd"),
        ("solvee", "did you mean 'solve'"),
    ],
)
def test_names_of_others_are_answered(name: str, call: str) -> None:
    with pytest.raises(AttributeError, match=call):
        getattr(linalg, name)


@pytest.mark.parametrize("name", linalg.__all__)
def test_every_function_has_its_page(name: str) -> None:
    """The page describes all arguments of the signature, and not the builder."""
    function = getattr(linalg, name)
    page, parameters = inspect.getdoc(function) or "", inspect.signature(function).parameters
    assert "builder" not in page
    assert "builder" not in parameters
    for parameter in parameters:
        assert f"    {parameter}: " in page or parameter == "shape"
