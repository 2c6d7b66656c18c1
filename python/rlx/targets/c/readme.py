"""The README of a program in C."""

from __future__ import annotations

from rlx.support.markdown import markdown, table
from rlx.targets.c.lower.files import HEADER, c_array_type
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.values import stored_type
from rlx.targets.c.targets import CORES, Target

README = "README.md"


def readme(program: CSource, target: Target) -> str:
    """Return instructions for users of the files: the call, the memory, and how to compile them."""
    name, plan = program.name, program.memory.plan
    inputs = [(a, program.names[v]) for a, v in program.arguments if a.kind == "input"]
    outputs = [(o, n) for o, n in zip(program.graph.results, program.outputs, strict=True) if o.updates is None]
    has_params = any(a.kind == "param" for a, _ in program.arguments)
    has_states = any(a.kind == "state" for a, _ in program.arguments)
    buffers = [
        f"static {stored_type(x.shape.dtype)} {n}[{max(1, _elements(x))}]; /* {c_array_type(x.shape)} */"
        for x, n in [*inputs, *outputs]
    ]
    arguments = ", ".join(["&state", *(["&params"] if has_params else []), *(n for _, n in [*inputs, *outputs])])
    core = CORES.get(target.arch, "")
    flags = f"-mcpu={core} -mthumb " if core else ""
    lines = [
        f"# {markdown(program.graph.name)}",
        "",
        "C99 without allocation; of the library it needs `<stdint.h>` and `<string.h>`"
        + (", and `<math.h>` for its floats." if "math" in program.helpers else "."),
        "",
        "```c",
        f'#include "{HEADER}"',
        "",
        f"static {name}_state state; /* {program.arena_size + program.state_bytes} bytes */",
        *([f"static const {name}_params params = {{ … }};"] if has_params else []),
        *buffers,
        "",
        *([f"{name}_init(&state); /* once */"] if has_states else []),
        f"{name}_run({arguments});",
        "```",
        "",
        "```",
        f"arm-none-eabi-gcc {flags}-O2 -c model.c weights.c",
        "```",
        "",
        *table(
            ("", "bytes"),
            [
                ("arena", f"{program.arena_size} (no plan has less than {plan.peak_live_bytes})"),
                ("states", str(program.state_bytes)),
                ("constants", str(program.constant_bytes)),
            ],
        ),
        "",
        f"The functions are reentrant: whatever changes is in the `{name}_state` that is given to them. Constants are in "
        f"`weights.c`; define `{name.upper()}_IN_SECTION` as an attribute to put them into a section. Where the "
        "compiler says that the core has the DSP extension (`__ARM_FEATURE_DSP`), products are made two at a time.",
        "",
    ]
    return "\n".join(lines)


def _elements(entry: object) -> int:
    from math import prod

    return prod(entry.shape.static)  # type: ignore[attr-defined]
