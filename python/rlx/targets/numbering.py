"""Numbers of LIR ops in their locations. Compilers preserve locations, so compiled code can be attributed to ops."""

from __future__ import annotations

import re

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview

_NUMBER = re.compile(r"\brlx\.op\.(\d+)\b")


def location_name(number: int) -> str:
    """Return the name in the location of an op."""
    return f"rlx.op.{number}"


def with_op_numbers(lir: Graph) -> Graph:
    """A copy of a graph whose ops have their numbers as locations, in the order of `opview.operations`."""
    copy = lir.clone()
    with mlir.entered():
        for number, op in enumerate(opview.operations(copy.function.entry_block)):
            op.location = mlir.ir.Location.name(location_name(number))
    return copy


def numbers_in(text: str) -> frozenset[int]:
    """Return the numbers of all ops whose locations occur in a text."""
    return frozenset(map(int, _NUMBER.findall(text)))
