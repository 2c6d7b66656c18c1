"""`kernel`: the decorator that declares a function the kernel of an op, and the registry of all kernels."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.calls import Answered, with_call_errors
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import dtype
from rlx.ir.op import opview
from rlx.ir.op import registry as ops
from rlx.ir.op.attributes import complete
from rlx.ir.op.custom import CustomOp
from rlx.ir.op.dependencies import source_of, values_from_outside
from rlx.ir.op.verify import infer
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Access, Buffer, Size, shape_in_memory
from rlx.kernels.call import Call, RegionCode
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.cpu_model import cpu_model
from rlx.kernels.errors import kernel_error
from rlx.kernels.interpreter import Interpreter, undefined
from rlx.kernels.kernel import Kernel
from rlx.passes.lapack import PREFIX as LAPACK
from rlx.support.errors import Error
from rlx.support.guards import is_sequence
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.support.traces import place_of

_MOST_TENSORS = 64  # of an executable, in IREE's runtime


def _always(case: KernelCase) -> bool:
    return True


def _no_workspace(case: KernelCase) -> Sequence[Shape]:
    return ()


def _no_plan(case: KernelCase) -> Any:
    return None


def _no_numbers(case: KernelCase) -> Mapping[str, int]:
    return {}


def _no_axes(case: KernelCase) -> Sequence[Axes]:
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
        plan: The choices for a case that its code depends on: its argument `plan`.
        numbers: More integers that the code reads when it runs, by the names of its arguments.
        open_axes: Axes whose sizes the code reads when it runs: cases that differ only in them share an executable.
        stored_weights: Whether it reads weights as files store them.
        place: The file and line of the code.
        texts: For a user's kernel, hashes of the source files of its functions when it was declared; None for an unknown one.
    """

    op: str
    name: str
    function: Callable[..., None]
    takes: Callable[[KernelCase], bool] = field(default_factory=lambda: _always)
    pays: Callable[[KernelCase], bool] = field(default_factory=lambda: _always)
    workspace: Callable[[KernelCase], Sequence[Shape]] = field(default_factory=lambda: _no_workspace)
    plan: Callable[[KernelCase], Any] = field(default_factory=lambda: _no_plan)
    numbers: Callable[[KernelCase], Mapping[str, int]] = field(default_factory=lambda: _no_numbers)
    open_axes: Callable[[KernelCase], Sequence[Axes]] = field(default_factory=lambda: _no_axes)
    stored_weights: bool = False
    place: str = field(default="", compare=False)
    texts: Sequence[str | None] = field(default=(), compare=False, repr=False)

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """The functions that its author wrote."""
        return [self.function, self.takes, self.pays, self.workspace, self.plan, self.numbers, self.open_axes]

    @property
    def own_functions(self) -> list[Callable[..., Any]]:
        """Those of these functions that are not RLX's."""
        return [f for f in self.functions if not (getattr(f, "__module__", None) or "").startswith("rlx.")]

    @property
    def is_of_library(self) -> bool:
        """Whether it is one of RLX's own kernels."""
        return self.function.__module__.startswith(f"{__package__}.")

    def run(
        self, *operands: np.ndarray | Sequence[np.ndarray] | None, cpu: str = "x86-64-v3", **attributes: Any
    ) -> Any:
        """Run the kernel's code with NumPy, to test and debug it.

        Args:
            operands: An array for each operand; None for a missing one, a list for a variadic one.
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
        needed = [o.arity != "optional" for o in spec.operands]
        if not sum(needed) <= len(operands) <= len(needed) or any(
            o is None and is_needed for o, is_needed in zip(operands, needed, strict=False)
        ):
            names = ", ".join(o.name if o.arity == "single" else f"{o.name} ({o.arity})" for o in spec.operands)
            text = f"{self.op} has the operands {names}, got {len([o for o in operands if o is not None])} arrays"
            raise kernel_error(text, "a list of arrays is a variadic operand; attributes are passed by name")
        arrays = [
            None if o is None else [*map(np.asarray, o)] if value.arity == "variadic" else np.asarray(o)
            for o, value in zip_longest(operands, spec.operands)
        ]
        shapes = [_shape(a) for a in arrays]
        results = infer(self.op, shapes, values)
        new = self.run_case(KernelCase(tuple(shapes), results, values, model), arrays)
        return new[0] if len(results) == 1 else tuple(new)

    def run_case(
        self, case: KernelCase, operands: Sequence[Any], captures: Sequence[np.ndarray] = ()
    ) -> list[np.ndarray]:
        """Run the kernel's code with NumPy in a case whose sizes are all known.

        Args:
            case: The case.
            operands: An array for each operand; None for a missing one, a list for a variadic one.
            captures: An array for each value from outside that the region of the op uses.

        Returns:
            The results.

        Raises:
            ShapeError: The code is wrong, with its line.
            Error: The kernel does not take this case.
        """
        if not self.accepts(case):
            raise Error(
                f"the kernel '{self.name}' does not take {', '.join(map(str, case.tensors))}, {case.attributes}"
            )
        case = self.planned(case)
        machine = Interpreter(case.cpu)
        given = [_buffer(machine, a) for a in operands]
        region = case.loop and RegionCode(case.loop, [_buffer(machine, a) for a in captures])
        new, more = ([_undefined(s) for s in shapes] for shapes in (case.results, self.workspace_of(case)))
        made, extra = ([_buffer(machine, a, is_writable=True) for a in group] for group in (new, more))
        Call(self, Kernel(machine), given, made, extra, self.named(case, case.numbers), region).run()
        return new

    def accepts(self, case: KernelCase) -> bool:
        """Whether the code is right for a case, and its tensors are not too many for an executable of IREE.

        Raises:
            ShapeError: `takes` raised an exception, or `workspace` did, or returns no shapes.
        """
        if not self._answer("takes", case):
            return False
        return len(case.tensors) + len(case.results) + len(self.workspace_of(case)) <= _MOST_TENSORS

    def is_faster(self, case: KernelCase) -> bool:
        """Whether the kernel is faster than the op's lowering in a case.

        Raises:
            ShapeError: `pays` raised an exception.
        """
        return bool(self._answer("pays", case))

    def planned(self, case: KernelCase) -> KernelCase:
        """Return a case with the kernel's plan and numbers for it.

        Raises:
            ShapeError: `plan` or `numbers` raised an exception, or `numbers` returns others than integers.
        """
        numbers = self._answer("numbers", case)
        if not isinstance(numbers, Mapping) or not all(type(number) is int for number in numbers.values()):
            text = f"the numbers of the kernel '{self.name}' are integers by name, not {short_repr(numbers)}"
            raise kernel_error(text, "numbers=lambda case: {'rows': 8}", self.place)
        return replace(case, plan=self._answer("plan", case), numbers=dict(numbers))

    def opened(self, case: KernelCase) -> tuple[KernelCase, dict[Dim, int]]:
        """Return the case for which code is emitted, and the sizes and numbers that are unknown in it, by their new names.

        Raises:
            ShapeError: `open_axes` raised an exception, or does not return axes of equal size.
        """
        open_axes = self._answer("open_axes", case)
        if case.plan is not None:
            case = replace(case, loop=None)  # its code depends on the plan, not on the region
        try:
            return case.opened(open_axes)
        except (TypeError, ValueError, IndexError) as problem:
            text = f"open_axes of the kernel '{self.name}' are lists of (tensor, axis) with equal sizes: {problem}"
            raise kernel_error(text, place=self.place) from problem

    def named(self, case: KernelCase, numbers: Mapping[str, Size | Dim]) -> dict[str, Any]:
        """Return what the code is called with by name: attributes, the plan, and numbers."""
        return {**case.attributes, **({} if case.plan is None else {"plan": case.plan}), **numbers}

    def workspace_of(self, case: KernelCase) -> list[Shape]:
        """Return the shapes of the workspace in a case.

        Raises:
            ShapeError: `workspace` raised an exception, or does not return shapes with sizes of operands or results.
        """
        shapes, known = self._answer("workspace", case), {d for s in (*case.tensors, *case.results) for d in s.dims}
        if not is_sequence(shapes) or not all(isinstance(shape, Shape) for shape in shapes):
            text = f"the workspace of the kernel '{self.name}' is a list of shapes, not {short_repr(shapes)}"
            raise kernel_error(text, "rlx.Shape((4, 8), 'f32') is one", self.place)
        for size in (d for shape in shapes for d in shape.dims if type(d) is not int and d not in known):
            text = f"the workspace of the kernel '{self.name}': {size} is not a size of an operand or a result"
            raise kernel_error(text, place=self.place)
        return list(shapes)

    def _answer(self, name: str, case: KernelCase) -> Any:
        """Return the value of one of the functions of a case."""
        try:
            return getattr(self, name)(case)
        except Error:
            raise
        except Exception as problem:
            text = f"{name} of the kernel '{self.name}' raised {type(problem).__name__}: {problem}"
            raise kernel_error(text, place=place_of(problem) or self.place) from problem


def _shape(operand: Any) -> Any:
    if isinstance(operand, list):
        return [_shape(array) for array in operand]
    return None if operand is None else Shape(operand.shape, dtype(operand.dtype))


def _buffer(machine: Interpreter, operand: Any, *, is_writable: bool = False) -> Any:
    if isinstance(operand, list):
        return [_buffer(machine, array) for array in operand]
    if operand is None:
        return None
    stored = shape_in_memory(_shape(operand))
    flat = operand.reshape(-1) if operand.flags.c_contiguous else operand.flatten()
    return Buffer(machine, flat.view(stored.dtype.numpy), stored.static, stored.dtype, access=Access(is_writable))


def _undefined(shape: Shape) -> np.ndarray:
    return np.full(shape.static, undefined(shape.dtype), shape.dtype.numpy)


_kernels: dict[str, CpuKernel] = {}


@with_call_errors
def kernel(
    op: Any,
    *,
    name: str | None = None,
    takes: Callable[[KernelCase], bool] = _always,
    pays: Callable[[KernelCase], bool] = _always,
    workspace: Callable[[KernelCase], Sequence[Shape]] = _no_workspace,
    plan: Callable[[KernelCase], Any] = _no_plan,
    numbers: Callable[[KernelCase], Mapping[str, int]] = _no_numbers,
    open_axes: Callable[[KernelCase], Sequence[Axes]] = _no_axes,
    stored_weights: bool = False,
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
        plan: The choices for a case that its code depends on, such as the sizes of tiles: its argument `plan`.
        numbers: More integers that depend on a case and that the code reads when it runs; its arguments of these names. One
            with the name of an attribute replaces the attribute.
        open_axes: Axes whose sizes the code reads when it runs, as lists of `(tensor, axis)` with equal sizes; tensors are
            numbered, operands before results. Cases that differ only in them, with equal plans, share an executable, which
            makes programs smaller and their compilation shorter.
        stored_weights: Whether it reads weights as files store them. A program with such a kernel reads all large weights that
            only kernels use in the caller's memory, and IREE's own tools cannot run it.

    Raises:
        Error: The op does not exist, the name is not valid, or another kernel has it.
    """
    spec = _name_of_op(op)
    functions = {"takes": takes, "pays": pays, "workspace": workspace, "plan": plan, "numbers": numbers}
    functions["open_axes"] = open_axes
    for label, condition in functions.items():
        if not callable(condition):
            text = f"kernel: {label} is a function of a case, not {short_repr(condition)}"
            raise kernel_error(text, f"{label}=lambda case: …")

    if type(stored_weights) is not bool:
        raise kernel_error(f"kernel: stored_weights is True or False, not {short_repr(stored_weights)}")
    return lambda function: _register(spec, name, function, {**functions, "stored_weights": stored_weights})


