"""What a lower precision does to each op, by its traits.

The classes are those of mixed-precision training: what gains from short numbers, what loses digits by them, and what
takes the precision of its surroundings.
"""

from __future__ import annotations

from enum import Enum

from rlx.dialect.spec import OpSpec


class OpClass(Enum):
    """What an op does to numbers."""

    COMPUTE = "compute"  # products: the work is there, and they accumulate in f32 whatever they take
    REDUCTION = "reduction"  # adds up many numbers, or normalises by such a sum
    ELEMENTWISE = "elementwise"  # arithmetic of a few numbers
    DATA_MOVEMENT = "data movement"  # gives numbers that it was given
    BOUNDARY = "boundary"  # gives numbers of its own, or runs regions: always in its own dtype


_BY_WORK = {
    "product": OpClass.COMPUTE,
    "reduction": OpClass.REDUCTION,
    "moves_data": OpClass.DATA_MOVEMENT,
    "elementwise": OpClass.ELEMENTWISE,
    "local": OpClass.ELEMENTWISE,
    None: OpClass.BOUNDARY,
}


def class_of(spec: OpSpec) -> OpClass:
    """The class of an op. One that says nothing of itself, or is a user's, keeps its own dtype, which is never wrong."""
    if spec.custom or any("f32" in v.dtypes and "f16" not in v.dtypes for v in (*spec.operands, *spec.results)):
        return OpClass.BOUNDARY
    return _BY_WORK[spec.work]
