"""States: values passed from one tensor to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx.ir.dtype import DType
from rlx.targets.fpga.lower.hdl import HdlModule, bits_for, index_bits
from rlx.targets.fpga.lower.layer import Stream, StreamLayer, dtype_range


@dataclass(eq=False, repr=False)
class StateLayer(StreamLayer):
    """A state: it is read with each input tensor, and written for the next one. It is a queue that a reset fills.

    The queue returns elements in the order in which they are written, so a tensor waits for each element until the previous
    tensor has written it. The queue has room for a whole tensor in addition to the one being read, because the new value may
    be computed early.

    Attributes:
        title: The name of the state.
        shape: Its dimensions.
        dtype: Its dtype.
        order: The order of its elements.
        init: The value of each element after a reset.
        update: The stream that writes it, in the same order. It is not an input, because it depends on readers of the state.
    """

    title: str = field(kw_only=True)
    shape: tuple[int, ...] = field(kw_only=True)
    dtype: DType = field(kw_only=True)
    order: np.ndarray = field(kw_only=True)
    init: int = field(kw_only=True)
    update: Stream = field(init=False)

    def __post_init__(self) -> None:
        self.output = self.update = Stream(self.shape, self.dtype, self.order, *dtype_range(self.dtype), self)

    @property
    def description(self) -> str:
        return f"state '{self.title}' of {self.output.count}, first {self.init}"

    @property
    def cycles(self) -> int:
        return self.output.count

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        return np.arange(self.output.count)

    def write(self, m: HdlModule) -> None:
        count, width = self.output.count, self.output.width
        depth = 2 * count
        bits, narrow = index_bits(depth + 1), self.update.width
        valid, data, out_ready = m.input("in0_valid", 1), m.input("in0_data", narrow), m.input("out_ready", 1)
        stored, shown = m.register("stored", bits), m.register("shown", 1)
        ready = m.compare("ult", stored.value, depth)
        m.output("in0_ready", ready)
        take = m.named(m.all(valid, ready), "take")
        read = m.named(m.all(m.compare("ne", stored.value, 0), m.any(m.invert(shown.value), out_ready)), "read")
        one, zero = m.const(1, bits), m.const(0, bits)
        # Initial values are not in the memory: they are all equal, and only counted.
        first = m.register("first_left", bits)
        is_first = m.named(m.compare("ne", first.value, 0), "is_first")
        first.set(m.sub(first.value, one), m.all(read, is_first), reset=count)
        written = m.all(read, m.invert(is_first))
        write_place, _ = m.counter("write_place", depth, take)
        read_place, _ = m.counter("read_place", depth, written)
        stored.set(m.sub(m.add(stored.value, m.mux(take, one, zero)), m.mux(read, one, zero)), reset=count)
        shown.set(m.any(read, m.all(shown.value, m.invert(out_ready))), reset=0)
        word = m.memory("words", depth, narrow, (written, read_place), (take, write_place, data))
        gives_first = m.delayed(is_first, "gives_first", read)
        wide = max(narrow, bits_for(self.init, self.init), width)
        value = m.mux(gives_first, m.const(self.init, wide), m.sext(word, wide))
        m.output("out_valid", shown.value)
        m.output("out_data", m.fit(value, width))