def _register(spec: str, name: str | None, function: Callable[..., None], options: Mapping[str, Any]) -> CpuKernel:
    """Return the kernel of an op, and add it to those that are known."""
    if not inspect.isfunction(function):
        raise kernel_error(f"a kernel is a function, not {short_repr(function)}")
    label = name or function.__name__
    if not re.fullmatch(r"\w[\w.]*", label):
        raise kernel_error(f"{short_repr(label)} is not the name of a kernel", "name=… is of letters, digits, _ and .")
    place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
    known = _kernels.get(label)
    # A notebook's cell that is run again, or a module that is loaded again, replaces its kernels.
    if known is not None and (known.op, _origin(known.function)) != (spec, _origin(function)):
        text = f"there is a kernel '{label}' already, of {known.op} at {known.place}"
        raise kernel_error(text, "name=… renames it", place)
    made = CpuKernel(spec, label, function, **options, place=place, texts=())
    if not made.is_of_library:
        made = replace(made, texts=[*map(source_of, made.own_functions)])
    _kernels[label] = made
    return made


def _name_of_op(op: Any) -> str:
    """Return the name of an op that is given as a name or as a class, and exists."""
    name = op if isinstance(op, str) else getattr(getattr(op, "spec", None), "name", None)
    if not isinstance(name, str):
        hint = '@rlx.kernel("softmax") or @rlx.kernel(MyOp) precedes the function'
        raise kernel_error(f"kernel: expected an op's name or a subclass of CustomOp, got {short_repr(op)}", hint)
    ops.card(name)
    return name


