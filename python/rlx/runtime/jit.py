"""`@rlx.jit`: a Python function of arrays, compiled for each signature of its arguments."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Unpack

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.dtype import dtype
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.current import builder_of, emitting_into
from rlx.ir.graph.eager import EAGER, is_eager, lifted
from rlx.ir.graph.graph import Graph
from rlx.ir.graph.weak import NUMBERS, WeakTensor, dtypes_of, kind_of
from rlx.ir.location import describe
from rlx.ir.op.calls import with_call_errors
from rlx.ir.pytree import Structure, flatten
from rlx.ir.shape import Shape
from rlx.ops.lift import tensor_like
from rlx.runtime.device import Device
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.runtime.tracing import Variant, bound_to, name_of, place_of, signature_of, static_key, static_names
from rlx.support.answers import answers
from rlx.support.errors import Error
from rlx.support.locks import holding
from rlx.support.options import takes_options
from rlx.targets.options import CompileKeywords, CompileOptions


@dataclass(frozen=True)
class _PythonNumber:
    """The properties of a Python number that affect a trace: its class, and whether it is a 64-bit integer."""

    kind: type
    is_wide: bool


class Traced(Graph):
    """The graph of a trace. Its arguments are those of the function. Other arguments cannot be declared."""

    def _refuse(self, kind: str, name: Any) -> Error:
        message = f"{kind} '{name}' cannot be declared in a function under rlx.jit: nobody could give it a value"
        hint = "make it an argument of the function; modules take their parameters by module.apply(params, x)"
        return Error(message, location=describe(self.location), hint=hint)

    def param(self, name: str, *_: Any, **__: Any) -> Tensor:
        raise self._refuse("param", name)

    def state(self, name: str, *_: Any, **__: Any) -> Tensor:
        raise self._refuse("state", name)


class Jit:
    """A function of arrays and pytrees of arrays that is traced and compiled once for each signature. Created by `@rlx.jit`.

    The signature consists of the shapes and dtypes of the arrays, the structure of their containers, and the values of
    static arguments. Called with tensors of a graph, the function is traced into that graph. Any thread may call it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static: Any = (),
        device: Any = Device.CPU,
        threads: Any = None,
        options: CompileOptions | None = None,
    ):
        self._signature = signature_of(function, "rlx.jit")
        functools.update_wrapper(self, function)
        self.__name__: str = name_of(function)
        self._function = function
        self._what = f"jit function '{self.__name__}'"
        self._static = static_names(static, self._signature, self._what)
        self._options = options or CompileOptions()
        self._made_of: tuple[Any, ...] = (function, tuple(self._static), device, threads, self._options)
        self._session = Session(device, threads=threads)
        self._unsupported = frozenset(getattr(self._session.target, "unsupported_dtypes", ()))
        self._variants: dict[Any, Variant] = {}

    # --- calling ----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        dynamic, static = self._arguments(args, kwargs)
        leaves, structure = flatten(dynamic)
        builder = builder_of(leaves)
        if builder is not None:
            return self._inlined(builder, leaves, structure, static)
        if is_eager():
            return self._eagerly(leaves, structure, static)
        arguments = TracedArguments(self._what, leaves, structure)
        variant = self._variant(arguments, static)
        return holding(variant.lock, self._run, variant, arguments, static)

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        """Return the graph for a call with these arguments, without running it.

        An array may be replaced by an `rlx.Shape`, also with symbols: `f.graph_for(rlx.Shape(("batch", 4)))`.
        """
        variant, arguments, static = self._of(args, kwargs)
        return holding(variant.lock, self._trace, variant, arguments, static)[0]

    def compiled_for(self, *args: Any, **kwargs: Any) -> Program:
        """Return the compiled program for a call with these arguments, as for `graph_for`, without running it."""
        variant, arguments, static = self._of(args, kwargs)
        return holding(variant.lock, self._compile, variant, arguments, static)

    @property
    def num_traces(self) -> int:
        """The number of signatures for which the function has been traced."""
        return sum(variant.traced is not None for variant in list(self._variants.values()))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"'Jit' object has no attribute '{name}'")
        raise answers().attribute_problem(
            "a function under rlx.jit", name, "functions", [n for n in dir(type(self)) if n[0] != "_"]
        )

    def __copy__(self) -> Jit:
        return self  # like Python functions

    def __deepcopy__(self, memo: object) -> Jit:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name if a module defines it, like Python functions; otherwise as the function and its options."""
        name: str = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (type(self), self._made_of)

    def clear_cache(self) -> None:
        """Drop all traces and programs."""
        self._variants.clear()

    def _of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Variant, TracedArguments, dict[str, Any]]:
        dynamic, static = self._arguments(args, kwargs)
        arguments = TracedArguments(self._what, *flatten(dynamic))
        return self._variant(arguments, static), arguments, static

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the traced arguments and the static ones. Arguments that have their defaults are in neither."""
        bound = bound_to(self._signature, args, kwargs, self._what)
        dynamic = {n: v for n, v in bound.items() if n not in self._static}
        return dynamic, {n: v for n, v in bound.items() if n in self._static}

    def _variant(self, arguments: TracedArguments, static: Mapping[str, Any]) -> Variant:
        key = (
            static_key(static, self._what, "an array is no static argument"),
            arguments.structure,
            arguments.signature,
        )
        variant = self._variants.get(key)
        return self._variants.setdefault(key, Variant()) if variant is None else variant

    def _run(self, variant: Variant, arguments: TracedArguments, static: Mapping[str, Any]) -> Any:
        graph, rebuild = self._trace(variant, arguments, static)
        if not graph.results:
            return rebuild([])
        program = self._compile(variant, arguments, static)
        names = [a.name for a in program.inputs]
        arrays = [
            np.asarray(leaf, a.shape.dtype.numpy) if isinstance(leaf, NUMBERS) else leaf
            for leaf, a in zip(arguments.leaves, program.inputs, strict=True)
        ]
        return rebuild(program.run(dict(zip(names, arrays, strict=True))))

    def _compile(self, variant: Variant, arguments: TracedArguments, static: Mapping[str, Any]) -> Program:
        if variant.program is None:
            graph, _ = self._trace(variant, arguments, static)
            variant.program = self._session.compile(graph, **self._options.keywords())
        return variant.program

    # --- tracing ----------------------------------------------------------------------------------

    def _trace(self, variant: Variant, arguments: TracedArguments, static: Mapping[str, Any]) -> tuple[Graph, Any]:
        if variant.traced is None:
            variant.traced = self._traced(arguments, static)
        return variant.traced

    def _traced(self, arguments: TracedArguments, static: Mapping[str, Any]) -> tuple[Graph, Any]:
        """Return the graph for a signature, and a function that builds the result of a call from the arrays of a run."""
        graph = Traced(self.__name__, stage="hir")
        tensors = [
            self._argument(graph, name, spec) for name, spec in zip(arguments.paths(), arguments.signature, strict=True)
        ]
        with emitting_into(graph):
            result = self._apply(arguments.structure.build(tensors), static)
            leaves, structure = flatten(result)
            names = list(structure.paths("out"))
            outputs = {name: self._output(graph, name, leaf) for name, leaf in zip(names, leaves, strict=True)}
        if outputs:
            graph.set_outputs(outputs)
        return graph, structure.build

    def _argument(self, graph: Graph, name: str, spec: Shape | _PythonNumber) -> Tensor:
        if isinstance(spec, Shape):
            return graph.input(name, spec)
        number = spec.kind()
        alone, wide = dtypes_of(2**40 if spec.is_wide else number, self._unsupported)
        given = graph.input(name, (), wide)
        return WeakTensor(graph, (given if wide is alone else graph.cast(given, alone)).value, given, number)

    def _apply(self, dynamic: Mapping[str, Any], static: Mapping[str, Any]) -> Any:
        bound = self._signature.bind_partial()
        bound.arguments.update({**dynamic, **static})
        # `args` and `kwargs` follow the order of the arguments.
        order = [name for name in self._signature.parameters if name in bound.arguments]
        bound.arguments = {name: bound.arguments[name] for name in order}
        return self._function(*bound.args, **bound.kwargs)

    def _output(self, builder: Any, name: str, leaf: Any) -> Any:
        try:
            if not isinstance(leaf, (Tensor, *NUMBERS)):
                leaf = as_array(leaf, name)
            return tensor_like(builder, leaf, dtypes_of(leaf)[0] if isinstance(leaf, NUMBERS) else dtype("f32"))
        except Error as problem:
            hint = "return tensors, in dictionaries, lists, tuples, dataclasses or alone"
            message = f"{self._what} returned {_kind(leaf)} as {name}: {problem.message}"
            raise Error(message, location=place_of(self._function), hint=hint) from None

    def _inlined(self, builder: Any, leaves: Sequence[Any], structure: Structure, static: Mapping[str, Any]) -> Any:
        """Call the function with tensors: the ops are inserted into their graph. Arrays become constants."""
        values = [
            leaf if isinstance(leaf, (Tensor, *NUMBERS)) else builder.constant(as_array(leaf, f"{self._what}: {name}"))
            for name, leaf in zip(paths_of(structure), leaves, strict=True)
        ]
        with emitting_into(builder), builder.named(self.__name__):
            return self._apply(structure.build(values), static)

    def _eagerly(self, leaves: Sequence[Any], structure: Structure, static: Mapping[str, Any]) -> Any:
        """Call the function inside `rlx.eager()`, op by op. The results are arrays, as for a compiled program."""
        paths = paths_of(structure)
        values = [lifted(leaf, f"{self._what}: argument '{path}'") for leaf, path in zip(leaves, paths, strict=True)]
        result = self._apply(structure.build(values), static)
        leaves, structure = flatten(result)
        names = structure.paths("out")
        return structure.build(
            [self._output(EAGER, name, leaf).numpy() for name, leaf in zip(names, leaves, strict=True)]
        )

    # --- derivatives ------------------------------------------------------------------------------

    @with_call_errors
    def value_and_grad(self, wrt: Any = None) -> Jit:
        """Return the function that computes `(value, gradients)`, compiled as one program.

        The first leaf of `value` is the loss, a floating-point scalar. Other leaves are returned unchanged.

        Args:
            wrt: Name of the argument to differentiate with respect to, or several names; by default, the first argument
                that is not static. Gradients have the structure of that argument; for several, they are a tuple.
        """
        from rlx.runtime.jit_gradient import Differentiated

        return Differentiated(self, wrt)

    @with_call_errors
    def grad(self, wrt: Any = None) -> Jit:
        """Return the function that computes only the gradients; see `value_and_grad`."""
        from rlx.runtime.jit_gradient import Differentiated

        return Differentiated(self, wrt, with_value=False)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        traced = f"{self.num_traces} signature{'' if self.num_traces == 1 else 's'} traced"
        return f"<rlx.jit {self.__name__}{self._signature} for {self._session.target.name}, {traced}>"


