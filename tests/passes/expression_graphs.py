"""Graphs that compute the expressions of algebraic identities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

import rlx
from rlx.ir.dtype import DType, dtype
from rlx.passes.simplification.expressions import AnyNumber, Application, Expression, Limit, Literal, Variable

Numbers: TypeAlias = Mapping[str, float]


def conditions(side: Expression) -> set[Expression]:
    return {part.operands[0] for part in side.parts if isinstance(part, Application) and part.op == "where"}


class Sides:
    """A graph with an output for each of several expressions, in several dtypes."""

    def __init__(self, conditions: Iterable[Expression] = ()):
        self.conditions = set(conditions)
        self._graph: Any = rlx.Graph("main")
        self._inputs: dict[str, Any] = {}
        self._outputs: list[Any] = []

    def add(
        self, side: Expression, kind: DType, numbers: Numbers, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        """Add an output. Without shapes, all variables are vectors of the same size, which differs between dtypes.

        Raises:
            rlx.Error: An op does not accept the dtype.
        """
        result = self._built(side, kind, numbers, shapes or {})
        self._outputs.append(self._graph.stop_gradient(result) if isinstance(side, Variable) else result)

    def graph(self) -> rlx.Graph:
        self._graph.set_outputs(self._outputs)
        return self._graph

    def _built(self, part: Expression, kind: DType, numbers: Numbers, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        if isinstance(part, Variable):
            return self._input(part, kind, shapes.get(part.name))
        if isinstance(part, Application):
            operands = [self._built(operand, kind, numbers, shapes) for operand in part.operands]
            return self._graph.emit(part.op, operands, **({"kind": part.kind} if part.kind else {}))
        if isinstance(part, Literal):
            is_condition = isinstance(part.value, bool)
            return self._graph.constant(np.array(part.value).astype(np.bool_ if is_condition else kind.numpy))
        assert isinstance(part, (AnyNumber, Limit))
        number = numbers[part.name] if isinstance(part, AnyNumber) else part.of(kind)
        return self._graph.constant(np.array(number).astype(kind.numpy))

    def _input(self, part: Variable, kind: DType, shape: tuple[int, ...] | None) -> Any:
        name = "_".join([part.name, kind.name, *map(str, shape or ())] + ["scalar"] * (shape == ()))
        if name not in self._inputs:
            dims = (f"n_{kind.name}",) if shape is None else shape
            self._inputs[name] = self._graph.input(name, dims, "bool" if part in self.conditions else kind)
        return self._inputs[name]


def graph_of(side: Expression, kind: str | DType, numbers: Numbers | None = None) -> rlx.Graph:
    """Return a graph of one expression."""
    sides = Sides(conditions(side))
    sides.add(side, dtype(kind), numbers or {})
    return sides.graph()
