"""Helpers that compile many small graphs as one module, because compiling dominates the time of lowering tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op.card import as_results
from rlx.ir.shape import Shape
from rlx.targets.iree.abi import TensorType
from rlx.targets.iree.backend import module_text
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.targets import Target, target
from rlx.targets.stages import lower


@dataclass
class Case:
    """One op applied to arrays.

    Args:
        op: The op's name.
        arrays: Its operands.
        attributes: Its canonical attributes.
        dims: The declared dimensions of each operand, which may be symbols; None declares the sizes of the array.
    """

    op: str
    arrays: Sequence[np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)
    dims: Sequence[Sequence[int | str]] | None = None

    def graph(self) -> Graph:
        """The graph with only this op."""
        graph = Graph("main")
        dims = self.dims or [a.shape for a in self.arrays]
        operands = [
            graph.input(f"x{i}", Shape(d, dtype(a.dtype)))
            for i, (a, d) in enumerate(zip(self.arrays, dims, strict=True))
        ]
        graph.set_outputs(list(as_results(graph.emit(self.op, operands, **self.attributes))))
        return graph

    def __str__(self) -> str:
        operands = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.arrays)
        return f"{self.op}({operands}) {self.attributes} {self.dims or ''}"


def case(op: str, *arrays: Any, dims: Any = None, **attributes: Any) -> Case:
    """A `Case`."""
    return Case(op, [np.asarray(a) for a in arrays], attributes, dims)


def run(cases: Sequence[Case], arch: str | None = None, device: Target | None = None) -> list[tuple[np.ndarray, ...]]:
    """Compile all cases at once, for the CPU of this machine, an older one or another device; return the results of each."""
    graphs = [c.graph() for c in cases]
    module = _merged(graphs)
    chosen = device or _cpu(arch)
    lower(module, chosen.lowering(chosen.level))
    vmfb = compile_module(module_text(module), chosen, timeout_s=300).vmfb
    executable = IreeExecutable(vmfb, driver=chosen.drivers[0])
    results = []
    for i, (graph, one) in enumerate(zip(graphs, cases, strict=True)):
        arguments = [_tensor_type(a.shape) for a in graph.arguments]
        function = executable.function(
            f"f{i}", arguments, [_tensor_type(o.shape) for o in graph.outputs], copy_results=True
        )
        arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in one.arrays]
        results.append(tuple(function(arrays)))
    return results


def expected(one: Case) -> tuple[np.ndarray, ...]:
    """The evaluator's results."""
    return tuple(evaluate(one.graph(), {f"x{i}": a for i, a in enumerate(one.arrays)}))


def assert_agrees(one: Case, results: Sequence[np.ndarray], tolerance: float = 0.0) -> None:
    """Check that results agree with the evaluator, including NaN, with a tolerance relative to the greatest finite element."""
    for result, wanted in zip(results, expected(one), strict=True):
        assert result.dtype == wanted.dtype, f"{one}: {result.dtype}, not {wanted.dtype}"
        assert result.shape == wanted.shape, f"{one}: {result.shape}, not {wanted.shape}"
        if not tolerance:
            equal = np.array_equal(_comparable(result), _comparable(wanted), equal_nan=True)
            assert equal, f"{one}: {result}, not {wanted}"
            continue
        a, b = _comparable(result), _comparable(wanted)
        scale = np.max(np.abs(b), where=np.isfinite(b), initial=1.0)
        close = np.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True)
        assert close, f"{one}: {result}, not {wanted}"


def ulps(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in ulp of the result's dtype, relative to references of a wider dtype.

    For a subnormal reference, any result of at most the smallest normal number is correct, because compiled code on CPUs
    flushes subnormals. Equal NaN and equal infinities are not errors.
    """
    limits = np.finfo(result.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(result.dtype)
        flushed = (np.abs(exact) < limits.tiny) & (np.abs(result) <= limits.tiny)
        same = (result == rounded) | (np.isnan(result) & np.isnan(rounded)) | flushed
        unit = np.spacing(np.abs(rounded)).astype(exact.dtype)
        error = np.abs(result.astype(exact.dtype) - exact) / unit
        both_finite = np.isfinite(result) & np.isfinite(rounded)
        error = np.where(both_finite & ~flushed, error, np.where(same, 0.0, np.inf))
    return error.astype(np.float64)


def assert_ulps(result: np.ndarray, exact: np.ndarray, limit: float, *operands: np.ndarray) -> None:
    """Check that no error is greater than `limit`. The message shows the operands of the greatest error."""
    error = ulps(result, exact)
    worst = int(np.argmax(error))
    at = ", ".join(repr(o[worst]) for o in operands)
    message = f"{error[worst]:.3g} units at {at}: {result[worst]!r}, not {exact[worst]!r}"
    assert error[worst] <= limit, message


@cache
def _cpu(arch: str | None = None) -> Target:
    """The target of this machine or of another CPU, with only the first rung, so that its failures are visible."""
    chosen = target("cpu", arch)
    return replace(chosen, ladder=chosen.ladder[:1])


def _merged(graphs: Sequence[Graph]) -> Any:
    """One module with the function of every graph, named `f0`, `f1`, …."""
    ir = mlir.ir
    with mlir.entered():
        module = ir.Module.create()
        for i, graph in enumerate(graphs):
            clone = graph.function.operation.clone(ir.InsertionPoint(module.body))
            clone.attributes["sym_name"] = ir.StringAttr.get(f"f{i}")
    return module


def _tensor_type(shape: Shape) -> TensorType:
    return TensorType(shape.dtype.numpy, tuple(d if type(d) is int else None for d in shape.dims))


def _comparable(x: np.ndarray) -> np.ndarray:
    """Convert f16 and bf16 to f64, where NumPy can test for NaN."""
    return x if x.dtype.kind in "iubc" else x.astype(np.float64)
