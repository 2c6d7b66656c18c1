"""What has to hold of the symbols of a program: sizes that are not negative, ranges that fit, axes that are not empty.

Inference refuses what is certainly wrong; what depends on a symbol is collected here, and checked when its size is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir import opview, registry
from rlx.ir.dim import Dim, DimExpr, divisors, parse
from rlx.ir.errors import Error, ShapeError
from rlx.ir.location import describe
from rlx.ir.shape import shape_of
from rlx.ir.signature import bodies


@dataclass(frozen=True)
class Requirement:
    """An expression that must not be negative, and what it means.

    Attributes:
        expression: In symbols.
        meaning: What is wrong where it is negative.
        location: The user's line.
    """

    expression: DimExpr
    meaning: str
    location: str | None = None

    def check(self, bindings: Mapping[str, int]) -> None:
        """Raise where it does not hold.

        Raises:
            ShapeError: The expression is negative for these sizes.
        """
        if self.expression.symbols <= bindings.keys() and self.expression.evaluate(bindings) < 0:
            sizes = ", ".join(f"{name} = {bindings[name]}" for name in sorted(self.expression.symbols))
            raise ShapeError(f"{self.meaning} (for {sizes})", location=self.location)

    def to_json(self) -> list[str | None]:
        return [str(self.expression), self.meaning, self.location]

    @classmethod
    def from_json(cls, data: list[Any]) -> Requirement:
        """What `to_json` gave.

        Raises:
            Error: The expression is none in symbols.
        """
        expression = parse(data[0])
        if not isinstance(expression, DimExpr):
            raise Error(f"{data[0]!r} has no symbols: nothing depends on it")
        return cls(expression, data[1], data[2])


def requirements(*modules: mlir.Module) -> tuple[Requirement, ...]:
    """Everything that the ops of the modules' functions need of their symbols, once each.

    What a composite op needs is not told by what it decomposes into: a back end asks the module that it was given, too.
    """
    found: dict[tuple[DimExpr, str], Requirement] = {}
    for function in (f for module in modules for f in bodies(module)):
        for operation in opview.operations(function.entry_block):
            if registry.is_ours(operation):
                for expression, meaning in _of_op(operation):
                    if isinstance(expression, DimExpr) and not certain(expression):
                        entry = Requirement(expression, meaning, describe(operation.location))
                        found.setdefault((expression, meaning), entry)
    return tuple(found.values())


def certain(d: Dim) -> bool:
    """Whether a dimension is not negative, whatever the sizes of its symbols."""
    if type(d) is int:
        return d >= 0
    assert isinstance(d, DimExpr)
    return d.bounds[0] >= 0


def _of_op(op: mlir.Operation) -> Iterator[tuple[Dim, str]]:
    for expression, meaning in _direct(op):
        for divisor in divisors(expression):  # first: the value of the expression does not exist without
            yield divisor * divisor - 1, f"{op.name}: the size {expression} divides by {divisor}, which is 0"
        yield expression, f"{op.name}: {meaning}"


def _direct(op: mlir.Operation) -> Iterator[tuple[Dim, str]]:
    card, attributes = opview.card_of(op), opview.attributes_of(op)
    results = [shape_of(result) for result in op.results]
    operands = [shape_of(operand) for operand in op.operands]
    # Positions and lengths may be symbols where all shapes are static.
    given = [d for entry in card.spec.attributes if entry.kind == "dims" for d in attributes[entry.name]]
    if all(shape.is_static for shape in (*operands, *results)) and all(type(d) is int for d in given):
        return
    for shape in results:
        for d in shape.dims:
            yield d, f"the size {d} of its result is negative"
    shapes = opview.operands_of(op, operands)
    yield from card.requires(*shapes, **attributes)
