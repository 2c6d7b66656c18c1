"""Arithmetic on open sizes, as exact expressions: the ops between a `Shape` and a `Reshape`.

Arrays of integers, or of whole floats, whose elements are dimensions are computed during import, like values that
depend only on constants. Ops that move elements run on element positions, with the op's own rule.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim, DimExpr
from rlx.ir.dtype import family

# The operands of an op that hold the moved elements; None for all.
_MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Slice", "Squeeze", "Unsqueeze", "Reshape"), (0,)),
    **dict.fromkeys(("Transpose", "Expand", "Tile", "Split", "Flatten", "ReverseSequence", "Identity"), (0,)),
    **dict.fromkeys(("ScatterElements", "ScatterND", "Pad"), (0, 2)),
    "Where": (1, 2),
    "Concat": None,
}


@dataclass(frozen=True, eq=False)
class SymbolicArray:
    """An array whose elements are dimensions with symbols.

    Attributes:
        array: Integers and `DimExpr`s.
        dtype: The dtype in the model.
    """

    array: np.ndarray
    dtype: np.dtype


class UndecidedError(Exception):
    """A result is not a dimension, or depends on the value of a symbol."""


def sign(value: Dim) -> int | None:
    """Return 1, 0 or -1 if a dimension is positive, 0 or negative for all sizes of at least 1; None if that is unknown."""
    if isinstance(value, int):
        return (value > 0) - (value < 0)
    # For `seq - 1`, bounds are more precise if the smallest size is 1.
    shifted = dim.substitute(value, {name: dim.symbol(name) + 1 for name in value.symbols})
    if isinstance(shifted, int):
        return sign(shifted)
    low, high = shifted.bounds
    return 1 if low > 0 else -1 if high < 0 else None


def is_negative(value: Dim) -> bool | None:
    """Return whether a dimension is negative; None if that is unknown."""
    if isinstance(value, int):
        return value < 0
    if value.bounds[0] >= 0:
        return False
    order = sign(value)
    shifted = dim.substitute(value, {name: dim.symbol(name) + 1 for name in value.symbols})
    return (
        order < 0 if order is not None else False if isinstance(shifted, DimExpr) and shifted.bounds[0] >= 0 else None
    )


def compute(
    op: str,
    operands: Sequence[np.ndarray | SymbolicArray | None],
    attributes: dict[str, Any],
    move: Callable[[list[np.ndarray | None]], list[np.ndarray] | None],
) -> list[np.ndarray | SymbolicArray] | None:
    """Return the result of an op on known operands, some with symbols; None if the result is not an array of sizes.

    Args:
        op: The name of the op.
        operands: The elements of each operand.
        attributes: The op's attributes.
        move: A function that computes the op on integers.
    """
    dtype = next((o.dtype for o in operands if isinstance(o, SymbolicArray)), np.dtype(np.int64))
    try:
        if op in _MOVES:
            moved = _moved(op, operands, move)
            return None if moved is None else [_simplified(m, dtype) for m in moved]
        rule = _RULES.get(op)
        if rule is None:
            return None
        if op == "Cast":
            dtype = np.dtype(attributes["to"])
            if family(dtype) not in ("signed", "unsigned", "float"):
                return None
        elif op in _COMPARISONS:
            dtype = np.dtype(bool)
        return [_simplified(rule([_elements(o) for o in operands if o is not None], attributes), dtype)]
    except UndecidedError:
        return None


# The ops of counters and conditions of loops, on integers of one dtype or on booleans.
_COUNTING: dict[str, Any] = {
    **{
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Equal": np.equal,
        "Less": np.less,
        "Greater": np.greater,
    },
    **{"LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal},
}
_LOGICAL: dict[str, Any] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Not": np.logical_not}


def quick(op: str, arrays: Sequence[Any], attributes: dict[str, Any]) -> list[np.ndarray] | None:
    """Return the result of an op that is common between a `Shape` and a `Reshape`, or in a loop's counter; None for other ops.

    Other ops are computed by their rule. It builds and evaluates a graph, which takes a thousand times as long.
    """
    if any(a is None for a in arrays) or len(arrays) == 0:
        return None
    x, axis = arrays[0], attributes.get("axis", 0)
    if op == "Concat" and all(a.ndim == 1 and a.dtype == x.dtype for a in arrays) and axis in (0, -1):
        return [np.concatenate(arrays)]
    if op == "Gather" and x.ndim == 1 and axis == 0 and arrays[1].dtype.kind == "i":
        places = arrays[1]
        inside = places.size == 0 or (places.min() >= -x.size and places.max() < x.size)
        return [np.asarray(x[places])] if inside else None
    if op == "Unsqueeze" and x.ndim == 0:
        axes = attributes.get("axes") or (arrays[1].reshape(-1).tolist() if len(arrays) > 1 else None)
        return [x.reshape(1)] if axes in ([0], [-1], (0,), (-1,)) else None
    if op == "Cast" and x.dtype.kind in "bi" and np.dtype(attributes["to"]) in (np.bool_, np.int32, np.int64):
        return [x.astype(attributes["to"])]
    rules = _LOGICAL if x.dtype == np.bool_ else _COUNTING if x.dtype in (np.int32, np.int64) else {}
    if op in rules and not attributes and all(a.size == 1 and a.dtype == x.dtype for a in arrays):
        with np.errstate(over="ignore"):
            return [np.asarray(rules[op](*arrays))]
    return None


def _moved(op: str, operands: Sequence[Any], move: Any) -> list[np.ndarray] | None:
    moving = _MOVES[op]
    pool: list[Any] = []
    positions: list[np.ndarray | None] = []
    for i, operand in enumerate(operands):
        if operand is None or (moving is not None and i not in moving):
            if isinstance(operand, SymbolicArray):
                return None
            positions.append(operand)
            continue
        array = _elements(operand)
        positions.append(np.arange(len(pool), len(pool) + array.size, dtype=np.int64).reshape(array.shape))
        pool += array.reshape(-1).tolist()
    moved = move(positions)
    return None if moved is None else [_filled([pool[i] for i in m.reshape(-1).tolist()], m.shape) for m in moved]


def _filled(values: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def _simplified(array: np.ndarray, dtype: np.dtype) -> np.ndarray | SymbolicArray:
    has_symbols = any(isinstance(e, DimExpr) for e in array.reshape(-1).tolist())
    return SymbolicArray(array, dtype) if has_symbols else array.astype(dtype)


def _elements(value: Any) -> np.ndarray:
    """Return elements as Python numbers and dimensions.

    Raises:
        UndecidedError: A float is not whole.
    """
    if isinstance(value, SymbolicArray):
        return value.array
    array = np.asarray(value)
    if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        raise UndecidedError
    wide = array.astype(np.int64) if array.dtype.kind == "f" else array
    return _filled(wide.reshape(-1).tolist(), array.shape)


def _quotient(a: Dim, b: Dim) -> Dim:
    """Return the quotient rounded toward zero, as in ONNX's integer division."""
    if sign(b) is None or sign(b) == 0:
        raise UndecidedError
    if sign(b) == -1:
        a, b = -a, -b
    whole = dim.exact_divide(a, b)
    if whole is not None:
        return whole
    return a // b if is_negative(a) is False else dim.maximum(a, 0) // b - dim.maximum(-a, 0) // b


