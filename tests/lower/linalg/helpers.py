"""Many small graphs in one compiled module: compiling is what tests of lowerings spend their time on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from rlx import mlir
from rlx.backends.iree.abi import TensorType
from rlx.backends.iree.compiler import compile_module
from rlx.backends.iree.executable import Executable
from rlx.backends.iree.targets import target
from rlx.ir.card import as_results
from rlx.ir.dtype import dtype
from rlx.ir.evaluate import evaluate
from rlx.ir.graph import Graph
from rlx.ir.shape import Shape
from rlx.lower.linalg import lower_module


@dataclass
class Case:
    """One op on given arrays.

    Args:
        op: The op's name.
        arrays: Its operands.
        attributes: Its attributes, canonical.
        dims: For each operand the dimensions to declare, symbols among them; None takes the arrays' sizes.
    """

    op: str
    arrays: Sequence[np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)
    dims: Sequence[Sequence[int | str]] | None = None

    def graph(self) -> Graph:
        """The graph that has this op only."""
        graph = Graph("main")
        dims = self.dims or [a.shape for a in self.arrays]
        operands = [
            graph.input(f"x{i}", Shape(d, dtype(a.dtype)))
            for i, (a, d) in enumerate(zip(self.arrays, dims, strict=True))
        ]
        graph.set_outputs(list(as_results(graph.emit(self.op, operands, **self.attributes))))
        return graph


def case(op: str, *arrays: Any, dims: Any = None, **attributes: Any) -> Case:
    """A `Case`."""
    return Case(op, [np.asarray(a) for a in arrays], attributes, dims)


def merged(graphs: Sequence[Graph]) -> Any:
    """One module with the function of every graph, named `f0`, `f1`, …."""
    ir = mlir.ir
    with mlir.entered():
        module = ir.Module.create()
        for i, graph in enumerate(graphs):
            clone = graph.function.operation.clone(ir.InsertionPoint(module.body))
            clone.attributes["sym_name"] = ir.StringAttr.get(f"f{i}")
    return module


def lowered_text(graphs: Sequence[Graph]) -> str:
    """The lowered module, as text."""
    return str(lower_module(merged(graphs)))


@cache
def cpu() -> Any:
    """The target of this machine, without the rungs that would hide a failure of the first one."""
    from dataclasses import replace

    chosen = target("cpu")
    return replace(chosen, ladder=chosen.ladder[:1])


def execute(graphs: Sequence[Graph], inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Compile all graphs at once and run each on its inputs."""
    executable = Executable(compile_module(lowered_text(graphs), cpu(), timeout_s=300).vmfb)
    results = []
    for i, (graph, arrays) in enumerate(zip(graphs, inputs, strict=True)):
        types = [
            TensorType(o.shape.dtype.numpy, tuple(d if type(d) is int else None for d in o.shape.dims))
            for o in graph.outputs
        ]
        given = [TensorType(a.shape.dtype.numpy, tuple(d if type(d) is int else None for d in a.shape.dims)) for a in graph.arguments]
        function = executable.function(f"f{i}", given, types, copy_results=True)
        results.append(function([np.ascontiguousarray(a).reshape(a.shape) for a in arrays]))
    return results


def run(cases: Sequence[Case]) -> list[tuple[Any, Any]]:
    """For every case what the compiled code gives and what the evaluator gives; tuples for several results."""
    graphs = [c.graph() for c in cases]
    outcomes = execute(graphs, [c.arrays for c in cases])
    pairs = []
    for c, graph, got in zip(cases, graphs, outcomes, strict=True):
        expected = evaluate(graph, {f"x{i}": a for i, a in enumerate(c.arrays)})
        pairs.append((got[0], expected[0]) if len(got) == 1 else (tuple(got), tuple(expected)))
    return pairs
