"""The footprint of a program on a Cortex-M: flash by section, RAM, worst-case stack, instructions and cycles."""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from rlx.support.columns import table
from rlx.support.errors import CompileError
from rlx.targets.c import emulate, toolchain
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.notation import without_comments
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.selftest import self_test_of
from rlx.targets.c.targets import Target

_CALL = re.compile(r"\b(\w+)\s*\(")
_FLAGS = ("-O2",)
# Instructions for a multiplication, for one of a depthwise convolution, and for an element of a result, on cores with and
# without the DSP extension: fitted to examples/mlperf_tiny.py, compiled by GCC 12.
_WITH_DSP, _WITHOUT_DSP = (2.3, 4.0, 14.0), (8.5, 11.5, 24.0)
# Sections of an object file that are in flash. `.data` is in flash and in RAM.
_FLASH = (".text", ".rodata", ".data")
_ALLOCATED = 2


@dataclass(frozen=True)
class StackUse:
    """The worst case of the stack.

    Attributes:
        size: Bytes.
        path: The functions that use it, outermost first, with their bytes.
    """

    size: int
    path: tuple[tuple[str, int], ...]


def footprint(program: CSource, target: Target) -> str:
    """Compile a program for its core, and return the report as text.

    Raises:
        CompileError: No compiler for Arm is installed, or it fails.
    """
    core = "m0" if target.arch == "generic" else target.arch
    command = toolchain.for_core(core)
    sections, frames = _compiled(program, command)
    stack = worst_stack(files_of(program)[program.files.source], program.name, frames)
    lines = [
        f"footprint of {program.name} on a Cortex-{core.upper()}, {' '.join(_FLAGS)}, {toolchain.version_of(command)}",
        "",
        *_flash(sections, target),
        "",
        *_ram(program, core, target, stack),
        "",
        *_instructions(program, core, target),
    ]
    return "\n".join(lines) + "\n"


def _compiled(program: CSource, command: tuple[str, ...]) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Return the bytes of each section of each source, and the stack frame of each function."""
    sections, frames = dict[str, dict[str, int]](), dict[str, int]()
    is_clang = command[0] != toolchain.ARM_GCC
    with tempfile.TemporaryDirectory(prefix="rlx-footprint-") as name:
        folder = Path(name)
        texts = {**files_of(program), **emulate.freestanding_headers()}
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        for source in (program.files.source, program.files.weights):
            stem = source.removesuffix(".c")
            # `zig cc` removes the file that -fstack-usage writes.
            usage_flags = f"-Xclang -stack-usage-file -Xclang {stem}.su" if is_clang else "-fstack-usage"
            words = [*command, "-std=c99", "-ffreestanding", *_FLAGS, "-I.", *usage_flags.split(), "-c", source]
            toolchain.build([*words, "-o", f"{stem}.o"], folder)
            sections[source] = dict(_sections((folder / f"{stem}.o").read_bytes()))
            usage = folder / f"{stem}.su"  # Clang writes none if there are no functions
            for line in usage.read_text(encoding="utf-8").splitlines() if usage.exists() else []:
                place, size, _ = line.split("\t")
                frames[place.rpartition(":")[2]] = int(size)
    return sections, frames


def _sections(data: bytes) -> Iterator[tuple[str, int]]:
    """Yield the sections of an ELF file for 32 bits that are loaded: `.text`, `.rodata`, `.data`, `.bss` with their bytes."""
    table_at, (entry, count, names) = struct.unpack_from("<I", data, 32)[0], struct.unpack_from("<HHH", data, 46)
    headers = [struct.unpack_from("<10I", data, table_at + i * entry) for i in range(count)]
    found: dict[str, int] = dict.fromkeys([*_FLASH, ".bss"], 0)
    for name, _, flags, _, _, size, *_ in headers:
        start = headers[names][4] + name
        text = data[start : data.index(b"\0", start)].decode()
        kind = next((k for k in found if text == k or text.startswith(f"{k}.")), None)
        if flags & _ALLOCATED and kind is not None:
            found[kind] += size
    yield from found.items()


# --- stack ----------------------------------------------------------------------------------------


def worst_stack(code: str, name: str, frames: Mapping[str, int]) -> StackUse:
    """Return the worst case of the stack of a program's functions over its call graph.

    Args:
        code: The text of its code. It has no calls by pointer, and no recursion.
        name: The name of the program.
        frames: Bytes of each function that is not inlined.
    """
    bodies = dict(functions_in(code))
    known: dict[str, StackUse] = {}

    def of(function: str) -> StackUse:
        if function not in known:
            called = sorted(set(_CALL.findall(without_comments(bodies[function]))) & bodies.keys() - {function})
            deepest = max((of(other) for other in called), key=lambda s: s.size, default=StackUse(0, ()))
            own = frames.get(function)
            path = deepest.path if own is None else ((function, own), *deepest.path)
            known[function] = StackUse(deepest.size + (own or 0), path)
        return known[function]

    return max((of(f) for f in (f"{name}_run", f"{name}_init") if f in bodies), key=lambda s: s.size)


def functions_in(code: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the body of each function in a C file of RLX, whose braces are at the beginning of a line."""
    lines = code.split("\n")
    for start, line in enumerate(lines):
        if line == "{":
            head = start - 1
            while head > 0 and lines[head - 1] and not lines[head - 1].startswith(("}", "#", " */", "/*")):
                head -= 1
            named = re.search(r"(\w+)\(", " ".join(lines[head:start]))
            end = lines.index("}", start)
            if named:
                yield named[1], "\n".join(lines[start:end])


