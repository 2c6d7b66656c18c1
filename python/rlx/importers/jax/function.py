"""A function of JAX as a graph: traced and exported by JAX, and imported as the StableHLO module that this gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from rlx.importers.stablehlo.function import from_module, usable_names
from rlx.ir.errors import Error, UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.packages import required
from rlx.ir.text import decoded, parse_module


def from_jax(function: Callable[..., Any], *args: Any, static_argnums: int | Sequence[int] = ()) -> Graph:
    """The graph of a JAX function for arguments of certain shapes and dtypes.

    JAX traces the function once, as `jax.jit` does. What it closes over are constants; those of more than 1024 elements become
    parameters with values, in `weights`.

    Args:
        function: A function of arrays and pytrees of them, jitted or not.
        args: Its arguments: arrays, numbers, `jax.ShapeDtypeStruct`s, and pytrees of these. Their values do not matter,
            except for static ones.
        static_argnums: The positions of arguments that are Python values for the trace.

    Returns:
        Inputs are called by the path of each leaf (`arg0`, `arg1["w"]`, `arg1[0].bias`), outputs `out0`, `out1`, … in the
        order of `jax.tree.leaves`.

    Raises:
        UnsupportedError: The function computes what RLX has no meaning for: it lists all ops of that kind.
        Error: JAX is not installed or cannot trace the function, or a dtype is none of the twelve.
    """
    jax = required("jax", "rlx.from_jax")
    if not callable(function):
        raise Error(f"expected a function, got {type(function).__name__}", hint="rlx.from_jax(function, *arguments)")
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    static = tuple(n + len(args) if n < 0 else n for n in static)
    if any(not 0 <= n < len(args) for n in static):
        raise Error(f"static_argnums {static_argnums!r} name no argument: there are {len(args)}")
    traced = [a for n, a in enumerate(args) if n not in static]

    def of_traced(*values: Any) -> Any:
        given = iter(values)
        return function(*(a if n in static else next(given) for n, a in enumerate(args)))

    jitted = jax.jit(of_traced, keep_unused=True)
    positions = [n for n in range(len(args)) if n not in static]
    names = _names(jax, traced, positions)
    problem: UnsupportedError | None = None
    # A platform that JAX does not know gets what is right for all; what it has for some alone, it has for TPUs as one op.
    for platform in ("rlx", "tpu"):
        try:
            module = parse_module(decoded(_exported(jax, jitted, traced, platform), "<jax>"), "<jax>")
            return from_module(module, names=names)
        except UnsupportedError as found:
            problem = problem or found
    assert problem is not None
    raise problem


def _exported(jax: Any, jitted: Any, args: Sequence[Any], platform: str) -> bytes:
    """The portable artifact of a function.

    Raises:
        Error: JAX cannot trace or export it.
    """
    export = required("jax.export", "rlx.from_jax")
    try:
        return export.export(jitted, platforms=[platform])(*args).mlir_module_serialized
    except NotImplementedError as problem:  # a primitive that the platform does not have
        raise UnsupportedError(f"JAX cannot export the function: {problem}") from problem
    except Exception as problem:
        kind, message = type(problem).__name__, str(problem).strip().partition("\n")[0]
        raise Error(f"JAX cannot trace the function: {kind}: {message}") from problem


def _names(jax: Any, args: Sequence[Any], positions: Sequence[int]) -> list[str]:
    """A name for each leaf of the arguments, by its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tuple(args))
    names = ["".join([f"arg{positions[path[0].idx]}", *map(_step, path[1:])]) for path, _ in leaves]
    return usable_names(names)


def _step(key: Any) -> str:
    """One step of a path: `["w"]`, `[0]` or `.bias`."""
    for attribute, form in (("name", ".{}"), ("idx", "[{}]")):
        if hasattr(key, attribute):
            return form.format(getattr(key, attribute))
    value = key.key
    return f"[{json.dumps(value, ensure_ascii=False)}]" if isinstance(value, str) else f"[{value!r}]"
