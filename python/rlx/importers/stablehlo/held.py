"""How one op computes with element types that RLX holds in other dtypes: see `types`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rlx import mlir
from rlx.importers.stablehlo.types import foreign, quantised
from rlx.ir.builder import Tensor
from rlx.ir.errors import UnsupportedError
from rlx.ir.shape import Shape

# Ops of regions, which compute themselves in the types that they name; the first ones do nothing else.
_FLOW = ("case", "if", "map", "sort", "while")
_OF_REGIONS = (*_FLOW, "reduce", "reduce_window", "scatter", "select_and_scatter")
# Ops that give elements of their operands as they are.
_MOVES = frozenset(
    (
        *("bitcast_convert", "broadcast", "broadcast_in_dim", "concatenate", "constant", "dynamic_broadcast_in_dim"),
        *("dynamic_gather", "dynamic_pad", "dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather"),
        *("get_dimension_size", "optimization_barrier", "pad", "real_dynamic_slice", "reshape", "reverse", "select"),
        *("set_dimension_size", "slice", "torch_index_select", "transpose"),
    )
)
# Ops of which bits of integers do not depend on whether these have a sign.
_ON_BITS = frozenset(
    (
        *_MOVES,
        *_OF_REGIONS,
        *("add", "and", "convolution", "count_leading_zeros", "dot", "dot_general", "dynamic_conv", "dynamic_iota"),
        *("iota", "multiply", "negate", "not", "or", "popcnt", "rng_bit_generator", "shift_left"),
        *("shift_right_arithmetic", "shift_right_logical", "subtract", "xor"),
    )
)
_UI16 = 0xFFFF


class Held:
    """What surrounds an op whose operands or results have types that are held in others.

    Args:
        op: The op.
        name: The name of its rule.
    """

    def __init__(self, op: mlir.Operation, name: str):
        self._op, self._name = op, name
        types = [v.type for v in (*op.operands, *op.results)]
        self._kinds = {kind for kind in map(foreign, types) if kind}
        self._floats = "!quant" in self._kinds and name not in _OF_REGIONS and not self._moves(types)

    def _moves(self, types: Sequence[Any]) -> bool:
        """Whether the op moves quantised elements, all of which have the same type."""
        elements = {str(mlir.ir.RankedTensorType(t).element_type) for t in types if foreign(t) == "!quant"}
        return self._name in _MOVES and len(elements) == 1

    def rule(self, rules: Collection[str], place: str | None) -> str:
        """The name of the rule: ui64 and ui16 have some of their own.

        Raises:
            UnsupportedError: There is none for ui64.
        """
        for kind in sorted(self._kinds - {"!quant"}):
            special = f"{self._name} of {kind}"
            if special in rules:
                return special
            if kind == "ui64" and self._name not in _ON_BITS:
                raise UnsupportedError(f"{special} cannot be imported", location=place)
        return self._name

    def unsigned(self) -> tuple[bool, bool]:
        """Whether the first operand, and whether the first result is an unsigned integer that is held in another dtype."""
        first, result = self._op.operands[0], self._op.results[0]
        return foreign(first.type) is not None, foreign(result.type) is not None

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
        if self._floats:
            types = [quantised(r.type) for r in self._op.results]
            return [t if q is None else q.stored(g, t) for t, q in zip(results, types, strict=True)]
        if "ui16" not in self._kinds or self._name in _MOVES or self._name in _FLOW:
            return list(results)
        kinds = [foreign(r.type) for r in self._op.results]
        return [g.bitwise_and(t, _UI16) if k == "ui16" else t for t, k in zip(results, kinds, strict=True)]
