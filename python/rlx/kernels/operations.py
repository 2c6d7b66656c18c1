"""The operations on values of kernels, one row each: the MLIR op by kind of element, and the function of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.kernels.elements import Element


@dataclass(frozen=True)
class Operation:
    """An operation on scalars or vectors of one element type.

    Attributes:
        name: The name in messages.
        float_op: The MLIR op for floats, `dialect.function` of the bindings; empty if floats lack the operation.
        signed_op: The same for signed integers and indices.
        unsigned_op: The same for unsigned integers.
        mask_op: The same for conditions.
        numpy: The function on arrays.
    """

    name: str
    float_op: str
    signed_op: str
    unsigned_op: str
    mask_op: str
    numpy: Callable[..., Any]

    def mlir_op(self, element: Element) -> str:
        """Return the MLIR op on an element type; empty if there is none."""
        if element.is_bool:
            return self.mask_op
        if element.is_float:
            return self.float_op
        return self.signed_op if element.is_signed else self.unsigned_op


def _rows(text: str, functions: dict[str, Callable[..., Any]]) -> dict[str, Operation]:
    table: dict[str, Operation] = {}
    for line in text.strip().splitlines():
        name, *ops = (word if word != "-" else "" for word in line.split())
        table[name] = Operation(name, *ops, numpy=functions[name])
    return table


def _trailing_zeros(a: Any) -> Any:
    below = (a & -a) - 1  # ones in place of these zeros
    return np.bitwise_count(below.view(f"u{below.itemsize}")).astype(a.dtype)


# name     floats            signed integers     unsigned integers  conditions
OPERATIONS = _rows(
    """
    add        arith.addf        arith.addi          arith.addi         -
    sub        arith.subf        arith.subi          arith.subi         -
    mul        arith.mulf        arith.muli          arith.muli         -
    div        arith.divf        -                   -                  -
    floordiv   -                 arith.floordivsi    arith.divui        -
    and        -                 arith.andi          arith.andi         arith.andi
    or         -                 arith.ori           arith.ori          arith.ori
    xor        -                 arith.xori          arith.xori         arith.xori
    shl        -                 arith.shli          arith.shli         -
    shr        -                 arith.shrsi         arith.shrui        -
    maximum    arith.maximumf    arith.maxsi         arith.maxui        -
    minimum    arith.minimumf    arith.minsi         arith.minui        -
    neg        arith.negf        -                   -                  -
    abs        math.absf         math.absi           -                  -
    sqrt       math.sqrt         -                   -                  -
    trailing_zeros  -            math.cttz           math.cttz          -
    """,
    {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.true_divide,
        "floordiv": np.floor_divide,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "shl": np.left_shift,
        "shr": np.right_shift,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "neg": np.negative,
        "abs": np.absolute,
        "sqrt": np.sqrt,
        "trailing_zeros": _trailing_zeros,
    },
)
