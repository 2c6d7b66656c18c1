"""Weakly typed tensors that represent Python numbers."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.ir.dtype import DType, bool_, c64, c128, f32, f64, i32, i64
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import Error

# Types of Python numbers; `bool` is an `int`, and NumPy's float64 a `float`.
NUMBERS = (bool, int, float, complex)


class WeakTensor(Tensor):
    """A traced scalar for an argument that was a Python number.

    Next to a tensor it takes the dtype that the number would take. Alone it is f32, i32 (i64 if the number needs it),
    bool or c64.

    Args:
        builder: The graph.
        value: The scalar in its default dtype.
        wide: The scalar with all digits of the number.
        number: A number of the same kind.

    Attributes:
        used_dtypes: The dtypes that the scalar was cast to next to tensors, as keys. The number of each call must fit them.
    """

    __slots__ = ("number", "used_dtypes", "wide")

    def __init__(self, builder: Any, value: mlir.Value, wide: Tensor, number: Any):
        super().__init__(builder, value)
        self.wide, self.number = wide, number
        self.used_dtypes: dict[DType, None] = {}

    def towards(self, kind: DType) -> Tensor:
        self.used_dtypes[kind] = None
        return self if kind is self.dtype else self.wide


def kind_of(number: Any) -> type:
    """Return the class of a number: bool, int, float or complex, also for subclasses."""
    return next(kind for kind in NUMBERS if isinstance(number, kind))


def dtypes_of(number: Any, unsupported: frozenset[str] = frozenset()) -> tuple[DType, DType]:
    """Return the default dtype of a number, and a dtype that has all its digits, if the target supports one.

    Raises:
        Error: It is an integer of more than 64 bits.
    """
    if isinstance(number, bool):
        return bool_, bool_
    if isinstance(number, int):
        if not i64.min <= number <= i64.max:
            raise Error("the integer needs more than 64 bits")
        alone, wide = i32 if i32.min <= number <= i32.max else i64, i64
    elif isinstance(number, float):
        alone, wide = f32, f64
    else:
        alone, wide = c64, c128
    return alone, alone if wide.name in unsupported else wide
