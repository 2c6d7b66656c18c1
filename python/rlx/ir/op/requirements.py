"""Requirements on the symbols of a program: sizes are not negative, ranges are inside an axis, axes are not empty.

Inference rejects what is certainly wrong. Conditions that depend on a symbol are collected here, and checked when its
size is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlx import mlir
from rlx.ir.dims.dim import Dim, DimExpr, divisors
from rlx.ir.interface import Requirement
from rlx.ir.location import describe
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import bodies, declared_arguments
from rlx.ir.shape import shape_of


def requirements(*modules: mlir.Module) -> tuple[Requirement, ...]:
    """Return all requirements of the arguments and ops in the functions of the modules, without duplicates.

    The ops of a decomposition do not have all requirements of the composite op. Therefore a back end also passes the
    module before decomposition.
    """
    result: dict[tuple[DimExpr, str], Requirement] = {}

    def add(found: Iterator[tuple[Dim, str]], location: mlir.Location) -> None:
        for expression, meaning in found:
            if isinstance(expression, DimExpr) and not certain(expression):
                entry = Requirement(expression, meaning, describe(location))
                result.setdefault((expression, meaning), entry)

    for function in (f for module in modules for f in bodies(module)):
        add(_of_arguments(function), function.location)
        for operation in opview.operations(function.entry_block):
            if registry.is_ours(operation):
                add(_of_op(operation), operation.location)
    return tuple(result.values())


def certain(d: Dim) -> bool:
    """Whether a dimension is non-negative for all sizes of its symbols."""
    if type(d) is int:
        return d >= 0
    assert isinstance(d, DimExpr)
    return d.bounds[0] >= 0


def _of_arguments(function: mlir.FuncOp) -> Iterator[tuple[Dim, str]]:
    for argument in declared_arguments(function):
        for bound in argument.bounds:
            yield from bound.requires(f"{argument.kind} '{argument.name}'")


def _of_op(op: mlir.Operation) -> Iterator[tuple[Dim, str]]:
    for expression, meaning in _without_divisors(op):
        for divisor in divisors(expression):  # check divisors first: if one is 0, the expression has no value
            yield divisor * divisor - 1, f"{op.name}: the size {expression} divides by {divisor}, which is 0"
        yield expression, f"{op.name}: {meaning}"


def _without_divisors(op: mlir.Operation) -> Iterator[tuple[Dim, str]]:
    card, attributes = opview.card_of(op), opview.attributes_of(op)
    results = [shape_of(result) for result in op.results]
    operands = [shape_of(operand) for operand in op.operands]
    # Attributes (positions, lengths) may contain symbols even if all shapes are static.
    sizes = [d for entry in card.spec.attributes if entry.kind == "dims" for d in attributes[entry.name]]
    if all(shape.is_static for shape in (*operands, *results)) and all(type(d) is int for d in sizes):
        return
    for shape in results:
        for d in shape.dims:
            yield d, f"the size {d} of its result is negative"
    shapes = opview.operands_of(op, operands)
    yield from card.requires(*shapes, **attributes)
