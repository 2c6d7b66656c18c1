"""Layers for reductions: sums, extremes, argmax and argmin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx.ir.dtype import DType
from rlx.support.cached_property import cached_property
from rlx.targets.fpga.lower.hdl import HdlModule, Wire, index_bits
from rlx.targets.fpga.lower.layer import Pipe, Stream, StreamLayer, dtype_range
from rlx.targets.fpga.lower.movement import spaced_cycles

KINDS = ("sum", "max", "min", "argmax", "argmin")
PLACES = ("argmax", "argmin")


@dataclass(frozen=True)
class Rounds:
    """The order of reduced elements in a stream: blocks of rounds. A round has one element for each of several results.

    Attributes:
        count: The rounds of a block, which is the number of elements of each result.
        places: The elements of a round, which is the number of results in a block.
    """

    count: int
    places: int


def rounds_of(results: np.ndarray, count: int) -> Rounds | None:
    """Return the rounds of a stream, or None if its elements have another order.

    Args:
        results: The result that each element belongs to.
        count: The number of elements of each result.
    """
    again = np.flatnonzero(results[1:] == results[0])
    places = int(again[0]) + 1 if len(again) else len(results)
    if len(results) % (count * places):
        return None
    blocks = results.reshape(-1, count, places)
    return Rounds(count, places) if (blocks == blocks[:, :1]).all() else None


@dataclass(eq=False, repr=False)
class ReduceLayer(StreamLayer):
    """The sum, the maximum or the minimum of elements, or the position of an extreme (the first one of several).

    Attributes:
        kind: One of `KINDS`.
        rounds: The order of the elements.
        dtype: The dtype of the results.
        shape: The dimensions of the results.
        order: The order of the results.
    """

    kind: str = field(kw_only=True)
    rounds: Rounds = field(kw_only=True)
    dtype: DType = field(kw_only=True)
    shape: tuple[int, ...] = field(kw_only=True)
    order: np.ndarray = field(kw_only=True)

    def __post_init__(self) -> None:
        x, count = self.inputs[0], self.rounds.count
        ends = {"sum": (x.low * count, x.high * count), **dict.fromkeys(PLACES, (0, count - 1))}
        low, high = ends.get(self.kind, (x.low, x.high))
        least, greatest = dtype_range(self.dtype)
        self._wraps = low < least or high > greatest
        if self._wraps:
            low, high = least, greatest
        self.output = Stream(self.shape, self.dtype, self.order, low, high, self)

    @property
    def description(self) -> str:
        return f"{self.kind} of {self.rounds.count}"

    @cached_property
    def _last(self) -> np.ndarray:
        """The positions in the input at which results are complete."""
        r = self.rounds
        blocks = np.arange(self.inputs[0].count).reshape(-1, r.count, r.places)
        return blocks[:, -1].ravel()

    def needs(self, needed: Sequence[np.ndarray]) -> np.ndarray:
        return needed[0][self._last]

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        return spaced_cycles(arrivals[0][self._last] + 3)

    def write(self, m: HdlModule) -> None:
        pipe = Pipe(m)
        (x,) = pipe.join(self.inputs)
        place, place_end = m.counter("place", self.rounds.places, pipe.take)
        turn, last = m.counter("round", self.rounds.count, m.all(pipe.take, place_end))
        first = m.compare("eq", turn, 0) if self.rounds.count > 1 else m.const(1, 1)
        width = self.output.width
        keeps_place = self.kind in PLACES
        places = index_bits(self.rounds.places)
        state_width = x.width + width if keeps_place else width
        written, at = m.wire("folded", state_width), m.wire("place1", places)
        take1 = m.wire("take1", 1)
        if self.rounds.places > 1:
            read = (pipe.reads, m.fit(place, places))
            before = m.memory("partial", self.rounds.places, state_width, read, (take1, at, written))
        else:
            before = None
        index = m.fit(m.zext(turn, max(width, turn.width)), width) if keeps_place else m.const(0, 1)
        x, first, index, place_now = pipe.stage(x, first, index, m.fit(place, places), name="operand")
        last = m.delayed(last, "last1", pipe.advance, reset=0)
        m.define(at, place_now)
        taken = m.all(pipe.valid, pipe.advance)
        m.define(take1, taken)
        if before is None:
            register = m.register("partial", state_width)
            before = register.value
            folded = self._folded(m, x, first, index, before)
            register.set(folded, taken)
        else:
            folded = self._folded(m, x, first, index, before)
        m.define(written, folded)
        # Elements are accepted while a result waits to be read, until the next result is complete.
        is_result = m.named(m.all(pipe.valid, last), "is_result")
        shown = m.register("shown", 1)
        free = m.any(m.input("out_ready", 1), m.invert(shown.value))
        m.define(pipe.advance, m.any(free, m.invert(is_result)))
        give = m.named(m.all(is_result, free), "give")
        shown.set(m.any(give, m.invert(free)), reset=0)
        m.output("out_valid", shown.value)
        m.output("out_data", m.delayed(m.extract(folded, 0, width), "result", give))

    def _folded(self, m: HdlModule, x: Wire, first: Wire, index: Wire, before: Wire) -> Wire:
        """The accumulator after one more element. For argmax and argmin, it contains the element and its position."""
        width = self.output.width
        if self.kind in PLACES:
            best = m.extract(before, width, x.width)
            better = m.any(first, m.compare("sgt" if self.kind == "argmax" else "slt", x, best))
            return m.mux(better, m.concat(x, index), before)
        value = m.fit(x, width)
        if self.kind == "sum":
            return m.add(value, m.mux(first, m.const(0, width), before))
        better = m.compare("sgt" if self.kind == "max" else "slt", value, before)
        return m.mux(m.any(first, better), value, before)
