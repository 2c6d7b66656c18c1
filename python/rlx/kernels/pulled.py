"""The elements of the results of ops, computed where they are read: elementwise ops, and ops that move elements.

Each function takes the code around it, which reads operands, the op, and the position of an element of its result. The last
part of a position may be the `Lanes` of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import bool_, i64
from rlx.ir.op import opview
from rlx.ir.shape import shape_of
from rlx.kernels.buffer import Lanes, Position, Size
from rlx.kernels.elements import INDEX
from rlx.kernels.functions import ACTIVATIONS, exp, log
from rlx.kernels.kernel import Kernel
from rlx.kernels.values import Value, where

Place = tuple[Position, ...]
Combine = Callable[..., Value]


class Reader(Protocol):
    """The code of a region, as the code of its ops uses it."""

    k: Kernel

    def read(self, value: mlir.Value, place: Place) -> Value:
        """Return an element of a value of the region, or the elements of a vector."""
        ...

    def size(self, dim: Dim) -> Size:
        """Return a size of a tensor."""
        ...


Element = Callable[[Reader, mlir.Operation, Place], Value]

_ARITHMETIC: dict[str, Combine] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": lambda a, b: a.maximum(b),
    "min": lambda a, b: a.minimum(b),
}
_QUOTIENT: dict[str, Combine] = {"div": lambda a, b: a / b}
_LOGIC: dict[str, Combine] = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
_OF_CONDITIONS: dict[str, Combine] = {**_LOGIC, "min": _LOGIC["and"], "max": _LOGIC["or"]}
_FUNCTIONS: dict[str, Combine] = {
    **{name: function for name, function in ACTIVATIONS.items() if name is not None},
    "exp": exp,
    "log": log,
    "rsqrt": lambda x: 1.0 / x.sqrt(),
}
_EXACT: dict[str, Combine] = {"neg": lambda x: -x, "abs": lambda x: abs(x), "sqrt": lambda x: x.sqrt()}
_COMPARISONS: dict[str, Combine] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _binary(op: mlir.Operation) -> Combine | None:
    dtype, kind = shape_of(op.operands[0]).dtype, op.attributes["kind"].value
    if dtype is bool_:
        return _OF_CONDITIONS.get(kind)
    return (_ARITHMETIC | (_QUOTIENT if dtype.is_float else _LOGIC)).get(kind)


def _activation(op: mlir.Operation) -> Combine | None:
    dtype, kind = shape_of(op.operands[0]).dtype, op.attributes["kind"].value
    if not dtype.is_float:
        return None
    return _EXACT.get(kind) or (_FUNCTIONS.get(kind) if dtype.name == "f32" else None)


def _compare(op: mlir.Operation) -> Combine | None:
    return None if shape_of(op.operands[0]).dtype is bool_ else _COMPARISONS.get(op.attributes["kind"].value)


def _where(op: mlir.Operation) -> Combine | None:
    from_conditions = shape_of(op.operands[1]).dtype is bool_
    return (lambda c, a, b: (c & a) | (~c & b)) if from_conditions else where


def _cast(op: mlir.Operation) -> Combine | None:
    source, target = shape_of(op.operands[0]).dtype, shape_of(op.results[0]).dtype
    if source is target:
        return lambda x: x
    if target is bool_ or (source.is_float and not target.is_float):
        return None
    return lambda x: x.to(target)


# For each elementwise op, a function that returns the combination of its operands; None if there is none.
POINTWISE: dict[str, Callable[[mlir.Operation], Combine | None]] = {
    "binary": _binary,
    "activation": _activation,
    "compare": _compare,
    "where": _where,
    "cast": _cast,
    "clamp": lambda op: lambda x, low, high: x.maximum(low).minimum(high),
    "stop_gradient": lambda op: lambda x: x,
}


def _broadcast(place: Place, result: Sequence[Dim], operand: Sequence[Dim]) -> Place:
    """Return the position of the element of an operand that is broadcast to a position of the result."""
    own = len(result) - len(operand)
    return tuple(0 if operand[i] == 1 and result[own + i] != 1 else place[own + i] for i in range(len(operand)))


def lanes_of(place: Place) -> int | None:
    """Return the number of lanes of the values at a position; None for a scalar."""
    return place[-1].count if place and isinstance(place[-1], Lanes) else None


def _pointwise(code: Reader, op: mlir.Operation, place: Place) -> Value:
    dims, lanes = shape_of(op.results[0]).dims, lanes_of(place)
    values = [code.read(v, _broadcast(place, dims, shape_of(v).dims)) for v in op.operands]
    if lanes is not None:
        values = [v if v.lanes is not None else v.splat(lanes) for v in values]
    combine = POINTWISE[opview.name_of(op)](op)
    assert combine is not None
    return combine(*values)


def number_of(op: mlir.Operation) -> np.generic:
    """Return the number of a constant whose elements are all the same."""
    return np.asarray(opview.attributes_of(op)["value"]).reshape(-1)[0]


def _constant(code: Reader, op: mlir.Operation, place: Place) -> Value:
    dtype = shape_of(op.results[0]).dtype
    return code.k.constant(number_of(op).item(), dtype, lanes_of(place))


def _iota(code: Reader, op: mlir.Operation, place: Place) -> Value:
    dtype = shape_of(op.results[0]).dtype
    at, lanes = place[op.attributes["axis"].value], lanes_of(place)
    if not isinstance(at, Lanes):
        number = code.k.index(at).to(dtype)
        return number if lanes is None else number.splat(lanes)
    return code.k.index(at.start).to(dtype).splat(at.count) + code.k.constants(range(at.count), dtype)


def _reshape(code: Reader, op: mlir.Operation, place: Place) -> Value:
    own = iter(p for p, d in zip(place, shape_of(op.results[0]).dims, strict=True) if d != 1)
    source = op.operands[0]
    return code.read(source, tuple(0 if d == 1 else next(own) for d in shape_of(source).dims))


def _narrow(code: Reader, op: mlir.Operation, place: Place) -> Value:
    values = opview.attributes_of(op)
    axis, (start,) = values["axis"], values["start"]
    moved = place[axis] + start if start else place[axis]
    return code.read(op.operands[0], (*place[:axis], moved, *place[axis + 1 :]))


def _slice(code: Reader, op: mlir.Operation, place: Place) -> Value:
    values = opview.attributes_of(op)
    steps = zip(place, values["starts"], values["strides"], strict=True)
    moved = [
        at if (start, stride) == (0, 1) else at + start if stride == 1 else at * stride + start
        for at, start, stride in steps
    ]
    return code.read(op.operands[0], tuple(moved))


def _transpose(code: Reader, op: mlir.Operation, place: Place) -> Value:
    moved: list[Any] = [0] * len(place)
    for at, axis in zip(place, opview.attributes_of(op)["perm"], strict=True):
        moved[axis] = at
    return code.read(op.operands[0], tuple(moved))


def _expand(code: Reader, op: mlir.Operation, place: Place) -> Value:
    source, lanes = op.operands[0], lanes_of(place)
    value = code.read(source, _broadcast(place, shape_of(op.results[0]).dims, shape_of(source).dims))
    return value if lanes is None or value.lanes is not None else value.splat(lanes)


def _gather(code: Reader, op: mlir.Operation, place: Place) -> Value:
    table, indices = op.operands
    axis, rank = op.attributes["axis"].value, shape_of(indices).rank
    index = code.read(indices, place[axis : axis + rank]).to(i64).to(INDEX)
    last = code.size(shape_of(table).dims[axis]) - 1
    return code.read(table, (*place[:axis], index.maximum(0).minimum(last), *place[axis + rank :]))


def _is_squeeze(op: mlir.Operation) -> bool:
    """Whether a reshape adds and removes axes of size 1 only, and the last axis keeps its consecutive elements."""
    source, result = (shape_of(v).dims for v in (op.operands[0], op.results[0]))
    if [d for d in source if d != 1] != [d for d in result if d != 1]:
        return False
    return not result or result[-1] == 1 or source[-1] != 1


def _is_gathered(op: mlir.Operation) -> bool:
    table, indices = map(shape_of, op.operands)
    axis = op.attributes["axis"].value
    return indices.dtype.name != "u64" and (axis < table.rank - 1 or (table.rank, indices.rank) == (1, 0))


def _keeps_last(op: mlir.Operation) -> bool:
    perm = opview.attributes_of(op)["perm"]
    return bool(perm) and (perm[-1] == len(perm) - 1 or shape_of(op.results[0]).dims[-1] == 1)


def _is_splat(op: mlir.Operation) -> bool:
    numbers = np.asarray(opview.attributes_of(op)["value"]).reshape(-1)
    return numbers.size > 0 and bool((numbers == numbers[0]).all() or numbers.size == 1)


def _starts_at_number(op: mlir.Operation) -> bool:
    return type(opview.attributes_of(op)["start"][0]) is int


def _has_whole_rows(op: mlir.Operation) -> bool:
    """Whether a slice has known starts and strides, and consecutive elements of rows."""
    values = opview.attributes_of(op)
    is_known = all(type(d) is int for d in (*values["starts"], *values["strides"]))
    return is_known and (not values["strides"] or values["strides"][-1] == 1 or shape_of(op.results[0]).dims[-1] == 1)


def _always(op: mlir.Operation) -> bool:
    return True


# Ops without arithmetic: the code of an element, and whether an op has it.
PULLED: dict[str, tuple[Element, Callable[[mlir.Operation], bool]]] = {
    "constant": (_constant, _is_splat),
    "iota": (_iota, lambda op: shape_of(op.results[0]).dtype is not bool_),
    "reshape": (_reshape, _is_squeeze),
    "narrow": (_narrow, _starts_at_number),
    "slice": (_slice, _has_whole_rows),
    "transpose": (_transpose, _keeps_last),
    "expand": (_expand, _always),
    "gather": (_gather, _is_gathered),
}


def is_pulled(op: mlir.Operation) -> bool:
    """Whether the elements of an op's result are computed where they are read."""
    name = opview.name_of(op)
    if name in POINTWISE:
        return POINTWISE[name](op) is not None
    return name in PULLED and PULLED[name][1](op)


def element(code: Reader, op: mlir.Operation, place: Place) -> Value:
    """Return an element, or the elements of a vector, of an op's result."""
    name = opview.name_of(op)
    return _pointwise(code, op, place) if name in POINTWISE else PULLED[name][0](code, op, place)
