"""`Interpreter`: the machine that runs a kernel with NumPy, one operation after another, to test and debug it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

import numpy as np

from rlx.ir.dtype import DType, dtype, i16
from rlx.ir.op import registry
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.elements import Element, IndexElement
from rlx.kernels.errors import kernel_error
from rlx.kernels.machine import Machine
from rlx.kernels.operations import Operation
from rlx.numerics.arithmetic import COMPARISONS


class Interpreter(Machine):
    """Computes with NumPy's numbers of the same dtypes. Workgroups run one after another.

    A position outside of an array is an error here, and undefined in a compiled kernel.
    """

    def __init__(self, cpu: CpuModel):
        super().__init__(cpu)
        self._conditions: list[bool] = []
        # By the call in the kernel's code, because the code of a loop is run again.
        self._scratch: dict[tuple[CodeType, int, int], np.ndarray] = {}

    # --- values -----------------------------------------------------------------------------------

    def constant(self, number: Any, element: Element, lanes: int | None) -> Any:
        value = np.asarray(number).astype(element.numpy)
        return value if lanes is None else np.full(lanes, value)

    def constants(self, numbers: Sequence[Any], element: Element) -> Any:
        return np.array(numbers, element.numpy)

    def joined(self, parts: Sequence[Any], element: Element) -> Any:
        return np.array(parts, element.numpy)

    def splat(self, data: Any, element: Element, lanes: int) -> Any:
        return np.full(lanes, data)

    def apply(self, operation: Operation, operands: Sequence[Any], element: Element) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(operation.numpy(*operands))

    def compare(self, kind: str, a: Any, b: Any, element: Element) -> Any:
        return np.asarray(COMPARISONS[kind](a, b))

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)

    def fma(self, a: Any, b: Any, c: Any, element: Element) -> Any:
        with np.errstate(all="ignore"):
            if self.cpu.has_fma and element.itemsize < 8:
                return (a.astype(np.float64) * b + c).astype(element.numpy)
            return a * b + c

    def convert(self, data: Any, source: Element, target: Element, lanes: int | None) -> Any:
        with np.errstate(all="ignore"):
            return data.astype(target.numpy)

    def elementary(self, name: str, data: Any, element: DType, lanes: int | None) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(registry.card("activation").evaluate(data, kind=name))

    def bits(self, data: Any, target: Element, lanes: int | None) -> Any:
        return data.view(target.numpy)

    def lane(self, data: Any, index: Any) -> Any:
        if not 0 <= int(index) < len(data):
            raise kernel_error(f"lane {int(index)} of a vector of {len(data)}")
        return np.asarray(data[int(index)])

    def lane_bits(self, data: Any) -> Any:
        return np.asarray(sum(1 << int(lane) for lane in np.flatnonzero(data)), np.uint64)

    def shuffle(self, a: Any, b: Any, indices: Sequence[int]) -> Any:
        return np.concatenate([a, b])[list(indices)]

    def mask(self, count: Any, lanes: int) -> Any:
        return np.arange(lanes) < count

    def pair_products(self, a: Any, b: Any, element: Element, lanes: int) -> Any:
        products = a.astype(np.int64) * b.astype(np.int64)
        sums = products[0::2] + products[1::2]
        if element is i16:
            return sums.astype(np.int32)
        return np.clip(sums, -(1 << 15), (1 << 15) - 1).astype(np.int16)

    def quad_products(self, a: Any, b: Any, total: Any, lanes: int) -> Any:
        products = a.astype(np.int64) * b.astype(np.int64)
        return (total + products.reshape(-1, 4).sum(-1)).astype(np.int32)

    def table_entries(self, table: Any, indices: Any, lanes: int) -> Any:
        return table[indices]

    def widen_half(self, data: Any, lanes: int | None) -> Any:
        return np.asarray(data.view(np.float16).astype(np.float32))

    def prefetch(self, array: Any, indices: Sequence[Any]) -> None:
        pass

    def intrinsic(self, name: str, operands: Sequence[Any], element: Element, lanes: int | None) -> Any:
        raise kernel_error(f"NumPy cannot run the instruction {name}", "test the kernel with a compiled program")

    # --- memory -----------------------------------------------------------------------------------

    def view(self, memory: Any, shape: Sequence[Any], element: Element) -> Any:
        sizes = [int(size) for size in shape]
        if memory.size != math.prod(sizes):
            raise kernel_error(f"a view of {memory.size} elements cannot have the shape {sizes}")
        return memory.view(element.numpy).reshape(sizes)

    def scratch(self, shape: Sequence[int], element: Element) -> Any:
        memory = np.full(shape, undefined(element), element.numpy)
        call = sys._getframe(2)  # of `k.scratch`
        number = len(self._scratch) if self.scope.name == "the kernel" else 0
        self._scratch[call.f_code, call.f_lasti, number] = memory
        self.check_scratch(sum(array.nbytes for array in self._scratch.values()))
        return memory

    def table(self, array: np.ndarray) -> Any:
        return array

    def load(self, array: Any, indices: Sequence[Any], element: Element, lanes: int | None, mask: Any) -> Any:
        if not indices:
            return np.asarray(array[()])
        *outer, start = _checked(array, indices)
        if lanes is None:
            _check_inside(array, start, 1)
            return np.asarray(array[(*outer, start)])
        count = lanes if mask is None else int(np.count_nonzero(mask))
        _check_inside(array, start, count)
        result = np.zeros(lanes, array.dtype)
        result[:count] = array[(*outer, slice(start, start + count))]
        return result

    def store(self, array: Any, indices: Sequence[Any], data: Any, lanes: int | None, mask: Any) -> None:
        if not indices:
            array[()] = data
            return
        *outer, start = _checked(array, indices)
        count = 1 if lanes is None else lanes if mask is None else int(np.count_nonzero(mask))
        _check_inside(array, start, count)
        array[(*outer, slice(start, start + count))] = data if lanes is None else data[:count]

    def variable(self, element: Element, lanes: int | None) -> Any:
        return [np.full(() if lanes is None else lanes, undefined(element), element.numpy)]

    def read(self, variable: Any, element: Element, lanes: int | None) -> Any:
        return variable[0]

    def assign(self, variable: Any, data: Any, lanes: int | None) -> None:
        variable[0] = data

    # --- control flow -----------------------------------------------------------------------------

    def range(self, start: Any, stop: Any, step: Any) -> Iterator[Any]:
        if int(step) < 1:
            raise kernel_error(f"k.range: the step is {int(step)}, not positive")
        for position in range(int(start), int(stop), int(step)):
            for _ in self.body("a loop"):
                yield np.asarray(position, np.int64)

    def when(self, condition: Any) -> Iterator[None]:
        if condition:
            yield from self.body("a branch")

    def repeat(self) -> Iterator[None]:
        goes_on = True
        while goes_on:
            depth = len(self._conditions)
            yield from self.body("a loop")
            if len(self._conditions) != depth + 1:
                raise kernel_error("the body of `k.repeat()` must call `k.stop_unless(condition)` once")
            goes_on = self._conditions.pop()

    def stop_unless(self, condition: Any) -> None:
        self._conditions.append(bool(condition))

    def workgroups(self, count: Any, chunk: Any) -> Iterator[tuple[Any, Any]]:
        memories = list(self._scratch.values())
        for start in range(0, int(count), int(chunk)):
            for memory in memories:  # each workgroup has its own
                memory[...] = undefined(dtype(memory.dtype))
            yield np.asarray(start), np.asarray(min(start + int(chunk), int(count)))


def undefined(element: Element) -> Any:
    """A value that makes the use of memory that was not written visible in tests."""
    if element.is_float:
        return np.nan
    return -77 if element.is_signed and not isinstance(element, IndexElement) else 77


def _checked(array: Any, indices: Sequence[Any]) -> list[int]:
    """Return positions as integers, after a check of all but the last axis."""
    positions = [int(i) for i in indices]
    for axis, (position, size) in enumerate(zip(positions[:-1], array.shape[:-1], strict=True)):
        if not 0 <= position < size:
            raise kernel_error(f"position {position} is outside of axis {axis}, which has {size} elements")
    return positions


def _check_inside(array: Any, start: int, count: int) -> None:
    if count and not 0 <= start <= array.shape[-1] - count:
        places = f"position {start} is" if count == 1 else f"positions {start} to {start + count - 1} are"
        raise kernel_error(f"{places} outside of the last axis, which has {array.shape[-1]} elements")
