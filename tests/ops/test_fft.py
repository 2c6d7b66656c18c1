"""Fourier transforms against SciPy in extended precision, JAX, and the identities of the transform."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

import rlx
from rlx import mlir
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.passes.rewrite import decompose_all
from rlx.support.errors import Error, ShapeError
from tests.conformance import compiled, compiled_xla
from tests.drawing import drawn
from tests.ops.references import in_jax, random, run

NORMS = ["backward", "ortho", "forward"]
OPS = ("fft", "rfft", "irfft")
# Small lengths, primes with and without a matrix, products of both, powers of two.
LENGTHS = [*range(1, 65), 97, 127, 131, 262, 360, 1000, 1009, 1024, 2018, 4096, 65536]
# Rounding every element of the result once costs 3e-8; f32 libraries have errors of 1e-7 to 3e-7.
LIMIT = 5e-7


def far(got: np.ndarray, exact: Any) -> float:
    """Return the relative error in the Euclidean norm."""
    assert got.shape == exact.shape
    size = float(np.linalg.norm(exact.astype(np.complex128)))
    return float(np.linalg.norm((got - exact).astype(np.complex128))) / (size or 1.0)


def signal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return random complex numbers."""
    return random("c64", shape, seed=seed)


def spectrum(n: int, seed: int = 0) -> np.ndarray:
    """Return half spectra of two signals of length n, including imaginary parts that are not read."""
    return signal((2, n // 2 + 1), seed)


def wide(x: np.ndarray) -> np.ndarray:
    """Return an array in x86's extended precision, so that SciPy computes in it."""
    return x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)


def uses(n: int) -> list[tuple[Graph, list[np.ndarray], Any]]:
    """Return graphs of each op for one length, with their inputs and the exact result."""
    z, x, half = signal((2, n), n), random("f32", (2, n), seed=n), spectrum(n, n)
    told = [
        (z, lambda g, v: g.fft(v), scipy.fft.fft(wide(z))),
        (z, lambda g, v: g.fft(v, inverse=True, norm="ortho"), scipy.fft.ifft(wide(z), norm="ortho")),
        (x, lambda g, v: g.rfft(v, norm="forward"), scipy.fft.rfft(wide(x), norm="forward")),
        (half, lambda g, v: g.irfft(v, n), scipy.fft.irfft(wide(half), n)),
    ]
    found = []
    for array, build, exact in told:
        graph = Graph()
        graph.set_outputs(build(graph, graph.input("x0", array.shape, dtype(array.dtype))))
        found.append((graph, [array], exact))
    return found


@pytest.mark.parametrize("n", [1, 2, 9, 12, 34, 137])
def test_transforms_of_f64_are_those_of_numpy(n: int) -> None:
    """The evaluator and the matrix products are compared in c128."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((3, n))
    z = x + 1j * rng.standard_normal((3, n))
    graph = Graph()
    real, complex_ = graph.input("x", x.shape, "f64"), graph.input("z", z.shape, "c128")
    half = graph.input("half", (3, n // 2 + 1), "c128")
    graph.set_outputs(
        [
            graph.fft(complex_),
            graph.fft(complex_, inverse=True),
            graph.rfft(real),
            graph.irfft(half, n),
            graph.fft(real),
        ]
    )
    spectrum = np.fft.rfft(x)
    expected = [np.fft.fft(z), np.fft.ifft(z), spectrum, np.fft.irfft(spectrum, n), np.fft.fft(x)]
    for either in (graph, decomposed(graph)):
        for got, wanted in zip(evaluate(either, {"x": x, "z": z, "half": spectrum}), expected, strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13 * max(1.0, np.abs(wanted).max()))


def decomposed(graph: Graph) -> Graph:
    """Return a graph whose transforms are matrix products."""
    with mlir.entered():
        decompose_all(graph.module, set(OPS))
    return graph


# --- the evaluators ---------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_axis_and_norm(axis: int, norm: str) -> None:
    z = signal((4, 6, 5))
    x = np.ascontiguousarray(np.real(z))
    n = 2 * z.shape[axis] - 1
    pairs = [
        (run("fft", z, axis=axis, norm=norm), scipy.fft.fft, wide(z), jnp.fft.fft, z),
        (run("fft", z, axis=axis, inverse=True, norm=norm), scipy.fft.ifft, wide(z), jnp.fft.ifft, z),
        (run("rfft", x, axis=axis, norm=norm), scipy.fft.rfft, wide(x), jnp.fft.rfft, x),
    ]
    for got, exactly, precise, in_jnp, array in pairs:
        assert far(got, exactly(precise, axis=axis, norm=norm)) < 5e-8
        assert far(got, in_jax(lambda v, f=in_jnp: f(v, axis=axis, norm=norm), array)) < LIMIT
    back = run("irfft", z, axis=axis, length=(n,), norm=norm)
    assert far(back, scipy.fft.irfft(wide(z), n, axis=axis, norm=norm)) < 5e-8
    assert far(back, in_jax(lambda v: jnp.fft.irfft(v, n, axis=axis, norm=norm), z)) < LIMIT


@pytest.mark.parametrize("n", [1, 2, 7, 12, 131])
def test_identities(n: int) -> None:
    x, y = signal((3, n), 1), signal((3, n), 2)
    spectrum_x, spectrum_y = (run("fft", v, axis=1) for v in (x, y))
    for norm in NORMS:
        there = run("fft", x, axis=1, norm=norm)
        assert far(run("fft", there, axis=1, inverse=True, norm=norm), x) < LIMIT
    assert far(run("fft", 2 * x - 1j * y, axis=1), 2 * spectrum_x - 1j * spectrum_y) < LIMIT
    energy = np.sum(np.abs(run("fft", x, axis=1, norm="ortho")) ** 2), np.sum(np.abs(x) ** 2)
    assert energy[0] == pytest.approx(energy[1], rel=1e-6)  # Parseval
    turned = spectrum_x * np.exp(-2j * np.pi * np.arange(n) / n)
    assert far(run("fft", np.roll(x, 1, 1), axis=1), turned.astype(np.complex64)) < LIMIT
    real = np.ascontiguousarray(np.real(x))
    whole = run("fft", real.astype(np.complex64), axis=1)
    assert far(np.roll(whole[:, ::-1], 1, 1).conj(), whole) < LIMIT
    half = run("rfft", real, axis=1)
    assert far(half, whole[:, : n // 2 + 1]) < LIMIT
    assert far(run("irfft", half, axis=1, length=(n,)), real) < LIMIT


# --- the decomposition ------------------------------------------------------------------------------


@drawn("n", LENGTHS, of_each=30)
def test_decomposition_is_accurate(n: int) -> None:
    for graph, arrays, exact in uses(n):
        (got,) = evaluate(decomposed(graph), {"x0": arrays[0]})
        assert far(got, exact) < LIMIT


def test_decomposition_is_near_linear() -> None:
    """No large length, prime or not, is a product with its whole matrix."""
    for n in (1009, 4096, 5003, 10007, 65536):
        graph = Graph()
        graph.set_outputs(graph.fft(graph.input("x0", (1, n), "c64")))
        operations = list(decomposed(graph).function.entry_block.operations)
        shapes = [graph.tensor(op.results[0]).shape for op in operations if op.name == "rlx.constant"]
        constants = sum(np.prod(shape.static, dtype=int) for shape in shapes)
        assert constants < 40 * n + 20_000
        assert len(operations) < 400


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [1, 2, 9, 12, 34, 137])
def test_what_is_not_finite_spreads(n: int, value: float) -> None:
    """NaN and infinities spread to every element of their own transform, as in NumPy, and to no other transform."""
    x = random("f32", (3, n), seed=5)
    x[1, n // 2] = value
    z = x.astype(np.complex64)
    for build, array in ((lambda g, v: g.fft(v), z), (lambda g, v: g.rfft(v), x)):
        graph = Graph()
        graph.set_outputs(build(graph, graph.input("x0", array.shape, dtype(array.dtype))))
        for either in (graph, decomposed(graph)):
            (got,) = evaluate(either, {"x0": array})
            assert np.isfinite(got[[0, 2]]).all() and not np.isfinite(got[1]).any()


@pytest.mark.parametrize("n", [1, 2, 8, 9, 36, 137, 274])
def test_irfft_does_not_read_what_has_to_be_real(n: int) -> None:
    half = signal((2, n // 2 + 1), 6)
    clean = half.copy()
    for k in {0, n // 2} if n % 2 == 0 else {0}:
        clean[:, k] = np.real(half[:, k])
        half.view(np.float32)[:, 2 * k + 1] = np.nan
    graph = Graph()
    graph.set_outputs(graph.irfft(graph.input("x0", half.shape, "c64"), n))
    expected = np.fft.irfft(clean, n)
    for either in (graph, decomposed(graph)):
        assert far(evaluate(either, {"x0": half})[0], expected) < LIMIT


def test_symbolic_sizes() -> None:
    graph = Graph()
    z, x = graph.input("z", ("batch", 20, "n"), "c64"), graph.input("x", ("batch", "n"))
    outputs = [graph.fft(z, axis=1), graph.fft(z, axis=0, inverse=True), graph.fft(z, norm="ortho"), graph.rfft(x)]
    outputs.append(graph.irfft(outputs[-1], x.shape.dims[1]))
    graph.set_outputs(outputs)
    assert [str(o.shape.dims[-1]) for o in outputs] == ["n", "n", "n", "n//2+1", "n"]
    text = str(graph.module)
    for batch, n in ((1, 1), (3, 10), (2, 257)):
        arrays = {"z": signal((batch, 20, n)), "x": random("f32", (batch, n))}
        exact = [np.fft.fft(arrays["z"], axis=1), np.fft.ifft(arrays["z"], axis=0)]
        exact += [np.fft.fft(arrays["z"], norm="ortho"), np.fft.rfft(arrays["x"]), arrays["x"]]
        for either in (graph, decomposed(Graph.from_module(mlir.ir.Module.parse(text, mlir.context())))):
            for got, expected in zip(evaluate(either, arrays), exact, strict=True):
                assert far(got, expected) < LIMIT


# --- compiled ---------------------------------------------------------------------------------------

# Lengths with one matrix, a chirp, several stages, a stage that is a chirp, many stages.
_COMPILED = [31, 131, 360, 2018, 65536]


@drawn("compiler", [compiled, compiled_xla], ids=lambda c: {compiled: "iree", compiled_xla: "xla"}[c])
@drawn("n", _COMPILED, of_each=2)
def test_compiled_is_accurate(n: int, compiler: Any) -> None:
    """The compiled sums are f32, in the order of the machine."""
    given = list(uses(n))
    programs = compiler.compile_graphs([graph for graph, _, _ in given])
    for (graph, arrays, exact), program in zip(given, programs, strict=True):
        assert program.problem is None, f"{graph.arguments}: {program.problem}"
        (got,) = program.run(compiled.contiguous(arrays))
        assert far(got, exact) < LIMIT, graph.arguments


# --- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda g, z, d: g.rfft(z), "rfft takes real numbers"),
        (lambda g, z, d: g.fft(z, axis=2), "axis 2 is out of range"),
        (lambda g, z, d: g.fft(z, norm="unitary"), "is not one of backward"),
        (lambda g, z, d: g.fft(g.input("e", (3, 0))), "is empty"),
        (lambda g, z, d: g.rfft(g.input("e", (0,))), "is empty"),
        (lambda g, z, d: g.fft(g.input("s", ())), "out of range for rank 0"),
        (lambda g, z, d: g.irfft(z, 9), "has a spectrum of 5 elements"),
        (lambda g, z, d: g.irfft(z, 0), "length 0 is not positive"),
        (lambda g, z, d: g.irfft(g.input("o", (1,), "c64")), "length 0 is not positive"),
        (lambda g, z, d: g.irfft(z, -4), "cannot be negative"),
        (lambda g, z, d: g.irfft(z, "n"), "has a spectrum of"),
    ],
)
def test_refusals(call: Any, expected: str) -> None:
    graph = Graph()
    z, d = graph.input("z", (2, 4), "c64"), graph.input("d", (2, 4), "f64")
    with pytest.raises(ShapeError, match=expected) as caught:
        call(graph, z, d)
    assert caught.value.location


@pytest.mark.parametrize("device", [None, "cpu", "xla"])
def test_an_empty_axis_is_refused_at_run_time(device: str | None) -> None:
    graph = Graph()
    graph.set_outputs(graph.fft(graph.input("x", (2, "n"), "c64")))
    arrays = {"x": np.zeros((2, 0), np.complex64)}
    with pytest.raises(Error, match="is empty"):
        evaluate(graph, arrays) if device is None else rlx.Session(device=device).compile(graph).run(arrays)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "i8", "i64", "u32", "bool"])
def test_real_dtypes_are_cast(name: str) -> None:
    x = random(name, (2, 6), low=0, high=9)
    for function in ("fft", "rfft"):
        graph = Graph()
        graph.set_outputs(getattr(graph, function)(graph.input("x", (2, 6), name)))
        assert far(evaluate(graph, {"x": x})[0], getattr(np.fft, function)(x.astype(np.float64))) < 5e-8


def test_ops_called_as_their_files_are_functions() -> None:
    graph = Graph()
    z = graph.input("z", (2, 4), "c64")
    results = [rlx.ops.fft(z), rlx.ops.complex(rlx.ops.real(z), rlx.ops.imag(z)), rlx.ops.reduce("sum", z)]
    assert [r.shape.dims for r in results] == [(2, 4), (2, 4), ()]
