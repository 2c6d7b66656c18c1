"""`rlx-propagate-constants`: elimination of known branches, loops that do not run, and constant loop carries."""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass

import numpy as np

from rlx import mlir
from rlx.ir.graph.evaluate import evaluate_op
from rlx.ir.graph.regions import use
from rlx.ir.op import attributes, opview, registry
from rlx.ir.op.signature import bodies
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import builder_before, erase_dead
from rlx.support.errors import Error

# Arrays of constant values, as a chain of mappings. The innermost region comes first.
_Known = MutableMapping[mlir.Value, np.ndarray]


@dataclass(frozen=True)
class PropagateConstants(Pass, name="rlx-propagate-constants", exact=True, idempotent=True):
    """Propagate constants through control flow, with optimistic assumptions about loop carries.

    A branch whose condition is known replaces its `if`, and the condition is known inside the branches. A `while` whose
    condition is false at first, and a `scan` without steps and stacked results, return their initial values. A `scan`
    of one step becomes its body. A carry that no step changes is replaced by its initial value for all readers. A
    tensor without elements is a constant.
    """

    max_elements: int = option(4096, "the largest constant that is propagated, in elements", least=0)

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            while True:  # removed computations in a body may leave a carry unchanged
                propagation = _Propagation(self.name, self.max_elements)
                propagation.rewrite(function.entry_block, {})
                erase_dead(propagation.dead)
                if not propagation.changed:
                    break


