"""The files of a program: its header, its code, and its constants with their header."""

from __future__ import annotations

import re
from math import prod
from typing import Any

from rlx.ir.dtype import dtype
from rlx.ir.interface import initial_value
from rlx.ir.op.opview import label_of, place_of
from rlx.ir.shape import Shape, shape_of
from rlx.support.printable import printable
from rlx.targets.c.lower.grouping import OpGroup, constant_of, is_view
from rlx.targets.c.lower.header import Header
from rlx.targets.c.lower.helpers import HELPERS, helpers_in_order
from rlx.targets.c.lower.program import CSource, KernelFunction
from rlx.targets.c.lower.signature import CSignature, c_array_type, call_text, count
from rlx.targets.c.lower.values import literal, stored_type
from rlx.targets.c.lower.writer import Writer
from rlx.version import __version__

_FOLDERS = re.compile(r"^.*[/\\](?=[^/\\]*\.onnx:)|^(?!.*\.onnx:).*[/\\]")
_OF_MATH_H = {"NAN", "INFINITY"}  # special values as `float_text` writes them


def files_of(program: CSource) -> dict[str, str]:
    """The text of each file of a program, by name."""
    names = program.files
    return {
        names.header: Header(program).text(),
        names.source: _ModelFile(program).text(),
        names.weights_header: _weights_header(program),
        names.weights: _weights(program),
    }


