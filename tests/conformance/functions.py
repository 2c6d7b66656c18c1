"""Many graphs as functions of one module, with their decomposition and evaluation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import dtype
from rlx.ir.graph import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview, registry
from rlx.passes.rewrite import decompose_all
from tests.conformance.cases import Bindings
from tests.conformance.tolerance import spread
from tests.conformance.values import generator

NOISE_TRIALS = 5
_SUMS = ("conv", "dot_general", "matmul")


def merged(graphs: Sequence[Graph]) -> Any:
    """Return one module with the function of every graph, named `f0`, `f1`, …. All graphs must have the same stage."""
    ir = mlir.ir
    with mlir.entered():
        module = ir.Module.create()
        module.operation.attributes["rlx.stage"] = ir.StringAttr.get(graphs[0].stage)
        for i, graph in enumerate(graphs):
            clone = graph.function.operation.clone(ir.InsertionPoint(module.body))
            clone.attributes["sym_name"] = ir.StringAttr.get(f"f{i}")
    return module


def primitives() -> frozenset[str]:
    """Return the ops without a decomposition."""
    return frozenset(name for name, card in registry.load().items() if not card.composite)


def decompose(module: Any, keep: Collection[str]) -> None:
    """Replace all ops except those in `keep` by their decompositions, repeatedly, in place."""
    names = {name for name, card in registry.load().items() if card.composite and name not in keep}
    with mlir.entered():
        decompose_all(module, names)


class Noise:
    """Random rounding, up or down, by up to `amplitude` times the gap between neighbours."""

    def __init__(self, amplitude: float = 1.0):
        self.rng, self.amplitude = generator("noise"), amplitude

    def steps(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return numbers of either sign, none of them small, so that a dominating error shows in every trial."""
        return self.amplitude * self.rng.uniform(0.5, 1.0, shape) * self.rng.choice([-1.0, 1.0], shape)


def evaluate_function(
    function: Any, arrays: Sequence[np.ndarray], symbols: Bindings, noise: Noise | None = None
) -> list[np.ndarray]:
    """Run a function with the evaluators. With `noise`, all arguments and results are rounded at random."""
    if noise is None:
        return evaluate.evaluate_function(function, arrays, symbols)

    def observe(op: Any, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[np.ndarray]:
        if opview.name_of(op) in _SUMS and dtype(results[0].dtype).is_inexact:
            return [_rounded(r, noise, e) for r, e in zip(results, _errors_of_sum(op, operands, symbols), strict=True)]
        return [_rounded(r, noise, _error_of(op, operands, r)) for r in results]

    return evaluate.evaluate_function(function, [_rounded(a, noise) for a in arrays], symbols, observe)


def _errors_of_sum(op: Any, operands: Sequence[np.ndarray], symbols: Bindings) -> list[np.ndarray]:
    """Return the average error of each element of a sum over all orders of addition.

    The number and thus the size of partial sums depends on the CPU. Added one after the other, n numbers of size a have
    an error of 0.2·eps·a·n/√2. Narrow dtypes are computed in f32.
    """
    sums = evaluate.evaluate_op(op, [np.abs(o).astype(o.dtype) for o in operands], symbols)
    eps = float(np.finfo(np.float32).eps)
    with np.errstate(all="ignore"):
        wide = [np.abs(s).astype(np.float64) for s in sums]
        return [
            0.15 * min(dtype(s.dtype).eps, eps) * np.where(np.isfinite(w), w, 0)
            for s, w in zip(sums, wide, strict=True)
        ]


def _error_of(op: Any, operands: Sequence[np.ndarray], result: np.ndarray) -> np.ndarray | None:
    kind = op.attributes["kind"].value if "kind" in op.attributes else None
    return internal_error(opview.name_of(op), kind, operands, result)


def internal_error(op: str, kind: str | None, operands: Sequence[np.ndarray], result: np.ndarray) -> np.ndarray | None:
    """Return the rounding error of an op's own formula in each element, if it is far above an ulp of the result.

    `x/2·(1 + erf …)` cancels, so it has the rounding errors of x. A complex power is `exp(w·log z)`, whose relative
    error is the absolute error of the exponent. Narrow dtypes are computed in f32.
    """
    if not dtype(result.dtype).is_inexact:
        return None
    eps = min(dtype(result.dtype).eps, float(np.finfo(np.float32).eps))
    with np.errstate(all="ignore"):
        if op == "activation" and kind in ("gelu", "gelu_approx"):
            return eps * np.abs(operands[0].astype(np.float64))
        if op == "binary" and kind == "pow" and result.dtype.kind == "c":
            base, exponent = (x.astype(np.complex128) for x in operands)
            return eps * np.abs(result) * np.nan_to_num(np.abs(exponent * np.log(base)), posinf=0)
    return None


def _rounded(array: np.ndarray, noise: Noise | None, error: np.ndarray | None = None) -> np.ndarray:
    """Round each float to itself or a neighbour, or move it by up to `error`."""
    kind = dtype(array.dtype)
    if noise is None or not kind.is_inexact:
        return array
    with np.errstate(all="ignore"):
        wide = array.astype(np.complex128 if kind.is_complex else np.float64)
        moved = wide + wide * kind.eps * noise.steps(array.shape)
        if error is not None:
            moved = moved + error * noise.steps(array.shape)
        return np.where(np.isfinite(wide), moved, wide).astype(kind.numpy)


def noise_of(
    function: Any, arrays: Sequence[np.ndarray], symbols: Bindings, amplitude: float = 1.0
) -> list[np.ndarray]:
    """Return how far rounding may move each element of each result.

    A larger amplitude gives the same answer where rounding errors are small, and gives NaN or 1 near more of the points
    where a result jumps.
    """
    noise = Noise(amplitude)
    runs = [evaluate_function(function, arrays, symbols)]
    runs += [evaluate_function(function, arrays, symbols, noise) for _ in range(NOISE_TRIALS)]
    return [spread(results) / amplitude for results in zip(*runs, strict=True)]
