"""The element types of values in kernels: the dtypes of tensors, and `INDEX`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, bool_
from rlx.numerics.scalars import storage_type


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
    """The MLIR type of an element in memory. A bool is a byte."""
    if element is bool_:
        return mlir.ir.IntegerType.get_signless(8, context=mlir.context())
    return value_type(element, None)
