"""Emulation of C programs on a Cortex-M: Clang or GCC builds them, and Unicorn runs them and counts instructions.

The emulator does not model time. Cycles are the sum of those that the manual of the Cortex-M4 gives for each instruction.
"""

from __future__ import annotations

import importlib.util
import struct
import tempfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlx.support.errors import CompileError, ExecutionError
from rlx.support.packages import import_package
from rlx.targets.c import toolchain
from rlx.targets.c.host import SOURCE, harness
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.program import CSource as Source
from rlx.targets.c.timing import cycles_of, instructions_of, refill

# The names of the cores in Unicorn. m0 has no DSP extension, so it runs the portable code.
_CORES = {"m0": "CORTEX_M0", "m4": "CORTEX_M4", "m7": "CORTEX_M7", "m33": "CORTEX_M33"}
_FLASH, _RAM, _STACK, _DATA = 0x0001_0000, 0x2000_0000, 0x3000_0000, 0x4000_0000
_STACK_SIZE = 64 << 10
_PAGE = 4096
_CANARY = 0xA5
_MARGIN = 64
_MOST_INSTRUCTIONS = 2_000_000_000

_LINKER_SCRIPT = f"""
ENTRY(rlx_call)
SECTIONS {{
  . = {_FLASH:#x};
  .text : {{ *(.text*) }}
  .rodata : {{ *(.rodata*) }}
  .ARM.exidx : {{ *(.ARM.exidx*) }}
  .data : {{ *(.data*) }}
  .bss : {{ *(.bss*) }}
}}
"""
_STRING_H = "#include <stddef.h>\nvoid *memcpy(void *to, const void *from, size_t count);\n"
_MATH_H = """
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define fabsf(x) __builtin_fabsf(x)
"""
_RUNTIME = """
typedef __SIZE_TYPE__ size_t;
void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
void *memcpy(void *to, const void *from, size_t count)
{
    char *t = to;
    const char *f = from;
    while (count--) { *t++ = *f++; }
    return to;
}
void *memmove(void *to, const void *from, size_t count)
{
    char *t = to;
    const char *f = from;
    if (t < f) { return memcpy(to, from, count); }
    while (count--) { t[count] = f[count]; }
    return to;
}
void *memset(void *to, int value, size_t count)
{
    char *t = to;
    while (count--) { *t++ = (char)value; }
    return to;
}
#define COPY(name) \\
    void name(void *to, const void *from, size_t n); \\
    void name(void *to, const void *from, size_t n) { memcpy(to, from, n); }
COPY(__aeabi_memcpy) COPY(__aeabi_memcpy4) COPY(__aeabi_memcpy8)
#define FILL(name) void name(void *to, size_t n, int v); void name(void *to, size_t n, int v) { memset(to, v, n); }
FILL(__aeabi_memset) FILL(__aeabi_memset4) FILL(__aeabi_memset8)
#define CLEAR(name) void name(void *to, size_t n); void name(void *to, size_t n) { memset(to, 0, n); }
CLEAR(__aeabi_memclr) CLEAR(__aeabi_memclr4) CLEAR(__aeabi_memclr8)
"""


@dataclass(frozen=True)
class Image:
    """A program built for a core.

    Attributes:
        core: The core.
        elf: The linked file.
        code: Bytes of instructions, without the harness.
        constants: Bytes of constants.
    """

    core: str
    elf: bytes
    code: int
    constants: int


@dataclass(frozen=True)
class EmulatedRun:
    """The results and costs of a call.

    Attributes:
        results: The outputs, in order.
        instructions: The number of executed instructions.
        stack: The maximal stack use in bytes.
        cycles: The cycles by the model of a Cortex-M4 (`timing.py`).
        by_function: The instructions of each function; the compiler may have inlined some.
    """

    results: list[np.ndarray]
    instructions: int
    stack: int
    cycles: int
    by_function: dict[str, int]


@dataclass(frozen=True)
class _Counts:
    """The costs of a call: instructions, bytes of stack, cycles, and the executions of each block, by address and size."""

    instructions: int
    stack: int
    cycles: int
    blocks: dict[tuple[int, int], int]


def available() -> bool:
    """Whether the packages for the emulator are installed."""
    return all(importlib.util.find_spec(name) for name in ("ziglang", "unicorn", "elftools"))


def freestanding_headers() -> dict[str, str]:
    """The headers of the library that programs include, for compilers without a library."""
    return {"string.h": _STRING_H, "math.h": _MATH_H}


def runtime_files() -> dict[str, str]:
    """The files that every program is built with: headers, functions of the library, a linker script."""
    return {**freestanding_headers(), "runtime.c": _RUNTIME, "link.ld": _LINKER_SCRIPT}


