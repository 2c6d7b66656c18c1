"""`@rlx.jax_function`: calls of JAX functions with tensors of a graph."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.importers.jax.function import traced
from rlx.ir.arrays import as_array
from rlx.ir.calls import Answered, with_call_errors
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.current import builder_of, current_builder
from rlx.ir.graph.graph import Graph
from rlx.ir.graph.weak import NUMBERS
from rlx.runtime.jax.primitive import check_width
from rlx.runtime.tracing import bound_to, name_of, signature_of, static_key, static_names
from rlx.support.caller import caller_place
from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.transforms.call import call

_PURPOSE = "rlx.jax_function"
_STATIC = 'static= names the arguments that are Python values, such as text: rlx.jax_function(function, static="mode")'


class JaxFunction(Answered):
    """A JAX function that also accepts tensors of RLX. Created by `rlx.jax_function`."""

    def __init__(self, function: Callable[..., Any], static: Any = ()):
        self._signature = signature_of(function, "rlx.jax_function")
        functools.update_wrapper(self, function)
        self.__name__: str = name_of(function)
        self._function = function
        self._what = f"JAX function '{self.__name__}'"
        self._static = static_names(static, self._signature, self._what)
        self._traced: dict[Any, tuple[Graph | None, Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function. Returns the results in the pytree of the function.

        If an argument is a tensor, or inside a function that RLX traces, the results are tensors: the ops of the
        function are inserted into the graph. Otherwise JAX computes the results.

        Raises:
            UnsupportedError: The function computes something that RLX does not support.
            Error: A tensor has a symbolic size, or JAX cannot trace the function.
        """
        tree = import_package("jax.tree_util", _PURPOSE)
        bound = bound_to(self._signature, args, kwargs, self._what)
        static = {name: value for name, value in bound.items() if name in self._static}
        dynamic = {name: value for name, value in bound.items() if name not in static}
        leaves, structure = tree.tree_flatten(dynamic)
        builder = builder_of(leaves) or current_builder()
        if builder is None:
            return self._function(*args, **kwargs)
        graph, results = self._graph(leaves, structure, static)
        if graph is None:
            return tree.tree_unflatten(results, [])
        values = [
            leaf if isinstance(leaf, Tensor) else builder.constant(_array(leaf, a.shape.dtype.numpy))
            for leaf, a in zip(leaves, graph.inputs, strict=True)
        ]
        found = call(graph, *values)
        return tree.tree_unflatten(results, [found] if isinstance(found, Tensor) else found)

    def _graph(self, leaves: Sequence[Any], structure: Any, static: Mapping[str, Any]) -> tuple[Graph | None, Any]:
        """Return the graph of the function for these arguments, or None without results, and the pytree of its results."""
        specs = [self._spec(leaf) for leaf in leaves]
        known = [(s.shape, s.dtype, s.weak_type) if hasattr(s, "weak_type") else type(s) for s in specs]
        key = static_key(static, self._what, "arrays are no static arguments"), structure, tuple(known)
        found = self._traced.get(key)
        if found is None:
            found = self._traced.setdefault(key, self._imported(specs, structure, static))
        return found

    def _imported(self, specs: Sequence[Any], structure: Any, static: Mapping[str, Any]) -> tuple[Graph | None, Any]:
        tree = import_package("jax.tree_util", _PURPOSE)

        def of_leaves(*values: Any) -> Any:
            bound = self._signature.bind_partial()
            given = tree.tree_unflatten(structure, values) | static
            # `args` and `kwargs` follow the order of the arguments.
            bound.arguments = {name: given[name] for name in self._signature.parameters if name in given}
            return self._function(*bound.args, **bound.kwargs)

        try:
            graph, results = traced(of_leaves, specs, params={})
        except Error as problem:
            place = problem.location or caller_place()
            raise problem.moved(f"{self._what}: {problem.message}", location=place) from problem
        graph.name = self.__name__
        return (graph if graph.results else None), results

    def _spec(self, leaf: Any) -> Any:
        """Return the abstract value that JAX traces in place of a leaf."""
        jax = import_package("jax", _PURPOSE)
        if not isinstance(leaf, Tensor):
            if isinstance(leaf, int) and not -(2**63) <= leaf < 2**63:
                raise Error(f"{self._what}: no integer of JAX holds {leaf!r:.60}", location=caller_place())
            if isinstance(leaf, (*NUMBERS, jax.Array)):
                return (
                    jax.ShapeDtypeStruct((), jax.dtypes.canonicalize_dtype(type(leaf)), weak_type=True)
                    if isinstance(leaf, NUMBERS)
                    else leaf
                )
            try:
                leaf = as_array(leaf, f"{self._what}: an argument")
            except Error as problem:
                raise Error(problem.message, location=caller_place(), hint=problem.hint or _STATIC) from None
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        if not leaf.shape.is_static:
            hint = 'bind its symbols before: rlx.passes.run(g, "rlx-bind{batch=8}"), or build the graph with sizes'
            raise Error(
                f"{self._what}: JAX traces sizes that are known, got {leaf.shape}",
                location=caller_place(),
                hint=hint,
            )
        check_width(self._what, leaf.shape)
        return jax.ShapeDtypeStruct(leaf.shape.static, leaf.dtype.numpy, weak_type=leaf.beside is not None)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<rlx.jax_function {self.__name__}{self._signature}>"


def _array(leaf: Any, kind: np.dtype) -> np.ndarray:
    return np.asarray(leaf, kind) if isinstance(leaf, NUMBERS) else as_array(leaf, "the value")


@with_call_errors
def jax_function(function: Callable[..., Any] | None = None, *, static: str | Iterable[str] = ()) -> Any:
    """Make a JAX function callable with tensors of RLX.

    JAX traces it once for each combination of shapes and dtypes, and its ops are inserted into the graph of the
    tensors: they are compiled, differentiated and batched with all others. Derivatives that it defines by
    `jax.custom_jvp` and `jax.custom_vjp` are used. Arrays among the arguments, and captured values, become constants.

    Args:
        function: A function of arrays and pytrees of arrays, as defined by JAX, that returns the same.
        static: Names of arguments that are Python values for the trace. They must be hashable.

    Returns:
        A `JaxFunction`. Called without tensors, outside of RLX's tracing, it is the function itself.

    Raises:
        Error: The argument is not a function, or lacks an argument named in `static`.
    """
    if function is None:
        return functools.partial(jax_function, static=static)
    return JaxFunction(function, static)
