"""`@rlx.jit`: a Python function of arrays, compiled for each signature of its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.calls import with_call_errors
from rlx.ir.dtype import dtype
from rlx.ir.fitting import as_array_of
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.eager import lifted
from rlx.ir.graph.graph import Graph
from rlx.ir.graph.weak import NUMBERS, WeakTensor, dtypes_of, kind_of
from rlx.ir.interface import Argument
from rlx.ir.location import describe
from rlx.ir.promotion import weak
from rlx.ir.pytree import Structure
from rlx.ir.shape import Shape
from rlx.runtime.device import Device
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.runtime.tier import check_tier
from rlx.runtime.traced_function import CallArguments, Trace, TracedFunction, Variant, kind_name, paths_of
from rlx.runtime.tracing import static_names
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.targets.options import CompileKeywords, CompileOptions


@dataclass(frozen=True)
class _PythonNumber:
    """The properties of a Python number that affect a trace: its class, and whether it is a 64-bit integer."""

    kind: type
    is_wide: bool


class TracedGraph(Graph):
    """The graph of a trace. Its arguments are those of the function. Other arguments cannot be declared."""

    def _refuse(self, kind: str, name: Any) -> Error:
        message = f"{kind} '{name}' cannot be declared in a function under rlx.jit: nobody could give it a value"
        hint = "make it an argument of the function; modules take their parameters by module.apply(params, x)"
        return Error(message, location=describe(self.location), hint=hint)

    def param(self, name: str, *_: Any, **__: Any) -> Tensor:
        raise self._refuse("param", name)

    def state(self, name: str, *_: Any, **__: Any) -> Tensor:
        raise self._refuse("state", name)


class Jit(TracedFunction):
    """A function of arrays and pytrees of arrays that is traced and compiled once for each signature. Created by `@rlx.jit`.

    The signature consists of the shapes and dtypes of the arrays, the structure of their containers, and the values of
    static arguments. Called with tensors of a graph, the function is traced into that graph. Any thread may call it.
    """

    decorator = "rlx.jit"
    noun = "jit function"
    static_hint = "an array is no static argument"

    _session: Session

    def __init__(
        self,
        function: Callable[..., Any],
        static: str | Iterable[str] = (),
        device: Any = Device.CPU,
        threads: int | None = None,
        options: CompileOptions | None = None,
        tier: str = "best",
    ):
        super().__init__(function, None, options)
        check_tier(tier)
        self._tier = tier
        self._static = static_names(static, self._signature, self._what)
        self._session = Session(device, threads=threads)
        self._init_arguments = (function, tuple(self._static), device, threads, self._options, tier)
        self._unsupported = frozenset(getattr(self._session.target, "unsupported_dtypes", ()))

    def _is_static(self, name: str) -> bool:
        return name in self._static

    def _call_arguments(self, leaves: list[Any], structure: Structure) -> CallArguments:
        return array_arguments(self._what, leaves, structure)

    def _new_graph(self) -> Graph:
        return TracedGraph(self.__name__, stage="hir")

    def _declare(self, graph: Graph, name: str, spec: Shape | _PythonNumber) -> Tensor:
        if isinstance(spec, Shape):
            return graph.input(name, spec)
        number = spec.kind()
        alone, wide = dtypes_of(2**40 if spec.is_wide else number, self._unsupported)
        argument = graph.input(name, (), wide)
        return WeakTensor(graph, (argument if wide is alone else graph.cast(argument, alone)).value, argument, number)

    def _inlined_values(self, builder: Builder, leaves: Sequence[Any], structure: Structure) -> list[Any]:
        """Return the leaves with arrays as constants. Tensors and numbers stay."""
        return [
            leaf if isinstance(leaf, (Tensor, *NUMBERS)) else builder.constant(as_array(leaf, f"{self._what}: {name}"))
            for name, leaf in zip(paths_of(structure), leaves, strict=True)
        ]

    def _eager_values(self, arguments: CallArguments) -> list[Any]:
        leaves = zip(arguments.leaves, arguments.paths(), strict=True)
        return [lifted(leaf, f"{self._what}: argument '{path}'") for leaf, path in leaves]

    def _inputs(self, variant: Variant, program: Program, arguments: CallArguments) -> dict[str, Any]:
        assert variant.trace is not None
        return self._inputs_of(variant.trace, program.inputs, arguments)

    def _inputs_of(self, trace: Trace, inputs: Sequence[Argument], arguments: CallArguments) -> dict[str, Any]:
        """Return the leaves by name, with numbers as arrays. A number must fit the dtypes that the trace casts it to."""
        return {
            a.name: self._number_array(leaf, a, trace) if isinstance(leaf, NUMBERS) else leaf
            for leaf, a in zip(arguments.leaves, inputs, strict=True)
        }

    def _number_array(self, number: Any, argument: Argument, trace: Trace) -> np.ndarray:
        try:
            for kind in trace.number_dtypes[argument.name]:
                as_array_of(number, weak(number, kind))
        except Error as problem:
            raise problem.moved(f"{self._what}: argument '{argument.name}': {problem.message}") from None
        with np.errstate(over="ignore"):  # a target without f64 may return a number outside of f32
            return np.asarray(number, argument.shape.dtype.numpy)

    # --- derivatives ------------------------------------------------------------------------------

    def value_and_grad(self, wrt: Any = None) -> Jit:
        """Return the function that computes `(value, gradients)`, compiled as one program.

        The first leaf of `value` is the loss, a floating-point scalar. Other leaves are returned unchanged.

        Args:
            wrt: Name of the argument to differentiate with respect to, or several names; by default, the first argument
                that is not static. Gradients have the structure of that argument; for several, they are a tuple.
        """
        from rlx.runtime.jit_gradient import Differentiated

        return Differentiated(self, wrt)

    def grad(self, wrt: Any = None) -> Jit:
        """Return the function that computes only the gradients; see `value_and_grad`."""
        from rlx.runtime.jit_gradient import Differentiated

        return Differentiated(self, wrt, with_value=False)

    def __repr__(self) -> str:
        traced = f"{self.num_traces} signature{'' if self.num_traces == 1 else 's'} traced"
        return f"<rlx.jit {self.__name__}{self._signature} for {self._session.target.name}, {traced}>"


def array_arguments(what: str, leaves: Sequence[Any], structure: Structure) -> CallArguments:
    """Return the traced arguments of a call as arrays and numbers, with their shapes and dtypes.

    Args:
        what: The function, for messages.
        leaves: Arrays, numbers, and shapes in place of arrays.
        structure: The containers of the leaves.

    Raises:
        Error: A leaf is neither an array nor a number.
    """
    values: list[Any] = []
    specs: list[Shape | _PythonNumber] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Shape):
            specs.append(leaf)
        elif isinstance(leaf, NUMBERS):
            with _naming(what, structure, i):
                specs.append(_PythonNumber(kind_of(leaf), dtypes_of(leaf)[0].name == "i64"))
        else:
            if type(leaf) is not np.ndarray:
                leaf = _array(leaf, what, structure, i)
            specs.append(_shape(leaf, what, structure, i))
        values.append(leaf)
    return CallArguments(values, structure, tuple(specs))


class _naming:
    """A context that adds the argument's name to errors."""

    def __init__(self, what: str, structure: Structure, index: int):
        self._about = what, structure, index

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> None:
        if isinstance(problem, Error):
            what, structure, index = self._about
            message = f"{what}: argument '{paths_of(structure)[index]}': {problem.message}"
            raise Error(message, location=problem.location, hint=problem.hint) from None


