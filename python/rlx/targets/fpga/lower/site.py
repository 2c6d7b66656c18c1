"""`LayerSite`: shared helpers for the rules that convert ops to layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.op.argument_groups import takes_flat
from rlx.ir.shape import Shape
from rlx.support.errors import UnsupportedError
from rlx.targets.fpga.lower.layer import Stream, StreamLayer
from rlx.targets.fpga.lower.movement import Reorder
from rlx.targets.fpga.lower.names import layer_name
from rlx.targets.fpga.lower.orders import inverse, usual
from rlx.targets.fpga.lower.pointwise import Pointwise

Operand = Stream | np.ndarray
Rule = Callable[..., Operand]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for some ops. The rule takes a `LayerSite`, the operands and the attributes."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, takes_flat(function)))
        return function

    return register


@dataclass
class LayerSite:
    """The op that a rule converts to layers.

    Attributes:
        name: The name of the op.
        place: The source location.
        scope: The names of the user's scopes around the op, joined by `/`.
        result: The shape of its result.
        evaluate: Its evaluator.
        layers: All layers so far; new ones are appended.
        counts: The number of layers with each name: see `layer_name`.
        sole: Whether this op is the only reader of a stream, over all values of the graph with this stream.
    """

    name: str
    place: str
    scope: str
    result: Shape
    evaluate: Callable[..., Any]
    layers: list[StreamLayer]
    counts: dict[str, int] = field(default_factory=dict[str, int])
    sole: Callable[[Stream], bool] = lambda _: False

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes of the result."""
        return self.result.static

    def named(self, base: str) -> str:
        """A name for a new layer."""
        return layer_name(self.counts, base, self.scope)

    def add(self, layer: StreamLayer) -> Stream:
        """Add a layer, and return its output."""
        layer.scope = self.scope
        self.layers.append(layer)
        return layer.output

    def ordered(self, x: Stream, order: np.ndarray) -> Stream:
        """A stream in another order."""
        if np.array_equal(x.order, order):
            return x
        sources = inverse(x.order)[order]
        return self.add(Reorder(self.named("reorder"), self.place, [x], sources=sources, shape=x.shape, order=order))

    def moved(self, x: Stream, sources: np.ndarray, fill: int = 0, order: np.ndarray | None = None) -> Stream:
        """A tensor of elements of another tensor. `sources` has the flat index of each element there, or -1 for the fill."""
        flat = sources.ravel()
        if flat.size == x.count and np.array_equal(np.sort(flat), np.arange(x.count)):
            moved = x.like(sources.shape, inverse(flat)[x.order])
            return moved if order is None else self.ordered(moved, order)
        order = usual(sources.shape) if order is None else order
        wanted = flat[order]
        places = np.where(wanted < 0, -1, inverse(x.order)[wanted])
        layer = Reorder(
            self.named("reorder"), self.place, [x], sources=places, fill=fill, shape=sources.shape, order=order
        )
        return self.add(layer)

    def broadcast(
        self, operands: Sequence[Operand], shape: tuple[int, ...] | None = None
    ) -> tuple[list[Stream], dict[int, np.ndarray]]:
        """Broadcast operands to the shape of the result. Returns streams in one order, and constants by index in that order."""
        dims = self.dims if shape is None else shape
        whole = [o for o in operands if isinstance(o, Stream) and o.shape == dims]
        streams: list[Stream] = []
        order = whole[0].order if whole else usual(dims)
        for operand in operands:
            if not isinstance(operand, Stream):
                continue
            if operand.shape == dims:
                streams.append(self.ordered(operand, order))
            else:
                places = np.arange(operand.count).reshape(operand.shape)
                streams.append(self.moved(operand, np.array(np.broadcast_to(places, dims)), order=order))
        constants = {
            i: np.broadcast_to(o, dims).ravel()[order].astype(np.int64)
            for i, o in enumerate(operands)
            if not isinstance(o, Stream)
        }
        return streams, constants

    def pointwise(
        self,
        kind: str,
        operands: Sequence[Operand],
        base: str = "",
        to: DType | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Stream:
        """Add an elementwise op."""
        streams, constants = self.broadcast(operands, shape)
        name = self.named(base or kind)
        to = self.result.dtype if to is None else to
        return self.add(Pointwise(name, self.place, streams, kind=kind, dtype=to, constants=constants))


def constant(operand: Operand | None, what: str) -> np.ndarray:
    """Return an operand that must be constant.

    Raises:
        UnsupportedError: The operand is computed.
    """
    if isinstance(operand, np.ndarray):
        return operand
    raise UnsupportedError(
        f"{what} must be a constant", hint="weights are part of the hardware: give them as constants"
    )


def stream(operand: Operand | None, what: str = "x") -> Stream:
    """Return an operand that must be computed."""
    if isinstance(operand, Stream):
        return operand
    raise UnsupportedError(f"{what} must not be a constant")
