"""Attributes of StableHLO ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rlx import mlir


@cache
def attribute(text: str) -> mlir.Attribute:
    """An attribute from its text, such as `#stablehlo<comparison_direction LT>`."""
    return mlir.ir.Attribute.parse(text, context=mlir.context())


def sizes(values: Sequence[int]) -> mlir.Attribute:
    """`array<i64: …>`, as most of the dialect's lists of axes and sizes are stored."""
    return mlir.ir.DenseI64ArrayAttr.get(list(values), context=mlir.context())


def integer(value: int) -> mlir.Attribute:
    """An i64 attribute."""
    ir = mlir.ir
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context=mlir.context()), value)


def full_precision() -> mlir.Attribute:
    """`precision_config` for products that devices (TPUs) would otherwise compute in fewer bits."""
    return attribute("[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]")