class TracedArguments:
    """The traced arguments of a call: leaves, their structure, and the signature of the trace.

    Raises:
        Error: A leaf is neither an array nor a number.
    """

    def __init__(self, what: str, leaves: list[Any], structure: Structure):
        self.structure = structure
        self.leaves, self.signature = leaves, ()
        signature: list[Shape | _PythonNumber] = []
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Shape):
                signature.append(leaf)
            elif isinstance(leaf, NUMBERS):
                with _naming(what, structure, i):
                    signature.append(_PythonNumber(kind_of(leaf), dtypes_of(leaf)[0].name == "i64"))
            else:
                if type(leaf) is not np.ndarray:
                    leaves[i] = leaf = _array(leaf, what, structure, i)
                signature.append(_shape(leaf, what, structure, i))
        self.signature = tuple(signature)

    def paths(self) -> list[str]:
        return paths_of(self.structure)


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


def paths_of(structure: Structure) -> list[str]:
    """Return the names of the leaves of all arguments."""
    return [path for name, child in zip(structure.keys, structure.children, strict=True) for path in child.paths(name)]


def _array(leaf: Any, what: str, structure: Structure, index: int) -> np.ndarray:
    if hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__"):
        with _naming(what, structure, index):
            return as_array(leaf, "the value")
    name = paths_of(structure)[index].partition(".")[0].partition("[")[0]
    message = f"{what}: argument '{paths_of(structure)[index]}' is neither an array nor a number, but {_kind(leaf)}"
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


def _kind(value: Any) -> str:
    return "None" if value is None else f"an object of {type(value).__qualname__}"


@with_call_errors
@takes_options(CompileOptions)
def jit(
    function: Callable[..., Any] | None = None,
    *,
    static: str | Iterable[str] = (),
    device: Any = Device.CPU,
    threads: int | None = None,
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
        options: As in `Session.compile`, by name.

    Returns:
        A `Jit`. Called with arrays, it returns NumPy arrays in the containers that the function returns.
    """
    chosen = CompileOptions(**options)
    if function is None:
        return functools.partial(jit, static=static, device=device, threads=threads, **options)
    return Jit(function, static, device, threads, chosen)
