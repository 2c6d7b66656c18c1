"""Arrays that a function closes over, as arguments: JAX's export would hold several copies of each closed-over array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from rlx.importers.table import is_one_number
from rlx.ir.text.bytecode import LEAST


@dataclass(frozen=True)
class Opened:
    """A function that takes the closed-over arrays of another function as arguments.

    Attributes:
        function: The jitted function.
        args: Its arguments: those of the original function, then the closed-over arrays.
        closed_over: The values of the closed-over arrays.
        out_tree: The structure of its result, from `jax.tree_util`. None means that of the function itself.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    closed_over: Sequence[np.ndarray] = ()
    out_tree: Any = None


def with_arrays_as_arguments(jax: ModuleType, function: Callable[..., Any], args: Sequence[Any]) -> Opened:
    """A jitted function with the large arrays that it closes over as further arguments; as it is if there are none.

    A function without large closed-over arrays is returned unchanged. Arrays with one value everywhere are not changed,
    because they become literals of the graph. Arrays of inner jitted functions are not changed either.
    """
    found = function.trace(*args)  # type: ignore[attr-defined]
    closed = found.jaxpr
    variables = closed.jaxpr.constvars
    arrays = [_large(jax, variable.aval, value) for variable, value in zip(variables, closed.consts, strict=True)]
    large = [array for array in arrays if array is not None]
    if not large:
        return Opened(function, args)

    def of_all(*given: Any) -> Any:
        values = iter(given[len(args) :])
        pairs = zip(arrays, closed.consts, strict=True)
        constants = [value if array is None else next(values) for array, value in pairs]
        leaves = jax.tree_util.tree_leaves(given[: len(args)])
        return jax.core.eval_jaxpr(closed.jaxpr, constants, *leaves)

    of_all.__qualname__ = getattr(function, "__qualname__", "function")  # JAX's errors show this name
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in large]
    return Opened(jax.jit(of_all, keep_unused=True), [*args, *shapes], large, found.out_tree)


def _large(jax: ModuleType, aval: Any, value: Any) -> np.ndarray | None:
    """Return a large array as a read-only argument, without a copy; None for a value that stays a constant."""
    if not isinstance(value, (np.ndarray, jax.Array)) or jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        return None
    if value.nbytes < LEAST or (value.shape, value.dtype) != (aval.shape, aval.dtype):
        return None
    array = np.asarray(value).view()
    if is_one_number(np.ascontiguousarray(array.reshape(-1)).view(np.uint8), array.itemsize):
        return None
    array.flags.writeable = False
    return array
