"""Simulation of designs in this process: CIRCT emits LLVM IR for one clock step, and LLVM compiles it.

The clock, the inputs and the readers of outputs are driven by code that is compiled with it, because a call from Python for
each edge would take longer than the step. Both ends may stall, in pseudo-random cycles.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.support.errors import ExecutionError
from rlx.support.locks import holding, make_lock
from rlx.support.packages import import_package
from rlx.targets.fpga.drive import Port, driver

# Attributes and flags of LLVM versions later than llvmlite's.
_NEWER = re.compile(
    r"^(target (triple|datalayout)|source_filename).*\n|\bcaptures\([^)]*\) |\bnocreateundeforpoison\b ?", re.M
)


@dataclass(frozen=True)
class Simulation:
    """The result of a run.

    Attributes:
        outputs: The elements of each output, in order of arrival.
        cycles: The cycles from the first valid input to the last element of the outputs.
    """

    outputs: list[np.ndarray]
    cycles: int


class Simulator:
    """A design compiled for this machine.

    Args:
        ir: LLVM IR of its step.
        top: The name of its top module.
        offsets: The offsets of its ports in its state.
        size: The size of its state in bytes.
        inputs: The input streams.
        outputs: The output streams.
    """

    def __init__(
        self, ir: str, top: str, offsets: Mapping[str, int], size: int, inputs: Sequence[Port], outputs: Sequence[Port]
    ):
        self._inputs, self._outputs, self._size = tuple(inputs), tuple(outputs), size
        binding: Any = import_package("llvmlite.binding", "simulating a design")
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        text = _NEWER.sub("", ir) + driver(top, offsets, self._inputs, self._outputs)
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
    ) -> Simulation:
        """Reset the design, and run tensors through it.

        Args:
            arrays: The elements of each input in stream order, for all tensors consecutively.
            most_cycles: The maximal number of cycles.
            tensors: The number of tensors.
            hesitant: The probabilities that an input and that the reader of an output stalls in a cycle.
            seed: The seed of the stalls.

        Raises:
            ExecutionError: The outputs are incomplete after `most_cycles`.
        """
        given = [np.ascontiguousarray(a, np.int64).ravel() for a in arrays]
        results = [np.zeros(p.count * tensors, np.int64) for p in self._outputs]
        counts = [p.count * tensors for p in (*self._inputs, *self._outputs)]
        assert [len(a) for a in given] == counts[: len(given)], (counts, [len(a) for a in given])
        state = np.zeros(self._size + 64, np.uint8)
        pointers = (ctypes.c_void_p * (len(counts) or 1))(*(a.ctypes.data for a in (*given, *results)))
        numbers = np.array([*counts, *[0] * len(counts)], np.int64)
        # The numbers of elements of all streams, then the numbers of elements transferred so far.
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
        return Simulation(results, int(cycles))
