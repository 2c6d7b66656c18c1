"""Conversion of a JAX function to a graph: JAX traces and exports it, and the StableHLO module is imported."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from rlx.importers.jax.closed_over import Opened, with_arrays_as_arguments
from rlx.importers.jax.primitive_calls import PrimitiveCalls, module_of, platforms, tracing
from rlx.importers.stablehlo.function import from_module, usable_names
from rlx.importers.table import LARGEST_LITERAL, importer
from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.support.errors import Error, UnsupportedError
from rlx.support.guards import is_integer
from rlx.support.packages import import_package
from rlx.support.short import short_repr


@with_call_errors
@importer
def from_jax(
    function: Callable[..., Any],
    *args: Any,
    static_argnums: int | Sequence[int] = (),
    param_argnums: int | Sequence[int] = (),
) -> Graph:
    """Return the graph of a JAX function for arguments of certain shapes and dtypes.

    JAX traces the function once, as `jax.jit` does. Values that it closes over are constants. Without `param_argnums`,
    constants of more than 1024 elements are parameters with values, in `weights`.

    Args:
        function: A function of arrays and pytrees of arrays, jitted or not.
        args: Its arguments: arrays, numbers, `jax.ShapeDtypeStruct`s, and pytrees of these. Their values do not matter,
            except for static arguments. Typed keys (`jax.random.key`) are represented by their bits in the graph, also
            in results.
        static_argnums: The positions of arguments that are Python values for the trace.
        param_argnums: The positions of arguments whose leaves are parameters of the graph. Arrays among the leaves
            become their values, in `weights`. `jax.ShapeDtypeStruct`s leave the values open.

    Returns:
        The graph. Inputs and parameters are named by the path of each leaf (`arg0`, `arg1["w"]`, `arg1[0].bias`).
        Outputs are named `out0`, `out1`, … in the order of `jax.tree.leaves`.

    Raises:
        UnsupportedError: The function computes something that RLX does not support. The message lists all unsupported
            ops.
        Error: JAX is not installed or cannot trace the function, or RLX does not have a dtype.
    """
    jax = import_package("jax", "rlx.from_jax")
    if not callable(function):
        raise Error(f"expected a function, got {type(function).__name__}", hint="rlx.from_jax(function, *arguments)")
    static = _positions(static_argnums, "static_argnums", args)
    params = _positions(param_argnums, "param_argnums", args)
    if set(static) & set(params):
        raise Error(f"param_argnums {param_argnums!r} and static_argnums {static_argnums!r} name the same argument")
    dynamic = [a for n, a in enumerate(args) if n not in static]

    def of_dynamic(*values: Any) -> Any:
        given = iter(values)
        return function(*(a if n in static else next(given) for n, a in enumerate(args)))

    of_dynamic.__qualname__ = getattr(function, "__qualname__", "function")

    positions = [n for n in range(len(args)) if n not in static]
    names = _names(jax, dynamic, positions)
    leaves = [(n, leaf) for n in positions for leaf in jax.tree_util.tree_leaves(args[n])]
    for name, (_, leaf) in zip(names, leaves, strict=True):
        _check_static(name, leaf)
    values = {name: leaf for name, (n, leaf) in zip(names, leaves, strict=True) if n in params}
    known = {name: _value(jax, leaf) for name, leaf in values.items()}
    _check_traceable(names, leaves)
    return traced(of_dynamic, dynamic, names, known if params else None)[0]


def _check_static(name: str, leaf: Any) -> None:
    for size in getattr(leaf, "shape", ()):
        if not isinstance(size, (int, np.integer)):
            raise Error(
                f"the argument {name} has the size {size}, and a function of JAX is imported with sizes that are numbers",
                hint=f"import the function of one example; rlx.vmap(graph, {{{name!r}: 0}}, {str(size)!r}) takes a batch",
            )


def traced(
    function: Callable[..., Any],
    args: Sequence[Any],
    names: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> tuple[Graph, Any]:
    """Return the graph of a JAX function for arguments, and the structure of its result as a `jax.tree_util` structure.

    Args:
        function: The function.
        args: Its arguments, as for `from_jax`.
        names: A name for each leaf of the arguments. None names them `arg0`, `arg1`, ….
        params: The names of the leaves that are parameters. Each maps to its value, or to None for a parameter without
            a value. If this is given, constants do not become parameters.

    Raises:
        Error: As for `from_jax`.
    """
    jax = import_package("jax", "rlx.from_jax")
    function, args = _of_key_data(jax, function, args)
    called = Opened(jax.jit(function, keep_unused=True), args)
    # If the user names the parameters, constants do not become parameters: they would be trained.
    largest_literal = LARGEST_LITERAL if params is None else math.inf
    if params is None:
        with tracing():
            called = with_arrays_as_arguments(jax, called.function, args)
    closed_over = {f"constant{n}": value for n, value in enumerate(called.closed_over)}
    problem: Error | None = None
    for platform in platforms():
        try:
            kept = PrimitiveCalls()
            exported = kept.export(called.function, called.args, platform)
            names = names or [f"arg{n}" for n in range(len(exported.in_avals) - len(closed_over))]
            module, constants = module_of(exported)
            known = closed_over if params is None else params
            graph = from_module(module, "main", largest_literal, [*names, *closed_over], known, kept, constants)
            return graph, called.out_tree or exported.out_tree
        except Error as found:
            problem = problem or found
            if not isinstance(problem, UnsupportedError):
                break
    assert problem is not None
    raise problem


def _positions(argnums: int | Sequence[int], what: str, args: Sequence[Any]) -> tuple[int, ...]:
    """Return positions of arguments, counted from the start.

    Raises:
        Error: A position has no argument.
    """
    given = tuple(argnums) if isinstance(argnums, Iterable) else (argnums,)
    if not all(is_integer(n) for n in given):
        raise Error(f"{what} are the positions of arguments, got {argnums!r:.60}")
    positions = tuple(n + len(args) if n < 0 else n for n in given)
    if any(not 0 <= n < len(args) for n in positions):
        raise Error(f"{what} {argnums!r} name no argument: there are {len(args)}")
    return positions


def _check_traceable(names: Sequence[str], leaves: Sequence[tuple[int, Any]]) -> None:
    """Check that JAX can trace the leaves of the arguments. Each leaf comes with the position of its argument.

    Raises:
        Error: A leaf is text, a function or another object.
    """
    for name, (position, leaf) in zip(names, leaves, strict=True):
        if hasattr(leaf, "dtype") or hasattr(leaf, "__jax_array__") or isinstance(leaf, (bool, int, float, complex)):
            continue
        what = "it" if re.fullmatch(r"arg\d+", name) else f"all of argument {position}"
        raise Error(
            f"from_jax: '{name}' is {short_repr(leaf)}, and arguments of the graph are arrays and numbers",
            hint=f"static_argnums={position} makes {what} a Python value for the trace; or close over it, "
            "by functools.partial(function, name=value) or a lambda",
        )


def _is_key(jax: ModuleType, leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_data(jax: ModuleType, leaf: Any) -> Any:
    """Return the bits of a typed key; any other leaf unchanged."""
    return jax.random.key_data(leaf) if _is_key(jax, leaf) else leaf


def _of_key_data(
    jax: ModuleType, function: Callable[..., Any], args: Sequence[Any]
) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return a function whose arguments and results are the bits of typed keys, and the arguments in that form.

    JAX exports typed keys with ops of Shardy.
    """
    tree = jax.tree_util
    leaves, structure = tree.tree_flatten(tuple(args))
    kinds = {i: jax.random.key_impl(leaf) for i, leaf in enumerate(leaves) if _is_key(jax, leaf)}

    def of_data(*given: Any) -> Any:
        values = [
            jax.random.wrap_key_data(leaf, impl=kinds[i]) if i in kinds else leaf
            for i, leaf in enumerate(tree.tree_leaves(given))
        ]
        return tree.tree_map(lambda r: _key_data(jax, r), function(*tree.tree_unflatten(structure, values)))

    of_data.__qualname__ = getattr(function, "__qualname__", "function")  # JAX's errors show this name
    return of_data, tree.tree_unflatten(structure, [_key_data(jax, leaf) for leaf in leaves])


def _value(jax: ModuleType, leaf: Any) -> np.ndarray | None:
    """Return the value of a parameter as the trace takes it; None for a leaf that has only a shape."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return None
    try:
        return np.asarray(jax.numpy.asarray(_key_data(jax, leaf)))
    except Exception as problem:
        raise Error(f"param_argnums: a leaf of the argument is no array, but {type(leaf).__name__}") from problem


def _names(jax: ModuleType, args: Sequence[Any], positions: Sequence[int]) -> list[str]:
    """Return a name for each leaf of the arguments, from its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tuple(args))
    names = ["".join([f"arg{positions[path[0].idx]}", *map(_step, path[1:])]) for path, _ in leaves]
    return usable_names(names)


def _step(key: Any) -> str:
    """Return the text of one step of a path: `["w"]`, `[0]` or `.bias`. White space in a key becomes `_`."""
    for attribute, form in (("name", ".{}"), ("idx", "[{}]")):
        if hasattr(key, attribute):
            return form.format(getattr(key, attribute))
    value = key.key
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    return "[" + re.sub(r"\s+", "_", text) + "]"
