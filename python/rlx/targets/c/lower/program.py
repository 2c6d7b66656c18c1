"""The C program of a graph at LIR: a header, the code and the constants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.location import describe, layer_of
from rlx.ir.op import opview
from rlx.ir.op.opview import name_of
from rlx.ir.shape import Shape, shape_of
from rlx.passes.bind import bind_hint
from rlx.support.cached_property import cached_property
from rlx.support.errors import UnsupportedError
from rlx.support.printable import printable
from rlx.targets.c.lower.control import is_unbounded, ops_of, run_blocks, run_regions
from rlx.targets.c.lower.grouping import OpGroup, constant_of, groups_in, is_view
from rlx.targets.c.lower.helpers import HELPERS
from rlx.targets.c.lower.kernel import KernelWriter
from rlx.targets.c.lower.memory import CMemory, plan_groups
from rlx.targets.c.lower.names import FileNames, identifier, layer_name, program_name
from rlx.targets.c.lower.notation import words_of
from rlx.targets.c.lower.rules import SCRATCH, TABLE
from rlx.targets.c.lower.steps import ProgramSteps
from rlx.targets.c.lower.tables import ConstantArray, record_table, table_of
from rlx.targets.c.lower.values import stored_type
from rlx.targets.c.lower.vectors import SelfTestVectors, vectors_of
from rlx.targets.lowering.names import UniqueNames

# Array offsets are `int32_t`.
_MOST_ELEMENTS = 2**31 - 1
_FUNCTION = re.compile(r'func\.func @("[^"]*"|[\w$.-]+)\(')
# Suffixes of the functions, types and macros of a program, after its name.
_OWN = (
    *("run", "init", "state", "params", "channel", "nearest", "self_test", "in_section", "has_no_constants"),
    *("arena_size", "constant_size", "rlx_version", "model_sha256", "options", "h", "weights_h", "test_main"),
)


@dataclass(frozen=True)
class KernelFunction:
    """A kernel of the program.

    Attributes:
        name: The name of the function.
        group: The ops that it computes.
        lines: Its body.
        before: Functions that only this kernel calls.
        reads: The values that it reads.
        scratch: Whether it has scratch memory.
        most: The largest number of times that it runs in a call of the program; loops without a bound count as one iteration.
        is_shared: Whether the function of this name is that of an earlier kernel, which computes the same from other buffers.
    """

    name: str
    group: OpGroup
    lines: list[str]
    before: list[str]
    reads: list[mlir.Value]
    scratch: bool
    most: int = 1
    is_shared: bool = False

    @property
    def products(self) -> int:
        """The number of multiplications in a call of the program, at most."""
        return self.group.products * self.most


class CSource:
    """The contents of a program's files.

    Args:
        graph: LIR: static shapes, ops with rules.
        options: The options of the compilation, for the header.

    Attributes:
        name: The prefix of all files, and of all names that other files see.
        files: The names of its files.
        title: The name of the graph, for comments.
        memory: The memory plan.
        groups: The groups of ops that are kernels, in program order.
        functions: The kernels, in program order.
        iterations: For each loop with a counter, its first result and the name of the counter.
        steps: The statements of the function that runs the program.
        tables: Constants, by name.
        records: Types of structures, by their fields.
        helpers: The functions of `helpers.py` that are used.
        aliased: Dtypes of more than a byte in the arena.
        names: The names of buffers, by value.
        copies: Whether its code calls `memcpy`, after its files were written.

    Raises:
        UnsupportedError: The graph has symbols, or an element that C cannot express.
    """

    def __init__(self, graph: Graph, options: str = ""):
        if graph.symbols:
            raise UnsupportedError("programs in C have static sizes", hint=bind_hint(graph.symbols, 8))
        TABLE.check(graph.module)
        self.graph = graph
        self.name = program_name(graph.name)
        self.files = FileNames(self.name)
        self.options = options
        self.title = printable(graph.name, keep="")
        self.tables: dict[str, ConstantArray] = {}
        self.records: dict[tuple[str, ...], str] = {}
        self.helpers: set[str] = set()
        self.aliased: set[str] = set()
        self.names: dict[Any, str] = {}
        self.copies = False
        self._taken = UniqueNames(identifier, (*HELPERS, *(f"{self.name}_{own}" for own in _OWN)))
        self._check_sizes()
        blocks = list(run_blocks(graph.function.entry_block))
        executions = {op.results[0]: most for block, most in blocks for op in ops_of(block) if len(op.results)}
        self.groups = groups_in([block for block, _ in blocks])
        with_scratch = {g: n for g in self.groups if (n := _scratch_bytes(g))}
        self.alignment = max(4, *(shape_of(v).dtype.itemsize for v in self._values()))
        self.memory: CMemory = plan_groups(graph, self.groups, with_scratch, self.alignment)
        self.iterations: dict[Any, str] = {}
        self._name_values()
        functions = [
            self._function(number, group, executions[group.result]) for number, group in enumerate(self.groups, 1)
        ]
        # A value that is already in its place needs no kernel.
        self.functions = self._shared([f for f in functions if f.lines])
        self.steps = ProgramSteps(self)

    # --- for kernels ------------------------------------------------------------------------------

    def need(self, helper: str) -> str:
        """Request a helper, and return the name of its function; empty for a header."""
        self.helpers.add(helper)
        return helper if HELPERS[helper][1] else ""

    def table(self, name: str, array: np.ndarray, kind: str, note: str) -> str:
        """Add a constant array, and return its name."""
        return self._add(table_of(f"{self.name}_{name}", array, kind, note))

    def record_kind(self, fields: Iterable[str]) -> str:
        """Return the type of a structure with these fields, all i32."""
        number = len(self.records) + 1
        name = f"{self.name}_channel" + ("" if number == 1 else f"_{number}")
        return self.records.setdefault(tuple(fields), name)

    def record_table(self, name: str, fields: Mapping[str, np.ndarray], note: str) -> str:
        """Add a constant array of structures, and return its name."""
        return self._add(record_table(f"{self.name}_{name}", self.record_kind(fields), dict(fields), note))

    def _add(self, table: ConstantArray) -> str:
        for name, known in self.tables.items():
            if known.holds(table):
                return name  # unrolled loops have the same constants in each step
        base, number = table.name, 2
        while self._is_another(table):
            table = ConstantArray(
                f"{base}_{number}", *(getattr(table, f) for f in ("kind", "dims", "body", "note", "size"))
            )
            number += 1
        self.tables[table.name] = table
        return table.name

    def _is_another(self, table: ConstantArray) -> bool:
        """Whether another constant or a buffer has the name of a table."""
        found = self.tables.get(table.name)
        return table.name in self._taken if found is None else not found.holds(table)

    def local_name(self, name: str) -> str:
        """A unique name for a variable in a kernel."""
        base = identifier(name)
        return f"{base}_value" if self.is_taken(base) else base

    def is_taken(self, name: str) -> bool:
        """Whether a buffer or a function has this name."""
        return name in self._taken or name in HELPERS

    def arena_type(self, dtype: DType) -> str:
        """The type of elements in the arena, where bytes are reused for other types."""
        if dtype.itemsize == 1:
            return stored_type(dtype)
        self.aliased.add(dtype.name)
        return f"arena_{stored_type(dtype).removesuffix('_t')}"

    # --- values and kernels -----------------------------------------------------------------------

    def _values(self) -> list[mlir.Value]:
        block = self.graph.function.entry_block
        return [
            *block.arguments,
            *(v for op in opview.operations(block) for v in (*op.results, *_region_arguments(op))),
        ]

    def _check_sizes(self) -> None:
        for value in self._values():
            shape = shape_of(value)
            place = "" if isinstance(value, mlir.ir.BlockArgument) else describe(value.owner.operation.location)
            try:
                stored_type(shape.dtype)
            except UnsupportedError as problem:
                raise UnsupportedError(problem.message, hint=problem.hint, location=place or None) from None
            if int(np.prod(shape.static, dtype=object)) > _MOST_ELEMENTS:
                raise UnsupportedError(f"{shape} has more elements than an int32_t counts", location=place or None)

    def _name_values(self) -> None:
        block = self.graph.function.entry_block
        for argument, value in zip(self.graph.arguments, block.arguments, strict=True):
            self.names[value] = self._taken.take(argument.name)
        self.outputs = [self._taken.take(o.name, "y") for o in self.graph.results]
        # A buffer cannot have the name of a helper.
        label_numbers: dict[str, int] = {}
        for group in self.groups:
            base = self._base_of(group)
            label_numbers[base] = number = label_numbers.get(base, 0) + 1
            fresh = base if group.layer and number == 1 else f"{base}_{number}"
            self.names[group.result] = self._output_name(group.result) or self._taken.take(fresh)
        self._name_in_block(block)

    def _name_in_block(self, block: mlir.Block) -> None:
        """Name the results of ops with regions, the arguments of their regions, and views."""
        for op in (view.operation for view in block.operations):
            if len(op.regions):
                self._name_control(op)
            elif len(op.results) and is_view(op) and constant_of(op.results[0]) is None:
                self._name_view(op.results[0], op.operands[0], name_of(op))

    def _name_control(self, op: mlir.Operation) -> None:
        kind, layer = name_of(op), layer_name(layer_of(op.location))
        base = f"{layer}_{kind}" if layer else f"{kind}_result"
        for value in op.results:
            self.names[value] = self._output_name(value) or self._taken.take(base)
        regions = run_regions(op)
        if kind != "if" and regions:
            self.iterations[op.results[0]] = self._taken.take("iteration")
        for region in regions:
            for i, argument in enumerate(region.block.arguments):
                base = self.memory.live(argument).base
                if base is not None and base.value in op.results:
                    self.names[argument] = self.names[base.value]  # a carry is in the memory of the result
                else:
                    self.names[argument] = self._taken.take(f"{layer}_row" if layer else f"row_{i}")
            self._name_in_block(region.block)

    def _name_view(self, value: mlir.Value, base: mlir.Value, label: str) -> None:
        same = shape_of(base).dtype is shape_of(value).dtype
        moved = self.memory.live(value).offset - self.memory.live(base).offset
        self.names[value] = self.names[base] if same and not moved else self._taken.take(label)

    def _output_name(self, value: mlir.Value) -> str | None:
        """The name of the array of the caller that a value is computed in, if it is."""
        live = self.memory.live(value)
        if live.storage in self.memory.outputs and live is live.storage.members[0]:
            return self.outputs[self.memory.outputs[live.storage]]
        return None

    @staticmethod
    def _base_of(group: OpGroup) -> str:
        """The name of a layer with the kind of its op, `stem_conv`; only the kind if the model has no name for it."""
        layer, label = layer_name(group.layer), identifier(group.label)
        if not layer or layer.rpartition("_")[2].lower() == label:
            return layer or label
        return f"{layer}_{label}"

    def _function(self, number: int, group: OpGroup, most: int) -> KernelFunction:
        base = self.names[group.result]
        kernel = KernelWriter(self, group, base)
        if 0 not in group.shape.static:
            kernel.run()
        kernel.writer.drop_unused()
        name = f"step_{number}_{self._base_of(group)}"
        words = words_of(kernel.writer.lines)
        reads = [v for v in group.leaves() if self.names[v] in words]
        return KernelFunction(name, group, kernel.writer.lines, kernel.before.lines, reads, kernel.uses_scratch, most)

    def parameters(self, function: KernelFunction) -> list[tuple[str, str]]:
        """The arguments of a kernel: types and names."""
        found = {self.names[v]: f"const {self.arena_type(shape_of(v).dtype)} *" for v in function.reads}
        result = function.group.result
        found[self.names[result]] = f"{self.arena_type(shape_of(result).dtype)} *"
        if function.scratch:
            found["scratch"] = "uint8_t *"
        return [(kind, name) for name, kind in found.items()]

    def _shared(self, functions: list[KernelFunction]) -> list[KernelFunction]:
        """Let kernels with the same code, as those of an unrolled loop, share one function."""
        known: dict[tuple[str, ...], str] = {}
        shared: list[KernelFunction] = []
        for function in functions:
            parameters = self.parameters(function)
            text = "\n".join([*function.before, *function.lines])
            own = self.names[function.group.result]
            text = re.sub(rf"\b([a-z_]+)_{own}\b", r"\1_@", text)  # functions that only this kernel calls
            for number, (_, name) in enumerate(parameters):
                text = re.sub(rf"\b{name}\b", f"@{number}", text)
            name = known.setdefault((text, *(kind for kind, _ in parameters)), function.name)
            shared.append(function if name == function.name else replace(function, name=name, is_shared=True))
        return shared

    # --- facts ------------------------------------------------------------------------------------

    @property
    def has_unbounded_loops(self) -> bool:
        """Whether a loop has no bound, so that the time of a call has none."""
        return any(is_unbounded(op) for op in opview.operations(self.graph.function.entry_block))

    @property
    def arena_size(self) -> int:
        """Bytes of the arena."""
        return max(self.memory.plan.arena_size, self.alignment)

    @property
    def arguments(self) -> list[tuple[Argument, mlir.Value]]:
        """The arguments of the graph, with their values."""
        return list(zip(self.graph.arguments, self.graph.function.entry_block.arguments, strict=True))

    @cached_property
    def sha256(self) -> str:
        """The hash of the graph with its constants. It depends neither on source locations nor on the name of the graph."""
        text = _FUNCTION.sub("func.func @main(", self.graph.text(), count=1)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def vectors(self) -> SelfTestVectors:
        """The test vectors. The first access runs the evaluator."""
        return vectors_of(self.graph)

    @property
    def state_bytes(self) -> int:
        """Bytes of the states, which persist between calls."""
        return sum(int(a.shape.size_bytes) for a, _ in self.arguments if a.kind == "state")  # type: ignore[arg-type]

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(table.size for table in self.tables.values())

    def shape(self, value: mlir.Value) -> Shape:
        return shape_of(value)


def _region_arguments(op: mlir.Operation) -> list[mlir.Value]:
    return [a for region in op.regions for block in region.blocks for a in block.arguments]


def _scratch_bytes(group: OpGroup) -> int:
    """The scratch memory of a group's loops."""
    root = group.root
    if root is None or name_of(root) not in SCRATCH:
        return 0
    operands = opview.operands_of(root, list(root.operands))
    return SCRATCH[name_of(root)](group, shape_of(root.results[0]), *operands, **opview.attributes_of(root))
