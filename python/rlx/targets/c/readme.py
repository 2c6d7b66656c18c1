"""The README of a program in C."""

from __future__ import annotations

import re

from rlx.ir.op.opview import label_of
from rlx.support.markdown import markdown, table
from rlx.targets.c.lower.arguments import CArgument, arguments_of, by_kind
from rlx.targets.c.lower.header import range_text
from rlx.targets.c.lower.notation import c_array_type
from rlx.targets.c.lower.program import CSource, KernelFunction
from rlx.targets.c.lower.values import float_text, stored_type
from rlx.targets.c.targets import CORES, Target
from rlx.version import __version__


def readme(program: CSource, target: Target) -> str:
    """Return instructions for users of the files: the call, the arrays, the layers, the memory, and how to compile them."""
    arguments = arguments_of(program)
    return "\n".join(
        [
            f"# {markdown(program.graph.name)}",
            "",
            "C99 without allocation; of the library it needs `<stdint.h>` and `<string.h>`"
            + (", and `<math.h>` for its floats." if "math" in program.helpers else "."),
            "",
            *_call(program, arguments),
            "## Arrays",
            "",
            *_arrays(program, arguments),
            "",
            "All arrays are row-major: the last axis is contiguous. Integers with a scale stand for the numbers",
            "`(value - zero point) * scale`; the header has these constants, and functions that convert both ways.",
            "",
            "## Layers",
            "",
            *_layers(program),
            "",
            "## Memory",
            "",
            *_memory(program),
            "",
            *_building(program, target),
            f"Written by RLX {__version__} with `{program.options}`. SHA-256 of the network: `{program.sha256}`.",
            "",
        ]
    )


def _call(program: CSource, arguments: list[CArgument]) -> list[str]:
    """An example of a call, from and to real numbers."""
    name = program.name
    of_kind = by_kind(arguments)
    arrays = [*of_kind["input"], *of_kind["output"]]
    texts = ["&state", *(["&params"] if of_kind["param"] else []), *(a.name for a in arrays)]
    lines = [
        f'#include "{program.files.header}"',
        "",
        f"static {name}_state state; /* {program.arena_size + program.state_bytes} bytes */",
        *([f"static const {name}_params params = {{ … }};"] if of_kind["param"] else []),
        *(f"static {stored_type(a.dtype)} {a.name}[{a.macro}_SIZE]; /* {c_array_type(a.shape)} */" for a in arrays),
        *(f"static float {a.name}_numbers[{a.macro}_SIZE];" for a in arrays if a.scale is not None),
        "",
        *([f"{name}_init(&state); /* once */"] if of_kind["state"] else []),
        *(
            _loop(a, f"{a.name}[i] = {name}_quantize_{a.name}({a.name}_numbers[i]);")
            for a in of_kind["input"]
            if a.rounds
        ),
        f"{name}_run({', '.join(texts)});",
        *(
            _loop(a, f"{a.name}_numbers[i] = {name}_dequantize_{a.name}({a.name}[i]);")
            for a in of_kind["output"]
            if a.scale is not None
        ),
    ]
    return ["```c", *lines, "```", ""]


def _loop(argument: CArgument, statement: str) -> str:
    return f"for (int i = 0; i < {argument.macro}_SIZE; i++) {{ {statement} }}"


def _arrays(program: CSource, arguments: list[CArgument]) -> list[str]:
    rows = []
    for a in arguments:
        scale, zero, numbers = ("", "", "")
        if a.scale is not None:
            scale, zero, numbers = float_text(a.scale).rstrip("f"), str(a.zero_point), range_text(a)
        shape = f"`{c_array_type(a.shape)}`" + (f" {a.layout}" if a.layout else "")
        rows.append(
            (f"`{a.name}`", markdown(a.entry.name), a.kind, shape, f"`{stored_type(a.dtype)}`", scale, zero, numbers)
        )
    return table(("C", "name", "kind", "shape", "type", "scale", "zero point", "numbers"), rows)


def _layers(program: CSource) -> list[str]:
    rows = []
    for function in program.functions:
        group = function.group
        ops = ", ".join(dict.fromkeys(label_of(op) for op in group.ops))
        shape = c_array_type(group.shape)
        rows.append(
            (
                f"`{function.name}`",
                markdown(group.layer) if group.layer else "",
                markdown(ops),
                f"`{shape}`",
                f"{function.products:,}" if function.products else "",
                f"{_constants(program, function):,}",
            )
        )
    return table(("function", "layer", "ops", "result", "multiplications", "constants, bytes"), rows)


def _constants(program: CSource, function: KernelFunction) -> int:
    """Bytes of the constants that a kernel reads."""
    words = set(re.findall(r"\w+", "\n".join([*function.before, *function.lines])))
    return sum(constant.size for name, constant in program.tables.items() if name in words)


def _memory(program: CSource) -> list[str]:
    plan = program.memory.plan
    return [
        *table(
            ("", "bytes"),
            [
                ("arena", f"{program.arena_size} (no plan has less than {plan.peak_live_bytes})"),
                ("states", str(program.state_bytes)),
                ("constants", str(program.constant_bytes)),
            ],
        ),
        "",
        f"The functions are reentrant: whatever changes is in the `{program.name}_state` that is passed to them. Constants are",
        f"in `{program.files.weights}`; define `{program.name.upper()}_IN_SECTION` as an attribute to put them into a section.",
    ]


def _building(program: CSource, target: Target) -> list[str]:
    core = CORES.get(target.arch, "")
    flags = f"-mcpu={core} -mthumb " if core else ""
    files, name = program.files, program.name
    return [
        "## Building",
        "",
        "```",
        f"arm-none-eabi-gcc {flags}-O2 -c {files.source} {files.weights}",
        "```",
        "",
        f"With CMake, `include({files.cmake})` adds the library `{name}`: `target_link_libraries(firmware PRIVATE {name})`.",
        f"`{files.pack}` describes the same files as a CMSIS-Pack. All files and all external names begin with `{name}`, so",
        "several networks fit into one folder and one program. If the compiler reports that the core has the DSP extension",
        "(`__ARM_FEATURE_DSP`), products are made two at a time.",
        "",
        "## Self-test",
        "",
        f"`{files.test}` has test vectors. `{name}_self_test()` returns 0 if the outputs are those of RLX's evaluator; it runs",
        "on the target, in an emulator, and on the machine that develops:",
        "",
        "```",
        f"cc -D{name.upper()}_TEST_MAIN {files.source} {files.weights} {files.test} -lm -o {name}_test && ./{name}_test",
        "```",
        "",
        "## MISRA C:2012",
        "",
        f"`{files.misra}` lists the deviations with their reasons. cppcheck reports nothing else:",
        "",
        "```",
        f"cppcheck --addon=misra --std=c99 --suppressions-list={files.misra} {name}*.c",
        "```",
        "",
    ]
