"""Derivatives of functions under `rlx.jit`: the traced graph is differentiated and compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.pytree import Structure
from rlx.ir.shape import Shape
from rlx.runtime.jit import Jit
from rlx.runtime.traced_function import CallArguments, Trace
from rlx.runtime.tracing import place_of
from rlx.support.errors import Error
from rlx.transforms.call import call
from rlx.transforms.grad import grad, grad_with_loss


class Differentiated(Jit):
    """A function that computes `(value, gradients)` of another one, or only the gradients.

    Args:
        of: The function. The first leaf of its value is the loss; it may be a derivative itself.
        wrt: Names of arguments; by default, the first argument that is not static.
        with_value: Whether to return the value as well.
    """

    def __init__(self, of: Jit, wrt: Any, with_value: bool = True):
        vars(self).update(vars(of))
        self._init_arguments = (of, wrt, with_value)
        self._variants = {}
        self._inner: Any = of
        self._with_value = with_value
        self.__name__, self._what = f"{of.__name__}_gradient", f"the gradient of {of._what}"
        parameters = [n for n in self._signature.parameters if n not in self._static]
        self._single = wrt is None or isinstance(wrt, str)
        known = ", ".join(parameters) or "none"
        if wrt is not None and not isinstance(wrt, (str, list, tuple)):
            hint = f"by name: wrt={parameters[:1] or ['x']}"
            raise Error(f"{self._what}: wrt must be a name or a list of names, got {wrt!r:.60}", hint=hint)
        chosen: list[Any] = parameters[:1] if wrt is None else [wrt] if isinstance(wrt, str) else list(wrt)
        unknown = [name for name in chosen if name not in parameters]
        if unknown or not chosen:
            raise Error(f"{self._what}: wrt names {unknown[:1] or 'no argument'}; it takes {known}")
        self._wrt: tuple[str, ...] = tuple(chosen)

    def _new_trace(self, arguments: CallArguments, static: Mapping[str, Any]) -> Trace:
        trace = self._inner._new_trace(arguments, static)
        graph, rebuild = trace.graph, trace.build
        names, structures = self._differentiated(arguments)
        if not graph.results or graph.outputs[0].shape.rank or not graph.outputs[0].shape.dtype.is_float:
            got = graph.outputs[0].shape if graph.results else "nothing"
            message = (
                f"{self._inner._what} must return a loss first, a scalar of floats, to be differentiated; got {got}"
            )
            raise Error(message, location=place_of(self._function), hint="return its sum or its mean")
        tree = structures[0] if self._single else Structure(tuple, tuple(range(len(structures))), tuple(structures))
        if not self._with_value:  # drop unused outputs; a second derivative differentiates the first output
            return replace(trace, graph=grad(graph, names), build=tree.build)

        def build(arrays: Sequence[Any]) -> Any:
            loss, gradients, others = arrays[0], arrays[1 : 1 + len(names)], arrays[1 + len(names) :]
            return rebuild([loss, *others]), tree.build(gradients)

        return replace(trace, graph=grad_with_loss(graph, names), build=build)

    def _differentiated(self, arguments: CallArguments) -> tuple[list[str], list[Structure]]:
        """Return the graph's arguments to differentiate with respect to, and the structure of each of the user's arguments."""
        leaves: dict[str, Any] = dict(zip(arguments.paths(), arguments.specs, strict=True))
        children = dict(zip(arguments.structure.keys, arguments.structure.children, strict=True))
        for name in self._wrt:
            if name not in children:
                raise Error(f"{self._what}: wrt names '{name}', which is not given in this call")
        names = [path for name in self._wrt for path in children[name].paths(name)]
        for path in names:
            spec = leaves[path]
            is_float = spec.dtype.is_float if isinstance(spec, Shape) else spec.kind is float
            if not is_float:
                what = spec if isinstance(spec, Shape) else f"a Python {spec.kind.__name__}"
                hint = "only arrays of floats can be differentiated by; pass others as other arguments"
                raise Error(f"{self._what}: wrt: argument '{path}' is {what}", hint=hint)
        return names, [children[name] for name in self._wrt]

    def _inline(self, builder: Builder, leaves: Sequence[Any], structure: Structure, static: Mapping[str, Any]) -> Any:
        """Inline the graph of the derivative into the graph of the tensors."""
        specs = [leaf.shape if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        arguments = self._call_arguments(specs, structure)
        trace = self._trace_for(arguments, static)
        values = [leaf if isinstance(leaf, Tensor) else a for leaf, a in zip(leaves, arguments.leaves, strict=True)]
        inputs = self._inputs_of(trace, trace.graph.inputs, replace(arguments, leaves=values))
        results = call(trace.graph, **inputs)
        return trace.build(results if isinstance(results, tuple) else [results])

    def _run_eagerly(self, arguments: CallArguments, static: Mapping[str, Any]) -> Any:
        """Evaluate the graph of the derivative as a whole, because its ops are not the user's."""
        trace = self._trace_for(arguments, static)
        return trace.build(evaluate(trace.graph, self._inputs_of(trace, trace.graph.inputs, arguments)))
