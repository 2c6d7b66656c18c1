"""`@rlx.model`: a Python function of tensors as a compiled program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.current import emitting_into
from rlx.ir.graph.eager import is_eager, lifted
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, argument_array, bind_symbols
from rlx.ir.op.calls import with_call_errors
from rlx.ir.python_values import given_array
from rlx.ir.shape import Shape
from rlx.runtime.program import Program
from rlx.runtime.session import Session
from rlx.runtime.tracing import Variant, bound_to, name_of, signature_of, static_key
from rlx.support.errors import Error
from rlx.support.locks import holding
from rlx.weights.arrays import keep


@dataclass(frozen=True)
class _ArgumentAnnotation:
    shape: Shape
    kind: str

    def __repr__(self) -> str:
        return f"{self.kind} {self.shape}"


def Input(*dims: Any, dtype: Any = None) -> Any:
    """Annotate an argument that is passed in every call: `x: rlx.Input("batch", 784)`.

    Args:
        dims: Sizes or symbol names.
        dtype: Element type; f32 when absent.
    """
    return _ArgumentAnnotation(Shape(dims, dtype), "input")


def Param(*dims: Any, dtype: Any = None) -> Any:
    """Annotate an argument that is a weight: `w: rlx.Param(784, 10)`."""
    return _ArgumentAnnotation(Shape(dims, dtype), "param")


class Model:
    """A function of tensors, traced once for each set of static arguments. Created by `@rlx.model`.

    Arguments annotated with `rlx.Input` and `rlx.Param` are tensors; all others are static: plain Python values that
    the trace may depend on. Called with tensors of a graph, the function is traced into that graph. Any thread may call
    it.
    """

    def __init__(self, function: Callable[..., Any], session: Session | None = None):
        self._signature = signature_of(function, "rlx.model")
        functools.update_wrapper(self, function)
        self.__name__: str = name_of(function)
        self._function = function
        self._session = session
        self._annotations: dict[str, _ArgumentAnnotation] | None = None
        self._variants: dict[Any, Variant] = {}

    @property
    def graph(self) -> Graph:
        """The graph, with every static argument at its default."""
        return self._traced({})[0]

    @property
    def tensors(self) -> dict[str, _ArgumentAnnotation]:
        """The tensor arguments: name to annotation."""
        if self._annotations is None:
            try:
                annotations = inspect.get_annotations(self._function, eval_str=True)
            except NameError as problem:
                raise Error(f"model '{self.__name__}': an annotation cannot be evaluated: {problem}") from None
            tensors = {n: a for n, a in annotations.items() if isinstance(a, _ArgumentAnnotation)}
            if not tensors:
                raise Error(
                    f"model '{self.__name__}' has no tensor argument",
                    hint="annotate them: x: rlx.Input('batch', 784), w: rlx.Param(784, 10)",
                )
            self._annotations = tensors
        return self._annotations

    def compiled(self, **static: Any) -> Program:
        """Return the program for these static arguments, compiled on first use."""
        variant = self._variant(static)
        return holding(variant.lock, self._compile, variant, static)

    def _compile(self, variant: Variant, static: Mapping[str, Any]) -> Program:
        if variant.program is None:
            variant.program = (self._session or Session()).compile(self._trace(variant, static)[0])
        return variant.program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = bound_to(self._signature, args, kwargs, f"model '{self.__name__}'")
        if any(isinstance(v, Tensor) for v in bound.values()):
            return self._function(*args, **kwargs)
        absent = [n for n in self.tensors if n not in bound]
        if absent:
            raise Error(f"model '{self.__name__}' needs an array for {', '.join(absent)}")
        static = {n: v for n, v in bound.items() if n not in self.tensors}
        if is_eager():
            return self._eagerly(bound)
        variant = self._variant(static)
        return holding(variant.lock, self._run, variant, static, bound)

    def _eagerly(self, bound: Mapping[str, Any]) -> Any:
        """Call the function inside `rlx.eager()`, op by op."""
        declared = [Argument(n, a.kind, a.shape) for n, a in self.tensors.items()]
        arrays = {a.name: argument_array(a, bound[a.name]) for a in declared}
        bind_symbols([(a, arrays[a.name].shape) for a in declared])
        arguments = self._signature.bind_partial()
        arguments.arguments.update({**bound, **{n: lifted(a, n) for n, a in arrays.items()}})
        outputs, unpack = _outputs(self._function(*arguments.args, **arguments.kwargs), self.__name__)
        values = outputs.values() if isinstance(outputs, Mapping) else outputs
        return unpack([np.asarray(value) for value in values])

    def _run(self, variant: Variant, static: Mapping[str, Any], bound: Mapping[str, Any]) -> Any:
        program = self._compile(variant, static)
        self._set_params(program, variant, bound)
        inputs = {a.name: bound[a.name] for a in program.inputs}
        return self._trace(variant, static)[1](program.run(inputs))

    def _set_params(self, program: Program, variant: Variant, bound: Mapping[str, Any]) -> None:
        """Set weights that differ from those of the last call: an array may have been changed in place."""
        before = variant.given
        arrays = {
            n: given_array(bound[n], a.shape.dtype, f"param '{n}'")
            for n, a in self.tensors.items()
            if a.kind == "param"
        }
        same = all(n in before and _equal(before[n], array) for n, array in arrays.items())
        if not same:
            variant.given = {}  # if an exception is raised before both are set, the program's weights are unknown
            given = {n: keep(array) for n, array in arrays.items()}
            program.set_params(given, copy=False)
            variant.given = given

    def _variant(self, static: Mapping[str, Any]) -> Variant:
        return self._variants.setdefault(self._key(static), Variant())

    def _key(self, static: Mapping[str, Any]) -> Any:
        hint = "annotate it with rlx.Input or rlx.Param if it is a tensor"
        return static_key(static, f"model '{self.__name__}'", hint)

    def _traced(self, static: Mapping[str, Any]) -> tuple[Graph, Any]:
        variant = self._variant(static)
        return holding(variant.lock, self._trace, variant, static)

    def _trace(self, variant: Variant, static: Mapping[str, Any]) -> tuple[Graph, Any]:
        if variant.traced is None:
            graph = Graph(self.__name__, stage="hir")
            tensors = {
                name: (graph.input if a.kind == "input" else graph.param)(name, a.shape)
                for name, a in self.tensors.items()
            }
            bound = self._signature.bind_partial(**tensors, **static)
            missing = [
                n
                for n, p in self._signature.parameters.items()
                if n not in bound.arguments and p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
            ]
            if missing:
                raise Error(f"model '{self.__name__}' needs a value for {', '.join(missing)}")
            with emitting_into(graph):
                result = self._function(*bound.args, **bound.kwargs)
            outputs, unpack = _outputs(result, self.__name__)
            graph.set_outputs(outputs)
            variant.traced = (graph, unpack)
        return variant.traced

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


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _outputs(result: Any, name: str) -> tuple[Any, Callable[[list[np.ndarray]], Any]]:
    """Return the results of a function as outputs of a graph, and a function that restores their form from arrays."""
    if isinstance(result, Tensor):
        return [result], lambda arrays: arrays[0]
    if isinstance(result, Mapping):
        names = list(result)
        return result, lambda arrays: dict(zip(names, arrays, strict=True))
    if isinstance(result, (tuple, list)):
        kind = type(result)
        return list(result), lambda arrays: kind(arrays) if kind in (tuple, list) else kind(*arrays)
    raise Error(f"model '{name}' must return tensors (one, a tuple, a list or a dict), got {type(result).__name__}")


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
