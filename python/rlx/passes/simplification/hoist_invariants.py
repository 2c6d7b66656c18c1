"""`rlx-hoist-invariants`: motion of loop-invariant ops out of loops."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.dims.dim import estimate
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import bodies
from rlx.passes.base import Pass, option
from rlx.passes.simplification.invariants import bytes_of, worth_keeping

# A hoisted value is stored, and read in every step. If it is larger than its operands, reading it takes more time than
# reading these.
_GROWTH = 1.0


@dataclass(frozen=True)
class HoistInvariants(Pass, name="rlx-hoist-invariants", exact=True, idempotent=True):
    """Move loop-invariant ops out of `scan` and `while`, also out of several nested loops.

    Ops have no side effects and cannot fail, so only time matters. The condition of a `while`, and a `scan` of known
    length, run at least once. From a loop that may not run at all, only ops of at most `speculate` operations are
    moved, which take less than a millisecond; more expensive ops are not moved. Views, broadcasts, constants, and ops
    whose results are larger than their operands are not moved either.
    """

    speculate: int = option(1_000_000, "the maximum operations of an op moved out of a loop that may not run", least=0)

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            self._hoist(function.entry_block)

    def _hoist(self, block: mlir.Block) -> None:
        """Move ops out of the loops of a block, inner loops first."""
        for op in [view.operation for view in block.operations if len(view.operation.regions)]:
            for region in op.regions:
                for inner in region.blocks:
                    self._hoist(inner)
            name = opview.name_of(op)
            if name == "while":
                self._move(op, op.regions[0].blocks[0], runs=True)
                self._move(op, op.regions[1].blocks[0], runs=False)
            elif name == "scan":
                (length,) = opview.attributes_of(op)["length"]
                self._move(op, op.regions[0].blocks[0], runs=isinstance(length, int) and length > 0)

    def _move(self, loop: mlir.Operation, block: mlir.Block, runs: bool) -> None:
        def source(value: mlir.Value) -> int | None:
            return None if opview.home_of(value) == block else bytes_of(value)

        def is_movable(op: mlir.Operation) -> bool:
            if not registry.is_ours(op) or len(op.regions):
                return False
            return runs or estimate(opview.own_cost_of(op).flops) <= self.speculate

        for op in worth_keeping(block, source, is_movable, _GROWTH)[1]:
            op.move_before(loop)
