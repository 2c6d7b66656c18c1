"""Classes of ops for `rlx-precision`, derived from their traits.

The classes are those of mixed-precision training: ops that are faster in low precision, ops that lose precision, and
ops that take the precision of their neighbours.
"""

from __future__ import annotations

from enum import Enum

from rlx.dialect.spec import OpSpec


class OpClass(Enum):
    """The class of an op for precision."""

    COMPUTE = "compute"  # products, most of the work; they accumulate in f32 for all operand dtypes
    REDUCTION = "reduction"  # sums many numbers, or normalises by a sum
    ELEMENTWISE = "elementwise"  # arithmetic on a few numbers
    DATA_MOVEMENT = "data movement"  # its results are elements of its operands
    BOUNDARY = "boundary"  # creates new numbers, or runs regions: the dtype is not changed


_BY_WORK = {
    "product": OpClass.COMPUTE,
    "reduction": OpClass.REDUCTION,
    "moves_data": OpClass.DATA_MOVEMENT,
    "elementwise": OpClass.ELEMENTWISE,
    "local": OpClass.ELEMENTWISE,
    None: OpClass.BOUNDARY,
}


def class_of(spec: OpSpec) -> OpClass:
    """Return the class of an op. Ops without these traits, and users' ops, keep their dtype, which is always correct."""
    if spec.custom or any("f32" in v.dtypes and "f16" not in v.dtypes for v in (*spec.operands, *spec.results)):
        return OpClass.BOUNDARY
    return _BY_WORK[spec.work]
