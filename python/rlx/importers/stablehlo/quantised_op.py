"""Computation of one op with quantised element types: see `types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import mlir
from rlx.importers.stablehlo.types import is_quantised, quantised
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape

# Ops with regions. The regions compute in the types that they declare.
_OF_REGIONS = ("case", "if", "map", "sort", "while", "reduce", "reduce_window", "scatter", "select_and_scatter")
# Ops that return elements of their operands unchanged.
_MOVES = frozenset(
    (
        *("bitcast_convert", "broadcast", "broadcast_in_dim", "concatenate", "constant", "dynamic_broadcast_in_dim"),
        *("dynamic_gather", "dynamic_pad", "dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather"),
        *("get_dimension_size", "optimization_barrier", "pad", "real_dynamic_slice", "reshape", "reverse", "select"),
        *("set_dimension_size", "slice", "torch_index_select", "transpose"),
    )
)


class QuantisedOp:
    """The conversion of operands and results of an op with quantised types.

    Args:
        op: The op.
        name: The name of its rule.
    """

    def __init__(self, op: mlir.Operation, name: str):
        self._op, self._name = op, name
        types = [v.type for v in (*op.operands, *op.results)]
        self._floats = any(map(is_quantised, types)) and name not in _OF_REGIONS and not self._moves(types)

    def _moves(self, types: Sequence[Any]) -> bool:
        """Return whether the op only moves quantised elements, which all have the same type."""
        elements = {str(mlir.ir.RankedTensorType(t).element_type) for t in types if is_quantised(t)}
        return self._name in _MOVES and len(elements) == 1

    def computed(self, shapes: list[Shape]) -> list[Shape]:
        """Return the shapes of the rule's results, given the storage shapes."""
        if not self._floats:
            return shapes
        types = [quantised(r.type) for r in self._op.results]
        return [s if q is None else s.with_dtype(q.expressed) for s, q in zip(shapes, types, strict=True)]

    def opened(self, g: Graph, operands: Sequence[Tensor]) -> list[Tensor]:
        """Return the operands for the rule: quantised ones are dequantised."""
        if not self._floats:
            return list(operands)
        types = [quantised(v.type) for v in self._op.operands]
        return [t if q is None else q.numbers(g, t) for t, q in zip(operands, types, strict=True)]

    def closed(self, g: Graph, results: Sequence[Tensor]) -> list[Tensor]:
        """Return the results in their storage types, given the results of the rule."""
        if not self._floats:
            return list(results)
        types = [quantised(r.type) for r in self._op.results]
        return [t if q is None else q.stored(g, t) for t, q in zip(results, types, strict=True)]