# --- text -----------------------------------------------------------------------------------------


def _flash(sections: Mapping[str, Mapping[str, int]], target: Target) -> list[str]:
    rows = [
        (file, kind, f"{size:,}") for file, sizes in sections.items() for kind in _FLASH if (size := sizes.get(kind, 0))
    ]
    total = sum(sizes.get(kind, 0) for sizes in sections.values() for kind in _FLASH)
    every = [*((*row, "") for row in rows), ("all", "", f"{total:,}", _share(total, target.flash))]
    return table(every, ("flash, bytes", "section", "", ""), right={2})


def _ram(program: CSource, core: str, target: Target, stack: StackUse) -> list[str]:
    state = program.arena_size + program.state_bytes
    path = " > ".join(f"{function} {size}" for function, size in stack.path)
    rows = [
        (f"{program.name}_state: arena", f"{program.arena_size:,}", ""),
        (f"{program.name}_state: states", f"{program.state_bytes:,}", ""),
        ("stack, worst case", f"{stack.size:,}", path),
        ("all", f"{state + stack.size:,}", _share(state + stack.size, target.ram)),
    ]
    library = ["memcpy"] if program.copies else []
    library += ["arithmetic of 64 bits"] if core == "m0" else []
    note = f"Not counted: arrays of the caller{''.join(f', the stack of {name} of the library' for name in library)}."
    return [*table(rows, ("RAM, bytes", "", ""), right={1}), note]


def _share(size: int, limit: int | None) -> str:
    return f"{100 * size / limit:.1f} % of {limit:,}" if limit else ""


def predicted_instructions(program: CSource, core: str) -> int:
    """Return the instructions of a call by a formula, from the numbers of multiplications and of elements of results.

    Loops run as often as they may, those without a bound once. Both branches of an `if` are counted.
    """
    product, depthwise, element = _WITHOUT_DSP if core == "m0" else _WITH_DSP
    total = 0.0
    for function in program.functions:
        group = function.group
        each = (depthwise if group.is_depthwise else product) * group.products + element * prod(group.shape.static)
        total += each * function.most
    return round(total)


def _instructions(program: CSource, core: str, target: Target) -> list[str]:
    note = ", with one iteration of each loop that has no bound" if program.has_unbounded_loops else ""
    lines = [f"instructions of a call, predicted: {predicted_instructions(program, core):,}{note}"]
    if not emulate.available():
        return [*lines, "instructions of a call, counted: needs the emulator, pip install 'rlx[cortexm]'"]
    kind = "gcc" if toolchain.for_core(core)[0] == toolchain.ARM_GCC else "clang"
    image = emulate.build(program, core, _FLAGS, self_test_of(program), kind)
    machine = emulate.EmulatedMachine(image, program, program.vectors.params)
    run = machine.run(program.vectors.inputs[0])
    result = machine.self_test()
    lines.append(f"instructions of a call, counted in the emulator: {run.instructions:,}")
    if core == "m4":
        clock = f", {run.cycles / (1000 * target.mhz):.3g} ms at {target.mhz} MHz" if target.mhz else ""
        lines.append(f"cycles by the manual of the core, memory without wait states: {run.cycles:,}{clock}")
    lines += [
        f"stack of a call, measured in the emulator: {run.stack:,} bytes, with its caller",
        f"self-test in the emulator: {'passed' if result == 0 else f'failed with {result}'}",
        "",
        *_by_layer(program, run),
    ]
    if result:
        raise CompileError(f"the self-test of '{program.name}' fails in the emulator with {result}")
    return lines


def _by_layer(program: CSource, run: emulate.EmulatedRun) -> list[str]:
    """A table of the instructions of each step. Functions that several steps call are a line of their own."""
    rows, left = list[tuple[str, ...]](), dict(run.by_function)
    for function in program.functions:
        if function.is_shared:
            continue  # counted with the first kernel of this function
        own = {function.name, *(name for name, _ in functions_in("\n".join(function.before)))}
        count = sum(left.pop(name, 0) for name in own)
        products = sum(f.products for f in program.functions if f.name == function.name)
        each = f"{count / products:.2f}" if products else ""
        share = f"{100 * count / run.instructions:.1f} %"
        rows.append(
            (function.name, function.group.layer, f"{products:,}" if products else "", f"{count:,}", each, share)
        )
    rest = sum(left.values())
    rows.append(("others", "", "", f"{rest:,}", "", f"{100 * rest / run.instructions:.1f} %"))
    head = ("function", "layer", "multiplications", "instructions", "for each", "share")
    return table(rows, head, right={2, 3, 4, 5})
