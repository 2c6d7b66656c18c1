"""`rlx-constant-fold`: computes before the first run what depends on constants only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx import mlir
from rlx.ir import attributes, registry
from rlx.ir.errors import Error
from rlx.ir.evaluate import evaluate_op
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import builder_before, collect, erase_dead, replace


@dataclass(frozen=True)
class ConstantFold(Pass, name="rlx-constant-fold", exact=True, idempotent=True):
    """Evaluate ops whose operands are all constants, by the NumPy evaluators."""

    max_elements: int = option(65536, "the largest operand or result that is evaluated, in elements", least=0)

    def run(self, module: mlir.Module) -> None:
        known: dict[mlir.Value, np.ndarray] = {}
        constants: list[mlir.Operation] = []
        for op in collect(module):
            if op.name == "rlx.constant":
                constants.append(op)
            elif self._foldable(op, known):
                constants += self._fold(op, known)
        erase_dead(constants)

    def _foldable(self, op: mlir.Operation, known: dict[mlir.Value, np.ndarray]) -> bool:
        operands = list(op.operands)
        if not operands and op.name != "rlx.dim_size":
            return False
        if not all(v in known or self._read(v, known) for v in operands):
            return False
        return not len(op.regions) and all(self._small(r) for r in op.results)

    def _small(self, value: mlir.Value) -> bool:
        size = shape_of(value).num_elements
        return isinstance(size, int) and size <= self.max_elements

    def _read(self, value: mlir.Value, known: dict[mlir.Value, np.ndarray]) -> bool:
        """Add the array of a value to `known` if it is a small constant; returns whether it is."""
        op = getattr(value.owner, "operation", None)
        if op is None or op.name != "rlx.constant" or not self._small(value):
            return False
        known[value] = attributes.read(registry.card(op.name).spec, op)["value"]
        return True

    def _fold(self, op: mlir.Operation, known: dict[mlir.Value, np.ndarray]) -> list[mlir.Operation]:
        """Replace an op by constants, and return these."""
        try:
            arrays = evaluate_op(op, [known[v] for v in op.operands], {})
        except Error:
            return []  # for instance if an attribute has a symbol
        builder = builder_before(op, self.name)
        values: list[mlir.Value] = []
        for array in arrays:
            value = builder.emit("constant", (), value=array).value
            known[value] = array
            values.append(value)
        replace(op, values)
        return [v.owner.operation for v in values]
