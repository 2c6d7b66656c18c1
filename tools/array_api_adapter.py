"""Adapter of RLX for the test suite of the array API standard (data-apis/array-api-tests): see docs/array-api.md.

The suite compares `x.shape` of tensors of different dtypes. A shape of RLX includes a dtype, so this module excludes
the dtype from the comparison if no graph is built. All tensors have values, which the evaluators compute. With a device
in the environment (`ARRAY_API_DEVICE=cpu`, or `xla`), each call of a function or an operator is traced into a graph,
compiled for the device and run.
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
import types
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import rlx
from rlx import array_api
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.eager import EAGER, EagerTensor
from rlx.ir.pytree import flatten

_DEVICE = os.environ.get("ARRAY_API_DEVICE")
_OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"),
    *("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem"),
)
_programs: dict[Any, Any] = {}
_calls: Counter[str] = Counter()
_EQUAL = rlx.Shape.__eq__


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that compiles each call with tensors. A call that a graph cannot express is evaluated."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        leaves, structure = flatten(([_named(a) for a in arguments], {k: _named(v) for k, v in options.items()}))
        tensors = [leaf for leaf in leaves if isinstance(leaf, EagerTensor)]
        if not tensors:
            return function(*arguments, **options)
        rlx.Shape.__eq__ = _EQUAL  # type: ignore[method-assign]
        try:
            ran = _ran(function, leaves, tensors, structure)
        finally:
            rlx.Shape.__eq__ = _same_sizes  # type: ignore[method-assign]
        _calls["evaluated" if ran is None else "compiled"] += 1
        return function(*arguments, **options) if ran is None else ran[0]

    return call


def _named(value: Any) -> Any:
    """Return a dtype by its name. Rebuilding it from its fields would create another object."""
    return value.name if isinstance(value, rlx.DType) else value


def _ran(function: Any, leaves: list[Any], tensors: list[EagerTensor], structure: Any) -> tuple[Any] | None:
    """Return the result of a compiled call; None if it cannot be compiled."""
    key = (function, structure, *(leaf.shape if isinstance(leaf, EagerTensor) else repr(leaf) for leaf in leaves))
    if key not in _programs:
        _programs[key] = _traced(function, leaves, structure)
    program, results = _programs[key]
    if program is None:
        return None
    arrays = program.run({f"x{i}": tensor.numpy() for i, tensor in enumerate(tensors)})
    return (results.build([EAGER.of(array) for array in arrays]),)


def _traced(function: Callable[..., Any], leaves: list[Any], structure: Any) -> tuple[Any, Any]:
    """Return a program for a call, and the structure of its results; None if it returns no tensors or needs values."""
    g: Any = rlx.Graph()
    count = iter(range(len(leaves)))
    given = [
        g.input(f"x{next(count)}", leaf.shape.dims, dtype=leaf.dtype) if isinstance(leaf, EagerTensor) else leaf
        for leaf in leaves
    ]
    arguments, options = structure.build(given)
    try:
        outputs, results = flatten(function(*arguments, **options))
        if not outputs or not builtins.all(isinstance(t, Tensor) and not isinstance(t, EagerTensor) for t in outputs):
            return None, None
        g.set_outputs(outputs)
    except Exception:  # the evaluator raises the same error again
        return None, None
    return rlx.Session(_DEVICE).compile(g, cache=False), results


def _namespace(module: Any) -> dict[str, Any]:
    """Return the names of a module of functions, compiled if a device is set."""
    names = {name: getattr(module, name) for name in dir(module) if name != "__name__"}
    if _DEVICE is None:
        return names
    return {n: _compiled(v) if isinstance(v, types.FunctionType) and v.__doc__ else v for n, v in names.items()}


def _same_sizes(self: rlx.Shape, other: object) -> bool:
    return tuple(self.dims) == tuple(other) if isinstance(other, tuple) else NotImplemented


globals().update(_namespace(array_api))
if _DEVICE is not None:
    for _name in ("linalg", "fft"):
        _extension = types.ModuleType(_name)
        _extension.__dict__.update(_namespace(getattr(array_api, _name)))
        globals()[_name] = _extension
    for _name in (f"__{prefix}{name}__" for name in _OPERATORS for prefix in ("", "r")):
        if hasattr(Tensor, _name):
            setattr(EagerTensor, _name, _compiled(getattr(Tensor, _name)))
    atexit.register(lambda: print(f"calls on {_DEVICE}: {dict(_calls)}, programs: {len(_programs)}", file=sys.stderr))
rlx.Shape.__eq__ = _same_sizes  # type: ignore[method-assign]
_everywhere = rlx.eager()
_everywhere.__enter__()
