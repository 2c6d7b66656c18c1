"""The statements of the function that runs a program: calls of the kernels, loops and branches, and the results."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from rlx import mlir
from rlx.ir.location import layer_of
from rlx.ir.op import opview
from rlx.ir.op.opview import name_of, place_of
from rlx.ir.shape import Shape, shape_of
from rlx.plan.liveness import LiveStep
from rlx.support.printable import printable
from rlx.targets.c.lower.addresses import ValueAddresses
from rlx.targets.c.lower.control import RunRegion, condition_of, ops_of, run_regions
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.notation import c_array_type, call_text, without_folders, words_of
from rlx.targets.c.lower.values import literal, stored_type
from rlx.targets.c.lower.writer import Writer

if TYPE_CHECKING:
    from rlx.targets.c.lower.program import CSource, KernelFunction


class ProgramSteps:
    """The statements of the function that runs a program.

    Args:
        program: The program, with its kernels and its memory.

    Attributes:
        lines: The lines of the statements.
        copies: Whether they call `memcpy`.
    """

    def __init__(self, program: CSource):
        self.program = program
        self.addresses = ValueAddresses(program)
        self.copies = False
        self._functions = {f.group.result: f for f in program.functions}
        self._steps = {s.op.results[0]: s for s in program.memory.plan.layout.liveness.steps if s and len(s.op.results)}
        self._declared = {program.names[v] for _, v in program.arguments} | set(program.outputs)
        writer = Writer(1)
        self._block(writer, program.graph.function.entry_block)
        self.lines = writer.lines

    # --- blocks -----------------------------------------------------------------------------------

    def _block(
        self,
        w: Writer,
        block: mlir.Block,
        end: tuple[mlir.Operation, RunRegion] | None = None,
        reads: mlir.Value | None = None,
    ) -> None:
        """Write the ops of a block, after pointers to the values that they use.

        Args:
            w: The lines to add to.
            block: The block.
            end: The op of the region and the region, if the values that it yields are to be copied.
            reads: A value that the lines after the block read.
        """
        is_function = block == self.program.graph.function.entry_block
        body = Writer(w.depth)
        ops = list(ops_of(block))
        values = [v for v in (*block.arguments, *(r for op in ops for r in op.results)) if self._is_declared_here(v)]
        for op in ops:
            if len(op.regions):
                self._control(body, op)
            elif (function := self._functions.get(op.results[0])) is not None:
                self._call(body, function)
        if is_function:
            self._results(body)
        elif end is not None:
            self._yield(body, *end)
        used = words_of(body.lines)
        if reads is not None:
            used.add(self.program.names[reads])
        names = {name: v for v in values if (name := self.program.names[v]) in used}
        for name, value in names.items():
            w.line(f"{self.addresses.pointer(value, name)} /* {c_array_type(shape_of(value))} */")
        if names and is_function:
            w.line()
        w.lines += body.lines

    def _is_declared_here(self, value: mlir.Value) -> bool:
        """Whether a value needs a pointer that no enclosing block has."""
        name = self.program.names.get(value)
        if name is None or name in self._declared:
            return False
        self._declared.add(name)
        return True

    def _call(self, w: Writer, function: KernelFunction) -> None:
        p, result = self.program, function.group.result
        arguments = {p.names[v]: self.addresses.name(v) for v in function.reads}
        arguments[p.names[result]] = p.names[result]
        texts = list(arguments.values())
        if function.scratch:
            texts.append(self.addresses.arena(p.memory.scratch[function.group]))
        for line in call_text(function.name, texts).split("\n"):
            w.line(line + (";" if line.endswith(")") else ""))

    # --- branches and loops -----------------------------------------------------------------------

    def _control(self, w: Writer, op: mlir.Operation) -> None:
        if not len(op.results):
            return
        regions, kind = run_regions(op), name_of(op)
        w.comment(_explained(op))
        if kind == "if":
            self._if(w, op, regions)
            return
        carries = len(op.results) if kind == "while" else opview.attributes_of(op)["num_carries"]
        for value, result in zip(list(op.operands)[:carries], op.results, strict=False):
            self._copy(w, result, value)
        if not regions:
            return
        with ExitStack() as stack:
            stack.enter_context(w.block(self._loop_head(op)))
            if kind == "while":
                condition = condition_of(op)
                is_known = constant_of(condition) is not None
                self._block(w, regions[0].block, reads=None if is_known else condition)
                if not is_known:
                    with w.block(f"if ({self.addresses.name(condition)}[0] == 0u)"):
                        w.line("break;")
            self._block(w, regions[-1].block, (op, regions[-1]))

    def _loop_head(self, op: mlir.Operation) -> str:
        values, counter = opview.attributes_of(op), self.program.iterations[op.results[0]]
        if name_of(op) == "while":
            bound = values["max_iterations"]
            return "for (;;)" if bound is None else f"for (int32_t {counter} = 0; {counter} < {bound}; {counter}++)"
        (length,) = values["length"]
        if values["reverse"]:
            return f"for (int32_t {counter} = {length - 1}; {counter} >= 0; {counter}--)"
        return f"for (int32_t {counter} = 0; {counter} < {length}; {counter}++)"

    def _if(self, w: Writer, op: mlir.Operation, regions: Sequence[RunRegion]) -> None:
        condition = op.operands[0]
        if len(regions) == 1:
            with w.block(""):
                self._block(w, regions[0].block, (op, regions[0]))
            return
        with w.block(f"if ({self.addresses.name(condition)}[0] != 0u)"):
            self._block(w, regions[0].block, (op, regions[0]))
        otherwise = Writer(w.depth + 1)
        self._block(otherwise, regions[1].block, (op, regions[1]))
        if otherwise.lines:
            w.lines[-1] += " else {"
            w.lines += otherwise.lines
            w.line("}")

    def _yield(self, w: Writer, op: mlir.Operation, region: RunRegion) -> None:
        """Copy yielded values that are not computed in the memory of the results: rows first, then all carries together."""
        step = self._steps[op.results[0]]
        flow, end = step.flows[region.number], step.yields[region.number]
        assert flow is not None and end is not None
        pairs = list(enumerate(zip(opview.yielded(region.block), flow.yields, strict=True)))
        for i, (value, target) in pairs:
            if target is not None and target.kind == "row":
                self._copy_to_row(w, op, op.results[target.index], value, end, i)
        carried = self.program.memory.carried
        for i, (value, _) in pairs:
            if (end, i) in carried:
                shape = shape_of(value)
                w.line(
                    f"(void)memcpy({self.addresses.arena(carried[end, i])}, {self.addresses.name(value)}, {_bytes(shape)});"
                )
                self.copies = True
        for i, (value, target) in pairs:
            if target is None or target.kind == "row":
                continue
            result = op.results[target.index]
            if (end, i) in carried:
                self._move(w, self.program.names[result], self.addresses.arena(carried[end, i]), shape_of(value))
            else:
                self._copy(w, result, value)

    def _copy_to_row(
        self, w: Writer, op: mlir.Operation, stack: mlir.Value, value: mlir.Value, end: LiveStep, i: int
    ) -> None:
        """Copy a yielded value to the row of the iteration, unless it is computed there."""
        live = end.reads[i]
        if live is not None and live.storage in self.program.memory.rows:
            step, index = self.program.memory.rows[live.storage]
            if step.op.results[index] == stack and step.op == op:
                return
        shape = shape_of(value)
        count = prod(shape.static)
        if not count:
            return
        counter = self.program.iterations[op.results[0]]
        at = counter if count == 1 else f"{count} * {counter}"
        self._assign(w, self.program.names[stack], at, value, shape)

    # --- copies -----------------------------------------------------------------------------------

    def _copy(self, w: Writer, result: mlir.Value, value: mlir.Value) -> None:
        """Copy a value to the memory of a result, unless it is there."""
        shape = shape_of(value)
        if not prod(shape.static):
            return
        if constant_of(value) is None and self.addresses.of(value) == self.addresses.of(result):
            return
        self._assign(w, self.program.names[result], "", value, shape)

    def _assign(self, w: Writer, target: str, at: str, value: mlir.Value, shape: Shape) -> None:
        """Copy a value to an array, from an element on."""
        array, count = constant_of(value), prod(shape.static)
        if array is not None and _is_splat(array):
            text = literal(array.reshape(-1)[0], shape.dtype).text
            if count == 1:
                w.line(f"{target}[{at or 0}] = {text};")
                return
            with w.loop("i", count):
                w.line(f"{target}[{f'({at}) + i' if at else 'i'}] = {text};")
            return
        source = self.addresses.name(value)
        if count == 1:
            w.line(f"{target}[{at or 0}] = {source}[0];")
            return
        self._move(w, f"{target} + ({at})" if at else target, source, shape)

    def _move(self, w: Writer, target: str, source: str, shape: Shape) -> None:
        if not prod(shape.static):
            return
        self.copies = True
        w.line(f"(void)memcpy({target}, {source}, {_bytes(shape)});")

    # --- results ----------------------------------------------------------------------------------

    def _results(self, w: Writer) -> None:
        """Copy results that were not computed in the caller's memory, then update the states."""
        p, plan = self.program, self.program.memory.plan
        end = plan.layout.liveness.steps[-1]
        assert end is not None
        rows = list(zip(p.graph.results, p.outputs, end.op.operands, strict=True))
        for i, (result, name, value) in enumerate(rows):
            is_there = p.memory.outputs.get(p.memory.live(value).storage) == i
            if result.updates is None and not is_there:
                self._move(w, name, self._source(value), result.shape)
        by_name = {a.name: p.names[v] for a, v in p.arguments}
        for i, offset in p.memory.copies.items():
            self._move(w, self.addresses.arena(offset), self._source(rows[i][2]), rows[i][0].shape)
        for i, (result, _, value) in enumerate(rows):
            if result.updates is not None and prod(result.shape.static):
                source = self.addresses.arena(p.memory.copies[i]) if i in p.memory.copies else self._source(value)
                target = f"state->{by_name[result.updates]}"
                if source != target:
                    self._move(w, target, source, result.shape)

    def _source(self, value: mlir.Value) -> str:
        array = constant_of(value)
        if array is None or not array.size:
            return self.addresses.name(value) if array is None else ""
        kind = stored_type(shape_of(value).dtype)
        return self.program.table("result", array.reshape(-1), kind, "a result that is constant")


def _bytes(shape: Shape) -> int:
    return prod(shape.static) * shape.dtype.itemsize


def _explained(op: mlir.Operation) -> str:
    """Describe a loop or a branch: its layer, its kind, its number of iterations and the user's line."""
    values, kind = opview.attributes_of(op), name_of(op)
    text = kind
    if kind == "scan":
        (length,) = values["length"]
        text = f"scan of {length} {'iteration' if length == 1 else 'iterations'}"
        text += ", from the last to the first" if values["reverse"] and length > 1 else ""
    elif kind == "while":
        bound = values["max_iterations"]
        text = "while, without a bound" if bound is None else f"while, at most {bound} iterations"
    layer, place = layer_of(op.location), without_folders(place_of(op))
    return printable(", ".join(part for part in (layer, text, place) if part), keep="")


def _is_splat(array: np.ndarray) -> bool:
    """Return whether all elements have the same bits: 0.0 and -0.0 are different, and NaN is equal to itself."""
    return array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size
