"""`rlx-hoist-invariants`: what is the same in every step of a loop is computed before it."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.dims.dim import estimate
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import bodies
from rlx.passes.base import Pass, option
from rlx.passes.simplification.invariants import bytes_of, worth_keeping

# A value in memory is read in every step: one that is larger than what it is computed from would cost time.
_GROWTH = 1.0


@dataclass(frozen=True)
class HoistInvariants(Pass, name="rlx-hoist-invariants", exact=True, idempotent=True):
    """Move ops out of `scan` and `while` whose operands are the same in every step, out of several loops where they can.

    Ops have no effects and do not fail, so only time is at stake. The condition of a `while`, and a `scan` of known length,
    run at least once. A loop that may not run at all gives up ops of at most `speculate` operations, which take less than a
    millisecond; larger products stay. So do views, broadcasts, constants and what is larger than its operands.
    """

    speculate: int = option(1_000_000, "the most operations of an op that leaves a loop which may not run", least=0)

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