class _ModelFile:
    """The kernels, and the function that calls them."""

    def __init__(self, program: CSource):
        self.program = program
        self.signature = CSignature(program)
        self.writer = Writer()
        self.uses_memory = False

    def text(self) -> str:
        p = self.program
        body = Writer()
        for function in p.functions:
            if not function.is_shared:
                self._function(body, function)
        if self.signature.of_kind("state"):
            self._init(body)
        self._run(body)
        return str(self._top(str(body))) + str(body)

    def _top(self, body: str) -> Writer:
        p, w = self.program, Writer()
        w.comment(f"{p.title}: the code of a network, written by RLX {__version__}. See {p.files.header}.")
        w.line(f'#include "{p.files.header}"')
        w.line(f'#include "{p.files.weights_header}"')
        # A kernel may have requested a helper in a line that was then dropped.
        words = set(re.findall(r"\w+", body))
        used = helpers_in_order(name for name in p.helpers if not HELPERS[name][1] or name in words)
        words |= set(re.findall(r"\w+", "\n".join(HELPERS[name][1] for name in used)))
        p.copies = self.uses_memory or "memory" in used
        if p.copies:
            w.line("#include <string.h>")
        if "math" in used or words & _OF_MATH_H:
            w.line("#include <math.h>")
        if "arm_acle" in used:
            w.line()
            w.line("#if defined(__ARM_FEATURE_DSP) || defined(__ARM_FEATURE_SAT)")
            w.line("#include <arm_acle.h>")
            w.line("#endif")
        w.line()
        w.comment(
            "Negative numbers are shifted to the right with their sign, and what does not fit is cut off when it is "
            "converted: all compilers for these processors do so, and this line is an error where it is not so."
        )
        w.line("typedef char shifts_keep_the_sign[(((-3) >> 1) == -2) && ((int8_t)(300 & 0xff) == 44) ? 1 : -1];")
        w.line()
        if p.aliased:
            w.comment("Bytes of the arena hold elements of one type, and later those of another.")
            w.line("#if defined(__GNUC__)")
            w.line("#define IN_ARENA __attribute__((may_alias))")
            w.line("#else")
            w.line("#define IN_ARENA")
            w.line("#endif")
            for name in sorted(p.aliased):
                w.line(f"typedef {stored_type(dtype(name))} IN_ARENA {p.arena_type(dtype(name))};")
            w.line()
        if p.functions:
            w.comment(
                "A step is a function of its own: in one large function too few registers are left for the inner loops."
            )
            w.line("#if defined(__GNUC__)")
            w.line("#define STEP static __attribute__((noinline))")
            w.line("#else")
            w.line("#define STEP static")
            w.line("#endif")
            w.line()
        for name in used:
            if HELPERS[name][1]:
                w.text(HELPERS[name][1])
                w.line()
        return w

    # --- kernels ----------------------------------------------------------------------------------

    def _function(self, w: Writer, function: KernelFunction) -> None:
        w.lines += function.before
        w.comment(_explained(function.group))
        parts = [f"{kind}{name}" for kind, name in self.program.parameters(function)]
        for line in call_text(f"STEP void {function.name}", parts).split("\n"):
            w.line(line)
        w.line("{")
        w.lines += function.lines
        w.line("}")
        w.line()

    # --- entry points -----------------------------------------------------------------------------

    def _init(self, w: Writer) -> None:
        p = self.program
        w.line(f"void {p.name}_init({p.name}_state *state)")
        w.line("{")
        w.depth += 1
        for a, name in self.signature.of_kind("state"):
            value = literal(initial_value(a.init, a.shape.dtype), a.shape.dtype).text
            with w.loop("i", count(a.shape)):
                w.line(f"state->{name}[i] = {value};")
        w.depth -= 1
        w.line("}")
        w.line()

    def _run(self, w: Writer) -> None:
        for line in self.signature.prototype.split("\n"):
            w.line(line)
        w.line("{")
        w.depth += 1
        body = Writer(1)
        for function in self.program.functions:
            self._step(body, function)
        self._results(body)
        buffers = self._buffers(set(re.findall(r"\w+", "\n".join(body.lines))))
        for line in [*buffers, *self._unused([*buffers, *body.lines])]:
            w.line(line)
        w.lines += body.lines
        w.depth -= 1
        w.line("}")

    def _buffers(self, used: set[str]) -> list[str]:
        """Names for the used buffers in the arena."""
        p = self.program
        values = [g.result for g in p.groups]
        views = (view.operation for view in p.graph.function.entry_block.operations)
        values += [
            op.results[0] for op in views if len(op.results) and is_view(op) and constant_of(op.results[0]) is None
        ]
        known = {p.names[v] for _, v in p.arguments} | set(p.outputs)
        named = {p.names[v]: v for v in reversed(values) if p.names[v] in used - known}
        lines = [f"{self._pointer(v, name)} /* {c_array_type(shape_of(v))} */" for name, v in reversed(named.items())]
        return [*lines, ""] if lines else []

    def _unused(self, lines: list[str]) -> list[str]:
        """Statements that mark unused arguments."""
        text = "\n".join(lines)
        arguments = ["state", *(["params"] if self.signature.of_kind("param") else [])]
        arguments += [name for _, name in self.signature.of_kind("input")]
        arguments += [name for _, name in self.signature.outputs]
        return [f"(void){name};" for name in arguments if not re.search(rf"\b{name}\b", text)]

    def _pointer(self, value: Any, name: str) -> str:
        """The declaration of a pointer for the bytes of a value."""
        p, live = self.program, self.program.memory.live(value)
        kind = self.program.arena_type(shape_of(value).dtype)
        storage = live.storage
        if storage in p.memory.plan.layout.offsets:
            offset = p.memory.plan.layout.offsets[storage] + live.offset
            place = self._place(offset)
            if kind == "uint8_t":
                return f"{kind} *const {name} = {place};"
            return f"{kind} *const {name} = ({kind} *)(void *)({place});"
        root = storage.members[0]
        base = p.outputs[p.memory.outputs[storage]] if storage in p.memory.outputs else self._argument(root.value)
        constant = "" if storage in p.memory.outputs else "const "
        byte = "uint8_t"
        inner = f"({constant}{byte} *){base} + {live.offset}" if live.offset else base
        return f"{constant}{kind} *const {name} = ({constant}{kind} *)({constant}void *)({inner});"

    def _place(self, offset: int) -> str:
        """The address of a byte of the arena."""
        return f"state->arena.bytes + {offset}" if offset else "state->arena.bytes"

    def _argument(self, value: Any) -> str:
        """The name of a graph argument in the code of `run`. A view has the name of its argument."""
        kinds = {self.program.names[v]: a.kind for a, v in self.program.arguments}
        name = self.program.names[value]
        return {"state": f"state->{name}", "param": f"params->{name}"}.get(kinds.get(name, ""), name)

    def _step(self, w: Writer, function: KernelFunction) -> None:
        p, result = self.program, function.group.result
        arguments = {p.names[v]: self._argument(v) for v in function.reads}
        arguments[p.names[result]] = p.names[result]
        texts = list(arguments.values())
        if function.scratch:
            texts.append(self._place(p.memory.scratch[function.group]))
        for line in call_text(function.name, texts).split("\n"):
            w.line(line + (";" if line.endswith(")") else ""))

    def _results(self, w: Writer) -> None:
        """Copy results that were not computed in the caller's memory, then update the states."""
        p, plan = self.program, self.program.memory.plan
        end = plan.layout.liveness.steps[-1]
        assert end is not None
        rows = list(zip(p.graph.results, p.outputs, end.op.operands, strict=True))
        for i, (result, name, value) in enumerate(rows):
            is_there = p.memory.outputs.get(p.memory.live(value).storage) == i
            if result.updates is None and not is_there and prod(result.shape.static):
                self._copy(w, name, self._source(value), result.shape)
        by_name = {a.name: p.names[v] for a, v in p.arguments}
        for i, offset in p.memory.copies.items():
            if prod(rows[i][0].shape.static):
                self._copy(w, self._place(offset), self._source(rows[i][2]), rows[i][0].shape)
        for i, (result, _, value) in enumerate(rows):
            if result.updates is not None and prod(result.shape.static):
                source = self._place(p.memory.copies[i]) if i in p.memory.copies else self._source(value)
                target = f"state->{by_name[result.updates]}"
                if source != target:
                    self._copy(w, target, source, result.shape)

    def _source(self, value: Any) -> str:
        array = constant_of(value)
        if array is not None:
            shape = shape_of(value)
            return self.program.table(
                "result", array.reshape(-1), stored_type(shape.dtype), "a result that is constant"
            )
        return self._argument(value)

    def _copy(self, w: Writer, target: str, source: str, shape: Shape) -> None:
        self.uses_memory = True
        w.line(f"(void)memcpy({target}, {source}, {prod(shape.static) * shape.dtype.itemsize});")


