"""Routines of LAPACK and BLAS that kernels call through pointers, and the emission of these calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx import mlir
from rlx.ir.dtype import f32, i32, i64
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Size
from rlx.kernels.elements import INDEX
from rlx.kernels.emitter import Emitter
from rlx.kernels.kernel import Kernel
from rlx.kernels.values import Value, index_data

# The routines for real and for complex matrices, and the number of arguments of each. All are pointers, and integers have 32
# bits.
_REAL = {"potrf": 5, "getrf": 6, "gelqf": 8, "orglq": 9, "syevd": 11, "gesdd": 14, "geev": 14, "trsm": 11}
_COMPLEX = {"potrf": 5, "getrf": 6, "gelqf": 8, "unglq": 9, "heevd": 13, "gesdd": 15, "geev": 14, "trsm": 11}
# The same by the whole name, in the order of the pointers in the table that the runtime passes to programs.
ARGUMENTS = {
    f"{letter}{routine}": count
    for letters, routines in (("sd", _REAL), ("cz", _COMPLEX))
    for letter in letters
    for routine, count in routines.items()
}
NAMES = tuple(ARGUMENTS)
TABLE = Shape((len(NAMES),), i64)
_MOST_ARGUMENTS = max(ARGUMENTS.values())
# The registers of the first arguments on x86-64, except on Windows. The others are on the stack.
_REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
# The registers that a function may change, and `r12`, which keeps the stack pointer.
_CLOBBERED = ",".join(
    f"~{{{name}}}"
    for name in (
        *("rax", "r12", *_REGISTERS, "memory", "dirflag", "fpsr", "flags"),
        *(f"xmm{i}" for i in range(32)),
        *(f"k{i}" for i in range(8)),
        *(f"st({i})" if i else "st" for i in range(8)),
        *(f"mm{i}" for i in range(8)),
    )
)


class RoutineCalls:
    """Calls of routines, and their scalar arguments, which are pointers as well: memory of the kernel.

    Args:
        k: The kernel.
        count: The largest number of scalars.
    """

    def __init__(self, k: Kernel, count: int):
        self._k, self._memory, self._count = k, k.scratch(count, element=i32), 0
        self._addresses = k.scratch(_MOST_ARGUMENTS, element=i64)

    def integer(self, value: Size = 0) -> tuple[Buffer, int]:
        """Store an integer, and return its place."""
        place = self._count
        self._count += 1
        self._memory[place] = self._k.number(value, i32)
        return self._memory, place

    def character(self, value: str) -> tuple[Buffer, int]:
        """Store a character, and return its place: it is the first byte of an integer, on CPUs of the little-endian order."""
        return self.integer(ord(value))

    def call(self, table: Buffer, name: str, arguments: Sequence[Buffer | tuple[Buffer, Size]]) -> None:
        """Emit the call of a routine.

        Args:
            table: The pointers.
            name: The whole name of the routine.
            arguments: Memory, from its beginning or from an element on. Results and workspace count as written.
        """
        machine = self._k.machine
        assert isinstance(machine, Emitter), "routines are called by compiled kernels only"
        for number, argument in enumerate(arguments):
            buffer, place = argument if isinstance(argument, tuple) else (argument, 0)
            if buffer.access.is_writable:
                buffer.access.is_written = True
            self._addresses[number] = Value(machine, _address(machine, buffer, place), i64, None)
        _emit_call(machine, table[NAMES.index(name)].data, _address(machine, self._addresses, 0))


def _emit_call(machine: Emitter, function: Any, addresses: Any) -> None:
    """Emit the call of a function with `_MOST_ARGUMENTS` pointers, more than it takes: the caller removes them from the stack.

    IREE 3.13 does not compile calls of pointers, but it compiles assembly. Quirk: `indirect-calls`.
    """
    ir, context = mlir.ir, mlir.context()
    stacked = "; ".join(
        f"movq {8 * (i + len(_REGISTERS))}(%r10), %rax; movq %rax, {8 * i}(%rsp)"
        for i in range(_MOST_ARGUMENTS - len(_REGISTERS))
    )
    passed = "; ".join(f"movq {8 * i}(%r10), %{register}" for i, register in enumerate(_REGISTERS))
    # 128 bytes below the stack pointer may be in use, and it must be a multiple of 16.
    text = (
        f"{'vzeroupper; ' if machine.cpu.lanes(f32) > 4 else ''}movq %rsp, %r12; subq $$192, %rsp; andq $$-16, %rsp; "
        f"{stacked}; {passed}; callq *%r11; movq %r12, %rsp"
    )
    attributes = {
        "asm_string": ir.StringAttr.get(text, context=context),
        "constraints": ir.StringAttr.get(f"={{r10}},={{r11}},0,1,{_CLOBBERED}", context=context),
        "has_side_effects": ir.UnitAttr.get(context=context),
    }
    results = [ir.Type.parse("!llvm.struct<(i64, i64)>", context=context)]
    operands = [addresses, function]
    ir.Operation.create("llvm.inline_asm", results=results, operands=operands, attributes=attributes, **machine.at)


def _address(machine: Emitter, buffer: Buffer, place: Size) -> Any:
    """Return the address of an element, as i64."""
    memory = buffer.memory
    pointer, offset = memory if memory is not None else (buffer.array, machine.constant(0, INDEX, None))
    base = machine.memref.extract_aligned_pointer_as_index(pointer, **machine.at)
    size = machine.constant(buffer.element.itemsize, INDEX, None)
    distance = machine.arith.muli(index_data(machine, place), size, **machine.at)
    total = machine.arith.addi(machine.arith.addi(base, offset, **machine.at), distance, **machine.at)
    return machine.arith.index_cast(mlir.ir.IntegerType.get_signless(64, context=mlir.context()), total, **machine.at)
