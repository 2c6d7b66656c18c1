"""The base of `@rlx.jit` and `@rlx.model`: a function is traced and compiled once for each signature of its arguments."""

from __future__ import annotations

import functools
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.calls import Answered
from rlx.ir.dtype import DType, dtype
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.current import builder_of, emitting_into
from rlx.ir.graph.eager import EAGER, is_eager
from rlx.ir.graph.graph import Graph
from rlx.ir.graph.weak import NUMBERS, WeakTensor, dtypes_of
from rlx.ir.pytree import Structure, flatten
from rlx.ops.lift import tensor_like
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.runtime.tracing import bound_to, name_of, place_of, signature_of, static_key
from rlx.support.answers import answers
from rlx.support.errors import Error
from rlx.support.locks import holding, make_lock
from rlx.targets.options import CompileOptions


@dataclass(frozen=True)
class CallArguments:
    """The traced arguments of a call.

    Attributes:
        leaves: The arrays and numbers, depth first.
        structure: A dictionary of the arguments by name, without its leaves.
        specs: For each leaf, the properties that the trace depends on.
    """

    leaves: Sequence[Any]
    structure: Structure
    specs: tuple[Hashable, ...]

    def paths(self) -> list[str]:
        return paths_of(self.structure)


@dataclass(frozen=True)
class Trace:
    """The graph of a function for one signature.

    Attributes:
        graph: The graph. Its arguments are named after the paths of the leaves.
        build: Returns the result of a call, from the arrays of the outputs.
        number_dtypes: For arguments that are Python numbers, by path, the dtypes that they are cast to. A number must
            fit each of them, as a number that is not traced must.
    """

    graph: Graph
    build: Callable[[Sequence[Any]], Any]
    number_dtypes: Mapping[str, Collection[DType]] = field(default_factory=dict[str, Collection[DType]])


class Variant:
    """The trace and the program for one signature. They are created and used while holding the lock.

    Attributes:
        params: The weights that the program has, for `@rlx.model`.
    """

    def __init__(self) -> None:
        self.lock = make_lock()
        self.trace: Trace | None = None
        self.program: Program | None = None
        self.params: dict[str, np.ndarray] = {}


