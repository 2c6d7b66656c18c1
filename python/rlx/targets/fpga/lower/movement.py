"""Layers that move elements: queues, forks for several readers, reordering, concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx.support.cached_property import cached_property
from rlx.targets.fpga.lower.hdl import HdlModule, index_bits
from rlx.targets.fpga.lower.layer import Pipe, Stream, StreamLayer


def spaced_cycles(times: np.ndarray) -> np.ndarray:
    """Return the cycles in which elements leave, at most one per cycle, from the cycles in which they are ready."""
    places = np.arange(len(times))
    return np.maximum.accumulate(times - places) + places


@dataclass(eq=False, repr=False)
class Reorder(StreamLayer):
    """A tensor in another order, with elements omitted, repeated or inserted. Its memory has room for two whole tensors.

    Attributes:
        sources: For each output element, its position in the input stream, or -1.
        fill: The value of output elements without a source.
        shape: The dimensions of the output.
        order: The order of the output.
    """

    sources: np.ndarray = field(kw_only=True)
    fill: int = field(kw_only=True, default=0)
    shape: tuple[int, ...] = field(kw_only=True)
    order: np.ndarray = field(kw_only=True)

    def __post_init__(self) -> None:
        x = self.inputs[0]
        self._fills = bool((self.sources < 0).any())
        low, high = (min(x.low, self.fill), max(x.high, self.fill)) if self._fills else (x.low, x.high)
        self.output = Stream(self.shape, x.dtype, self.order, low, high, self)

    @property
    def description(self) -> str:
        return "reorder"

    def needs(self, needed: Sequence[np.ndarray]) -> np.ndarray:
        return np.full(self.output.count, needed[0].max())

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        return int(arrivals[0].max()) + 5 + np.arange(self.output.count)

    def write(self, m: HdlModule) -> None:
        x = self.inputs[0]
        pipe = Pipe(m)
        valid, data = m.input("in0_valid", 1), m.input("in0_data", x.width)
        used, filled = m.register("frames_used", 2), m.register("frames_filled", 2)
        ready = m.compare("ult", used.value, 2)
        m.output("in0_ready", ready)
        take = m.named(m.all(valid, ready), "take")
        place, write_end = m.counter("write_place", x.count, take)
        bits = index_bits(x.count)
        frame_done = m.named(m.all(take, write_end), "frame_done")
        write_bank = m.register("write_bank", 1)
        write_bank.set(m.invert(write_bank.value), frame_done, reset=0)
        pipe.start(m.compare("ne", filled.value, 0))
        step = m.named(m.all(pipe.valid, pipe.advance), "step")
        at, read_end = m.counter("read_place", self.output.count, step)
        read_bank = m.register("read_bank", 1)
        frame_read = m.named(m.all(step, read_end), "frame_read")
        read_bank.set(m.invert(read_bank.value), frame_read, reset=0)
        # An address, with an additional high bit for elements without a source.
        words = [int(s) if s >= 0 else 1 << bits for s in self.sources]
        source = m.read_only("sources", words, bits + 1, at, pipe.reads)
        bank = m.delayed(read_bank.value, "bank1", pipe.advance)
        last = m.delayed(frame_read, "last1", pipe.advance, reset=0)
        pipe.next_stage()
        address = m.concat(bank, m.extract(source, 0, bits))
        write = (take, m.concat(write_bank.value, m.fit(place, bits)), data)
        word = m.memory("frame", 2 << bits, x.width, (pipe.reads, address), write)
        empty = m.delayed(m.extract(source, bits, 1), "empty2", pipe.advance)
        last = m.delayed(last, "last2", pipe.advance, reset=0)
        pipe.next_stage()
        one, zero = m.const(1, 2), m.const(0, 2)
        begun = m.mux(frame_done, one, zero)
        filled.set(m.sub(m.add(filled.value, begun), m.mux(frame_read, one, zero)), reset=0)
        # The memory of a frame may be overwritten once its last element has been read.
        over = m.named(m.all(last, pipe.advance), "frame_over")
        used.set(m.sub(m.add(used.value, begun), m.mux(over, one, zero)), reset=0)
        width = self.output.width
        value = m.sext(word, width)
        if self._fills:
            value = m.mux(empty, m.const(self.fill, width), value)
        (value,) = pipe.stage(value, name="result")
        pipe.finish(value)


@dataclass(eq=False, repr=False)
class ConcatLayer(StreamLayer):
    """Two tensors, interleaved in blocks of elements.

    Attributes:
        turns: The block size of each tensor.
        shape: The dimensions of the output.
        order: The order of the output.
    """

    turns: tuple[int, int] = field(kw_only=True)
    shape: tuple[int, ...] = field(kw_only=True)
    order: np.ndarray = field(kw_only=True)

    def __post_init__(self) -> None:
        a, b = self.inputs
        self.output = Stream(self.shape, a.dtype, self.order, min(a.low, b.low), max(a.high, b.high), self)

    @cached_property
    def _is_first(self) -> np.ndarray:
        pattern = np.repeat([True, False], self.turns)
        return np.tile(pattern, self.output.count // len(pattern))

    def consumed(self, index: int) -> np.ndarray:
        return np.cumsum(self._is_first if index == 0 else ~self._is_first)

    def _merged(self, values: Sequence[np.ndarray]) -> np.ndarray:
        merged = np.empty(self.output.count, np.int64)
        merged[self._is_first], merged[~self._is_first] = values
        return merged

    def needs(self, needed: Sequence[np.ndarray]) -> np.ndarray:
        return np.maximum.accumulate(self._merged(needed))

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        return spaced_cycles(self._merged(arrivals)) + 1

    def write(self, m: HdlModule) -> None:
        pipe = Pipe(m)
        valids = [m.input(f"in{i}_valid", 1) for i in (0, 1)]
        data = [m.input(f"in{i}_data", s.width) for i, s in enumerate(self.inputs)]
        step = m.wire("step", 1)
        turn, _ = m.counter("turn", sum(self.turns), step)
        first = m.compare("ult", turn, self.turns[0])
        pipe.start(m.mux(first, *valids))
        m.output("in0_ready", m.all(pipe.advance, first))
        m.output("in1_ready", m.all(pipe.advance, m.invert(first)))
        m.define(step, m.all(pipe.valid, pipe.advance))
        width = self.output.width
        (value,) = pipe.stage(m.mux(first, *(m.sext(d, width) for d in data)), name="result")
        pipe.finish(value)


@dataclass(eq=False, repr=False)
class Fifo(StreamLayer):
    """A queue. It stores elements until those on a slower path from the same source arrive.

    Attributes:
        depth: The number of elements in the queue.
    """

    depth: int = field(kw_only=True)

    def __post_init__(self) -> None:
        x = self.inputs[0]
        self.output = Stream(x.shape, x.dtype, x.order, x.low, x.high, self)

    @property
    def description(self) -> str:
        return f"queue of {self.depth}"

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        return arrivals[0] + 2

    def write(self, m: HdlModule) -> None:
        width, bits = self.inputs[0].width, index_bits(self.depth + 1)
        valid, data, out_ready = m.input("in0_valid", 1), m.input("in0_data", width), m.input("out_ready", 1)
        stored, shown = m.register("stored", bits), m.register("shown", 1)
        ready = m.compare("ult", stored.value, self.depth)
        m.output("in0_ready", ready)
        take = m.named(m.all(valid, ready), "take")
        # The word at the head of the queue is read as soon as the output is free.
        read = m.named(m.all(m.compare("ne", stored.value, 0), m.any(m.invert(shown.value), out_ready)), "read")
        write_place, _ = m.counter("write_place", self.depth, take)
        read_place, _ = m.counter("read_place", self.depth, read)
        one, zero = m.const(1, bits), m.const(0, bits)
        stored.set(m.sub(m.add(stored.value, m.mux(take, one, zero)), m.mux(read, one, zero)), reset=0)
        shown.set(m.any(read, m.all(shown.value, m.invert(out_ready))), reset=0)
        word = m.memory("words", self.depth, width, (read, read_place), (take, write_place, data))
        m.output("out_valid", shown.value)
        m.output("out_data", word)


def fork(name: str, readers: int, width: int) -> HdlModule:
    """Return a module that copies a stream for several independent readers: ports `in0_…`, `out0_…`, `out1_…`."""
    m = HdlModule(name)
    valid, data = m.input("in0_valid", 1), m.input("in0_data", width)
    readies = [m.input(f"out{i}_ready", 1) for i in range(readers)]
    taken = [m.register(f"taken{i}", 1) for i in range(readers)]
    ready = m.all(*(m.any(t.value, r) for t, r in zip(taken, readies, strict=True)))
    m.output("in0_ready", ready)
    for i, (register, out_ready) in enumerate(zip(taken, readies, strict=True)):
        register.set(m.all(valid, m.invert(ready), m.any(register.value, out_ready)), reset=0)
        m.output(f"out{i}_valid", m.all(valid, m.invert(register.value)))
        m.output(f"out{i}_data", data)
    return m