def _origin(function: Callable[..., None]) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def load() -> dict[str, CpuKernel]:
    """Return all kernels by name: those of the library, and the user's."""
    importlib.import_module("rlx.kernels.library")
    return _kernels


def find_kernel(name: str) -> CpuKernel:
    """Return a kernel by name.

    Raises:
        Error: There is none.
    """
    if name.startswith(LAPACK):
        return importlib.import_module("rlx.kernels.lapack").KERNELS[name]
    known = load()
    if name not in known:
        raise Error(f"there is no kernel '{name}'{suggestion(name, known)}", hint=f"kernels: {', '.join(known)}")
    return known[name]


def kernels_of(op: str) -> list[CpuKernel]:
    """Return the kernels of an op: the user's before the library's, those registered last first."""
    made = [kernel for kernel in reversed(load().values()) if kernel.op == op]
    return sorted(made, key=lambda kernel: kernel.is_of_library)


def own_sources(module: mlir.Module) -> list[str] | None:
    """Return hashes of the source code of the user's kernels on which a compiled program may depend.

    These are all: passes and decompositions make other ops of those in the module. Only kernels of custom ops do not count if
    the module has no custom op.

    Returns:
        The texts, or None if one is not available (a kernel defined at a prompt, or one that reads objects from outside whose
        changes cannot be seen). Then nothing may be cached.
    """
    own = [made for made in _kernels.values() if not made.is_of_library]
    if not own:
        return []
    has_custom_ops = any(op.name == opview.CUSTOM for op in opview.operations(module.body))
    used = [made for made in own if has_custom_ops or not isinstance(ops.card(made.op), CustomOp)]
    texts = [text for made in used for text in made.texts]
    texts += [values_from_outside(function) for made in used for function in made.own_functions]
    return None if None in texts else [f"{made.op} {made.name}" for made in used] + [t for t in texts if t is not None]