class _Propagation:
    """Rewrites one function. Replaced ops are erased at the end, so that no new value can reuse their address."""

    def __init__(self, note: str, max_elements: int):
        self.note, self.max_elements = note, max_elements
        self.dead: list[mlir.Operation] = []
        self.changed = False

    def replace(self, value: mlir.Value, by: mlir.Value) -> None:
        """Replace all uses of a value by another one."""
        if opview.is_used(value):
            value.replace_all_uses_with(by)
            self.changed = True

    def rewrite(self, block: mlir.Block, known: _Known) -> None:
        """Rewrite the ops of a block and of their regions.

        Args:
            block: The block.
            known: The constants of enclosing blocks; those of the block are added.
        """
        ops = [view.operation for view in block.operations][::-1]
        self._replace_empty(block.arguments, ops[-1])
        while ops:
            op = ops.pop()
            if op.name != "rlx.constant" and self._replace_empty(op.results, op):
                self.dead.append(op)
            if not len(op.regions):
                self._evaluate(op, known)
                continue
            standing_for = self._without(op, known)
            if standing_for is None:
                self._rewrite_regions(op, known)
            else:
                ops += reversed(standing_for)
                self.dead.append(op)

    def _rewrite_regions(self, op: mlir.Operation, known: _Known) -> None:
        name = opview.name_of(op)
        if name in ("while", "scan"):
            self._replace_unchanged(op, known)
        inside: list[_Known] = []
        for index, region in enumerate(op.regions):
            for block in region.blocks:
                if name == "if":
                    self._assume(op.operands[0], block, index == 0)
                inside.append(ChainMap({}, known))
                self.rewrite(block, inside[-1])
        if name == "if":
            self._replace_alike(op, *inside)
        self.dead.append(op)  # erased at the end if unused

    # --- constants --------------------------------------------------------------------------------

    def _replace_empty(self, values: Iterable[mlir.Value], op: mlir.Operation) -> bool:
        """Replace tensors without elements by constants before an op. Returns whether there are any."""
        shapes = ((v, shape_of(v)) for v in values if opview.is_used(v))
        empty = [(v, s) for v, s in shapes if 0 in s.dims and s.is_static and s.is_addressable]
        for value, shape in empty:
            constant = builder_before(op, self.note).constant(np.empty(shape.static, shape.dtype.numpy))
            self.replace(value, constant.value)
        return bool(empty)

    def _evaluate(self, op: mlir.Operation, known: _Known) -> None:
        """Add the results of an op without regions to the known constants, if its operands are known."""
        if op.name == "rlx.constant":
            if self._is_small(op.results):
                known[op.results[0]] = attributes.read(registry.card("constant").spec, op)["value"]
            return
        is_ours = registry.is_ours(op) and op.name not in opview.TERMINATORS
        if not is_ours or not len(op.operands) or not all(v in known for v in op.operands):
            return
        if self._is_small(op.results):
            with contextlib.suppress(Error):  # for example, an attribute has a symbol
                known.update(zip(op.results, evaluate_op(op, [known[v] for v in op.operands], {}), strict=True))

    def _is_small(self, values: Iterable[mlir.Value]) -> bool:
        sizes = [shape_of(value).num_elements for value in values]
        return all(isinstance(size, int) and size <= self.max_elements for size in sizes)

    def _yielded(self, block: mlir.Block, known: _Known) -> list[np.ndarray | None]:
        """Return the values that a block yields, where known, without changing the block."""
        for view in block.operations:
            op = view.operation
            if not len(op.regions):
                self._evaluate(op, known)
            elif opview.name_of(op) == "if" and (condition := known.get(op.operands[0])) is not None:
                branch = op.regions[0 if condition else 1].blocks[0]
                results = zip(op.results, self._yielded(branch, known), strict=True)
                known.update({result: array for result, array in results if array is not None})
        return [known.get(v) for v in opview.yielded(block)]

    # --- removal of branches and loops ----------------------------------------------------------------

    def _without(self, op: mlir.Operation, known: _Known) -> list[mlir.Operation] | None:
        """Replace the results of an unnecessary op. Returns the ops that take its place, or None if it stays."""
        name = opview.name_of(op)
        if name == "if" and (condition := known.get(op.operands[0])) is not None:
            branch = op.regions[0 if condition else 1].blocks[0]
            moved = _moved(op, branch)
            return self._replaced(op, opview.yielded(branch), moved)
        if name == "while" and self._never_runs(op, known):
            return self._replaced(op, list(op.operands))
        if name != "scan":
            return None
        values = opview.attributes_of(op)
        (length,), count = values["length"], values["num_carries"]
        if length == 0 and len(op.results) == count:
            return self._replaced(op, list(op.operands)[:count])
        return self._one_step(op, count) if length == 1 else None

    def _never_runs(self, op: mlir.Operation, known: _Known) -> bool:
        if opview.attributes_of(op)["max_iterations"] == 0:
            return True
        condition = op.regions[0].blocks[0]
        arguments = zip(condition.arguments, op.operands, strict=True)
        inside: _Known = ChainMap({a: known[v] for a, v in arguments if v in known}, known)
        (runs,) = self._yielded(condition, inside)
        return runs is not None and not runs

    def _one_step(self, op: mlir.Operation, count: int) -> list[mlir.Operation]:
        """Replace a scan of one step, with `count` carries, by its body."""
        builder, body = builder_before(op, self.note), op.regions[0].blocks[0]
        arguments = [builder.tensor(v) for v in op.operands]
        arguments[count:] = [builder.reshape(x, x.shape.dims[1:]) for x in arguments[count:]]
        for argument, tensor in zip(body.arguments, arguments, strict=True):
            self.replace(argument, tensor.value)
        moved = _moved(op, body)
        yielded = [builder.tensor(v) for v in opview.yielded(body)]
        yielded[count:] = [builder.reshape(y, (1, *y.shape.dims)) for y in yielded[count:]]
        return self._replaced(op, [t.value for t in yielded], moved)

    def _replaced(
        self, op: mlir.Operation, values: Iterable[mlir.Value], ops: list[mlir.Operation] | None = None
    ) -> list[mlir.Operation]:
        """Replace the results of an op. Returns the ops that take its place."""
        for result, value in zip(op.results, values, strict=True):
            self.replace(result, value)
        return ops or []

    # --- facts inside regions -----------------------------------------------------------------------

    def _assume(self, condition: mlir.Value, branch: mlir.Block, truth: bool) -> None:
        """Replace the condition by true, or false, in the ops of a branch."""
        if any(condition in list(op.operands) for op in opview.operations(branch)):
            ops = [view.operation for view in branch.operations]
            constant = builder_before(ops[0], self.note).constant(np.array(truth)).value
            for op in ops:
                use(op, {condition: constant})
            self.changed = True

    def _replace_alike(self, op: mlir.Operation, then: _Known, otherwise: _Known) -> None:
        """Replace results of an `if` that are the same in both branches."""
        branches = [opview.yielded(region.blocks[0]) for region in op.regions]
        for result, a, b in zip(op.results, *branches, strict=True):
            if not opview.is_used(result):
                continue
            if a == b:
                self.replace(result, a)
            elif b in otherwise and _equal(then.get(a), otherwise[b]):
                self.replace(result, builder_before(op, self.note).constant(otherwise[b]).value)

    def _replace_unchanged(self, op: mlir.Operation, known: _Known) -> None:
        """Replace the carries of a loop that never change by their initial values."""
        is_scan = opview.name_of(op) == "scan"
        count = opview.attributes_of(op)["num_carries"] if is_scan else len(op.operands)
        body = op.regions[len(op.regions) - 1].blocks[0]
        for k in self._unchanged(body, list(op.operands)[:count], known):
            for region in op.regions:
                self.replace(region.blocks[0].arguments[k], op.operands[k])
            self.replace(op.results[k], op.operands[k])

    def _unchanged(self, body: mlir.Block, inits: list[mlir.Value], known: _Known) -> list[int]:
        """Return the carries that no step changes: assume all candidates, then drop those that are contradicted."""
        arguments, yielded = list(body.arguments)[: len(inits)], opview.yielded(body)[: len(inits)]
        same = {k for k, v in enumerate(yielded) if v == arguments[k] or v == inits[k]}
        assumed = {k for k, v in enumerate(inits) if v in known} - same
        while assumed:
            constants = {arguments[k]: known[inits[k]] for k in assumed | same if inits[k] in known}
            given = self._yielded(body, ChainMap(constants, known))
            kept = {k for k in assumed if _equal(given[k], known[inits[k]])}
            if kept == assumed:
                break
            assumed = kept
        return sorted(same | assumed)


def _equal(a: np.ndarray | None, b: np.ndarray) -> bool:
    """Whether two arrays are bitwise equal."""
    return a is not None and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _moved(op: mlir.Operation, block: mlir.Block) -> list[mlir.Operation]:
    """Move the ops of a region's block, except the terminator, before the op."""
    *ops, _ = [view.operation for view in block.operations]
    for inner in ops:
        inner.move_before(op)
    return ops