def _remainder(a: Dim, b: Dim) -> Dim:
    """Return the remainder with the sign of the divisor, which must be positive."""
    if sign(b) != 1:
        raise UndecidedError
    return a % b


def _fmod(a: Dim, b: Dim) -> Dim:
    """Return the remainder with the sign of the dividend."""
    return (
        _remainder(a, b)
        if is_negative(a) is False
        else _remainder(dim.maximum(a, 0), b) - _remainder(dim.maximum(-a, 0), b)
    )


def _magnitude(a: Dim) -> Dim:
    negative = is_negative(a)
    if negative is None:
        raise UndecidedError
    return -a if negative else a


def _compared(holds: Callable[[int], bool]) -> Callable[[Dim, Dim], bool]:
    def compare(a: Dim, b: Dim) -> bool:
        order = 0 if dim.same(a, b) else sign(a - b)
        if order is None:
            raise UndecidedError
        return holds(order)

    return compare


def _elementwise(function: Callable[..., Any]) -> Any:
    def rule(operands: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
        first, *others = operands
        if not others:
            return _filled([function(e) for e in first.reshape(-1).tolist()], first.shape)
        for other in others:
            left, right = np.broadcast_arrays(first, other)
            pairs = zip(left.reshape(-1).tolist(), right.reshape(-1).tolist(), strict=True)
            first = _filled([function(a, b) for a, b in pairs], left.shape)
        return first

    return rule


def _modulo(operands: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    return _elementwise(_fmod if attributes.get("fmod") else _remainder)(operands, attributes)


def _reduction(function: Callable[[Sequence[Dim]], Dim]) -> Any:
    def rule(operands: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
        x, *given = operands
        axes = attributes.get("axes") or (given[0].reshape(-1).tolist() if given else ())
        if not axes and attributes.get("noop_with_empty_axes"):
            return x
        axes = [a % x.ndim for a in axes] or range(x.ndim)
        kept = [a for a in range(x.ndim) if a not in axes]
        rows = x.transpose(*kept, *axes).reshape(*(x.shape[a] for a in kept), -1)
        shape = (
            [1 if a in axes else n for a, n in enumerate(x.shape)] if attributes.get("keepdims", 1) else rows.shape[:-1]
        )
        return _filled([function(row) for row in rows.reshape(-1, rows.shape[-1]).tolist()], tuple(shape))

    return rule


_COMPARISONS: dict[str, Callable[[int], bool]] = {
    "Equal": lambda order: order == 0,
    "Less": lambda order: order < 0,
    "LessOrEqual": lambda order: order <= 0,
    "Greater": lambda order: order > 0,
    "GreaterOrEqual": lambda order: order >= 0,
}
_RULES: dict[str, Any] = {
    **{name: _elementwise(_compared(holds)) for name, holds in _COMPARISONS.items()},
    **{name: _elementwise(lambda a: a) for name in ("Cast", "Floor", "Ceil", "Round")},
    "Abs": _elementwise(_magnitude),
    "Neg": _elementwise(operator.neg),
    "Add": _elementwise(operator.add),
    "Sum": _elementwise(operator.add),
    "Sub": _elementwise(operator.sub),
    "Mul": _elementwise(operator.mul),
    "Div": _elementwise(_quotient),
    "Mod": _modulo,
    "Max": _elementwise(dim.maximum),
    "Min": _elementwise(dim.minimum),
    "ReduceProd": _reduction(dim.product),
    "ReduceSum": _reduction(lambda row: sum(row)),
    "ReduceMax": _reduction(lambda row: dim.maximum(*row)),
    "ReduceMin": _reduction(lambda row: dim.minimum(*row)),
}
