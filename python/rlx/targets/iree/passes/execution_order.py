"""The order in which IREE executes kernels that overwrite tensors and the ops around them.

IREE orders ops only by use-def chains. There is no chain between a kernel that overwrites a tensor and the other readers
of the tensor. Quirks: `kernels-overtaken`, `fences-overtaken`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import mlir
from rlx.ir.op import opview
from rlx.targets.iree.passes.base import RESHAPES, create, maker_of
from rlx.targets.iree.passes.workgroups import digest

_ON_DEVICE = ("linalg", "iree_linalg_ext", "tensor", "arith", "math", "complex", "flow", "affine", "index")
KERNEL_CALL = "func.call"  # no other calls are left in a program that was lowered to linalg
_COMPUTED_ONCE = (KERNEL_CALL, "iree_linalg_ext.scatter", "iree_linalg_ext.sort", "util.optimization_barrier")
_BINDINGS = 16  # a kernel cannot have more than 32


def execute_in_order(module: Any) -> None:
    """Make IREE execute the kernels of a module in the order of its ops. Quirk: `kernels-overtaken`.

    By default, IREE groups concurrent kernels, and orders the groups only by use-def chains: a group that overwrites a state
    may move before another group that reads it. The strategy is called "debug", but has no other effects.
    """
    config = mlir.ir.Attribute.parse('#stream.partitioning_config<"debug">')
    module.operation.attributes["stream.partitioning"] = config


class ExecutionOrder:
    """The order in which IREE executes the ops of a block and the kernels that overwrite states.

    After `execute_in_order`, IREE executes the ops between two host ops (loops, branches, optimization barriers, reads of
    single numbers) in the order of the block. Across a host op, a kernel waits only for its operands.
    """

    def __init__(self, ops: Sequence[Any], position: dict[Any, int]):
        self.ops, self.position = ops, position
        self.host_ops = [at for at, op in enumerate(ops) if _runs_on_host(op)]
        self.token: Any = None
        self.users: list[list[set[int]]] = []  # positions of users, by op and result
        if self.host_ops:
            self.users = [[{position_in_block(u.owner, position) for u in r.uses} for r in op.results] for op in ops]

    def holds(self, states: Sequence[Any], loops: Sequence[Any], operands: Sequence[Any], last: int) -> bool:
        """Whether all readers of some states finish before a kernel starts, or have no effect.

        Args:
            states: The states that the kernel overwrites.
            loops: The loops that become the kernel.
            operands: The values that the kernel reads.
            last: The position of the op after which the kernel is inserted.
        """
        if not self.host_ops:
            return True
        needed = self._needed(operands)
        seen = {(self.position[opview.key(op)], alone) for op in loops for alone in (False, True)}
        # Pairs of the position of an op, and whether an earlier op on the path is a separate dispatch.
        waiting = [(position_in_block(use.owner, self.position), False) for state in states for use in state.uses]
        while waiting:
            at, alone = waiting.pop()
            if (at, alone) in seen:
                continue
            seen.add((at, alone))
            if not alone and self._is_between(at, last):
                continue
            if not self.users[at]:  # it returns a value, or stores another state, which is a visible effect
                return False
            is_alone = _is_one_dispatch(self.ops[at])
            for result, users in enumerate(self.users[at]):
                if not (is_alone and (at, result) in needed):
                    waiting += [(user, alone or is_alone) for user in users]
        return True

    def can_wait(self) -> bool:
        """Whether a kernel at the end can be made to wait for all visible values."""
        return all(map(_is_static, self._seen()))

    def wait_for(self, values: Sequence[Any], kernels: set[Any]) -> None:
        """Emit `token` at the end of the block: a number in memory that depends on all visible values.

        Args:
            values: Additional values that it depends on: the operands of kernels.
            kernels: The results of the kernels' loops, which are excluded.
        """
        awaited = [v for v in dict.fromkeys([*self._seen(), *values]) if v not in kernels and _is_computed(v)]
        with self.ops[-1].location, mlir.ir.InsertionPoint(self.ops[-1]):
            # The barrier takes digests, not the values: its operands must be in the program's own memory.
            digests = [digest(awaited[i : i + _BINDINGS]) for i in range(0, len(awaited), _BINDINGS)]
            if digests:
                self.token = create("util.optimization_barrier", [d.type for d in digests], digests).results[0]

    def _seen(self) -> list[Any]:
        """The visible values: results, and the new values of states."""
        return [value for op in self.ops if not op.results for value in op.operands]

    def _is_between(self, at: int, last: int) -> bool:
        """Whether an op precedes a kernel that is inserted after the op at `last`, without a host op between them."""
        return at <= last and not any(at <= host <= last for host in self.host_ops)

    def _needed(self, values: Sequence[Any]) -> set[tuple[int, int]]:
        """The results that some values depend on, as pairs of the op's position and the result's number."""
        needed: set[tuple[int, int]] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if isinstance(value.owner, mlir.ir.Block):
                continue
            op = value.owner.operation
            at = self.position[opview.key(op)]
            if (at, value.result_number) in needed:
                continue
            needed.add((at, value.result_number))
            if not _has_blocks(op):  # a branch does not wait for operands that it does not use
                waiting += op.operands
        return needed


def _is_static(value: Any) -> bool:
    """Whether a value is a tensor of static shape."""
    return isinstance(value.type, mlir.ir.RankedTensorType) and value.type.has_static_shape


def _is_computed(value: Any) -> bool:
    """Whether a value is a tensor of static shape that an op computes at run time."""
    source = value
    while (maker := maker_of(source)) is not None and maker.name in RESHAPES:
        source = maker.operands[0]
    return _is_static(value) and maker is not None and maker.name not in ("arith.constant", "util.global.load")


def _runs_on_host(op: Any) -> bool:
    """Whether an op runs on the host, and so separates groups of ops that IREE executes together."""
    if op.name in ("util.global.load", "util.global.store", "func.return", KERNEL_CALL):
        return False
    dialect = op.name.partition(".")[0]
    return _has_blocks(op) or op.name == "tensor.extract" or dialect not in _ON_DEVICE


def _has_blocks(op: Any) -> bool:
    """Whether an op is a loop or a branch on the host."""
    return bool(len(op.regions)) and op.name.partition(".")[0] not in _ON_DEVICE


def _is_one_dispatch(op: Any) -> bool:
    """Whether IREE computes an op once. Other ops may be recomputed in each dispatch that uses them."""
    if _has_blocks(op):
        return True
    if op.name == "linalg.generic":
        return any("reduction" in str(i) for i in op.attributes["iterator_types"])
    # A named op with two inputs is a contraction or a convolution.
    return op.name in _COMPUTED_ONCE or (op.name.startswith("linalg.") and len(op.operands) == 3)


def makes_new_tensors(op: Any) -> bool:
    """Whether the results of an op never share the memory of its operands."""
    return op.name.startswith("linalg.") or op.name == KERNEL_CALL


def position_in_block(op: Any, position: dict[Any, int]) -> int:
    """Return the position of an op in a block, or of the op in the block that contains it."""
    while opview.key(op) not in position:
        op = op.parent.operation
    return position[opview.key(op)]
