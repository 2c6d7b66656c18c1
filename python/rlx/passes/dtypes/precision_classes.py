"""Classes of ops for `rlx-precision`, derived from their traits.

The classes are those of mixed-precision training: ops that become faster with short numbers, ops that lose digits, and ops
that take the precision of the ops around them.
"""

from __future__ import annotations

from enum import Enum

from rlx.dialect.spec import OpSpec


class OpClass(Enum):
    """The class of an op: what it does with numbers."""

    COMPUTE = "compute"  # products, which are most of the work; they accumulate in f32 for operands of any dtype
    REDUCTION = "reduction"  # adds up many numbers, or normalises by such a sum
    ELEMENTWISE = "elementwise"  # arithmetic of a few numbers
    DATA_MOVEMENT = "data movement"  # its results are numbers of its operands
    BOUNDARY = "boundary"  # makes new numbers, or runs regions: the dtype is not changed


_BY_WORK = {
    "product": OpClass.COMPUTE,
    "reduction": OpClass.REDUCTION,
    "moves_data": OpClass.DATA_MOVEMENT,
    "elementwise": OpClass.ELEMENTWISE,
    "local": OpClass.ELEMENTWISE,
    None: OpClass.BOUNDARY,
}


def class_of(spec: OpSpec) -> OpClass:
    """The class of an op. An op without such traits, or of a user, keeps its dtype, which is always correct."""
    if spec.custom or any("f32" in v.dtypes and "f16" not in v.dtypes for v in (*spec.operands, *spec.results)):
        return OpClass.BOUNDARY
    return _BY_WORK[spec.work]