def _explained(group: OpGroup) -> str:
    """Describe a kernel: its ops with source locations, and shapes."""
    lines = [f"Layer {printable(group.layer, keep='')}"] if group.layer else []
    for op in group.ops:
        operands = [c_array_type(shape_of(v)) for v in op.operands]
        place = _FOLDERS.sub("", place_of(op))  # the bytes must not depend on them
        made = f"{label_of(op)}({', '.join(operands)}) -> {c_array_type(shape_of(op.results[0]))}"
        lines.append(printable(f"{made}, {place}" if place else made, keep=""))
    return "\n".join(lines)


def _weights_header(program: CSource) -> str:
    w, guard = Writer(), f"{program.name.upper()}_WEIGHTS_H"
    w.comment(f"{program.title}: its constants. For {program.files.source} only.")
    w.line(f"#ifndef {guard}")
    w.line(f"#define {guard}")
    w.line()
    w.line("#include <stdint.h>")
    w.line()
    w.comment("May be defined as an attribute that puts constants into a section.")
    w.line(f"#ifndef {program.name.upper()}_IN_SECTION")
    w.line(f"#define {program.name.upper()}_IN_SECTION")
    w.line("#endif")
    w.line()
    for fields, name in program.records.items():
        w.comment("What is known for each channel of a result.")
        w.line("typedef struct {")
        for field_name in fields:
            w.line(f"    int32_t {field_name};")
        w.line(f"}} {name};")
        w.line()
    for table in program.tables.values():
        if table.note:
            w.comment(table.note)
        w.line(f"extern const {table.kind} {table.declarator};")
    w.line()
    w.line("#endif")
    return str(w)


def _weights(program: CSource) -> str:
    w = Writer()
    w.comment(f"{program.title}: the constants of a network, written by RLX {__version__}.")
    w.line(f'#include "{program.files.weights_header}"')
    if any(word in line for table in program.tables.values() for line in table.body for word in _OF_MATH_H):
        w.line("#include <math.h>")
    for table in program.tables.values():
        w.line()
        if table.note:
            w.comment(table.note)
        w.line(f"{program.name.upper()}_IN_SECTION const {table.kind} {table.declarator} = {{")
        w.depth += 1
        for line in table.body:
            w.line(line)
        w.depth -= 1
        w.line("};")
    if not program.tables:
        w.line()
        w.comment("It has none.")
        w.line(f"typedef int {program.name}_has_no_constants;")
    return str(w)
