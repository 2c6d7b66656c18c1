"""`kernel`: the decorator that declares a function the kernel of an op, and the registry of all kernels."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.calls import Answered, with_call_errors
from rlx.ir.dtype import dtype
from rlx.ir.op import opview
from rlx.ir.op import registry as ops
from rlx.ir.op.attributes import complete
from rlx.ir.op.verify import infer
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer
from rlx.kernels.cpu_model import CpuModel, cpu_model
from rlx.kernels.interpreter import Interpreter, undefined
from rlx.kernels.kernel import Kernel
from rlx.support.errors import Error
from rlx.support.suggestions import suggestion

OperandShape = Shape | None | Sequence[Shape]


@dataclass(frozen=True)
class KernelCase:
    """An op with its shapes and attributes, for a CPU: a kernel's code is emitted once for each case.

    Attributes:
        operands: A shape for each operand of the op's record; None for a missing one, a list for a variadic one.
        results: A shape for each result.
        attributes: All attributes by name.
        cpu: The CPU.
    """

    operands: tuple[OperandShape, ...]
    results: tuple[Shape, ...]
    attributes: Mapping[str, Any]
    cpu: CpuModel

    @property
    def tensors(self) -> list[Shape]:
        """The shapes of all operands that are given, in order."""
        shapes: list[Shape] = []
        for operand in self.operands:
            shapes += [] if operand is None else [operand] if isinstance(operand, Shape) else operand
        return shapes

    def are_all(self, *dtypes: str) -> bool:
        """Whether all operands and results have one of some dtypes."""
        return all(shape.dtype.name in dtypes for shape in (*self.tensors, *self.results))


def _always(case: KernelCase) -> bool:
    return True


def _no_workspace(case: KernelCase) -> Sequence[Shape]:
    return ()


@dataclass(frozen=True)
class CpuKernel(Answered):
    """A kernel: another implementation of an op on CPUs, besides its lowering.

    Attributes:
        op: The name of the op.
        name: The name of the kernel, unique.
        function: The code: `function(k, *operands, *results, *workspace, **attributes)`, with a `Buffer` for each tensor.
        takes: Whether the code is right for a case.
        pays: Whether it is faster than the op's lowering in a case.
        workspace: The shapes of more tensors that the code may write and read.
        place: The file and line of the code.
    """

    op: str
    name: str
    function: Callable[..., None]
    takes: Callable[[KernelCase], bool] = field(default_factory=lambda: _always)
    pays: Callable[[KernelCase], bool] = field(default_factory=lambda: _always)
    workspace: Callable[[KernelCase], Sequence[Shape]] = field(default_factory=lambda: _no_workspace)
    place: str = field(default="", compare=False)

    def run(self, *operands: np.ndarray | None, cpu: str = "x86-64-v3", **attributes: Any) -> Any:
        """Run the kernel's code with NumPy, to test and debug it.

        Args:
            operands: An array for each operand; None for a missing one.
            cpu: The architecture whose registers the code assumes.
            attributes: The attributes of the op.

        Returns:
            The result, or a tuple of them.

        Raises:
            ShapeError: The op does not accept the operands, or the code is wrong, with its line.
            Error: The kernel does not take this case.
        """
        spec, model = ops.card(self.op).spec, cpu_model(cpu)
        values = complete(spec, attributes)
        arrays = [None if o is None else [*o] if isinstance(o, list) else np.asarray(o) for o in operands]
        shapes = [_shape(a) for a in (*arrays, *[None] * (len(spec.operands) - len(arrays)))]
        results = infer(self.op, shapes, values)
        case = KernelCase(tuple(shapes), results, values, model)
        if not self.takes(case):
            raise Error(f"the kernel '{self.name}' does not take {', '.join(map(str, case.tensors))}, {values}")
        machine = Interpreter(model)
        new = [np.full(s.static, undefined(s.dtype), s.dtype.numpy) for s in (*results, *self.workspace(case))]
        buffers = [_buffer(machine, a) for a in (*arrays, *[None] * (len(spec.operands) - len(arrays)), *new)]
        outer = machine.scope
        self.function(Kernel(machine), *buffers, **values)
        machine.check_scope(outer)
        return new[0] if len(results) == 1 else tuple(new[: len(results)])


def _shape(operand: Any) -> Any:
    if isinstance(operand, list):
        return [_shape(array) for array in operand]
    return None if operand is None else Shape(operand.shape, dtype(operand.dtype))


def _buffer(machine: Interpreter, operand: Any) -> Any:
    if isinstance(operand, list):
        return [_buffer(machine, array) for array in operand]
    if operand is None:
        return None
    flat = operand.reshape(-1) if operand.flags.c_contiguous else operand.flatten()
    return Buffer(machine, flat, operand.shape, dtype(operand.dtype))


_kernels: dict[str, CpuKernel] = {}


@with_call_errors
def kernel(
    op: Any,
    *,
    name: str | None = None,
    takes: Callable[[KernelCase], bool] = _always,
    pays: Callable[[KernelCase], bool] = _always,
    workspace: Callable[[KernelCase], Sequence[Shape]] = _no_workspace,
) -> Callable[[Callable[..., None]], CpuKernel]:
    """Declare a function the kernel of an op on CPUs.

        @rlx.kernel("example.blur")
        def blur(k, x, y):
            for i in k.parallel(x.shape[0]):
                ...

    The function is called once for each case, to emit its code: `function(k, *operands, *results, *workspace, **attributes)`.
    It calls the methods of `k` for loops, and reads and writes the buffers of the tensors.

    Args:
        op: The op: its name, or a subclass of `CustomOp`.
        name: The kernel's name; the function's by default.
        takes: Whether the code is right for a case. The op's lowering is used for all others.
        pays: Whether the kernel is faster than the op's lowering in a case. `kernels="all"` ignores it.
        workspace: The shapes of more tensors that the code may write and read.

    Raises:
        Error: The op does not exist, or another kernel has the name.
    """
    spec = op if isinstance(op, str) else op.spec.name
    ops.card(spec)

    def register(function: Callable[..., None]) -> CpuKernel:
        label = name or function.__name__
        place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        known = _kernels.get(label)
        if known is not None and known.function.__qualname__ != function.__qualname__:
            raise Error(
                f"there is a kernel '{label}' already, of {known.op} at {known.place}", hint="name=… renames it"
            )
        made = CpuKernel(spec, label, function, takes, pays, workspace, place)
        _kernels[label] = made
        return made

    return register


def load() -> dict[str, CpuKernel]:
    """Return all kernels by name: those of the library, and the user's."""
    from rlx.kernels import library

    for module in pkgutil.iter_modules(library.__path__):
        importlib.import_module(f"{library.__name__}.{module.name}")
    return _kernels


def find_kernel(name: str) -> CpuKernel:
    """Return a kernel by name.

    Raises:
        Error: There is none.
    """
    known = load()
    if name not in known:
        raise Error(f"there is no kernel '{name}'{suggestion(name, known)}", hint=f"kernels: {', '.join(known)}")
    return known[name]


def kernels_of(op: str) -> list[CpuKernel]:
    """Return the kernels of an op, those registered last first: a user's kernel precedes the library's."""
    return [made for made in reversed(load().values()) if made.op == op]


def own_sources(module: mlir.Module) -> list[str] | None:
    """Return the source code of the user's kernels of the ops in a module, on which a compiled program may depend.

    Returns:
        The texts, or None if some source code is not available (a kernel defined at a prompt). Then nothing may be cached.
    """
    own = [made for made in _kernels.values() if not made.function.__module__.startswith(f"{__package__}.")]
    if not own:
        return []
    names = {opview.name_of(op) for op in opview.operations(module.body) if ops.is_ours(op)}
    try:
        return [
            inspect.getsource(function)
            for made in own
            if made.op in names
            for function in (made.function, made.takes, made.pays, made.workspace)
        ]
    except (OSError, TypeError):
        return None