def _array(leaf: Any, what: str, structure: Structure, index: int) -> np.ndarray:
    if hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__"):
        with _naming(what, structure, index):
            return as_array(leaf, "the value")
    name = paths_of(structure)[index].partition(".")[0].partition("[")[0]
    message = f"{what}: argument '{paths_of(structure)[index]}' is neither an array nor a number, but {kind_name(leaf)}"
    if type(leaf).__module__.startswith("scipy.sparse"):
        raise Error(message, hint="rlx.sparse.from_scipy(A) is a matrix that functions take")
    raise Error(message, hint=f'if the trace may depend on its value, rlx.jit(static="{name}")')


def _shape(array: np.ndarray, what: str, structure: Structure, index: int) -> Shape:
    key = array.shape, array.dtype
    shape = _shapes.get(key)
    if shape is None:
        with _naming(what, structure, index):
            shape = Shape(array.shape, dtype(array.dtype))
        if array.dtype.isnative:
            _shapes[key] = shape
    return shape


_shapes: dict[Any, Shape] = {}


@with_call_errors
@takes_options(CompileOptions)
def jit(
    function: Callable[..., Any] | None = None,
    *,
    static: str | Iterable[str] = (),
    device: Any = Device.CPU,
    threads: int | None = None,
    tier: str = "best",
    **options: Unpack[CompileKeywords],
) -> Any:
    """Compile a Python function of arrays when it is called, once for each signature of its arguments.

    Arguments are arrays, Python numbers, and dictionaries, lists, tuples, named tuples, dataclasses and None that
    contain them. They are traced: the function computes with `rlx.Tensor`s. A number is traced as a scalar that takes
    the dtype of the tensors it is combined with. An argument that is left at its default stays a Python value.

    Args:
        function: The function.
        static: Names of arguments that are not traced. They must be hashable; the function is traced for each value.
        device: As in `rlx.Session`.
        threads: As in `rlx.Session`.
        tier: As in `Session.compile`: `"auto"` returns the first result sooner.
        options: As in `Session.compile`, by name.

    Returns:
        A `Jit`. Called with arrays, it returns NumPy arrays in the containers that the function returns.
    """
    chosen = CompileOptions(**options)
    if function is None:
        return functools.partial(jit, static=static, device=device, threads=threads, tier=tier, **options)
    return Jit(function, static, device, threads, chosen, tier)