def build(
    source: Source, core: str = "m4", flags: Sequence[str] = ("-O2",), self_test: str = "", compiler: str = "clang"
) -> Image:
    """Compile and link a program.

    Args:
        source: The program.
        core: The core.
        flags: Additional flags of the compiler.
        self_test: The text of its self-test, which `EmulatedMachine.self_test` runs.
        compiler: `"clang"` of the package `ziglang`, or `"gcc"` for Arm.

    Raises:
        CompileError: The compiler is not installed, or fails.
    """
    if core not in _CORES:
        raise CompileError(f"unknown core {core!r}", hint=f"known: {', '.join(_CORES)}")
    command = toolchain.for_core(core, compiler)
    texts = {
        **files_of(source),
        SOURCE: harness(source),
        **({source.files.test: self_test} if self_test else {}),
        **runtime_files(),
    }
    with tempfile.TemporaryDirectory(prefix="rlx-cortexm-") as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        sizes = {}
        names = source.files
        model, weights, test = (name.removesuffix(".c") for name in (names.source, names.weights, names.test))
        own = [model, weights, *([test] if self_test else [])]
        for name, more in (*((name, ["-Werror"]) for name in own), ("host", []), ("runtime", ["-fno-builtin"])):
            said = toolchain.build(
                [
                    *command,
                    "-ffreestanding",
                    *toolchain.WARNINGS,
                    *more,
                    *flags,
                    "-I.",
                    "-c",
                    f"{name}.c",
                    "-o",
                    f"{name}.o",
                ],
                folder,
            )
            if said and more:
                raise CompileError(f"{name}.c has warnings:\n{said}")
            sizes[name] = _sizes((Path(folder) / f"{name}.o").read_bytes())
        objects = [f"{name}.o" for name in sizes]
        link = ["-nostdlib", *objects, "-lgcc"] if compiler == "gcc" else objects
        toolchain.build([*command, "-g", *link, "-T", "link.ld", "-o", "image.elf"], folder)
        elf = (Path(folder) / "image.elf").read_bytes()
    return Image(core, elf, sizes[model][0], sizes[model][1] + sizes[weights][1])


def _elf(data: bytes) -> Any:
    from io import BytesIO

    return import_package("elftools.elf.elffile", "the emulator").ELFFile(BytesIO(data))


def _sizes(data: bytes) -> tuple[int, int]:
    """Bytes of code and of constants in an object file."""
    sections = list(_elf(data).iter_sections())
    return tuple(sum(s.data_size for s in sections if s.name.startswith(kind)) for kind in (".text", ".rodata"))  # type: ignore[return-value]


