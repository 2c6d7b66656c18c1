"""`Call`: the call of a kernel's function with its buffers, and its errors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx.kernels.buffer import Buffer, product
from rlx.kernels.errors import kernel_error
from rlx.kernels.kernel import Kernel
from rlx.kernels.loop import check_all_run
from rlx.kernels.looped import LoopOp
from rlx.support.errors import Error
from rlx.support.traces import place_of

if TYPE_CHECKING:
    from rlx.kernels.registry import CpuKernel


@dataclass(frozen=True)
class RegionCode:
    """The op of a kernel with a region.

    Attributes:
        op: The op, and the values from outside that its region uses.
        captures: A buffer for each of these values.
    """

    op: LoopOp
    captures: Sequence[Buffer]


BufferOperand = Buffer | None | Sequence[Buffer]


@dataclass(frozen=True)
class Call:
    """The call of a kernel's function: it emits or runs the code.

    Attributes:
        kernel: The kernel.
        k: Its first argument.
        operands: A buffer for each operand of the op's record; None for a missing one, a list for a variadic one.
        results: The buffers of results.
        workspace: More buffers.
        attributes: The attributes of the op, the kernel's plan and its numbers, by name.
        region: The op and the buffers of its captures, if it has a region.
    """

    kernel: CpuKernel
    k: Kernel
    operands: Sequence[BufferOperand]
    results: Sequence[Buffer]
    workspace: Sequence[Buffer]
    attributes: Mapping[str, Any]
    region: RegionCode | None = None

    def run(self) -> None:
        """Run the code.

        Raises:
            ShapeError: The code is wrong, with its line.
        """
        self._check_parameters()
        scope = self.k.machine.scope
        try:
            self.run_function()
        except Error:
            raise
        except Exception as problem:
            message = f"the kernel '{self.kernel.name}' raised {type(problem).__name__}: {problem}"
            is_of_rank = isinstance(problem, ValueError) and "values to unpack" in str(problem)
            hint = "`takes=` limits the kernel: lambda case: case.tensors[0].rank == 2" if is_of_rank else None
            raise kernel_error(message, hint, place_of(problem) or self.kernel.place) from problem
        self.k.machine.check_scope(scope)
        check_all_run(self.k.pending_loops)
        self._check_results()

    def run_function(self) -> None:
        """Call the function, without checks."""
        self.kernel.function(self.k, *self.operands, *self.results, *self.workspace, **self._named)

    @property
    def _named(self) -> dict[str, Any]:
        return {**self.attributes, **({} if self.region is None else {"region": self.region})}

    def _check_parameters(self) -> None:
        buffers = (*self.operands, *self.results, *self.workspace)
        try:
            inspect.signature(self.kernel.function).bind(self.k, *buffers, **self._named)
        except TypeError as problem:
            groups = {"operand": self.operands, "result": self.results, "workspace tensor": self.workspace}
            counts = [f"{len(g)} {name}{'s' * (len(g) > 1)}" for name, g in groups.items() if g]
            named = f", and {', '.join(f'{name}=' for name in self.attributes)} by name" if self.attributes else ""
            hint = f"{self.kernel.op} has {', '.join(counts)}: it is called with k and {len(buffers)} buffers{named}"
            raise kernel_error(f"the kernel '{self.kernel.name}': {problem}", hint, self.kernel.place) from None

    def _check_results(self) -> None:
        for number, result in enumerate(self.results):
            size = product(result.shape)
            if not result.access.is_written and not (isinstance(size, int) and size == 0):
                name = "the result" if len(self.results) == 1 else f"result {number}"
                text = f"the kernel '{self.kernel.name}' does not write {name}, {result!r}"
                raise kernel_error(text, "y[i, c] = value writes elements", self.kernel.place)
