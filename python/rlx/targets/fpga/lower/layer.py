"""Shared classes of all layers: streams between layers, and pipelines with valid and ready signals.

A tensor is a stream with one element per beat. Each stream has its own element order, so rearranging a tensor often only
changes the declared order. The range of values on a wire is known exactly (`low` to `high`), so wires have no unnecessary bits.
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
from rlx.targets.fpga.lower.names import within_design


@dataclass(frozen=True, eq=False)
class Stream:
    """A tensor between layers.

    Attributes:
        shape: Its dimensions.
        dtype: The dtype of its elements.
        order: The flat index of each element in the order of the stream.
        low: The least possible value of an element.
        high: The greatest possible value.
        source: The layer that produces it, or the name of an input.
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
        """The bits of its wire, as a signed number."""
        return bits_for(self.low, self.high)

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.order)

    def like(self, shape: tuple[int, ...], order: np.ndarray) -> Stream:
        """The same wire as another tensor."""
        return Stream(shape, self.dtype, order, self.low, self.high, self.source)


def dtype_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer dtype or bool."""
    return (0, 1) if dtype.is_bool else (int(dtype.min), int(dtype.max))


@dataclass(eq=False, repr=False)
class StreamLayer:
    """One module of a design, with one output stream.

    Attributes:
        name: The name in the design. That of the module begins with the name of the design.
        place: The source location, or an empty string.
        inputs: The input streams.
        output: The output stream.
    """

    # Whether memories are read only when data advances, instead of in every possible cycle.
    clock_enable = False
    # The name of the design that contains the layer, and the user's scopes of its op.
    design, scope = "design", ""

    name: str
    place: str
    inputs: list[Stream]
    output: Stream = field(init=False)

    def __repr__(self) -> str:
        return f"{self.name}: {self.description} of {', '.join(map(repr, self.inputs))}"

    def changed(self, **sizes: int | bool | str) -> None:
        """Set implementation attributes, which do not change results."""
        self.__dict__.update(sizes)
        self.__dict__.pop("module", None)

    @cached_property
    def module(self) -> HdlModule:
        """The module."""
        module = HdlModule(within_design(self.design, self.name), self.clock_enable)
        self.write(module)
        return module

    def write(self, m: HdlModule) -> None:
        """Write the module: ports `in0_valid`, `in0_data`, `in0_ready`, …, `out_valid`, `out_data`, `out_ready`."""
        raise NotImplementedError

    def needs(self, needed: Sequence[np.ndarray]) -> np.ndarray:
        """The number of upstream elements that each output element waits for, from these numbers for each input's elements."""
        return np.maximum.reduce(needed)

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        """The cycles in which output elements leave, from the cycles in which input elements arrive."""
        raise NotImplementedError

    def consumed(self, index: int) -> np.ndarray:
        """The number of elements of an input consumed up to each output element. Used only for layers with several inputs."""
        return np.arange(1, self.output.count + 1)

    @property
    def cycles(self) -> int:
        """The cycles for one tensor without stalls."""
        return max(self.output.count, *(s.count for s in self.inputs))

    @property
    def description(self) -> str:
        """A description for reports."""
        return type(self).__name__.removesuffix("Layer").lower()


class Pipe:
    """The stages of a pipeline with one element per cycle. All stages advance when the last one is empty or is read.

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
        """Begin with the inputs. One element of each is taken at a time."""
        m = self.m
        valids = [m.input(f"in{i}_valid", 1) for i in range(len(streams))]
        data = [m.input(f"in{i}_data", s.width) for i, s in enumerate(streams)]
        self._valid = m.all(*valids)
        for i in range(len(streams)):
            m.output(f"in{i}_ready", m.all(self.advance, *(v for j, v in enumerate(valids) if j != i)))
        self.take = m.named(m.all(self.advance, self._valid), "take")
        return data

    def start(self, valid: Wire) -> None:
        """Begin with a valid signal that does not come from an input."""
        self._valid = valid

    @property
    def valid(self) -> Wire:
        """Whether the last stage so far has an element."""
        assert self._valid is not None
        return self._valid

    @property
    def reads(self) -> Wire:
        """The read enable of a memory whose word belongs to the next stage."""
        return self.m.all(self.advance, self.valid) if self.m.clock_enable else self.advance

    def stage(self, *values: Wire, name: str = "stage") -> list[Wire]:
        """The values, a cycle later."""
        self.next_stage()
        return [self.m.delayed(v, f"{name}{self.depth}", self.advance) for v in values]

    def next_stage(self) -> None:
        """Add a stage whose values are registered elsewhere, such as in a memory."""
        self.depth += 1
        self._valid = self.m.delayed(self.valid, f"valid{self.depth}", self.advance, reset=0)

    def close(self, ready: Wire) -> None:
        """Define when the last stage is read."""
        m = self.m
        m.define(self.advance, m.any(ready, m.invert(self.valid)))

    def finish(self, data: Wire) -> None:
        """Output a value of the last stage, which must be a register."""
        m = self.m
        self.close(m.input("out_ready", 1))
        m.output("out_valid", self.valid)
        m.output("out_data", data)


def period_of(values: np.ndarray) -> int:
    """Return the period of rows: the length of the shortest prefix that generates all rows by repetition."""
    count = len(values)
    for period in range(1, count + 1):
        if count % period == 0 and np.array_equal(values[period:], values[:-period]):
            return period
    return count


class ConstantStream:
    """Constants for the positions of a stream, read cyclically from a memory.

    Args:
        columns: A column for each constant, a row for each element of the stream.
        widths: The bits of each column.
    """

    def __init__(self, columns: np.ndarray, widths: Sequence[int]):
        self.widths = list(widths)
        self.rows = columns[: period_of(columns)]

    @property
    def are_scalar(self) -> bool:
        """Whether all elements have the same constants."""
        return len(self.rows) == 1

    def values(self, pipe: Pipe, name: str = "constants") -> list[Wire]:
        """The constants at the next stage of a pipeline, which must be at its first stage."""
        m = pipe.m
        if self.are_scalar:
            return [m.const(int(v), w) for v, w in zip(self.rows[0], self.widths, strict=True)]
        place, _ = m.counter(f"{name}_place", len(self.rows), pipe.take)
        stored = [i for i in range(len(self.widths)) if (self.rows[:, i] != self.rows[0, i]).any()]
        widths = [self.widths[i] for i in stored]
        words = [pack_word(row, widths) for row in self.rows[:, stored]]
        word = m.read_only(name, words, sum(widths), place, pipe.reads)
        starts = dict(zip(stored, np.cumsum([0, *widths]).tolist(), strict=False))
        return [
            m.extract(word, starts[i], w) if i in starts else m.const(int(self.rows[0, i]), w)
            for i, w in enumerate(self.widths)
        ]


def pack_word(row: Sequence[Any], widths: Sequence[int]) -> int:
    """Pack numbers into one word, the first in the lowest bits."""
    word, at = 0, 0
    for value, width in zip(row, widths, strict=True):
        word |= (int(value) & ((1 << width) - 1)) << at
        at += width
    return word