class EmulatedMachine:
    """An emulated processor with a program in its memory.

    Args:
        image: The program.
        source: The source of the program.
        parameters: Arrays for the parameters of the graph, by name.

    Raises:
        Error: The package `unicorn` is not installed.
    """

    def __init__(self, image: Image, source: Source, parameters: Mapping[str, np.ndarray] | None = None):
        self._unicorn: Any = import_package("unicorn", "the emulator")
        self._arm: Any = import_package("unicorn.arm_const", "the emulator")
        u, core = self._unicorn, _CORES[image.core]
        self._source = source
        self._uc = u.Uc(u.UC_ARCH_ARM, u.UC_MODE_THUMB | u.UC_MODE_MCLASS)
        self._uc.ctl_set_cpu_model(getattr(self._arm, f"UC_CPU_ARM_{core}"))
        self._load(_elf(image.elf))
        self._uc.mem_map(_STACK, _STACK_SIZE)
        # CP10 and CP11: the floating-point unit is disabled at reset.
        if image.core != "m0":
            self._uc.reg_write(self._arm.UC_ARM_REG_FPEXC, 0x4000_0000)
        states = sum(a.kind == "state" for a, _ in source.arguments)
        layout = struct.unpack(
            f"<{1 + states}I", bytes(self._uc.mem_read(self._symbols["rlx_layout"], 4 * (1 + states)))
        )
        self._state_size = layout[0]
        self._data_end = _DATA
        self._state = self._place(bytes(self._state_size))
        self._params = [
            self._place(_bytes((parameters or {})[a.name])) for a, _ in source.arguments if a.kind == "param"
        ]
        self._call("rlx_init", [self._state])

    def _load(self, elf: Any) -> None:
        for segment in elf.iter_segments():
            if segment["p_type"] == "PT_LOAD" and segment["p_memsz"]:
                start, size = segment["p_vaddr"], segment["p_memsz"]
                first, last = start // _PAGE * _PAGE, -(-(start + size) // _PAGE) * _PAGE
                self._map(first, last - first)
                self._uc.mem_write(start, segment.data())
        table = elf.get_section_by_name(".symtab")
        self._symbols = {s.name: s["st_value"] for s in table.iter_symbols() if s.name}
        is_function = {s.name for s in table.iter_symbols() if s["st_info"]["type"] == "STT_FUNC"}
        self._functions = {name: value for name, value in self._symbols.items() if name in is_function}

    def _map(self, start: int, size: int) -> None:
        mapped = [(a, b) for a, b, _ in self._uc.mem_regions()]
        for page in range(start, start + size, _PAGE):
            if not any(a <= page <= b for a, b in mapped):
                self._uc.mem_map(page, _PAGE)

    def _place(self, data: bytes) -> int:
        """Copy bytes into memory, with a margin of known bytes on both sides, and return their address."""
        start = -(-(self._data_end + _MARGIN) // 64) * 64
        self._data_end = start + len(data) + _MARGIN
        self._map(start // _PAGE * _PAGE - _PAGE if start > _DATA + _PAGE else _DATA, (len(data) // _PAGE + 3) * _PAGE)
        self._uc.mem_write(start - _MARGIN, bytes([_CANARY]) * _MARGIN + data + bytes([_CANARY]) * _MARGIN)
        return start

    def run(self, arrays: Sequence[np.ndarray]) -> EmulatedRun:
        """Call the program with arrays for its inputs, in order.

        Raises:
            ExecutionError: The program accesses memory outside its buffers.
        """
        start = self._data_end
        given = [_bytes(a) for a in arrays]
        inputs = [self._place(data) for data in given]
        shapes = [o.shape for o in self._source.graph.results if o.updates is None]
        sizes = [int(np.prod(s.static)) * s.dtype.itemsize for s in shapes]
        outputs = [self._place(bytes([0x5A]) * size) for size in sizes]
        pointers = [self._place(struct.pack(f"<{len(group)}I", *group)) for group in (self._params, inputs, outputs)]
        counts = self._call("rlx_call", [self._state, *pointers])
        for place, data in zip(inputs, given, strict=True):
            if bytes(self._uc.mem_read(place, len(data))) != data:
                raise ExecutionError("the program has changed an input")
        for place, size in [(self._state, self._state_size), *zip(inputs, map(len, given)), *zip(outputs, sizes)]:  # noqa: B905
            before, after = self._uc.mem_read(place - _MARGIN, _MARGIN), self._uc.mem_read(place + size, _MARGIN)
            if set(before) | set(after) != {_CANARY}:
                raise ExecutionError("the program has written beside its state, an input or an output")
        results = [
            np.frombuffer(bytes(self._uc.mem_read(p, n)), s.dtype.numpy).reshape(s.static)
            for p, n, s in zip(outputs, sizes, shapes, strict=True)
        ]
        self._data_end = start
        return EmulatedRun(results, counts.instructions, counts.stack, counts.cycles, self._by_function(counts.blocks))

    def _by_function(self, blocks: Mapping[tuple[int, int], int]) -> dict[str, int]:
        starts = sorted((address & ~1, name) for name, address in self._functions.items())
        found: dict[str, int] = {}
        for (address, size), times in blocks.items():
            name = starts[bisect_right(starts, (address, "\uffff")) - 1][1]
            name = name.partition(".")[0]  # GCC names variants for constant arguments `step_1.constprop.0`
            found[name] = found.get(name, 0) + times * self._instructions(address, size)
        return found

    def self_test(self) -> int:
        """Run the self-test that the program was built with, and return its result: 0 if all outputs are as expected.

        Raises:
            ExecutionError: The program accesses memory outside its buffers.
        """
        self._call(f"{self._source.name}_self_test", [])
        return int(self._uc.reg_read(self._arm.UC_ARM_REG_R0))

    def _instructions(self, address: int, size: int) -> int:
        return sum(1 for _ in instructions_of(bytes(self._uc.mem_read(address, size))))

    def _call(self, function: str, arguments: Sequence[int]) -> _Counts:
        """Call a function, and return its costs."""
        u, arm, uc = self._unicorn, self._arm, self._uc
        uc.mem_write(_STACK, bytes([_CANARY]) * _STACK_SIZE)
        stack = _STACK + _STACK_SIZE
        for register, value in zip(("R0", "R1", "R2", "R3"), arguments, strict=False):
            uc.reg_write(getattr(arm, f"UC_ARM_REG_{register}"), value)
        uc.reg_write(arm.UC_ARM_REG_SP, stack)
        exit_at = _FLASH - _PAGE
        self._map(exit_at, _PAGE)
        uc.reg_write(arm.UC_ARM_REG_LR, exit_at | 1)
        blocks: dict[tuple[int, int], int] = {}
        taken, end = 0, 0

        def block(_: Any, address: int, size: int, __: Any) -> None:
            nonlocal taken, end
            blocks[address, size] = blocks.get((address, size), 0) + 1
            taken += address != end
            end = address + size

        hook = uc.hook_add(u.UC_HOOK_BLOCK, block)
        try:
            uc.emu_start(self._symbols[function] | 1, exit_at)
        except u.UcError as problem:
            place = uc.reg_read(arm.UC_ARM_REG_PC)
            raise ExecutionError(f"the program failed at {place:#x}: {problem}") from None
        finally:
            uc.hook_del(hook)
        memory = bytes(uc.mem_read(_STACK, _STACK_SIZE))
        untouched = len(memory) - len(memory.lstrip(bytes([_CANARY])))
        cycles = sum(times * cycles_of(bytes(uc.mem_read(*place))) for place, times in blocks.items())
        instructions = sum(times * self._instructions(*place) for place, times in blocks.items())
        return _Counts(instructions, _STACK_SIZE - untouched, cycles + refill(taken), blocks)


def _bytes(array: np.ndarray) -> bytes:
    # An empty array has one element in C.
    return np.ascontiguousarray(array).tobytes() or bytes(8)
