"""Runs designs in this process: CIRCT gives one step of the clock as LLVM IR, which LLVM compiles here.

The clock, the inputs and the readers of outputs are driven by code that is compiled along with it, as a call from Python for
each edge would take longer than the step. Both ends may hesitate: a pseudo-random number decides in which cycles.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.errors import ExecutionError
from rlx.ir.locks import holding, make_lock
from rlx.ir.packages import required

# Attributes and flags of LLVM versions after the one that llvmlite has.
_NEWER = re.compile(
    r"^(target (triple|datalayout)|source_filename).*\n|\bcaptures\([^)]*\) |\bnocreateundeforpoison\b ?", re.M
)
_RESET_CYCLES = 4


@dataclass(frozen=True)
class Port:
    """A stream at the edge of a design.

    Attributes:
        name: Its name: the ports are `<name>_valid`, `<name>_data` and `<name>_ready`.
        bits: The bits of its data.
        count: The elements of a tensor.
    """

    name: str
    bits: int
    count: int


@dataclass(frozen=True)
class Run:
    """The result of a run.

    Attributes:
        outputs: The elements of each output as they came.
        cycles: The cycles from the first one in which an input was valid to the one in which the last element came.
    """

    outputs: list[np.ndarray]
    cycles: int


class Simulator:
    """A design, compiled for this machine.

    Args:
        ir: LLVM IR of its step.
        top: The name of its top module.
        offsets: Where its ports lie in its state.
        size: The bytes of its state.
        inputs: The streams that it reads.
        outputs: The streams that it gives.
    """

    def __init__(
        self, ir: str, top: str, offsets: Mapping[str, int], size: int, inputs: Sequence[Port], outputs: Sequence[Port]
    ):
        self._inputs, self._outputs, self._size = tuple(inputs), tuple(outputs), size
        binding: Any = required("llvmlite.binding", "simulating a design")
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        text = _NEWER.sub("", ir) + _driver(top, offsets, self._inputs, self._outputs)
        module = binding.parse_assembly(text)
        machine = binding.Target.from_default_triple().create_target_machine(opt=2)
        options = binding.create_pipeline_tuning_options(speed_level=1)
        binding.create_pass_builder(machine, options).getModulePassManager().run(
            module, binding.create_pass_builder(machine, options)
        )
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 4)
        self._drive = signature(self._engine.get_function_address("rlx_drive"))
        self._lock = make_lock()

    def run(
        self,
        arrays: Sequence[np.ndarray],
        *,
        most_cycles: int,
        tensors: int = 1,
        hesitant: tuple[float, float] = (0.0, 0.0),
        seed: int = 1,
    ) -> Run:
        """Feed tensors through the design, from a reset on.

        Args:
            arrays: For each input its elements in the order of the stream, all tensors one after the other.
            most_cycles: The cycles after which it is given up.
            tensors: How many tensors there are.
            hesitant: How likely it is that an input has nothing, and that the reader of an output waits, in a cycle.
            seed: For the choices.

        Raises:
            ExecutionError: The outputs do not come in time.
        """
        given = [np.ascontiguousarray(a, np.int64).ravel() for a in arrays]
        results = [np.zeros(p.count * tensors, np.int64) for p in self._outputs]
        counts = [p.count * tensors for p in (*self._inputs, *self._outputs)]
        assert [len(a) for a in given] == counts[: len(given)], (counts, [len(a) for a in given])
        state = np.zeros(self._size + 64, np.uint8)
        pointers = (ctypes.c_void_p * (len(counts) or 1))(*(a.ctypes.data for a in (*given, *results)))
        numbers = np.array([*counts, *[0] * len(counts)], np.int64)
        # In front of the streams' numbers of elements, where each stands is kept behind them.
        limits = [int(p * 2**32) for p in hesitant]
        cycles = holding(
            self._lock, self._drive, state.ctypes.data, ctypes.addressof(pointers), numbers.ctypes.data, None,
            most_cycles, *limits, seed | 1,
        )  # fmt: skip
        if cycles < 0:
            came = numbers[len(counts) :].tolist()
            raise ExecutionError(
                f"the design stands still: after {most_cycles} cycles, {came} of {counts} elements are through"
            )
        return Run(results, int(cycles))


def _driver(top: str, offsets: Mapping[str, int], inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """LLVM IR of `rlx_drive(state, pointers, numbers, unused, most cycles, input limit, output limit, seed)`.

    It gives the cycles, or -1. `numbers` has the number of elements of each stream, then how many of them are through.
    """
    ports = [(p, True) for p in inputs] + [(p, False) for p in outputs]
    lines: list[str] = []
    count = [0]

    def op(text: str) -> str:
        count[0] += 1
        lines.append(f"  %t{count[0]} = {text}")
        return f"%t{count[0]}"

    def at(base: str, index: int, kind: str = "i64") -> str:
        return op(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def port(name: str) -> str:
        return op(f"getelementptr i8, ptr %state, i64 {offsets[name]}")

    def draw(limit: str) -> str:
        """Whether something happens in a cycle, unless the number drawn is below a limit."""
        x = op("load i64, ptr %rng")
        for shift, direction in ((13, "shl"), (7, "lshr"), (17, "shl")):
            x = op(f"xor i64 {x}, {op(f'{direction} i64 {x}, {shift}')}")
        lines.append(f"  store i64 {x}, ptr %rng")
        return op(f"icmp uge i64 {op(f'lshr i64 {x}, 32')}, {limit}")

    def edge(value: str) -> None:
        lines.append(f"  store i1 {value}, ptr {port('clk')}")
        lines.append(f"  call void @{top}_eval(ptr %state)")

    lines.append("  store i64 %seed, ptr %rng")
    for value in ("true", "false"):
        lines.append(f"  store i1 {value}, ptr {port('rst')}")
        if value == "true":
            for _ in range(_RESET_CYCLES):
                edge("false")
                edge("true")
    lines.append("  br label %cycle")
    lines.append("cycle:")
    lines.append("  %now = phi i64 [ 0, %entry ], [ %next, %more ]")
    lines.append(f"  store i1 false, ptr {port('clk')}")
    n = len(ports)
    placed: list[tuple[str, str, str]] = []
    for i, (p, is_input) in enumerate(ports):
        done = at("%numbers", n + i)
        position, total = op(f"load i64, ptr {done}"), op(f"load i64, ptr {at('%numbers', i)}")
        left = op(f"icmp ult i64 {position}, {total}")
        held = op(f"getelementptr i1, ptr %held, i64 {i}")
        if is_input:
            # What was valid stays so until it is taken.
            wanted = op(f"or i1 {draw('%inlimit')}, {op(f'load i1, ptr {held}')}")
            valid = op(f"and i1 {wanted}, {left}")
            safe = op(f"select i1 {left}, i64 {position}, i64 0")
            pointer = op(f"load ptr, ptr {at('%pointers', i, 'ptr')}")
            value = op(f"load i64, ptr {op(f'getelementptr i64, ptr {pointer}, i64 {safe}')}")
            data = value if p.bits == 64 else op(f"trunc i64 {value} to i{p.bits}")
            lines.append(f"  store i{p.bits} {data}, ptr {port(f'{p.name}_data')}")
            lines.append(f"  store i1 {valid}, ptr {port(f'{p.name}_valid')}")
            placed.append((done, position, valid))
        else:
            ready = draw("%outlimit")
            lines.append(f"  store i1 {ready}, ptr {port(f'{p.name}_ready')}")
            placed.append((done, position, ready))
    lines.append(f"  call void @{top}_eval(ptr %state)")
    waiting = "false"
    for i, ((p, is_input), (done, position, driven)) in enumerate(zip(ports, placed, strict=True)):
        other = op(f"load i1, ptr {port(p.name + ('_ready' if is_input else '_valid'))}")
        moves = op(f"and i1 {driven}, {other}")
        total = op(f"load i64, ptr {at('%numbers', i)}")
        if is_input:
            kept = op(f"and i1 {driven}, {op(f'xor i1 {moves}, true')}")
            lines.append(f"  store i1 {kept}, ptr {op(f'getelementptr i1, ptr %held, i64 {i}')}")
        else:
            fits = op(f"icmp ult i64 {position}, {total}")
            safe = op(f"select i1 {fits}, i64 {position}, i64 0")
            pointer = op(f"load ptr, ptr {at('%pointers', i, 'ptr')}")
            place = op(f"getelementptr i64, ptr {pointer}, i64 {safe}")
            data = op(f"load i{p.bits}, ptr {port(f'{p.name}_data')}")
            wide = data if p.bits == 64 else op(f"sext i{p.bits} {data} to i64")
            old = op(f"load i64, ptr {place}")
            lines.append(f"  store i64 {op(f'select i1 {moves}, i64 {wide}, i64 {old}')}, ptr {place}")
        after = op(f"add i64 {position}, {op(f'zext i1 {moves} to i64')}")
        lines.append(f"  store i64 {after}, ptr {done}")
        if not is_input:
            waiting = op(f"or i1 {waiting}, {op(f'icmp ult i64 {after}, {total}')}")
    edge("true")
    lines.append("  %next = add i64 %now, 1")
    late = op("icmp uge i64 %next, %most")
    lines += [
        f"  br i1 {waiting}, label %more, label %end",
        "more:",
        f"  br i1 {late}, label %stuck, label %cycle",
        "end:",
        "  ret i64 %next",
        "stuck:",
        "  ret i64 -1",
    ]
    head = [
        "define i64 @rlx_drive(ptr %state, ptr %pointers, ptr %numbers, ptr %unused, i64 %most, i64 %inlimit, "
        "i64 %outlimit, i64 %seed) {",
        "entry:",
        "  %rng = alloca i64",
        f"  %held = alloca i1, i64 {n}",
        f"  call void @llvm.memset.p0.i64(ptr %held, i8 0, i64 {n}, i1 false)",
    ]
    end = "\n}\ndeclare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
    return "\n" + "\n".join(head + lines) + end
