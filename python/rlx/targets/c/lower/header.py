"""The header of a program: declarations for callers, and the sizes, scales and zero points of its arrays."""

from __future__ import annotations

from rlx.targets.c.lower.arguments import CArgument, arguments_of
from rlx.targets.c.lower.notation import c_array_type, count
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.signature import CSignature
from rlx.targets.c.lower.values import float_text, stored_type
from rlx.targets.c.lower.writer import Writer
from rlx.version import __version__

_KINDS = {"input": "input", "output": "output", "param": "parameter", "state": "state"}


class Header:
    """The text of a header."""

    def __init__(self, program: CSource):
        self.program = program
        self.signature = CSignature(program)
        self.arguments = arguments_of(program)
        self.writer = Writer()

    def text(self) -> str:
        """Return the text."""
        p, w = self.program, self.writer
        guard = f"{p.name.upper()}_H"
        w.comment(
            f"{p.title}: a network as C99, written by RLX {__version__}.\n\n"
            f"The caller owns all memory: {p.name}_state holds the memory of a call, and the states that stay from call to "
            "call. Two of them may be used at the same time. Arrays of the caller must not overlap. All arrays are row-major: "
            "the last axis is contiguous."
        )
        w.line(f"#ifndef {guard}")
        w.line(f"#define {guard}")
        w.line()
        w.line("#include <stdint.h>")
        w.line()
        w.line("#ifdef __cplusplus")
        w.line('extern "C" {')
        w.line("#endif")
        w.line()
        self._origin()
        self._sizes()
        self._arrays()
        self._structures()
        self._functions()
        w.line("#ifdef __cplusplus")
        w.line("}")
        w.line("#endif")
        w.line()
        w.line("#endif")
        return str(w)

    def _origin(self) -> None:
        p, w = self.program, self.writer
        upper = p.name.upper()
        w.comment("The version of RLX that has written these files, and the SHA-256 of the network with its weights.")
        w.line(f'#define {upper}_RLX_VERSION "{__version__}"')
        w.line(f'#define {upper}_MODEL_SHA256 "{p.sha256}"')
        if p.options:
            w.comment("The options of the compilation.")
            w.line(f'#define {upper}_OPTIONS "{p.options}"')
        w.line()

    def _sizes(self) -> None:
        p, w, plan = self.program, self.writer, self.program.memory.plan
        upper = p.name.upper()
        w.comment(
            f"Bytes of the arena, which values share. No plan has less than {plan.peak_live_bytes}; "
            f"without sharing they would take {plan.total_bytes}."
        )
        w.line(f"#define {upper}_ARENA_SIZE {p.arena_size}")
        w.comment("Bytes of constants: weights and tables.")
        w.line(f"#define {upper}_CONSTANT_SIZE {p.constant_bytes}")
        w.line()

    # --- arrays -----------------------------------------------------------------------------------

    def _arrays(self) -> None:
        """Write constants and functions for each array that the caller passes."""
        if any(a.rounds for a in self.arguments):
            self._nearest()
        for argument in self.arguments:
            self._array(argument)

    def _nearest(self) -> None:
        self.writer.comment("The integer nearest to a number, half to even, from -limit to limit; NaN gives 0.")
        self.writer.text(f"""
static inline int32_t {self.program.name}_nearest(float number, int32_t limit)
{{
    const float bound = (float)limit;
    int32_t nearest = 0;
    if ((number > -bound) && (number < bound)) {{
        nearest = (int32_t)number;
        const float rest = number - (float)nearest;
        if ((rest > 0.5f) || ((rest >= 0.5f) && ((nearest % 2) != 0))) {{
            nearest++;
        }} else if ((rest < -0.5f) || ((rest <= -0.5f) && ((nearest % 2) != 0))) {{
            nearest--;
        }} else {{
            /* It is the nearest. */
        }}
    }} else {{
        if (number > 0.0f) {{
            nearest = limit;
        }}
        if (number < 0.0f) {{
            nearest = -limit;
        }}
    }}
    return nearest;
}}
""")
        self.writer.line()

    def _array(self, argument: CArgument) -> None:
        w = self.writer
        prefix, dims = argument.macro, argument.shape.static
        w.comment("\n".join(_description(argument)))
        size = count(argument.shape)
        w.line(f"#define {prefix}_SIZE " + (f"({size})" if "*" in size else size))
        if dims:
            w.line(f"#define {prefix}_DIMS {{{', '.join(map(str, dims))}}}")
        if argument.scale is not None:
            w.line(f"#define {prefix}_SCALE {float_text(argument.scale)}")
            w.line(f"#define {prefix}_ZERO_POINT ({argument.zero_point})")
            w.line()
            self._conversions(argument)
        w.line()

    def _conversions(self, argument: CArgument) -> None:
        w, name, kind = self.writer, self.program.name, stored_type(argument.dtype)
        prefix = argument.macro
        if argument.rounds:
            low, high = int(argument.dtype.min), int(argument.dtype.max)
            limit = 1 << argument.dtype.bits
            w.text(f"""
static inline {kind} {name}_quantize_{argument.name}(float number)
{{
    const int32_t value = {name}_nearest(number / {prefix}_SCALE, {limit}) + {prefix}_ZERO_POINT;
    const int32_t at_least = (value < {low}) ? {low} : value;
    const int32_t saturated = (at_least > {high}) ? {high} : at_least;
    return ({kind})saturated;
}}
""")
            w.line()
        steps = f"const int32_t steps = (int32_t)value - {prefix}_ZERO_POINT;\n    return (float)steps"
        if not argument.rounds:
            steps = "const int64_t wide = value;\n    "
            steps += f"const int64_t steps = wide - {prefix}_ZERO_POINT;\n    return (float)steps"
        if argument.dtype.bits > 32:  # the difference of integers may overflow
            steps = f"const float steps = (float)value - (float){prefix}_ZERO_POINT;\n    return steps"
        w.text(f"""
static inline float {name}_dequantize_{argument.name}({kind} value)
{{
    {steps} * {prefix}_SCALE;
}}
""")

    # --- types and functions ----------------------------------------------------------------------

    def _structures(self) -> None:
        p, w = self.program, self.writer
        word = "uint64_t" if p.alignment > 4 else "uint32_t"
        w.line("typedef struct {")
        w.line("    union {")
        w.line(f"        {word} aligned;")
        w.line(f"        uint8_t bytes[{p.name.upper()}_ARENA_SIZE];")
        w.line("    } arena;")
        for a, name in self.signature.of_kind("state"):
            note = f"{a.name}: {c_array_type(a.shape)}"
            w.line(f"    {stored_type(a.shape.dtype)} {name}[{count(a.shape)}];", note)
        w.line(f"}} {p.name}_state;")
        w.line()
        if params := self.signature.of_kind("param"):
            w.line("typedef struct {")
            for a, name in params:
                w.line(f"    const {stored_type(a.shape.dtype)} *{name};", f"{a.name}: {c_array_type(a.shape)}")
            w.line(f"}} {p.name}_params;")
            w.line()

    def _functions(self) -> None:
        p, w, s = self.program, self.writer, self.signature
        if s.of_kind("state"):
            w.comment("Set the states to their first values. Call it once, before the first run.")
            w.line(f"void {p.name}_init({p.name}_state *state);")
            w.line()
        lines = [
            f"Run it once. {'States are updated.' if s.of_kind('state') else 'The arena need not be cleared.'}",
            "",
        ]
        lines += [f"{name}: {c_array_type(a.shape)}, input" for a, name in s.of_kind("input")]
        lines += [f"{name}: {c_array_type(o.shape)}, output" for o, name in s.outputs]
        w.comment("\n".join(lines))
        w.text(f"{s.prototype};")
        w.line()
        w.comment(f"Returns 0 if the outputs of test vectors are as expected: {p.files.test}, which only tests need.")
        w.line(f"int32_t {p.name}_self_test(void);")
        w.line()


def range_text(argument: CArgument) -> str:
    """The numbers that the integers of an array represent, as `-1.5 to 2.25`."""
    assert argument.range is not None
    return " to ".join(f"{number:.6g}" for number in argument.range)


def _description(argument: CArgument) -> list[str]:
    """The comment of an array."""
    layout = f", {argument.layout}" if argument.layout else ""
    head = f"{argument.entry.name}: {_KINDS[argument.kind]}, {c_array_type(argument.shape)}{layout}"
    if argument.scale is not None:
        prefix = argument.macro
        meaning = (
            f"A value stands for the number (value - {prefix}_ZERO_POINT) * {prefix}_SCALE: {range_text(argument)}."
        )
    elif argument.dtype.is_integer:
        meaning = f"Integers from {int(argument.dtype.min)} to {int(argument.dtype.max)}, without a scale."
    else:
        meaning = "0 or 1." if argument.dtype.name == "bool" else "Numbers of f32."
    return [head, meaning]
