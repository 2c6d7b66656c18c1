"""`Machine`: the two ways to run the code of a kernel, by emitting MLIR ops or by computing with NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.elements import Element
from rlx.kernels.errors import kernel_error
from rlx.kernels.operations import Operation
from rlx.support.caller import caller_place

LARGEST_SCRATCH = 131072  # bytes: IREE's threads have small stacks


class Scope:
    """A body of a loop or branch, or the whole kernel. Values computed in it are unknown after it is closed.

    Attributes:
        name: The loop or branch, for messages.
        is_open: Whether the body is being run.
        place: The line of the loop or branch.
    """

    __slots__ = ("is_open", "name", "place")

    def __init__(self, name: str, place: str = ""):
        self.name, self.is_open, self.place = name, True, place


class Machine(ABC):
    """Computes the operations of a kernel on plain data: MLIR values, or NumPy arrays and integers.

    `lanes` is the number of elements of a vector, None for a scalar. The caller has checked elements and lanes.

    Args:
        cpu: The CPU that the kernel is for.
    """

    def __init__(self, cpu: CpuModel):
        self.cpu = cpu
        self.scope = Scope("the kernel")
        self._has_accessed, self._is_complete = False, False

    def body(self, name: str) -> Iterator[None]:
        """The scope of a loop or branch: the code that runs between the yield and the next step of the iterator.

        Raises:
            ShapeError: A loop inside of it was left by `break`, `return` or `continue`.
        """
        outer, inner = self.scope, Scope(name, caller_place())
        self.scope = inner
        yield None
        self.check_scope(inner)
        inner.is_open = False
        self.scope = outer

    def check_scope(self, scope: Scope) -> None:
        """Check that all loops and branches inside of a scope have ended.

        Raises:
            ShapeError: One was left by `break` or `return`: its generator was never resumed.
        """
        if self.scope is not scope:
            hint = "a loop of a kernel runs to its end: use k.when, k.where or k.repeat"
            left = self.scope
            raise kernel_error(f"{left.name} in {scope.name} was left by `break` or `return`", hint, left.place)

    def check_scratch(self, size: int) -> None:
        """Check the bytes of all scratch memory.

        Raises:
            ShapeError: They are too many.
        """
        if size > LARGEST_SCRATCH:
            text = f"scratch memory of {size} bytes: at most {LARGEST_SCRATCH}"
            raise kernel_error(text, "larger memory is a workspace: rlx.kernel(…, workspace=…)")

    def note_access(self) -> None:
        """Note that memory or a register is read, or memory is written.

        Raises:
            ShapeError: `k.parallel` has ended: the other workgroups may still be running.
        """
        if self._is_complete:
            hint = "the loop's body does all work: a second op, or k.range instead of k.parallel, follows the first"
            raise kernel_error("memory is read or written after k.parallel", hint)
        self._has_accessed = True

    def begin_parallel(self) -> None:
        """Note that `k.parallel` begins.

        Raises:
            ShapeError: Memory has been read or written.
        """
        if self._has_accessed:
            hint = "all workgroups run the code before it, so only sizes and constants are known there"
            raise kernel_error("k.parallel comes before memory is read or written, and before registers", hint)

    def end_parallel(self) -> None:
        """Note that `k.parallel` has ended."""
        self._is_complete = True

    # --- values -----------------------------------------------------------------------------------

    @abstractmethod
    def constant(self, number: Any, element: Element, lanes: int | None) -> Any:
        """A number, or a vector with this number in each lane."""

    @abstractmethod
    def constants(self, numbers: Sequence[Any], element: Element) -> Any:
        """A vector of several numbers."""

    @abstractmethod
    def joined(self, parts: Sequence[Any], element: Element) -> Any:
        """A vector of several scalars."""

    @abstractmethod
    def splat(self, data: Any, element: Element, lanes: int) -> Any:
        """A vector with a scalar in each lane."""

    @abstractmethod
    def apply(self, operation: Operation, operands: Sequence[Any], element: Element) -> Any:
        """An operation of the table."""

    @abstractmethod
    def compare(self, kind: str, a: Any, b: Any, element: Element) -> Any:
        """A comparison, a key of `COMPARISONS`."""

    @abstractmethod
    def select(self, condition: Any, a: Any, b: Any) -> Any:
        """`a` where the condition holds, else `b`."""

    @abstractmethod
    def fma(self, a: Any, b: Any, c: Any, element: Element) -> Any:
        """`a·b + c` of floats."""

    @abstractmethod
    def convert(self, data: Any, source: Element, target: Element, lanes: int | None) -> Any:
        """The same numbers as another element type. Floats are truncated to integers."""

    @abstractmethod
    def elementary(self, name: str, data: Any, element: DType, lanes: int | None) -> Any:
        """An elementary function of floats, to about 1 ulp: one of `rlx.activation` that numerics has."""

    @abstractmethod
    def bits(self, data: Any, target: Element, lanes: int | None) -> Any:
        """The same bits as another element type of the same width."""

    @abstractmethod
    def lane(self, data: Any, index: Any) -> Any:
        """One element of a vector."""

    @abstractmethod
    def lane_bits(self, data: Any) -> Any:
        """A number of u64 with a bit for each lane of a condition."""

    @abstractmethod
    def shuffle(self, a: Any, b: Any, indices: Sequence[int]) -> Any:
        """A vector of elements of two vectors: indices count through `a`, then `b`."""

    @abstractmethod
    def mask(self, count: Any, lanes: int) -> Any:
        """A condition that holds in the first `count` lanes."""

    @abstractmethod
    def pair_products(self, a: Any, b: Any, element: Element, lanes: int) -> Any:
        """`a[2i]·b[2i] + a[2i + 1]·b[2i + 1]`: of i16 as i32, which wraps; of u8 and i8 as i16, which saturates.

        Args:
            a: A vector.
            b: A vector.
            element: The element type of `a`.
            lanes: The number of lanes of `a`.
        """

    @abstractmethod
    def quad_products(self, a: Any, b: Any, total: Any, lanes: int) -> Any:
        """`total + a[4i]·b[4i] + … + a[4i + 3]·b[4i + 3]`, of u8 and i8 as i32, in one instruction.

        Args:
            a: A vector.
            b: A vector.
            total: A vector with a quarter of the lanes.
            lanes: The number of lanes of `a`.
        """

    @abstractmethod
    def table_entries(self, table: Any, indices: Any, lanes: int) -> Any:
        """The elements of a vector of 16 bytes at indices below 16, in one instruction.

        Args:
            table: The 16 bytes, repeated to the number of lanes.
            indices: The indices.
            lanes: The number of lanes.
        """

    @abstractmethod
    def widen_half(self, data: Any, lanes: int | None) -> Any:
        """The f32 numbers of f16 numbers whose bits are given as u16."""

    @abstractmethod
    def prefetch(self, array: Any, indices: Sequence[Any]) -> None:
        """Ask the CPU to load the cache line of an element, which may be outside of the array."""

    @abstractmethod
    def intrinsic(self, name: str, operands: Sequence[Any], element: Element, lanes: int | None) -> Any:
        """An instruction of the CPU by the name of LLVM's intrinsic function."""

    # --- memory -----------------------------------------------------------------------------------

    @abstractmethod
    def view(self, memory: Any, shape: Sequence[Any], element: Element) -> Any:
        """The memory of a buffer as an array of a shape."""

    @abstractmethod
    def scratch(self, shape: Sequence[int], element: Element) -> Any:
        """Memory of one workgroup with undefined elements."""

    @abstractmethod
    def table(self, array: np.ndarray) -> Any:
        """Constant memory with the elements of an array."""

    @abstractmethod
    def load(self, array: Any, indices: Sequence[Any], element: Element, lanes: int | None, mask: Any) -> Any:
        """Elements of an array, consecutive from the position. Lanes outside the mask are 0."""

    @abstractmethod
    def store(self, array: Any, indices: Sequence[Any], data: Any, lanes: int | None, mask: Any) -> None:
        """Write elements of an array."""

    @abstractmethod
    def variable(self, element: Element, lanes: int | None) -> Any:
        """A register that can be assigned."""

    @abstractmethod
    def read(self, variable: Any, element: Element, lanes: int | None) -> Any:
        """The value of a variable."""

    @abstractmethod
    def assign(self, variable: Any, data: Any, lanes: int | None) -> None:
        """Change the value of a variable."""

    # --- control flow -----------------------------------------------------------------------------

    @abstractmethod
    def range(self, start: Any, stop: Any, step: Any) -> Iterator[Any]:
        """The positions of a loop."""

    @abstractmethod
    def when(self, condition: Any) -> Iterator[None]:
        """Run a body once if a condition holds."""

    @abstractmethod
    def repeat(self) -> Iterator[None]:
        """Run a body again until `stop_unless` has been given a false condition in it."""

    @abstractmethod
    def stop_unless(self, condition: Any) -> None:
        """End the innermost `repeat` after this run of its body, if a condition does not hold."""

    @abstractmethod
    def workgroups(self, count: Any, chunk: Any) -> Iterator[tuple[Any, Any]]:
        """The ranges of positions of workgroups, which may run in any order: `chunk` positions, the last one maybe less."""
