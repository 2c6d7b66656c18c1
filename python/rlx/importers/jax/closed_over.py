"""What a function closes over, as arguments: exported, JAX would hold each of these arrays several times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.table import is_one_number
from rlx.ir.text.bytecode import LEAST


@dataclass(frozen=True)
class Opened:
    """A function that takes what another one closes over.

    Attributes:
        function: The jitted function.
        args: Its arguments: those of the other one, and what it closes over.
        closed_over: The values of the latter.
        out_tree: The structure of its result, as `jax.tree_util` has it; None for that of the function itself.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    closed_over: Sequence[np.ndarray] = ()
    out_tree: Any = None


def opened(jax: Any, function: Callable[..., Any], args: Sequence[Any]) -> Opened:
    """A jitted function with the large arrays that it closes over as further arguments; as it is if there are none.

    Arrays that have one number everywhere stay: they are literals of the graph. So do those of functions in it that are
    jitted themselves.
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

    of_all.__qualname__ = getattr(function, "__qualname__", "function")  # JAX's errors name it
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in large]
    return Opened(jax.jit(of_all, keep_unused=True), [*args, *shapes], large, found.out_tree)


def _large(jax: Any, aval: Any, value: Any) -> np.ndarray | None:
    """A large array as the trace takes it, read-only and without a copy; None of what stays a constant."""
    if not isinstance(value, (np.ndarray, jax.Array)) or jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        return None
    if value.nbytes < LEAST or (value.shape, value.dtype) != (aval.shape, aval.dtype):
        return None
    array = np.asarray(value).view()
    if is_one_number(np.ascontiguousarray(array.reshape(-1)).view(np.uint8), array.itemsize):
        return None
    array.flags.writeable = False
    return array
