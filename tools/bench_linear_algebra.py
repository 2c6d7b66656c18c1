"""Factorisations and linear systems on the devices cpu and xla against NumPy or SciPy and against JAX, in one process.

All of them call the same kind of LAPACK with one thread, so a ratio is due to copies, checks, signs and the call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.bench_common import Figure, in_turns, median_ms, median_ratio, worker

OPS = ("cholesky", "lu", "qr", "eigh", "eig", "svd", "triangular_solve", "solve")
SIZES = (64, 256, 512)
DTYPES = ("f32", "f64")
LIMIT = 1.3
_SECONDS_PER_TURN = 0.05
_DEVICES = ("cpu", "xla")


def measure(rounds: int) -> Iterator[Figure]:
    """Yield milliseconds for each op, dtype and size, from NumPy arrays to NumPy arrays, and the ratios.

    Raises:
        ArithmeticError: The results differ.
    """
    with worker() as process:
        for op in OPS:
            for dtype in DTYPES:
                for size in SIZES:
                    yield from process.submit(_measured, op, dtype, size, rounds).result()


# --- in the process ---------------------------------------------------------------------------------


def _measured(op: str, dtype: str, size: int, rounds: int) -> list[Figure]:
    operands = _operands(op, dtype, size)
    calls = {device: _rlx(device, op, dtype, operands) for device in _DEVICES}
    calls |= {"numpy": _numpy(op, operands), "jax": _jax(op, operands)}
    _check(op, {peer: np.asarray(call()[0]) for peer, call in calls.items()})
    seconds = dict(zip(calls, in_turns(list(calls.values()), _SECONDS_PER_TURN, rounds), strict=True))
    case = f"{op} of {dtype}, n = {size}"
    figures = [Figure(f"{case}: {peer}", median_ms(times), "ms") for peer, times in seconds.items()]
    figures.append(Figure(f"{case}: cpu to numpy's", median_ratio(seconds["cpu"], seconds["numpy"]), "x", LIMIT))
    figures.append(Figure(f"{case}: xla to jax's", median_ratio(seconds["xla"], seconds["jax"]), "x", LIMIT))
    return figures


def _operands(op: str, dtype: str, size: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    a, b = random.standard_normal((2, size, size))
    if op in ("cholesky", "eigh"):
        a = a @ a.T + size * np.eye(size)
    if op == "triangular_solve":
        a = np.tril(a) / size + 2 * np.eye(size)
    needed = [a, b] if op.endswith("solve") else [a]
    return [array.astype({"f32": np.float32, "f64": np.float64}[dtype]) for array in needed]


def _check(op: str, results: dict[str, np.ndarray]) -> None:
    """Check the first results. Those of `svd` and `qr` have free signs, and those of `eig` any order.

    Raises:
        ArithmeticError: They differ.
    """
    sizes = {peer: np.abs(result).astype(np.float64) for peer, result in results.items()}
    if op == "eig":
        sizes = {peer: np.sort(size) for peer, size in sizes.items()}
    for peer, result in results.items():
        error = np.max(np.abs(sizes[peer] - sizes["numpy"])) / np.max(sizes["numpy"])
        if not error < (0.02 if result.dtype in (np.float32, np.complex64) else 1e-8):
            raise ArithmeticError(f"{op}: {peer} and numpy differ by {error:.2g}")


def _rlx(device: str, op: str, dtype: str, operands: list[np.ndarray]) -> Callable[[], Any]:
    import rlx

    g = rlx.Graph(op)
    inputs = {f"x{i}": array for i, array in enumerate(operands)}
    tensors = [g.input(name, array.shape, dtype) for name, array in inputs.items()]
    more = {"full_matrices": False} if op == "svd" else {}
    results = getattr(g, op)(*tensors, **more)
    g.set_outputs(list(results) if isinstance(results, tuple) else [results])
    program = rlx.Session(device, threads=1).compile(g)
    return lambda: program.run(inputs)


def _numpy(op: str, operands: list[np.ndarray]) -> Callable[[], Any]:
    """NumPy's function, or SciPy's: NumPy lacks some, and computes some of f32 in f64."""
    a, *others = operands
    wide, free = a.dtype == np.float64, {"check_finite": False}
    scipy: Any = importlib.import_module("scipy.linalg")
    calls: dict[str, Callable[[], Any]] = {
        "cholesky": lambda: [np.linalg.cholesky(a) if wide else scipy.cholesky(a, lower=True, **free)],
        "lu": lambda: scipy.lu_factor(a, **free),
        "qr": lambda: np.linalg.qr(a) if wide else scipy.qr(a, mode="economic", **free),
        "eigh": lambda: np.linalg.eigh(a) if wide else scipy.eigh(a, driver="evd", **free),
        "eig": lambda: np.linalg.eig(a) if wide else scipy.eig(a, check_finite=False),
        "svd": lambda: np.linalg.svd(a, full_matrices=False) if wide else scipy.svd(a, full_matrices=False, **free),
        "triangular_solve": lambda: [scipy.solve_triangular(a, *others, lower=True, **free)],
        "solve": lambda: [np.linalg.solve(a, *others) if wide else scipy.lapack.sgesv(a, *others)[2]],
    }
    return calls[op]


def _jax(op: str, operands: list[np.ndarray]) -> Callable[[], Any]:
    import jax

    jax.config.update("jax_enable_x64", True)
    lax: Any = jax.lax.linalg
    functions: dict[str, Callable[..., Any]] = {
        "cholesky": lambda a: [lax.cholesky(a, symmetrize_input=False)],
        "lu": lax.lu,
        "qr": jax.numpy.linalg.qr,
        "eigh": lambda a: jax.numpy.linalg.eigh(a, symmetrize_input=False),
        "eig": jax.numpy.linalg.eig,
        "svd": lambda a: jax.numpy.linalg.svd(a, full_matrices=False),
        "triangular_solve": lambda a, b: [lax.triangular_solve(a, b, left_side=True, lower=True)],
        "solve": lambda a, b: [jax.numpy.linalg.solve(a, b)],
    }
    compiled = jax.jit(functions[op])
    return lambda: [np.asarray(result) for result in compiled(*operands)]
