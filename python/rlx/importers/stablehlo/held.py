"""How one op computes with quantised element types: see `types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import mlir
from rlx.importers.stablehlo.types import is_quantised, quantised
from rlx.ir.graph.builder import Tensor
from rlx.ir.shape import Shape

# Ops of regions, which compute themselves in the types that they name.
_OF_REGIONS = ("case", "if", "map", "sort", "while", "reduce", "reduce_window", "scatter", "select_and_scatter")
# Ops that give elements of their operands as they are.
_MOVES = frozenset(
    (
        *("bitcast_convert", "broadcast", "broadcast_in_dim", "concatenate", "constant", "dynamic_broadcast_in_dim"),
        *("dynamic_gather", "dynamic_pad", "dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather"),
        *("get_dimension_size", "optimization_barrier", "pad", "real_dynamic_slice", "reshape", "reverse", "select"),
        *("set_dimension_size", "slice", "torch_index_select", "transpose"),
    )
)


class Held:
    """What surrounds an op whose operands or results have quantised types.

    Args:
        op: The op.
        name: The name of its rule.
    """

    def __init__(self, op: mlir.Operation, name: str):
        self._op, self._name = op, name
        types = [v.type for v in (*op.operands, *op.results)]
        self._floats = any(map(is_quantised, types)) and name not in _OF_REGIONS and not self._moves(types)

    def _moves(self, types: Sequence[Any]) -> bool:
        """Whether the op moves quantised elements, all of which have the same type."""
        elements = {str(mlir.ir.RankedTensorType(t).element_type) for t in types if is_quantised(t)}
        return self._name in _MOVES and len(elements) == 1

    def computed(self, shapes: list[Shape]) -> list[Shape]:
        """The shapes of what the rule gives, from those in which results are held."""
        if not self._floats:
            return shapes
        types = [quantised(r.type) for r in self._op.results]
        return [s if q is None else s.with_dtype(q.expressed) for s, q in zip(shapes, types, strict=True)]

    def opened(self, g: Any, operands: Sequence[Tensor]) -> list[Tensor]:
        """The operands as the rule takes them: quantised ones as the numbers that they stand for."""
        if not self._floats:
            return list(operands)
        types = [quantised(v.type) for v in self._op.operands]
        return [t if q is None else q.numbers(g, t) for t, q in zip(operands, types, strict=True)]

    def closed(self, g: Any, results: Sequence[Tensor]) -> list[Tensor]:
        """The results as they are held, from those that the rule gave."""
        if not self._floats:
            return list(results)
        types = [quantised(r.type) for r in self._op.results]
        return [t if q is None else q.stored(g, t) for t, q in zip(results, types, strict=True)]
