"""The files of a program: its header, its code, and its constants with their header."""

from __future__ import annotations

import re

from rlx.ir.dtype import dtype
from rlx.ir.interface import initial_value
from rlx.ir.op.opview import label_of, place_of
from rlx.ir.shape import shape_of
from rlx.support.printable import printable
from rlx.targets.c.lower.grouping import OpGroup
from rlx.targets.c.lower.header import Header
from rlx.targets.c.lower.helpers import HELPERS, helpers_in_order
from rlx.targets.c.lower.notation import c_array_type, call_text, count, without_folders, words_of
from rlx.targets.c.lower.program import CSource, KernelFunction
from rlx.targets.c.lower.signature import CSignature
from rlx.targets.c.lower.values import literal, stored_type
from rlx.targets.c.lower.writer import Writer
from rlx.version import __version__

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
        # The line of a kernel that needs a helper may have been removed since.
        words = set(re.findall(r"\w+", body))
        used = helpers_in_order(name for name in p.helpers if not HELPERS[name][1] or name in words)
        words |= set(re.findall(r"\w+", "\n".join(HELPERS[name][1] for name in used)))
        p.copies = p.steps.copies or "memory" in used
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
            "Right shifts of negative numbers keep the sign, and out-of-range conversions truncate. C leaves both to the "
            "compiler; the next line is an error for a compiler that does otherwise."
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
        lines = self.program.steps.lines
        for line in self._unused(lines):
            w.line(line)
        w.lines += lines
        w.depth -= 1
        w.line("}")

    def _unused(self, lines: list[str]) -> list[str]:
        """Statements that mark unused arguments."""
        used = words_of(lines)
        arguments = ["state", *(["params"] if self.signature.of_kind("param") else [])]
        arguments += [name for _, name in self.signature.of_kind("input")]
        arguments += [name for _, name in self.signature.outputs]
        return [f"(void){name};" for name in arguments if name not in used]


def _explained(group: OpGroup) -> str:
    """Describe a kernel: its ops with source locations, and shapes."""
    lines = [f"Layer {printable(group.layer, keep='')}"] if group.layer else []
    for op in group.ops:
        operands = [c_array_type(shape_of(v)) for v in op.operands]
        place = without_folders(place_of(op))  # the bytes must not depend on them
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
        w.comment("The constants for each channel of a result.")
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
        w.comment("The program has no constants.")
        w.line(f"typedef int {program.name}_has_no_constants;")
    return str(w)
