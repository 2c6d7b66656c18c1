"""Factorisations by LAPACK in programs of sessions: against the evaluator and NumPy, on both compilers of the CPU."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.building import calls_lapack
from tests.drawing import drawn

SHAPES = ((4, 4), (2, 9, 9), (12, 7), (7, 12), (2, 6, 5), (80, 80))
DEVICES = ["cpu", "xla"]


def _op(g: Any, name: str, a: Any) -> tuple[Any, ...]:
    found = g.svd(a, full_matrices=False) if name == "svd" else getattr(g, name)(a)
    return tuple(found) if isinstance(found, tuple) else (found,)


def _outputs(g: rlx.Graph, name: str, results: tuple[Any, ...]) -> dict[str, Any]:
    return {f"{name}.{i}": r for i, r in enumerate(results)}


def _symmetric(a: np.ndarray) -> np.ndarray:
    """Return positive definite matrices, whose upper triangles are not those of the lower ones."""
    size = a.shape[-1]
    whole = a @ np.conj(np.swapaxes(a, -1, -2)) + 0.5 * np.eye(size)
    return np.tril(whole) + np.triu(np.full((size, size), np.nan), 1)


def _named(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _all_ops(dtype: str) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    """A graph with all ops that LAPACK computes, in several shapes."""
    g, rng = rlx.Graph("g"), np.random.default_rng(3)
    values, outputs = dict[str, np.ndarray](), dict[str, Any]()

    def given(name: str, array: np.ndarray) -> Any:
        values[name] = array.astype(rlx.dtype(dtype).numpy)
        return g.input(name, array.shape, dtype)

    for shape in SHAPES:
        named, drawn_ = _named(shape), rng.standard_normal(shape)
        if rlx.dtype(dtype).is_complex:
            drawn_ = drawn_ + 1j * rng.standard_normal(shape)
        a = given(f"a{named}", drawn_)
        for op in ("lu", "qr", "svd"):
            outputs |= _outputs(g, f"{op} {named}", _op(g, op, a))
        if shape[-1] == shape[-2]:
            s = given(f"s{named}", _symmetric(drawn_))
            for op in ("cholesky", "eigh"):
                outputs |= _outputs(g, f"{op} {named}", _op(g, op, s))
            t = given(f"t{named}", np.where(np.eye(shape[-1]), 3, 0.2 * drawn_))
            b = given(f"b{named}", rng.standard_normal((*shape[:-1], 3)))
            for lower in (True, False):
                for unit in (True, False):
                    x = g.triangular_solve(t, b, lower=lower, unit_diagonal=unit)
                    outputs[f"triangular {lower} {unit} {named}"] = x
            outputs[f"solve {named}"] = g.solve(t, b)
    g.set_outputs(outputs)
    return g, values


@pytest.mark.parametrize("device", DEVICES)
@drawn("dtype", ["f32", "f64", "c64", "c128"])
def test_results_are_those_of_the_ops(device: str, dtype: str) -> None:
    g, values = _all_ops(dtype)
    program = rlx.Session(device).compile(g, cache=False)
    wanted = dict(zip(program.output_names, rlx.evaluate(g, values), strict=True))
    tolerance = 2e-3 if dtype in ("f32", "c64") else 1e-10
    for name, found in program.run_named(values).items():
        assert found.dtype == wanted[name].dtype, name
        np.testing.assert_allclose(found, wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)


def _hard(size: int) -> dict[str, np.ndarray]:
    """Symmetric matrices with equal or zero eigenvalues, or of extreme sizes."""
    rng = np.random.default_rng(0)
    drawn_ = rng.standard_normal((size, size))
    whole = drawn_ + drawn_.T
    return {
        "zeros": np.zeros((size, size)),
        "ones": np.ones((size, size)),
        "identity": np.eye(size),
        "rank 2": drawn_[:, :2] @ drawn_[:, :2].T,
        "huge": whole * 1e30,
        "tiny": whole * 1e-30,
        "graded": np.diag(10.0 ** -np.arange(size) / 4) + 1e-12,
    }


@pytest.mark.parametrize("device", DEVICES)
def test_hard_matrices(device: str) -> None:
    size, hard = 16, _hard(16)
    for dtype in ("f32", "f64"):
        g = rlx.Graph("g")
        a = g.input("a", (len(hard), size, size), dtype)
        (w, v), (u, s, vt), (q, r), lu = g.eigh(a), g.svd(a, full_matrices=False), g.qr(a), g.lu(a)
        g.set_outputs([w, v, u, s, vt, q, r, lu[0], lu[2]])
        array = np.array(list(hard.values())).astype(rlx.dtype(dtype).numpy)
        results = rlx.Session(device).compile(g, cache=False, lapack="auto").run(a=array)
        w, v, u, s, vt, q, r, packed, order = (x.astype(np.float64) for x in results)
        scale = np.maximum(np.abs(array.astype(np.float64)).max((-1, -2), keepdims=True), 1e-300)
        least = 50 * np.finfo(array.dtype).eps

        def near(product: np.ndarray, wanted: np.ndarray, scale: Any = scale, least: float = least) -> None:
            np.testing.assert_allclose(product / scale, wanted / scale, rtol=0, atol=least * 16)

        near(v * w[:, None, :] @ np.swapaxes(v, 1, 2), array)
        near(u * s[:, None, :] @ vt, array)
        near(q @ r, array)
        lower, upper = np.tril(packed, -1) + np.eye(size), np.triu(packed)
        near(lower @ upper, np.take_along_axis(array.astype(np.float64), order.astype(int)[..., None], 1))
        for columns in (v, u, np.swapaxes(vt, 1, 2), q):
            near(np.swapaxes(columns, 1, 2) @ columns, np.broadcast_to(np.eye(size), columns.shape), 1.0)
        for columns in (v, u):  # the element of the largest magnitude is positive
            assert (columns.max(1) + columns.min(1) >= -least).all()
        assert (np.diff(w) >= 0).all() and (np.diff(s) <= 0).all()


@pytest.mark.parametrize("device", DEVICES)
def test_matrices_without_factors(device: str) -> None:
    """NaN and infinities in what is read give NaN; Cholesky factors are right before the pivot that fails."""
    g, size = rlx.Graph("g"), 70
    a = g.input("a", ("batch", size, size), "f64")
    outputs = {name: _op(g, name, a) for name in ("cholesky", "eigh", "svd", "qr", "lu")}
    g.set_outputs({f"{name}{i}": r for name, results in outputs.items() for i, r in enumerate(results)})
    rng = np.random.default_rng(1)
    drawn_ = rng.standard_normal((size, size))
    fine = drawn_ @ drawn_.T + np.eye(size)
    cases = {"fine": fine.copy(), "nan": fine.copy(), "infinite": fine.copy(), "upper": fine.copy()}
    cases["nan"][5, 3], cases["infinite"][9, 9], cases["upper"][3, 5] = np.nan, -np.inf, np.nan
    for first in (0, 1, 33, size - 1):
        cases[f"fails at {first}"] = np.where(np.eye(size)[first] * np.eye(size), -1.0, fine)
    array = np.array(list(cases.values()))
    program = rlx.Session(device).compile(g, cache=False)
    found = program.run_named(a=array)
    wanted = dict(zip(program.output_names, rlx.evaluate(g, {"a": array}), strict=True))
    for name, result in found.items():
        np.testing.assert_allclose(result, wanted[name], rtol=1e-7, atol=1e-7, err_msg=name)
    factors = dict(zip(cases, found["cholesky0"], strict=True))
    assert np.isfinite(factors["upper"]).all()
    assert np.isfinite(factors["fails at 33"][:, :33]).all()
    assert np.isnan(np.tril(factors["fails at 33"])[33:, 33:][np.tril_indices(size - 33)]).all()
    assert not np.triu(factors["fails at 33"], 1).any()


def _graph(size: int = 24) -> tuple[rlx.Graph, np.ndarray]:
    g = rlx.Graph("g")
    a = g.input("a", (size, size), "f64")
    g.set_outputs({"w": g.eigh(a)[0], "x": g.solve(a, a)})
    drawn_ = np.random.default_rng(2).standard_normal((size, size))
    return g, drawn_ @ drawn_.T + np.eye(size)


def _artifact(program: Any) -> Any:
    return program._one_function("test").artifact


@pytest.mark.parametrize("device", DEVICES)
def test_saved_programs_have_no_calls(device: str, tmp_path: Path) -> None:
    g, array = _graph()
    program = rlx.Session(device).compile(g, cache=False)
    assert calls_lapack(_artifact(program))
    wanted = program.run(a=array)
    assert not calls_lapack(program.artifact)
    program.save(tmp_path / "p.rlxa")
    again = [rlx.load(tmp_path / "p.rlxa"), pickle.loads(pickle.dumps(program))]
    for other in again:
        assert not calls_lapack(_artifact(other))
        for found, expected in zip(other.run(a=array), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_saved_entry_points_stay_one_program(device: str, tmp_path: Path) -> None:
    def graph(name: str, add: bool) -> rlx.Graph:
        g = rlx.Graph(name)
        state = g.state("count", (8, 8), "f64")
        a = g.input("a", (8, 8), "f64")
        total = state + a if add else state
        g.update(state, total)
        g.set_outputs([g.cholesky(total + 8.0 * g.eye(8, dtype="f64"))])
        return g

    program = rlx.Session(device).compile({"add": graph("add", True), "read": graph("read", False)}, cache=False)
    program.save(tmp_path / "p.rlxa")
    loaded, a = rlx.load(tmp_path / "p.rlxa"), np.eye(8)
    for either in (program, loaded):
        either["add"].run(a=a)
        np.testing.assert_allclose(either["read"].run(a=a)[0], 3 * np.eye(8))


def test_the_option() -> None:
    g, _ = _graph()
    assert not calls_lapack(_artifact(rlx.Session("xla").compile(g, cache=False, lapack="off")))
    assert not calls_lapack(_artifact(rlx.Session("xla").compile(g, cache=False, dispatch="force-common")))
    with pytest.raises(rlx.Error, match="lapack='always' is not one of 'auto', 'off'"):
        rlx.Session("xla").compile(g, lapack="always")
    report = rlx.Pipeline("xla").compile(g).dispatch
    assert {row.name: dict(row.into) for row in report.rows if row.path == "kernel"} == {
        "eigh": {"lapack.dsyevd": 1},
        "batched_dense_solve": {"lapack.dgesv": 1},
    }
    assert not rlx.Pipeline("xla", lapack="off").compile(g).dispatch.count("kernel")
    assert not calls_lapack(rlx.Pipeline("xla").compile(g).artifact())


@pytest.mark.parametrize("device", DEVICES)
def test_without_the_library(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g, array = _graph()
    real = __import__("importlib.util").util.find_spec
    for module in ("rlx.targets.xla.targets", "rlx.targets.iree.lapack"):
        if module in sys.modules or device != "xla":
            monkeypatch.setattr(f"{module}.find_spec", lambda name, *a: None if name == "scipy" else real(name, *a))
    program = rlx.Session(device).compile(g, cache=False)
    assert not calls_lapack(_artifact(program))
    np.testing.assert_allclose(program.run(a=array)[1], np.eye(24), atol=1e-8)


_CHILD = """
import sys, numpy as np, rlx
from rlx.targets.cache import DiskCache
g = rlx.Graph("g")
a = g.input("a", (24, 24), "f64")
g.set_outputs({"w": g.eigh(a)[0], "x": g.solve(a, a)})
program = rlx.Session(sys.argv[1]).compile(g, cache=DiskCache(sys.argv[2]), lapack=sys.argv[3])
print(bool(program.phases.get("cached")), float(program.run(a=np.diag(np.arange(1.0, 25)))[0].sum()))
"""


@pytest.mark.parametrize("device", DEVICES)
def test_cached_programs_in_a_new_process(device: str, tmp_path: Path) -> None:
    """Each process prepares the library before it runs a cached program, and programs without calls have another key."""

    def run(lapack: str) -> str:
        command = [sys.executable, "-c", _CHILD, device, str(tmp_path), lapack]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert [run("auto"), run("auto"), run("off")] == ["False 300.0", "True 300.0", "False 300.0"]


@pytest.mark.parametrize("device", DEVICES)
def test_threads(device: str) -> None:
    g, array = _graph(64)
    programs = [rlx.Session(device, threads=n).compile(g, cache=False) for n in (None, 1)]
    wanted, found = np.linalg.eigvalsh(array), list[np.ndarray]()

    def run(program: Any) -> None:
        found.extend(program.run(a=array)[0] for _ in range(5))

    threads = [threading.Thread(target=run, args=(program,)) for program in programs * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    for values in found:
        np.testing.assert_allclose(values, wanted, rtol=1e-10)


def test_threads_of_the_driver() -> None:
    """Large factorisations run in IREE's worker threads, whose stacks must hold those of LAPACK."""
    g, array = rlx.Graph("g"), np.random.default_rng(5).standard_normal((400, 400))
    a = g.input("a", array.shape, "f64")
    (q, r), (u, s, vt), lu = g.qr(a), g.svd(a, full_matrices=False), g.lu(a)
    g.set_outputs([q, r, u, s, vt, lu[0], g.cholesky(a @ a.T), g.eigh(a @ a.T)[0]])
    program = rlx.Session("cpu", threads=2).compile(g, cache=False)
    q, r, u, s, vt, packed, factor, values = program.run(a=array)
    for product in (q @ r, u * s @ vt):
        np.testing.assert_allclose(product, array, atol=1e-10)
    np.testing.assert_allclose(factor @ factor.T, array @ array.T, atol=1e-9)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(array @ array.T), rtol=1e-8, atol=1e-8)
    assert np.isfinite(packed).all()


