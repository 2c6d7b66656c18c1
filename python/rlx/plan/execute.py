"""Execution of a function in the bytes of its memory plan, with the NumPy evaluators, to verify the plan.

Values in the arena are read and written at the planned offset. The arena is poisoned, and so is every slot after the
last read of its value. Every read must return the bytes that were written. An op that is written over its operand must
give the same result when part of the operand is already overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.graph.evaluate import collect_arguments, evaluate_op
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.ir.op.card import as_results
from rlx.ir.op.dataflow import RegionFlow
from rlx.ir.op.opview import label_of
from rlx.ir.shape import Shape
from rlx.plan.liveness import Live, LiveStep, Storage
from rlx.plan.memory import MemoryPlan
from rlx.support.errors import Error

# These bytes are NaN in every float type.
_POISON = 0xFF


def execute(plan: MemoryPlan, values: Mapping[str, Any]) -> list[np.ndarray]:
    """Run a planned function in its arena.

    Args:
        plan: The plan, which has its graph.
        values: Values as for `rlx.evaluate`, with the sizes of the plan.

    Returns:
        The outputs, in order.

    Raises:
        Error: An argument does not fit, or the plan is wrong: a value is overwritten before its last read.
    """
    graph = plan.layout.graph
    arrays = collect_arguments(graph, values)
    for argument, array in zip(graph.arguments, arrays, strict=True):
        expected = argument.shape.bind(plan.sizes)
        if array.shape != expected.static:
            message = f"{argument.kind} '{argument.name}' must be {expected}, which the plan is made for"
            raise Error(f"{message}, got {list(array.shape)}")
    results = _PlanExecutor(plan).run(arrays)
    return [r for r, output in zip(results, graph.results, strict=True) if output.updates is None]


class _PlanExecutor:
    def __init__(self, plan: MemoryPlan):
        self.plan, self.layout = plan, plan.layout
        self.arena = np.full(plan.arena_size, _POISON, np.uint8)
        self.address = self.arena.__array_interface__["data"][0]
        self.outside: dict[Live, np.ndarray] = {}
        self.written: dict[Live, bytes] = {}  # the expected bytes of each value
        self.shift: dict[Live, int] = {}  # for rows of loops, the offset from the first row
        self.blocks: dict[tuple[LiveStep, int] | None, list[LiveStep]] = {}
        self.dying: dict[int, list[Storage]] = {}
        for step in self.layout.liveness.steps:
            if step is not None:
                self.blocks.setdefault(step.home, []).append(step)
        for storage in self.layout.offsets:
            self.dying.setdefault(storage.end, []).append(storage)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the results of the function."""
        arguments = [v for v in self.layout.liveness.values.values() if v.step is None]
        for live, array in zip(arguments, arrays, strict=True):
            self._write(live, array, "the function")
        return self._block(None)

    def _block(self, home: tuple[LiveStep, int] | None) -> list[np.ndarray]:
        """Run the ops of a block. Returns the operands of its terminator."""
        for step in self.blocks[home]:
            if step.op.name in opview.TERMINATORS:
                return [self._read(live, step) for live in step.reads]
            operands = [self._read(live, step) for live in step.reads]
            if step.yields:
                _RegionOp(self, step).run(operands)
            else:
                results = evaluate_op(step.op, operands, self.plan.sizes)
                self._check_overwriting(step, operands, results)
                for live, array in zip(step.results, results, strict=True):
                    self._write(live, array, label_of(step.op))
                self.poison(self.dying.get(step.index, ()))
        raise Error("the function does not return")

    # --- bytes ------------------------------------------------------------------------------------

    def view(self, live: Live) -> np.ndarray:
        """Return the elements of a value in the arena, writable."""
        item = self.layout.liveness.item_size(live.shape)
        return self._elements(self.place(live), live.shape, item)

    def _elements(self, offset: int, shape: Shape, item: int) -> np.ndarray:
        strides, stride = list[int](), item
        for d in reversed(shape.static):
            strides.insert(0, stride)
            stride *= d
        if 0 in shape.static:
            return np.empty(shape.static, shape.dtype.numpy)
        return np.ndarray(shape.static, shape.dtype.numpy, self.arena.data, offset, tuple(strides))

    def place(self, live: Live) -> int:
        """Return the first byte of a value."""
        shift, around = 0, live
        while around is not None and around.relation in ("view", "row"):
            shift += self.shift.get(around, 0)
            around = around.base
        return self.layout.offsets[live.storage] + live.offset + shift

    def is_inside(self, live: Live) -> bool:
        """Whether a value is in the arena."""
        return live.storage in self.layout.offsets

    def _read(self, live: Live | None, step: LiveStep) -> np.ndarray:
        """Return a value, read-only."""
        assert live is not None  # evaluators accept only tensors
        if not self.is_inside(live):
            return self.outside[live]
        array = self.view(live)
        array.flags.writeable = False
        if array.tobytes() != self.written[live]:
            raise _wrong(step, f"reads {live.name}, which was overwritten since it was computed")
        return array

    def _write(self, live: Live | None, array: np.ndarray, by: str) -> None:
        """Write a value to its offset in the arena. The bytes of a view are already there."""
        assert live is not None
        if not self.is_inside(live):
            self.outside[live] = array = np.array(array)
            array.flags.writeable = False
            return
        view, contents = self.view(live), np.ascontiguousarray(array).tobytes()
        if live.relation == "view":
            if view.tobytes() != contents:
                raise Error(f"memory plan: {live.name} is not a view of what {by} takes")
        else:
            view[...] = np.array(array)  # the array may share these bytes
        self.written[live] = contents

    def poison(self, storages: Sequence[Storage]) -> None:
        """Overwrite storages whose values have been read for the last time."""
        for storage in storages:
            start = self.layout.offsets[storage]
            self.arena[start : start + storage.size] = _POISON

    # --- checks -----------------------------------------------------------------------------------

    def _check_overwriting(self, step: LiveStep, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Check that an op written over an operand gives the same result when half of the operand is overwritten."""
        for i, k in self.layout.choices.over.get(step, {}).items():
            result, over = results[i], step.reads[k]
            assert over is not None
            is_written, changed = _first_half(step, result), list(operands)
            for j, live in enumerate(step.reads):
                # Element sizes differ only on devices with uniform elements, which do not read an element twice.
                if live is not None and live.storage is over.storage and operands[j].itemsize == result.itemsize:
                    changed[j] = np.array(operands[j])
                    changed[j].reshape(result.shape).view(result.dtype)[is_written] = result[is_written]
            again = evaluate_op(step.op, changed, self.plan.sizes)[i]
            if again[~is_written].tobytes() != result[~is_written].tobytes():
                raise _wrong(step, f"cannot be written over operand {k}: it reads what it has written")


def _first_half(step: LiveStep, result: np.ndarray) -> np.ndarray:
    """Return a mask of the elements that an op has written half-way: of rows if it works on rows, else of elements."""
    if step.is_elementwise:
        return np.arange(result.size).reshape(result.shape) < result.size // 2
    axis = opview.attributes_of(step.op).get("axis", -1)
    rows = np.delete(result.shape, axis)
    count = int(np.prod(rows))
    return np.broadcast_to(np.expand_dims(np.arange(count).reshape(rows) < count // 2, axis), result.shape)


class _RegionOp:
    """Runs an op with regions: its evaluator decides which regions run, and calls them."""

    def __init__(self, machine: _PlanExecutor, step: LiveStep):
        self.machine, self.step = machine, step
        self.flows = step.flows
        arguments = [flow for region in self.flows if region is not None for flow in region.arguments]
        yields = [flow for region in self.flows if region is not None for flow in region.yields if flow is not None]
        self.carried = {flow.index for flow in arguments if flow.kind == "carry"}
        self.passed = {flow.index for flow in arguments if flow.kind != "carry"}
        self.stacked = {flow.index for flow in yields if flow.kind == "row"}
        self.result_storages = {live.storage for live in step.results if live is not None}

    def run(self, operands: Sequence[np.ndarray]) -> None:
        """Run the op."""
        machine, step = self.machine, self.step
        given = [array if k in self.passed else np.array(array) for k, array in enumerate(operands)]
        for k in self.carried:
            self._carry(k, given[k])
            given[k] = self._result(k)
        for k in self.stacked:
            machine.poison([self._live(k).storage])
        machine.poison([s for s in machine.dying.get(step.index, ()) if s not in self.result_storages])
        regions = tuple(_RegionRun(self, number) if end is not None else None for number, end in enumerate(step.yields))
        attributes = opview.attributes_of(step.op, machine.plan.sizes) | {"regions": regions}
        results = opview.card_of(step.op).evaluate(*opview.operands_of(step.op, given), **attributes)
        for i, array in enumerate(as_results(results)):
            self._finish(i, array)
        around = step.home[0] if step.home is not None else None
        dead = [s for s in machine.dying.get(step.end, ()) if s in self.result_storages or s.start <= step.index]
        machine.poison([s for s in dead if around is None or around.end != step.end or s.start > around.index])

    def _live(self, i: int) -> Live:
        live = self.step.results[i]
        assert live is not None
        return live

    def _result(self, i: int) -> np.ndarray:
        array = self.machine.view(self._live(i))
        array.flags.writeable = False
        return array

    def _carry(self, i: int, array: np.ndarray) -> None:
        """Write the value of a result, or of the carry that becomes it."""
        live = self._live(i)
        self.machine.view(live)[...] = np.array(array)
        self.machine.written[live] = np.ascontiguousarray(array).tobytes()

    def _finish(self, i: int, array: np.ndarray) -> None:
        live, contents = self._live(i), np.ascontiguousarray(array).tobytes()
        view = self.machine.view(live)
        if i in self.stacked:
            if set(view.tobytes()) - {_POISON}:
                raise _wrong(self.step, f"finds that {live.name} was written by another op")
            view[...] = array
        elif view.tobytes() != contents:
            raise _wrong(self.step, f"finds another value than it computed in {live.name}")
        self.machine.written[live] = contents


class _RegionRun:
    """The callable that an evaluator uses to run a region once."""

    def __init__(self, parent: _RegionOp, number: int):
        self.parent, self.number = parent, number
        end = parent.step.yields[number]
        assert end is not None
        self.end = end

    @property
    def flow(self) -> RegionFlow:
        """The flow of values through the region. A region that does not run, such as a derivative, has no plan."""
        flow = self.parent.flows[self.number]
        if flow is None:
            raise _wrong(self.parent.step, f"runs its region {self.number}, which is planned to be left out")
        return flow

    @property
    def results(self) -> list[Shape]:
        """The shapes of the yielded values."""
        return [live.shape for live in self.end.reads if live is not None]

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        machine, step = self.parent.machine, self.parent.step
        for live, flow, array in zip(step.arguments[self.number], self.flow.arguments, arrays, strict=True):
            assert live is not None
            if not machine.is_inside(live):
                machine.outside[live] = array
                continue
            if flow.kind == "row":
                at = array.__array_interface__["data"][0] - machine.address
                machine.shift[live] = 0
                machine.shift[live] = at - machine.place(live) if array.size else 0
            machine.written[live] = np.ascontiguousarray(array).tobytes()
        return self._yield(machine._block((step, self.number)))

    def _yield(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Copy yielded values to their destination: first values that the op reads whole, then all carries together."""
        machine, parent, end = self.parent.machine, self.parent, self.end
        given = list(zip(arrays, self.flow.yields, strict=True))
        yielded = [np.array(a) if flow is None or flow.kind == "row" else a for a, flow in given]
        for i, (array, _) in enumerate(given):
            scratch = machine.layout.scratch.get((end, i))
            if scratch is not None:
                live = end.reads[i]
                assert live is not None
                item = machine.layout.liveness.item_size(live.shape)
                copy = machine._elements(machine.layout.offsets[scratch], live.shape, item)
                copy[...] = array
                arrays[i] = copy
        for i, (_, flow) in enumerate(given):
            if flow is not None and flow.kind != "row":
                parent._carry(flow.index, arrays[i])
                yielded[i] = parent._result(flow.index)
        dead = machine.dying.get(end.index, ())
        machine.poison([s for s in dead if s.start > parent.step.index and s not in parent.result_storages])
        return yielded


def _wrong(step: LiveStep, what: str) -> Error:
    return Error(f"memory plan: '{label_of(step.op)}' {what}", location=describe(step.op.location))
