"""Sparse matrices in functions: as arguments and results of `rlx.jit`, derivatives, batches, and compiled programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from examples import graph_network, heat_equation
from rlx import sparse
from tests.drawing import drawn, graph_seed
from tests.sparse.matrices import FORMATS, assert_close, dense, generated, in_format


def positions(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    entries = matrix.entries()
    return entries.row, entries.col


def loss_of(format: str, matrix: Any, seed: int) -> tuple[rlx.Graph, dict[str, np.ndarray], Any]:
    """Return the graph of a loss of a matrix's data and a vector, its arguments, and the container."""
    rng = np.random.default_rng(seed)
    stored = sparse.from_scipy(in_format(matrix, format))
    m, n = matrix.shape
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(m, 3))

    @rlx.jit
    def loss(A: Any, x: Any, y: Any) -> Any:
        return ((A @ x) ** 3).sum() + ((A.T @ y) ** 2).sum() + sparse.sddmm(A, y @ y.T @ (A @ x), x).sum()

    graph = loss.graph_for(stored, x, y)
    return graph, {"A.data": stored.data, "x": x, "y": y}, stored


@pytest.mark.parametrize("format", FORMATS)
def test_derivatives(format: str, seed: int) -> None:
    """First and second derivatives in both modes agree with difference quotients, to data and to dense operands."""
    graph, values, _ = loss_of(format, generated(np.random.default_rng(graph_seed(seed, 0)), 6, 9, 15), seed)
    rng = np.random.default_rng(graph_seed(seed, 1))
    names = list(values)
    tangents = {f"tangent_{n}": rng.normal(size=v.shape) for n, v in values.items()}
    step = 1e-5

    def moved(sign: float) -> dict[str, np.ndarray]:
        return {n: v + sign * step * tangents[f"tangent_{n}"] for n, v in values.items()}

    def slope(g: rlx.Graph) -> list[np.ndarray]:
        pairs = zip(rlx.evaluate(g, moved(1)), rlx.evaluate(g, moved(-1)), strict=True)
        return [(a - b) / (2 * step) for a, b in pairs]

    gradient = rlx.grad(graph, names)
    gradients = rlx.evaluate(gradient, values)
    forward = rlx.evaluate(rlx.jvp(graph, names), values | tangents)[1]
    backward = sum((g * tangents[f"tangent_{n}"]).sum() for g, n in zip(gradients, names, strict=True))
    np.testing.assert_allclose(forward, slope(graph)[0], rtol=1e-6)
    np.testing.assert_allclose(backward, forward, rtol=1e-10)
    _, *rest = rlx.evaluate(rlx.hvp(graph, names), values | tangents)
    for second, expected in zip(rest[len(names) :], slope(gradient), strict=True):
        np.testing.assert_allclose(second, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_batches(format: str, seed: int) -> None:
    """A batch of data, of dense operands, or of both is a loop over its entries."""
    graph, values, _ = loss_of(format, generated(np.random.default_rng(graph_seed(seed, 0)), 6, 9, 15), seed)
    rng = np.random.default_rng(graph_seed(seed, 2))
    for batched in (["A.data"], ["x"], ["A.data", "x"]):
        whole = {n: rng.normal(size=(3, *v.shape)) if n in batched else v for n, v in values.items()}
        for g in (graph, rlx.grad(graph, ["A.data", "x"])):
            got = rlx.evaluate(rlx.vmap(g, batched, 3), whole)
            for i in range(3):
                one = rlx.evaluate(g, {n: v[i] if n in batched else v for n, v in whole.items()})
                for a, b in zip(got, one, strict=True):
                    np.testing.assert_allclose(a[i], b, rtol=1e-9, atol=1e-9)


def test_complex_derivatives(seed: int) -> None:
    rng = np.random.default_rng(graph_seed(seed, 0))
    stored = sparse.from_scipy(generated(rng, 5, 4, 9, np.complex64).tocsr())
    x = (rng.normal(size=4) + 1j * rng.normal(size=4)).astype(np.complex64)

    @rlx.jit
    def output(A: Any, x: Any) -> Any:
        return A @ x

    graph = rlx.vjp(output.graph_for(stored, x), ["A.data", "x"])
    c = (rng.normal(size=5) + 1j * rng.normal(size=5)).astype(np.complex64)
    _, data, vector = rlx.evaluate(graph, {"A.data": stored.data, "x": x, "cotangent_out": c})
    row, col = positions(stored)
    np.testing.assert_allclose(data, c[row] * x[col].conj(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(vector, dense(stored).conj().T @ c, rtol=1e-5, atol=1e-5)


@drawn("device", ["cpu", "xla"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_compiled(dtype: Any, device: str, seed: int) -> None:
    """One program with all formats, known and dynamic, in rows of equal and of very different lengths."""
    rng = np.random.default_rng(graph_seed(seed, 0))
    matrix = generated(rng, 12, 9, 40, dtype)
    long = np.zeros((12, 9), bool)
    long[3], long[:, 2] = True, True
    uneven = sparse.from_dense(rng.normal(size=(12, 9)).astype(dtype), pattern=long)
    stored = [*(sparse.from_scipy(in_format(matrix, f)) for f in FORMATS), uneven]
    x, y = rng.normal(size=(9, 2)).astype(dtype), rng.normal(size=12).astype(dtype)
    known = stored[1]

    @rlx.jit(device=device)
    def program(stored: Any, x: Any, y: Any, indices: Any, indptr: Any) -> Any:
        results = [[A @ x, y @ A, A.T.todense()] for A in stored]
        dynamic = sparse.csr_array((stored[1].data, indices, indptr), shape=(12, 9))
        product = sparse.matmul(dynamic, dynamic.T, capacity=500)
        more = [dynamic @ x, y @ dynamic, dynamic.sum(axis=0), product.todense(), (stored[1] @ stored[2].T).todense()]
        return (
            results,
            [*more, sparse.sddmm(dynamic, stored[0] @ x, x).data, (stored[0] + stored[4]).todense()],
            product.nnz,
        )

    results, more, count = program(stored, x, y, *known.arrays)
    expected, other = dense(stored[0]), dense(uneven)
    tolerance = 1e-4 if dtype != np.float64 else 1e-9
    for one, wanted in zip(results, [expected] * 4 + [other], strict=True):
        for got, full in zip(one, [wanted @ x, y @ wanted, wanted.T], strict=True):
            assert_close(got, full, tolerance)
    row, col = positions(known)
    sampled = ((expected @ x)[row] * x[col]).sum(1)
    gram = expected @ expected.T
    wanted = [expected @ x, y @ expected, expected.sum(0), gram, gram, sampled, expected + other]
    for got, full in zip(more, wanted, strict=True):
        assert_close(got, full, tolerance)
    assert count == (abs(gram) > 0).sum()


@drawn("device", ["cpu", "xla"])
def test_gradients_of_containers(device: str, seed: int) -> None:
    """The gradient of a matrix is a matrix of the same pattern, and a new pattern is a new signature."""
    rng = np.random.default_rng(graph_seed(seed, 0))
    a, b = (sparse.from_scipy(generated(rng, 6, 5, 11).tocsr()) for _ in range(2))
    x = rng.normal(size=5)

    @rlx.jit(device=device)
    def loss(A: Any, x: Any) -> Any:
        return ((A @ x) ** 2).sum()

    gradient = loss.grad()
    for _ in range(2):
        for matrix in (a, b):
            slope = gradient(matrix, x)
            full = np.outer(2 * (dense(matrix) @ x), x)
            np.testing.assert_allclose(slope.data, full[positions(matrix)], rtol=1e-9)
            assert slope.pattern == matrix.pattern
    assert gradient.num_traces == 2
    equal = sparse.csr_array((a.data, a.indices.copy(), a.indptr.copy()), shape=a.shape)
    gradient(equal, x)
    assert gradient.num_traces == 2


def test_results_are_containers(seed: int) -> None:
    """A dynamic matrix that a function returns keeps its pattern as arrays, and can be passed to another function."""
    matrix = generated(np.random.default_rng(graph_seed(seed, 0)), 6, 5, 11).tocsr()

    @rlx.jit
    def make(data: Any, indices: Any, indptr: Any) -> Any:
        A = sparse.csr_array((data, indices, indptr), shape=(6, 5))
        return A, A.T, sparse.matmul(A, A.T, capacity=99)

    A, transposed, product = make(matrix.data, matrix.indices, matrix.indptr)
    assert_close(A.to_scipy(), matrix)
    assert_close(transposed, matrix.T)
    assert_close(product.to_scipy(), matrix @ matrix.T)
    assert_close(rlx.jit(lambda A: A @ np.ones(5))(A), matrix @ np.ones(5))
    assert_close(A @ np.ones(5), matrix @ np.ones(5))


def test_operands_of_scipy_and_numpy(seed: int) -> None:
    """SciPy's matrices and arrays may take the place of containers and tensors, on both sides of operators."""
    rng = np.random.default_rng(graph_seed(seed, 0))
    matrix = generated(rng, 4, 4, 9)
    stored, full = sparse.from_scipy(matrix), matrix.toarray()

    @rlx.jit
    def f(x: Any) -> Any:
        return x @ stored, stored @ x, stored * 2.0 @ x, stored + x, x + stored, stored.multiply(x), x * stored

    x = rng.normal(size=(4, 4))
    wanted = [x @ full, full @ x, 2 * full @ x, full + x, x + full, full * x, full * x]
    for got, expected in zip(f(x), wanted, strict=True):
        assert_close(got, expected)
    assert_close(x @ stored, x @ full)
    assert_close(stored @ matrix, full @ full)
    assert_close(matrix @ stored, full @ full)
    assert_close(sparse.matmul(matrix, x), full @ x)


def test_long_sums_of_gathered_numbers_compile() -> None:
    """IREE fused the gather into the scatter, and put all 90,000 numbers on the stack."""
    count = 90_000
    ids = np.random.default_rng(0).integers(0, count, (2, count)).astype(np.int32)
    data = np.random.default_rng(1).normal(size=count)

    @rlx.jit
    def summed(data: Any, source: Any, target: Any) -> Any:
        return sparse.segment_sum(rlx.ops.gather(data, source), target, count)

    expected = np.zeros(count)
    np.add.at(expected, ids[1], data[ids[0]])
    np.testing.assert_allclose(summed(data, *ids), expected, atol=1e-12)


def test_the_graph_network_finds_communities(tmp_path: Any) -> None:
    accuracy = graph_network.main(str(tmp_path / "graph.svg"))
    assert accuracy > 0.85
    assert (tmp_path / "graph.svg").read_text().count("<circle") == graph_network.NODES


def test_the_heat_of_a_plate_is_preserved(tmp_path: Any) -> None:
    """The plate is isolated, and the temperatures are linear in those at the start, so that the gradient gives them."""
    steps, gradient = heat_equation.main(str(tmp_path / "heat.svg"))
    start = np.zeros((heat_equation.SIZE, heat_equation.SIZE))
    start[20:24, 4:8] = 100.0
    np.testing.assert_allclose(steps.sum((1, 2)), start.sum(), rtol=1e-4)
    np.testing.assert_allclose((gradient * start).sum(), steps[-1][heat_equation.SENSOR], rtol=1e-2)
    assert (steps > -1e-3).all() and (gradient > -1e-6).all()
    assert (tmp_path / "heat.svg").read_text().count("<circle") == 3


def test_a_matrix_of_scipy_is_answered_with_its_conversion(seed: int) -> None:
    matrix = generated(np.random.default_rng(graph_seed(seed, 0)), 3, 3, 4)
    with pytest.raises(rlx.Error, match="from_scipy"):
        rlx.jit(lambda A: A @ np.ones(3))(matrix)
