"""Differences in meaning between RLX and PyTorch: docs/conventions.md in code."""

from __future__ import annotations

import re
from typing import Any

import rlx
from tests.peers.opinfo import Peer

# Operators with other results for special numbers, and these results.
OTHER_SPECIAL_VALUES = {
    **dict.fromkeys(("byte", "char", "short", "int", "long"), "casts saturate, and NaN becomes 0"),
    "nn.functional.silu": "the limit at -inf instead of NaN",
    "isreal": "x == x, which NaN is not",
    "__rdiv__": "PyTorch multiplies with a reciprocal, which overflows",
}
# The same for complex numbers alone.
OTHER_COMPLEX_VALUES = {
    **dict.fromkeys(("pow", "__rpow__", "float_power"), "1 to any power and any number to the power of 0 are 1"),
}
_REFUSALS = (
    r"is not defined for c64",  # no order, and fewer functions
    r"rlx\.(pool|conv_transpose): operand '.' is [iu]\d+",  # pools and transposed convolutions are of floats
    r"has to be u8, and lies outside",  # a number must fit the dtype of the other operand
    r"attribute .value.: .* does not fit (bool|u8)",
    r"attribute 'eps': -0\.5 is not in",  # the eps of a norm is not negative
    r"is out of range for rank 0",  # scalars do not have axes
)


def refuses(reason: str) -> bool:
    """Return whether RLX refuses something that PyTorch accepts, for a documented reason."""
    return any(re.search(pattern, reason) for pattern in _REFUSALS)


def has_other_special_values(name: str, kind: str) -> bool:
    """Return whether an operator has other results than PyTorch's for special numbers of a dtype."""
    return name in OTHER_SPECIAL_VALUES or (rlx.dtype(kind).is_complex and name in OTHER_COMPLEX_VALUES)


def is_one_op(graph: rlx.Graph) -> bool:
    """Return whether a graph is one op of RLX, apart from constants and casts."""
    names = [op.operation.name for op in graph.function.entry_block.operations]
    return sum(name not in ("rlx.constant", "rlx.cast", "func.return") for name in names) <= 1


def dtype_is_right(peer: Peer, ours: rlx.DType, theirs: rlx.DType | None) -> bool:
    """Return whether a result has PyTorch's dtype, or another one by convention."""
    given = {rlx.dtype(array.dtype) for array in peer.arrays}
    allowed: dict[Any, Any] = {
        rlx.i64: given | {rlx.i32},  # positions and counts are i32; sums of integers have their dtype
        rlx.f32: {rlx.f64} if rlx.i64 in given else set(),  # i64 with floats
        rlx.u8: {rlx.bool_},  # PyTorch's any and all of u8
        None: {rlx.c64},  # complex numbers of f16 have parts of f32
    }
    return ours is theirs or ours in allowed.get(theirs, ())
