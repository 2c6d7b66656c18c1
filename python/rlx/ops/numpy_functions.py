"""NumPy functions on tensors: `np.sin(x)` is `g.sin(x)`, and `np.concatenate([x, y])` is `g.concatenate([x, y])`.

A NumPy function calls the method of the same name with the arguments of that method. Exceptions are listed below.
"""

# The rows of `_OWN` are lambdas of the arguments of NumPy functions, which are checked nowhere else.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.eager import EAGER, EagerTensor
from rlx.ops import surface
from rlx.ops.lift import axis_of, common
from rlx.support.answers import answers
from rlx.support.caller import caller_place
from rlx.support.errors import Error
from rlx.support.guards import is_list, is_sequence, is_tuple

# NumPy and array API names of methods with the same arguments.
METHOD_OF = {
    "absolute": "abs",
    "fabs": "abs",
    "negative": "neg",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "power": "pow",
    "float_power": "pow",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "around": "round",
    "fix": "trunc",
    "invert": "bitwise_not",
    "bitwise_count": "popcount",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "amax": "max",
    "amin": "min",
    "permute_dims": "transpose",
    "degrees": "rad2deg",
    "radians": "deg2rad",
    "gammaln": "lgamma",
    "expit": "sigmoid",
    "cumulative_sum": "cumsum",
    "cumulative_prod": "cumprod",
    "bitwise_invert": "bitwise_not",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
}
# NumPy arguments that methods do not have, with the values that have no effect.
_IGNORED: dict[str, tuple[Any, ...]] = {
    "out": (None,),
    "where": (True,),
    "dtype": (None,),
    "order": ("K", "C", None),
    "subok": (True,),
    "copy": (True, False),
    "assume_unique": (True, False),
    "overwrite_input": (True, False),
    "returned": (False,),
    "density": (None, False),
    "kind": (None,),
    "method": ("linear",),
    "decimals": (0,),
    "n": (None,),
    "s": (None,),
    "axisa": (-1,),
    "axisb": (-1,),
    "axisc": (-1,),
}
# The running form of functions of two operands.
_ACCUMULATED = {
    "add": "cumsum",
    "multiply": "cumprod",
    "maximum": "cummax",
    "minimum": "cummin",
    "logaddexp": "logcumsumexp",
}
_PLAIN = (str, bool, int, type(None))