def test_levels_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK is called on a machine that counts as another one, and not for a CPU that the user names."""
    g, array = _graph()
    assert not calls_lapack(_artifact(rlx.Session("cpu", arch="x86-64-v2").compile(g, cache=False)))
    monkeypatch.setenv("RLX_CPU_LEVEL", "x86-64-v2")
    program = rlx.Session("cpu").compile(g, cache=False)
    assert calls_lapack(_artifact(program))
    np.testing.assert_allclose(program.run(a=array)[0], np.linalg.eigvalsh(array), rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_derivatives_and_loops(device: str) -> None:
    """Rules of derivatives use the same ops, also inside of loops."""

    def graph() -> rlx.Graph:
        g = rlx.Graph("g")
        a = g.input("a", (2, 20, 20), "f64")
        factor = g.cholesky(a)
        looped, _ = g.scan(lambda c, x: (c + g.qr(x)[1], ()), g.zeros((20, 20), dtype="f64"), a)
        g.set_outputs({"y": g.sum(g.log(g.diagonal(factor, 0, 1, 2))) + g.sum(g.abs(looped))})
        return rlx.grad(g, "a")

    g, rng = graph(), np.random.default_rng(4)
    drawn_ = rng.standard_normal((2, 20, 20))
    values: Mapping[str, np.ndarray] = {"a": drawn_ @ np.swapaxes(drawn_, 1, 2) + np.eye(20)}
    program = rlx.Session(device).compile(g, cache=False)
    assert calls_lapack(_artifact(program))
    for found, wanted in zip(program.run(values), rlx.evaluate(g, values), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