class TracedFunction(Answered, ABC):
    """A function that computes with tensors, traced and compiled once for each signature of its arguments.

    The signature consists of the structure of the traced arguments, the properties of each that a trace depends on, and
    the values of static arguments. Called with tensors of a graph, the function is traced into that graph. Any thread
    may call it.

    Attributes:
        decorator: The decorator, for messages.
        noun: The kind of function, for messages.
        static_hint: The hint for a static argument that cannot be hashed.
    """

    decorator: ClassVar[str]
    noun: ClassVar[str]
    static_hint: ClassVar[str]

    def __init__(self, function: Callable[..., Any], session: Session | None, options: CompileOptions | None = None):
        self._signature = signature_of(function, self.decorator)
        functools.update_wrapper(self, function)
        self.__name__: str = name_of(function)
        self._function = function
        self._tier = "best"
        self._what = f"{self.noun} '{self.__name__}'"
        self._session = session
        self._options = options or CompileOptions()
        self._init_arguments: tuple[Any, ...] = ()
        self._variants: dict[Hashable, Variant] = {}

    # --- kinds of traced functions ----------------------------------------------------------------

    @abstractmethod
    def _is_static(self, name: str) -> bool:
        """Return whether an argument is not traced."""

    @abstractmethod
    def _call_arguments(self, leaves: list[Any], structure: Structure) -> CallArguments:
        """Return the traced arguments of a call, checked."""

    @abstractmethod
    def _declare(self, graph: Graph, name: str, spec: Any) -> Tensor:
        """Declare an argument of the graph, and return its tensor."""

    @abstractmethod
    def _inlined_values(self, builder: Builder, leaves: Sequence[Any], structure: Structure) -> list[Any]:
        """Return the values of a call with tensors of `builder`, for the leaves of the arguments."""

    @abstractmethod
    def _eager_values(self, arguments: CallArguments) -> list[Any]:
        """Return tensors with values, for the leaves of the arguments."""

    @abstractmethod
    def _inputs(self, variant: Variant, program: Program, arguments: CallArguments) -> dict[str, Any]:
        """Return the inputs for a run of the program."""

    def _flatten(self, traced: dict[str, Any]) -> tuple[list[Any], Structure]:
        """Return the leaves and the structure of the traced arguments."""
        return flatten(traced)

    def _new_graph(self) -> Graph:
        return Graph(self.__name__, stage="hir")

    def _output_names(self, structure: Structure) -> list[str]:
        """Return the names of the graph's outputs."""
        return list(structure.paths("out"))

    # --- calling ----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        traced, static = self._split(args, kwargs)
        leaves, structure = self._flatten(traced)
        builder = builder_of(leaves)
        if builder is not None:
            return self._inline(builder, leaves, structure, static)
        arguments = self._call_arguments(leaves, structure)
        if is_eager():
            return self._run_eagerly(arguments, static)
        variant = self._variant(arguments, static)
        return holding(variant.lock, self._run, variant, arguments, static)

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        """Return the graph for a call with these arguments, without running it.

        An array may be replaced by an `rlx.Shape`, also with symbols: `f.graph_for(rlx.Shape(("batch", 4)))`.
        """
        return self._trace_for(*self._without_running(args, kwargs)).graph

    def compiled_for(self, *args: Any, **kwargs: Any) -> Program:
        """Return the compiled program for a call with these arguments, as for `graph_for`, without running it."""
        return self._program_for(*self._without_running(args, kwargs))

    @property
    def num_traces(self) -> int:
        """The number of signatures for which the function has been traced."""
        return sum(variant.trace is not None for variant in list(self._variants.values()))

    def clear_cache(self) -> None:
        """Drop all traces and programs."""
        self._variants.clear()

    def _split(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the traced arguments and the static ones. Arguments that have their defaults are in neither."""
        bound = bound_to(self._signature, args, kwargs, self._what)
        static = {n: v for n, v in bound.items() if self._is_static(n)}
        return {n: v for n, v in bound.items() if n not in static}, static

    def _without_running(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[CallArguments, dict[str, Any]]:
        traced, static = self._split(args, kwargs)
        return self._call_arguments(*self._flatten(traced)), static

    def _variant(self, arguments: CallArguments, static: Mapping[str, Any]) -> Variant:
        key = static_key(static, self._what, self.static_hint), arguments.structure, arguments.specs
        variant = self._variants.get(key)
        return self._variants.setdefault(key, Variant()) if variant is None else variant

    def _trace_for(self, arguments: CallArguments, static: Mapping[str, Any]) -> Trace:
        variant = self._variant(arguments, static)
        return holding(variant.lock, self._trace, variant, arguments, static)

    def _program_for(self, arguments: CallArguments, static: Mapping[str, Any]) -> Program:
        variant = self._variant(arguments, static)
        return holding(variant.lock, self._compile, variant, arguments, static)

    def _run(self, variant: Variant, arguments: CallArguments, static: Mapping[str, Any]) -> Any:
        trace = self._trace(variant, arguments, static)
        if not trace.graph.results:
            return trace.build([])
        program = self._compile(variant, arguments, static)
        return trace.build(program.run(self._inputs(variant, program, arguments)))

    def _compile(self, variant: Variant, arguments: CallArguments, static: Mapping[str, Any]) -> Program:
        if variant.program is None:
            trace = self._trace(variant, arguments, static)
            variant.program = (self._session or Session()).compile(
                trace.graph, tier=self._tier, **self._options.keywords()
            )
        return variant.program

    # --- tracing ----------------------------------------------------------------------------------

    def _trace(self, variant: Variant, arguments: CallArguments, static: Mapping[str, Any]) -> Trace:
        if variant.trace is None:
            variant.trace = self._new_trace(arguments, static)
        return variant.trace

    def _new_trace(self, arguments: CallArguments, static: Mapping[str, Any]) -> Trace:
        graph = self._new_graph()
        specs = zip(arguments.paths(), arguments.specs, strict=True)
        tensors = {name: self._declare(graph, name, spec) for name, spec in specs}
        with emitting_into(graph):
            result = self._apply(arguments.structure.build(list(tensors.values())), static)
            outputs, structure = self._outputs(graph, result)
        if outputs:
            graph.set_outputs(outputs)
        numbers = {n: t.used_dtypes for n, t in tensors.items() if isinstance(t, WeakTensor)}
        return Trace(graph, structure.build, numbers)

    def _apply(self, traced: Mapping[str, Any], static: Mapping[str, Any]) -> Any:
        bound = self._signature.bind_partial()
        values = {**traced, **static}
        # `args` and `kwargs` follow the order of the arguments.
        bound.arguments = {name: values[name] for name in self._signature.parameters if name in values}
        return self._function(*bound.args, **bound.kwargs)

    def _outputs(self, builder: Builder, result: Any) -> tuple[dict[str, Tensor], Structure]:
        """Return the results of the function as tensors by name, and their structure."""
        leaves, structure = flatten(result)
        self._check_result(result, leaves)
        names = self._output_names(structure)
        return {n: self._output(builder, n, leaf) for n, leaf in zip(names, leaves, strict=True)}, structure

    def _check_result(self, result: Any, leaves: Sequence[Any]) -> None:  # some kinds allow every result
        """Raise an error if the function may not return this."""

    def _output(self, builder: Builder, name: str, leaf: Any) -> Tensor:
        try:
            if not isinstance(leaf, (Tensor, *NUMBERS)):
                leaf = as_array(leaf, name)
            return tensor_like(builder, leaf, dtypes_of(leaf)[0] if isinstance(leaf, NUMBERS) else dtype("f32"))
        except Error as problem:
            hint = "return tensors, in dictionaries, lists, tuples, dataclasses or alone"
            message = f"{self._what} returned {kind_name(leaf)} as {name}: {problem.message}"
            raise Error(message, location=place_of(self._function), hint=hint) from None

    def _inline(self, builder: Builder, leaves: Sequence[Any], structure: Structure, static: Mapping[str, Any]) -> Any:
        """Call the function with tensors: the ops are inserted into their graph."""
        values = self._inlined_values(builder, leaves, structure)
        with emitting_into(builder), builder.named(self.__name__):
            return self._apply(structure.build(values), static)

    def _run_eagerly(self, arguments: CallArguments, static: Mapping[str, Any]) -> Any:
        """Call the function inside `rlx.eager()`, op by op. The results are arrays, as for a compiled program."""
        result = self._apply(arguments.structure.build(self._eager_values(arguments)), static)
        outputs, structure = self._outputs(EAGER, result)
        return structure.build([np.asarray(tensor) for tensor in outputs.values()])

    # --- as a Python function ---------------------------------------------------------------------

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        known = [n for n in dir(type(self)) if n[0] != "_"]
        raise answers().attribute_problem(f"a function under {self.decorator}", name, "functions", known)

    def __copy__(self) -> TracedFunction:
        return self  # like Python functions

    def __deepcopy__(self, memo: object) -> TracedFunction:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name if a module defines it, like Python functions; otherwise as the function and its options."""
        name: str = getattr(self, "__qualname__", "")
        value: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            value = getattr(value, part, None)
        return name if value is self else (type(self), self._init_arguments)


def paths_of(structure: Structure) -> list[str]:
    """Return the names of the leaves of all arguments."""
    return list(_paths(structure))


def _paths(structure: Structure) -> Iterator[str]:
    for name, child in zip(structure.keys, structure.children, strict=True):
        yield from child.paths(name)


def kind_name(value: object) -> str:
    """Return the class of a value, for messages."""
    return "None" if value is None else f"an object of {type(value).__qualname__}"
