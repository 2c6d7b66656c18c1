"""`@rlx.model`: a Python function of tensors as a compiled program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.eager import lifted
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, argument_array, bind_symbols, check_tensors
from rlx.ir.promotion import weak
from rlx.ir.python_values import given_array
from rlx.ir.pytree import LEAF, Structure
from rlx.ir.shape import Shape
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.runtime.traced_function import CallArguments, TracedFunction, Variant
from rlx.runtime.tracing import place_of
from rlx.support.caller import caller_place
from rlx.support.errors import Error
from rlx.weights.arrays import keep


@dataclass(frozen=True)
class _ArgumentAnnotation:
    shape: Shape
    kind: str

    def __repr__(self) -> str:
        return f"{self.kind} {self.shape}"


@with_call_errors
def Input(*dims: Any, dtype: Any = None) -> Any:
    """Annotate an argument that is passed in every call: `x: rlx.Input("batch", 784)`.

    Args:
        dims: Sizes or symbol names.
        dtype: Element type; f32 when absent.
    """
    return _ArgumentAnnotation(Shape(dims, dtype), "input")


@with_call_errors
def Param(*dims: Any, dtype: Any = None) -> Any:
    """Annotate an argument that is a weight: `w: rlx.Param(784, 10)`."""
    return _ArgumentAnnotation(Shape(dims, dtype), "param")


class Model(TracedFunction):
    """A function of tensors, traced once for each set of static arguments. Created by `@rlx.model`.

    Arguments annotated with `rlx.Input` and `rlx.Param` are tensors; all others are static: plain Python values that
    the trace may depend on. Weights are loaded when they differ from those of the last call. Called with tensors of a
    graph, the function is traced into that graph. Any thread may call it.
    """

    decorator = "rlx.model"
    noun = "model"
    static_hint = "annotate it with rlx.Input or rlx.Param if it is a tensor"

    def __init__(self, function: Callable[..., Any], session: Session | None = None):
        super().__init__(function, session)
        self._init_arguments = (function, session)
        self._annotations: dict[str, _ArgumentAnnotation] | None = None

    @property
    def graph(self) -> Graph:
        """The graph, with all tensor arguments, and every static argument at its default."""
        return self._trace_for(*self._with_all_tensors({})).graph

    @property
    def tensors(self) -> dict[str, _ArgumentAnnotation]:
        """The tensor arguments: name to annotation.

        Raises:
            Error: An annotation cannot be evaluated, or declares no argument of the function, or there is none.
        """
        if self._annotations is None:
            self._annotations = _tensor_annotations(self._function, self._what)
        return self._annotations

    def compiled(self, **static: Any) -> Program:
        """Return the program for these static arguments, with all tensor arguments, compiled on first use.

        Raises:
            Error: The function lacks the argument, it is a tensor, or one without a default is missing.
        """
        return self._program_for(*self._with_all_tensors(static))

    def _with_all_tensors(self, static: Mapping[str, Any]) -> tuple[CallArguments, dict[str, Any]]:
        """Return the arguments of a call with all tensors, without their values."""
        tensors, parameters = self.tensors, self._signature.parameters
        for name in static:
            if name in tensors:
                raise Error(
                    f"{self._what}: '{name}' is a tensor, no static argument", hint="the program takes it in run"
                )
        try:
            bound = self._signature.bind_partial(**static).arguments
        except TypeError as problem:
            names = [n for n in parameters if n not in tensors]
            hint = f"its static arguments: {', '.join(names) or 'none'}"
            raise Error(f"{self._what}: {problem}", hint=hint) from None
        missing = [
            n
            for n, p in parameters.items()
            if n not in bound and n not in tensors and p.default is p.empty and p.kind not in _VARIADIC
        ]
        if missing:
            raise Error(f"{self._what} needs a value for {', '.join(missing)}")
        return self._call_arguments(*self._flatten(dict.fromkeys(tensors))), bound

    def _is_static(self, name: str) -> bool:
        return name not in self.tensors

    def _flatten(self, traced: dict[str, Any]) -> tuple[list[Any], Structure]:
        """Return the values of the tensors. A list of numbers is an array."""
        return list(traced.values()), Structure(dict, tuple(traced), (LEAF,) * len(traced))

    def _call_arguments(self, leaves: list[Any], structure: Structure) -> CallArguments:
        return CallArguments(leaves, structure, tuple(self.tensors[name] for name in structure.keys))

    def _declare(self, graph: Graph, name: str, spec: _ArgumentAnnotation) -> Tensor:
        return (graph.input if spec.kind == "input" else graph.param)(name, spec.shape)

    def _declared(self, structure: Structure) -> list[Argument]:
        return [Argument(name, self.tensors[name].kind, self.tensors[name].shape) for name in structure.keys]

    def _inlined_values(self, builder: Builder, leaves: Sequence[Any], structure: Structure) -> list[Any]:
        """Return the tensors, checked against the annotations. Arrays become constants."""
        try:
            pairs = [
                (a, _tensor_for(builder, a, leaf)) for a, leaf in zip(self._declared(structure), leaves, strict=True)
            ]
            check_tensors([(a, tensor.shape) for a, tensor in pairs])
        except Error as problem:
            place = problem.location or caller_place()
            raise problem.moved(f"{self._what}: {problem.message}", location=place) from None
        return [tensor for _, tensor in pairs]

    def _eager_values(self, arguments: CallArguments) -> list[Any]:
        declared = self._declared(arguments.structure)
        arrays = [argument_array(a, leaf) for a, leaf in zip(declared, arguments.leaves, strict=True)]
        bind_symbols([(a, array.shape) for a, array in zip(declared, arrays, strict=True)])
        return [lifted(array, a.name) for a, array in zip(declared, arrays, strict=True)]

    def _inputs(self, variant: Variant, program: Program, arguments: CallArguments) -> dict[str, Any]:
        """Return the inputs of a run. The weights are set first."""
        values = dict(zip(arguments.paths(), arguments.leaves, strict=True))
        params = {n: values[n] for n in values if self.tensors[n].kind == "param"}
        self._set_params(program, variant, params)
        return {n: value for n, value in values.items() if n not in params}

    def _set_params(self, program: Program, variant: Variant, params: Mapping[str, Any]) -> None:
        """Set weights that differ from those of the last call: an array may have been changed in place."""
        before = variant.params
        arrays = {n: given_array(value, self.tensors[n].shape.dtype, f"param '{n}'") for n, value in params.items()}
        if all(n in before and _equal(before[n], array) for n, array in arrays.items()):
            return
        variant.params = {}  # if an exception is raised before both are set, the program's weights are unknown
        weights = {n: keep(array) for n, array in arrays.items()}
        program.set_params(weights, copy=False)
        variant.params = weights

    def _check_result(self, result: Any, leaves: Sequence[Any]) -> None:
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            kind = type(result).__name__
            message = f"{self._what} must return tensors (one, or containers of tensors), got {kind}"
            raise Error(message, location=place_of(self._function))

    def _output_names(self, structure: Structure) -> list[str]:
        """Return the keys of a dictionary, the fields of a dataclass or named tuple, otherwise `output0`, `output1`, ….

        The name of a value in a container inside has its path as well: `y["hidden"][0]`.
        """
        entries = [(0, structure)] if structure.kind is None else zip(structure.keys, structure.children, strict=True)
        names = [
            path
            for i, (key, child) in enumerate(entries)
            for path in child.paths(key if isinstance(key, str) else f"output{i}")
        ]
        return names if len(set(names)) == len(names) else list(structure.paths("out"))

    def __repr__(self) -> str:
        try:
            tensors = self.tensors
        except Error:  # errors of annotations are reported when they are used
            tensors = {}
        arguments = [
            f"{name}: {tensors[name]}" if name in tensors else str(parameter.replace(annotation=parameter.empty))
            for name, parameter in self._signature.parameters.items()
        ]
        target = self._session.target.name if self._session is not None else "the default device"
        return f"<rlx.model {self.__name__}({', '.join(arguments)}) for {target}>"


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _tensor_annotations(function: Callable[..., Any], what: str) -> dict[str, _ArgumentAnnotation]:
    """Return the annotations of a function that declare tensors, by argument.

    Raises:
        Error: An annotation cannot be evaluated, declares the result or a variable number of arguments, lacks its
            shape, or none declares a tensor.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as problem:  # an annotation may be any expression
        reason = problem.message if isinstance(problem, Error) else f"{type(problem).__name__}: {problem}"
        hint = "annotations in quotes, and all after `from __future__ import annotations`, see only names of the module"
        message = f"{what}: an annotation cannot be evaluated: {reason}"
        raise Error(message, location=place_of(function), hint=hint) from None
    if _is_declaration(signature.return_annotation):
        hint = "remove it: the shapes of results follow from those of the arguments"
        raise Error(f"{what}: its result cannot be annotated with rlx.Input or rlx.Param", hint=hint)
    tensors: dict[str, _ArgumentAnnotation] = {}
    for name, parameter in signature.parameters.items():
        if not _is_declaration(parameter.annotation):
            continue
        if parameter.kind in _VARIADIC:
            hint = "one argument for each tensor, or one tensor with an axis for them"
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise Error(f"{what}: '{stars}{name}' cannot be annotated with rlx.Input or rlx.Param", hint=hint)
        if not isinstance(parameter.annotation, _ArgumentAnnotation):
            raise Error(f"{what}: the annotation of '{name}' lacks a shape", hint=f"{name}: rlx.Input('batch', 784)")
        tensors[name] = parameter.annotation
    if not tensors:
        hint = "annotate them: x: rlx.Input('batch', 784), w: rlx.Param(784, 10)"
        raise Error(f"{what} has no tensor argument", hint=hint)
    return tensors


def _is_declaration(annotation: object) -> bool:
    return isinstance(annotation, _ArgumentAnnotation) or annotation is Input or annotation is Param


def _tensor_for(builder: Builder, argument: Argument, value: Any) -> Tensor:
    """Return the value of an argument of a call with tensors. Numbers take the declared dtype."""
    if not isinstance(value, Tensor):
        return builder.constant(argument_array(argument, value))
    kind = argument.shape.dtype
    if value.number is not None and value.dtype is not kind and weak(value.number, kind) is kind:
        return builder.cast(value.towards(kind), kind)
    return value


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@with_call_errors
def model(function: Callable[..., Any] | None = None, *, session: Session | None = None) -> Any:
    """Turn a Python function of tensors into a model, which is traced and compiled on first use.

    Args:
        function: The function; arguments annotated with `rlx.Input` and `rlx.Param` are tensors.
        session: Where to compile; the CPU by default.
    """
    if function is None:
        return functools.partial(model, session=session)
    return Model(function, session)
