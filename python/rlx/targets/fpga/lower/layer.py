"""What all layers of a design share: the streams between them, and how a pipeline with valid and ready is written.

A tensor is a stream of its elements, one in a beat, in an order of its own: rearranging a tensor is often no more than another
order of the same stream. What a wire may hold is known exactly (`low` to `high`), so it has no more bits than it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.support.cached_property import cached_property
from rlx.support.printable import printable
from rlx.targets.fpga.lower.hdl import HdlModule, Wire, bits_for


@dataclass(frozen=True, eq=False)
class Stream:
    """A tensor as it goes from one layer to others.

    Attributes:
        shape: Its dimensions.
        dtype: The dtype of its elements.
        order: The flat index of each element in the order of the stream.
        low: The least value that an element may have.
        high: The greatest one.
        source: What gives it: a layer, or the name of an input.
    """

    shape: tuple[int, ...]
    dtype: DType
    order: np.ndarray
    low: int
    high: int
    source: StreamLayer | str

    def __repr__(self) -> str:
        source = self.source if isinstance(self.source, str) else self.source.name
        return printable(f"Stream({source}, {self.dtype.name}{list(self.shape)}, {self.low} to {self.high})", keep="")

    @property
    def width(self) -> int:
        """The bits of its wire, a signed number."""
        return bits_for(self.low, self.high)

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.order)

    def like(self, shape: tuple[int, ...], order: np.ndarray) -> Stream:
        """The same wire, as another tensor."""
        return Stream(shape, self.dtype, order, self.low, self.high, self.source)


def dtype_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer dtype or bool."""
    return (0, 1) if dtype.is_bool else (int(dtype.min), int(dtype.max))


@dataclass(eq=False, repr=False)
class StreamLayer:
    """One module of a design, with one stream out.

    Attributes:
        name: The name of the module.
        place: The user's line, empty if there is none.
        inputs: The streams that it reads.
        output: The stream that it gives.
    """

    # Whether memories are read only where something moves on, and not whenever it could.
    clock_enable = False

    name: str
    place: str
    inputs: list[Stream]
    output: Stream = field(init=False)

    def __repr__(self) -> str:
        return f"{self.name}: {self.description} of {', '.join(map(repr, self.inputs))}"

    def changed(self, **sizes: int | bool) -> None:
        """Say how a layer is made: attributes that do not change what it computes."""
        self.__dict__.update(sizes)
        self.__dict__.pop("module", None)

    @cached_property
    def module(self) -> HdlModule:
        """The module."""
        module = HdlModule(self.name, self.clock_enable)
        self.write(module)
        return module

    def write(self, m: HdlModule) -> None:
        """Write the module: ports `in0_valid`, `in0_data`, `in0_ready`, …, `out_valid`, `out_data`, `out_ready`."""
        raise NotImplementedError

    def needs(self, needed: Sequence[np.ndarray]) -> np.ndarray:
        """How much of something upstream each element of the output waits for, from the same of each input's elements."""
        return np.maximum.reduce(needed)

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        """The cycles in which elements of the output leave, from those in which elements of the inputs arrive."""
        raise NotImplementedError

    def consumed(self, index: int) -> np.ndarray:
        """How many elements of an input each element of the output takes, with those before it. For several inputs."""
        return np.arange(1, self.output.count + 1)

    @property
    def cycles(self) -> int:
        """The cycles that it works on one tensor when nothing makes it wait."""
        return max(self.output.count, *(s.count for s in self.inputs))

    @property
    def description(self) -> str:
        """What it is, for a report."""
        return type(self).__name__.removesuffix("Layer").lower()


class Pipe:
    """The stages of a pipeline: all go on when the last one is empty or is read, at one element in a cycle.

    Attributes:
        m: The module.
        advance: Whether all stages take a new value at the next edge.
        depth: The number of stages so far.
    """

    def __init__(self, m: HdlModule):
        self.m = m
        self.advance = m.wire("advance", 1)
        self.depth = 0
        self._valid: Wire | None = None

    def join(self, streams: Sequence[Stream]) -> list[Wire]:
        """The inputs, of which one element each is taken at a time."""
        m = self.m
        valids = [m.input(f"in{i}_valid", 1) for i in range(len(streams))]
        data = [m.input(f"in{i}_data", s.width) for i, s in enumerate(streams)]
        self._valid = m.all(*valids)
        for i in range(len(streams)):
            m.output(f"in{i}_ready", m.all(self.advance, *(v for j, v in enumerate(valids) if j != i)))
        self.take = m.named(m.all(self.advance, self._valid), "take")
        return data

    def start(self, valid: Wire) -> None:
        """Begin with something that is not an input."""
        self._valid = valid

    @property
    def valid(self) -> Wire:
        """Whether the last stage so far holds something."""
        assert self._valid is not None
        return self._valid

    @property
    def reads(self) -> Wire:
        """Whether a memory is read whose word belongs to the next stage."""
        return self.m.all(self.advance, self.valid) if self.m.clock_enable else self.advance

    def stage(self, *values: Wire, name: str = "stage") -> list[Wire]:
        """The values, a cycle later."""
        self.next_stage()
        return [self.m.delayed(v, f"{name}{self.depth}", self.advance) for v in values]

    def next_stage(self) -> None:
        """One stage more, whose values are registered elsewhere: in a memory."""
        self.depth += 1
        self._valid = self.m.delayed(self.valid, f"valid{self.depth}", self.advance, reset=0)

    def close(self, ready: Wire) -> None:
        """Say when the last stage is read."""
        m = self.m
        m.define(self.advance, m.any(ready, m.invert(self.valid)))

    def finish(self, data: Wire) -> None:
        """Give a value of the last stage, which has to be a register, as the output."""
        m = self.m
        self.close(m.input("out_ready", 1))
        m.output("out_valid", self.valid)
        m.output("out_data", data)


def period_of(values: np.ndarray) -> int:
    """The length of the shortest beginning of rows whose repetitions are all the rows."""
    count = len(values)
    for period in range(1, count + 1):
        if count % period == 0 and np.array_equal(values[period:], values[:-period]):
            return period
    return count


class ConstantStream:
    """Constants that go along with a stream, by position in it: read from a memory that goes round.

    Args:
        columns: A column for each constant, a row for each element of the stream.
        widths: The bits of each column.
    """

    def __init__(self, columns: np.ndarray, widths: Sequence[int]):
        self.widths = list(widths)
        self.rows = columns[: period_of(columns)]

    @property
    def are_scalar(self) -> bool:
        """Whether they are the same for all elements."""
        return len(self.rows) == 1

    def values(self, pipe: Pipe, name: str = "constants") -> list[Wire]:
        """Their values at the next stage of a pipeline, whose first stage this is."""
        m = pipe.m
        if self.are_scalar:
            return [m.const(int(v), w) for v, w in zip(self.rows[0], self.widths, strict=True)]
        place, _ = m.counter(f"{name}_place", len(self.rows), pipe.take)
        words = [packed(row, self.widths) for row in self.rows]
        word = m.read_only(name, words, sum(self.widths), place, pipe.reads)
        starts = np.cumsum([0, *self.widths])
        return [m.extract(word, int(s), w) for s, w in zip(starts, self.widths, strict=False)]


def packed(row: Sequence[Any], widths: Sequence[int]) -> int:
    """Numbers as one word, the first in the lowest bits."""
    word, at = 0, 0
    for value, width in zip(row, widths, strict=True):
        word |= (int(value) & ((1 << width) - 1)) << at
        at += width
    return word
