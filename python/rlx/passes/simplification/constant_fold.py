"""`rlx-constant-fold`: evaluation of computations that depend only on constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx import mlir
from rlx.ir.graph.evaluate import evaluate_op
from rlx.ir.op import attributes, opview, registry
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import builder_before, collect, erase_dead, replace
from rlx.support.errors import Error


@dataclass(frozen=True)
class ConstantFold(Pass, name="rlx-constant-fold", exact=True, idempotent=True):
    """Evaluate ops whose operands are all constants, with the NumPy evaluators.

    Positions (`iota`) and elementwise functions of them are not evaluated, since compilers compute them where they are
    used. A sort, a scatter or a sum of positions is evaluated.
    """

    max_elements: int = option(65536, "the largest operand or result that is evaluated, in elements", least=0)

    def run(self, module: mlir.Module) -> None:
        known: dict[mlir.Value, np.ndarray] = {}
        constants: list[mlir.Operation] = []
        positions: dict[mlir.Value, mlir.Operation] = {}  # values that depend only on positions and constants
        for op in collect(module):
            if op.name == "rlx.constant":
                constants.append(op)
            elif self._foldable(op, known, positions):
                if op.name == "rlx.iota" or (_follows(op) and any(v in positions for v in op.operands)):
                    positions.update(dict.fromkeys(op.results, op))
                else:
                    constants += self._fold(op, known, positions)
        erase_dead([*positions.values(), *constants])

    def _foldable(
        self,
        op: mlir.Operation,
        known: dict[mlir.Value, np.ndarray],
        positions: dict[mlir.Value, mlir.Operation],
    ) -> bool:
        operands = list(op.operands)
        if not operands and op.name not in ("rlx.dim_size", "rlx.iota"):
            return False
        if not all(v in known or v in positions or self._read(v, known) for v in operands):
            return False
        return not len(op.regions) and all(self._small(r) for r in op.results)

    def _small(self, value: mlir.Value) -> bool:
        size = shape_of(value).num_elements
        return isinstance(size, int) and size <= self.max_elements

    def _read(self, value: mlir.Value, known: dict[mlir.Value, np.ndarray]) -> bool:
        """Add the array of a value to `known` if it is a small constant. Returns whether it is."""
        op = getattr(value.owner, "operation", None)
        if op is None or op.name != "rlx.constant" or not self._small(value):
            return False
        known[value] = attributes.read(registry.card(op.name).spec, op)["value"]
        return True

    def _fold(
        self,
        op: mlir.Operation,
        known: dict[mlir.Value, np.ndarray],
        positions: dict[mlir.Value, mlir.Operation],
    ) -> list[mlir.Operation]:
        """Replace an op by constants, and return them."""
        try:
            arrays = evaluate_op(op, [_array(v, known, positions) for v in op.operands], {})
        except Error:
            return []  # for example, an attribute has a symbol
        builder = builder_before(op, self.name)
        values: list[mlir.Value] = []
        for array in arrays:
            value = builder.emit("constant", (), value=array).value
            known[value] = array
            values.append(value)
        replace(op, values)
        return [v.owner.operation for v in values]


def _follows(op: mlir.Operation) -> bool:
    """Whether an op computes each element from a few others, so that compilers compute it where it is used."""
    return any(opview.has_trait(op, trait) for trait in ("elementwise", "rearranges", "view"))


def _array(
    value: mlir.Value, known: dict[mlir.Value, np.ndarray], positions: dict[mlir.Value, mlir.Operation]
) -> np.ndarray:
    """Return the array of a value, which is evaluated if it depends on positions."""
    pending = [value]
    while pending:
        op = positions[pending[-1]] if pending[-1] not in known else None
        missing = [] if op is None else [v for v in op.operands if v not in known]
        if op is not None and not missing:
            arrays = evaluate_op(op, [known[v] for v in op.operands], {})
            known.update(zip(op.results, arrays, strict=True))
        pending = [*pending, *missing] if missing else pending[:-1]
    return known[value]