def ufunc(b: Builder, function: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Implement `Tensor.__array_ufunc__`: `np.add(x, y)`, and `np.add.reduce(x)` for sums and similar reductions."""
    name = function.__name__
    if method == "reduce":
        reductions = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
        reductions |= {"logical_and": "all", "logical_or": "any", "logaddexp": "logsumexp"}
        if name in reductions:
            kwargs.setdefault("axis", 0)
            return _called(b, f"numpy.{name}.reduce", reductions[name], inputs, kwargs)
    if method == "accumulate" and name in _ACCUMULATED:
        kwargs.setdefault("axis", 0)
        return _called(b, f"numpy.{name}.accumulate", _ACCUMULATED[name], inputs, kwargs)
    if method == "outer" and len(inputs) == 2:
        first, second = common(b, *inputs)
        return ufunc(
            b, function, "__call__", (b.reshape(first, (*first.shape.dims, *(1,) * second.rank)), second), kwargs
        )
    if method != "__call__":
        raise _missing(f"numpy.{name}.{method}", "")
    return _called(b, f"numpy.{name}", METHOD_OF.get(name, name), inputs, kwargs)


def function(b: Builder, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Implement `Tensor.__array_function__`. A function without a method is called with arrays if the tensors have values."""
    name: str = function.__name__
    shown = f"{function.__module__}.{name}"
    own = _norm if function is np.linalg.norm else _OWN.get(name)
    if own is not None:
        try:
            return own(b, *args, **kwargs)
        except TypeError as problem:
            reason = str(problem).partition("() ")[2] or str(problem)
            raise Error(f"{shown} of tensors: {reason}", location=caller_place()) from None
        except Error as problem:
            if problem.location is not None:
                raise
            message = f"{shown}: {problem.message}"
            raise problem.moved(message, location=caller_place()) from None
    if b is EAGER and METHOD_OF.get(name, name) not in surface.methods():
        return function(*_arrays(args), **dict(zip(kwargs, _arrays(tuple(kwargs.values())), strict=True)))
    method = METHOD_OF.get(name, name)
    args, kwargs = _by_name(function, surface.methods().get(method), args, kwargs)
    return _called(b, shown, method, args, kwargs)


def _size(b: Builder, x: Tensor, axis: int | None = None) -> Dim:
    return x.size if axis is None else x.shape.dims[axis_of(axis, x.rank)]


def _raised(b: Builder, xs: Sequence[object], rank: int) -> list[Tensor]:
    """Return tensors and arrays in one dtype; those of lower rank get leading axes of size 1."""
    return [x if x.rank >= rank else b.reshape(x, (1,) * (rank - x.rank) + x.shape.dims) for x in common(b, *xs)]


def _hstack(b: Builder, tup: Sequence[object]) -> Tensor:
    tensors = _raised(b, tup, 1)
    return b.concat(tensors, 0 if tensors[0].rank == 1 else 1)


# NumPy functions that are not methods of graphs.
_OWN: dict[str, Callable[..., Any]] = {
    "shape": lambda b, a: tuple(a.shape.dims),
    "ndim": lambda b, a: a.rank,
    "size": _size,
    "copy": lambda b, a, order="K": a,
    "may_share_memory": lambda b, *_: False,
    "hstack": _hstack,
    "vstack": lambda b, tup: b.concat(_raised(b, tup, 2), 0),
    "iscomplexobj": lambda b, x: x.dtype.is_complex,
}


def _by_name(
    function: Callable[..., Any], method: Callable[..., Any] | None, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Convert positional arguments to keyword arguments with NumPy's names, from the first that differs in the method."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return args, kwargs
    if any(
        p.kind is p.VAR_POSITIONAL for p in parameters.values()
    ):  # all positional arguments are operands, as in einsum
        return args, kwargs
    names = list(parameters)
    own = [] if method is None else [n for n in inspect.signature(method).parameters if n != "b"]
    elsewhere = (n for n, name in enumerate(names[: len(args)]) if name in _IGNORED and own[n : n + 1] != [name])
    first = next(elsewhere, len(args))
    return args[:first], {**dict(zip(names[first:], args[first:], strict=False)), **kwargs}


def _norm(
    b: Builder,
    x: Tensor,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """NumPy's `linalg.norm`: of a vector, or of a matrix if there are two axes."""
    axes = tuple(range(x.rank)) if axis is None and x.rank == 2 else axis
    if ord is None or not is_sequence(axes) or len(axes) != 2:
        if axis is None and ord is not None and x.rank > 2:
            raise Error("numpy.linalg.norm: ord= needs one axis or two", location=caller_place())
        return b.norm(x, ord, axis, keepdims)
    moved = b.moveaxis(x, tuple(axes), (-2, -1))
    result = b.matrix_norm(moved, ord)
    return b.expand_dims(result, tuple(a % x.rank for a in axes)) if keepdims else result


def _arrays(values: Any) -> Any:
    """Return tensors with values as arrays, also in lists and tuples."""
    if isinstance(values, EagerTensor):
        return values.numpy()
    return type(values)(_arrays(v) for v in values) if type(values) in (list, tuple) else values


def _called(b: Builder, shown: str, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if name not in surface.methods():
        raise _missing(shown, answers().counterpart(name))
    out = kwargs.get("out")
    if any(o is not None for o in (out if is_tuple(out) else (out,))):
        raise Error(
            f"{shown}: tensors are values, so that there is no out=",
            location=caller_place(),
            hint="use the result",
        )
    neutral = [key for key, value in kwargs.items() if isinstance(value, _PLAIN) and value in _IGNORED.get(key, ())]
    kwargs = {key: value for key, value in kwargs.items() if key not in neutral}
    if "dtype" in kwargs and "dtype" not in inspect.signature(surface.methods()[name]).parameters:
        args = (b.cast(args[0], kwargs.pop("dtype")), *args[1:])  # computes in another dtype
    if name in ("cumsum", "cumprod") and len(args) == 1 and kwargs.get("axis") is None:
        args, kwargs = (b.ravel(args[0]), 0), {k: v for k, v in kwargs.items() if k != "axis"}
    listed = [p.annotation == "TensorLike" for p in inspect.signature(surface.methods()[name]).parameters.values()][1:]
    constant: Any = b.constant
    args = tuple(constant(a) if is_list(a) and t else a for a, t in zip_longest(args, listed[: len(args)]))
    return getattr(b, name)(*args, **kwargs)


def _missing(shown: str, call: str) -> Error:
    hint = (
        f"instead: {call}"
        if call
        else "the functions of rlx.ops take tensors; x.__array_namespace__() lists the standard's"
    )
    return Error(f"{shown} has no form for tensors", location=caller_place(), hint=hint)
