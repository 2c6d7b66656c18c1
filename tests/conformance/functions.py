"""Many graphs as the functions of one module; decomposing and evaluating them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir import attributes, registry
from rlx.ir.builder import Builder
from rlx.ir.card import as_results
from rlx.ir.dtype import dtype
from rlx.ir.evaluate import evaluate_op
from rlx.ir.graph import Graph, functions
from rlx.ir.verify import grouped
from tests.conformance.cases import Bindings
from tests.conformance.tolerance import spread
from tests.conformance.values import generator

NOISE_TRIALS = 5


def merged(graphs: Sequence[Graph]) -> Any:
    """One module with the function of every graph, named `f0`, `f1`, …; all have to be of one stage."""
    ir = mlir.ir
    with mlir.entered():
        module = ir.Module.create()
        module.operation.attributes["rlx.stage"] = ir.StringAttr.get(graphs[0].stage)
        for i, graph in enumerate(graphs):
            clone = graph.function.operation.clone(ir.InsertionPoint(module.body))
            clone.attributes["sym_name"] = ir.StringAttr.get(f"f{i}")
    return module


def primitives() -> frozenset[str]:
    """The ops that have no decomposition."""
    return frozenset(name for name, card in registry.load().items() if not card.composite)


def decompose(module: Any, keep: Collection[str], fusion_policy: str = "direct") -> None:
    """Replace all ops but those in `keep` by their decompositions, again and again, in place."""
    with mlir.entered():
        for function in functions(module):
            changed = True
            while changed:
                ops = list(function.entry_block.operations)
                changed = sum(_decomposed(op.operation, keep, fusion_policy) for op in ops) > 0


def _decomposed(op: Any, keep: Collection[str], fusion_policy: str) -> bool:
    name = op.name.removeprefix("rlx.")
    if op.name == "func.return" or name in keep:
        return False
    card = registry.card(name)
    builder = Builder(mlir.ir.InsertionPoint(op), op.location, fusion_policy)
    operands = grouped(card.spec.operands, [builder.tensor(v) for v in op.operands], "operand")
    results = as_results(card.decompose(builder, *operands, **attributes.read(card.spec, op)))
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new.value)
    op.erase()
    return True


class Noise:
    """Rounds at random, up or down, by up to `amplitude` times the gap between neighbours."""

    def __init__(self, amplitude: float = 1.0):
        self.rng, self.amplitude = generator("noise"), amplitude

    def steps(self, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers of either sign, none of them small: one error that dominates shows in every trial."""
        return self.amplitude * self.rng.uniform(0.5, 1.0, shape) * self.rng.choice([-1.0, 1.0], shape)


def evaluate_function(
    function: Any, arrays: Sequence[np.ndarray], symbols: Bindings, noise: Noise | None = None
) -> list[np.ndarray]:
    """Run a function with the evaluators; with `noise`, all arguments and results are rounded at random."""
    block = function.entry_block
    environment = {v: _rounded(a, noise) for v, a in zip(block.arguments, arrays, strict=True)}
    for op in block.operations:
        operation = op.operation
        operands = [environment[v] for v in operation.operands]
        if operation.name == "func.return":
            return operands
        results = evaluate_op(operation, operands, symbols)
        errors = [None if noise is None else _error_of(operation, operands, r) for r in results]
        rounded = [_rounded(r, noise, e) for r, e in zip(results, errors, strict=True)]
        environment.update(zip(operation.results, rounded, strict=True))
    raise AssertionError("the function does not return")


def _error_of(op: Any, operands: Sequence[np.ndarray], result: np.ndarray) -> np.ndarray | None:
    kind = op.attributes["kind"].value if "kind" in op.attributes else None
    return internal_error(op.name.removeprefix("rlx."), kind, operands, result)


def internal_error(op: str, kind: str | None, operands: Sequence[np.ndarray], result: np.ndarray) -> np.ndarray | None:
    """The rounding error that an op's own formula leaves in each element, where it is far above an ulp of the result.

    `x/2·(1 + erf …)` cancels, so it has the rounding errors of x; a complex power is `exp(w·log z)`, whose relative
    error is the absolute one of the exponent. Narrow dtypes are computed in f32.
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
    """Each float to a neighbour or itself, or as far off as `error`."""
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
    """How far rounding may move each element of each result.

    With a larger amplitude the answer is the same where rounding errors are small, and NaN or 1 near more of the places
    where a result jumps.
    """
    noise = Noise(amplitude)
    runs = [evaluate_function(function, arrays, symbols)]
    runs += [evaluate_function(function, arrays, symbols, noise) for _ in range(NOISE_TRIALS)]
    return [spread(results) / amplitude for results in zip(*runs, strict=True)]
