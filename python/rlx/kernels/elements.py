"""The element types of values in kernels: the dtypes of tensors, and `INDEX`; and the numbers of each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, bool_, dtype
from rlx.kernels.errors import kernel_error
from rlx.numerics.scalars import storage_type
from rlx.support.short import short_repr


@dataclass(frozen=True)
class IndexElement:
    """The type of sizes and positions: a signed integer as wide as an address."""

    name: str = "index"
    itemsize: int = 8
    is_float: bool = False
    is_signed: bool = True
    is_bool: bool = False

    @property
    def numpy(self) -> np.dtype[np.int64]:
        return np.dtype(np.int64)


INDEX = IndexElement()
Element = DType | IndexElement
Number = int | float | bool
# The dtypes of tensors whose bits kernels read, and do not compute with.
STORED = ("bf16", "f16")
# The dtypes that kernels compute with.
DTYPES = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")


def element_of(element: object) -> Element:
    """Return an element type of kernels, from a dtype, its name, or "index".

    Raises:
        ShapeError: Kernels do not compute with it.
    """
    if isinstance(element, IndexElement) or (isinstance(element, str) and element == INDEX.name):
        return INDEX
    found = element if isinstance(element, DType) else dtype(element)
    if found.name not in DTYPES:
        known = ", ".join(DTYPES)
        raise kernel_error(
            f"kernels do not compute with {found.name}",
            f"takes=lambda case: case.are_all('f32') leaves other dtypes to the op's lowering; kernels have {known}",
        )
    return found


def limits(element: Element) -> tuple[int, int]:
    """Return the least and the greatest number of an element type of integers."""
    if element.is_bool:
        return 0, 1
    info = np.iinfo(element.numpy)
    return int(info.min), int(info.max)


def number_of(number: object, element: Element) -> Number:
    """Return a number of Python or NumPy as one of an element type.

    Raises:
        ShapeError: It is not a number, or the element type lacks it.
    """
    plain = number.item() if isinstance(number, np.generic) else number
    if not isinstance(plain, (int, float)):
        raise kernel_error(f"expected a {element.name}, got {short_repr(number)}")
    if element.is_float:
        try:
            found = float(plain)
        except OverflowError:
            raise kernel_error(f"{short_repr(plain)} is not a {element.name}") from None
        with np.errstate(over="ignore"):
            if math.isfinite(found) and np.isinf(np.array(found).astype(element.numpy)):
                raise kernel_error(f"{short_repr(plain)} is not a {element.name}: it is too large")
        return found
    least, greatest = limits(element)
    if isinstance(plain, float):
        raise kernel_error(
            f"expected a {element.name}, got the float {short_repr(plain)}", "v.to(rlx.f32) is a value as floats"
        )
    if not least <= plain <= greatest:
        raise kernel_error(f"{plain} is not a {element.name}", f"its numbers are {least} to {greatest}")
    return plain


def value_type(element: Element, lanes: int | None) -> mlir.Type:
    """The MLIR type of a value: conditions are i1, all other values are as they are stored."""
    if isinstance(element, IndexElement):
        scalar: mlir.Type = mlir.ir.IndexType.get(mlir.context())
    elif element is bool_:
        scalar = mlir.ir.IntegerType.get_signless(1, context=mlir.context())
    else:
        scalar = storage_type(element)
    return scalar if lanes is None else mlir.ir.VectorType.get([lanes], scalar)


def memory_type(element: Element) -> mlir.Type:
    """The MLIR type of an element in memory. A bool is a byte, and an index has 64 bits: IREE crashes on memory of indices."""
    if element is bool_:
        return mlir.ir.IntegerType.get_signless(8, context=mlir.context())
    if isinstance(element, IndexElement):
        return mlir.ir.IntegerType.get_signless(64, context=mlir.context())
    return value_type(element, None)
