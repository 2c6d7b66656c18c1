"""Products of two computed matrices: the rows of one operand are streamed, and the other operand is stored.

The layer is a dense layer whose weights come from a stream. Their memory has room for two matrices: the next matrix arrives
while the current one is multiplied. The elements of a matrix are distributed over `parallel * lanes` memories, so that all
elements that are multiplied at once can be read at once. The matrix may arrive in either of two orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from rlx.targets.fpga.lower.hdl import HdlModule, Wire, index_bits
from rlx.targets.fpga.lower.window import WindowLayer


@dataclass(eq=False, repr=False)
class Product(WindowLayer):
    """`[images, rows, channels] @ [images, channels, results]`: the second input is the matrix that is stored.

    Attributes:
        results: The columns of the stored matrix.
        by_columns: Whether the stored matrix arrives column by column instead of row by row.
    """

    results: int = field(kw_only=True)
    by_columns: bool = field(kw_only=True)

    def _results(self) -> tuple[int, int]:
        x, w = self.inputs
        corners = [a * b for a in (x.low, x.high) for b in (w.low, w.high)]
        return min(corners) * self.geometry.channels, max(corners) * self.geometry.channels

    @property
    def dense_shape(self) -> tuple[int, int, int]:
        return 1, self.results, self.geometry.channels

    @property
    def description(self) -> str:
        rows, channels = self.geometry.image[0], self.geometry.channels
        sizes = f"{rows}x{channels} by {channels}x{self.results}"
        return f"product {sizes}, {self.parallel} x {self.lanes} at once" + ", in logic" * self.in_logic

    # --- timing -----------------------------------------------------------------------------------------------

    @property
    def cycles(self) -> int:
        return max(super().cycles, self.inputs[1].count)

    @property
    def _elements(self) -> int:
        """The number of elements of one stored matrix."""
        return self.geometry.channels * self.results

    def needs(self, needed: Sequence[np.ndarray]) -> np.ndarray:
        matrices = needed[1].reshape(self.images, -1).max(1)
        return np.maximum(super().needs(needed), np.repeat(matrices, self.output.count // self.images))

    def consumed(self, index: int) -> np.ndarray:
        if index == 0:
            rows = self.images * self.geometry.image[0]
            return np.repeat(np.arange(1, rows + 1) * self.geometry.channels, self.results)
        matrices = np.arange(1, self.images + 1) * self._elements
        return np.repeat(matrices, self.output.count // self.images)

    def _begins(self, image: int, ended: Sequence[int], arrivals: Sequence[np.ndarray]) -> int:
        there = int(arrivals[1][(image + 1) * self._elements - 1])
        return 2 + (max(there, ended[image - 2] + self._elements) if image > 1 else there)

    # --- hardware -----------------------------------------------------------------------------------------------

    def write(self, m: HdlModule) -> None:
        self._filled, self._used = m.register("matrices_filled", 2), m.register("matrices_used", 2)
        super().write(m)

    def _may_begin(self, m: HdlModule, enough: Wire) -> Wire:
        return m.all(enough, m.compare("ne", self._filled.value, 0))

    def _weights(self, m: HdlModule, step: Wire, pixel_end: Wire) -> list[Wire]:
        bits = index_bits(self._elements // self._banks)
        image_end = m.named(m.all(pixel_end, self._last_row), "image_end")
        bank = m.register("read_bank", 1)
        bank.set(m.invert(bank.value), image_end, reset=0)
        place = m.register("matrix_place", bits)
        following = m.add(place.value, m.const(1, bits))
        place.set(m.mux(pixel_end, m.const(0, bits), following), step, reset=0)
        at = m.delayed(m.concat(bank.value, place.value), "matrix_address", self._advance)
        # The last words of a matrix are read two stages after the last step.
        over = image_end
        for _ in range(2):
            over = m.delayed(over, "matrix_over", self._advance, reset=0)
        data, write, selected = self._matrix_writer(m, bits, image_end, m.all(over, self._advance))
        words = [
            m.memory(f"matrix{i}", 2 << bits, data.width, (self._reads, at), (enable, write, data))
            for i, enable in enumerate(selected)
        ]
        return [m.delayed(word, f"w{i}", self._advance) for i, word in enumerate(words)]

    @property
    def _banks(self) -> int:
        return self.parallel * self.lanes

    def _matrix_writer(self, m: HdlModule, bits: int, image_end: Wire, over: Wire) -> tuple[Wire, Wire, list[Wire]]:
        """The writer of the memories: the arriving element, its address, and a write enable for each memory."""
        w = self.inputs[1]
        valid, data = m.input("in1_valid", 1), m.input("in1_data", w.width)
        ready = m.compare("ult", self._used.value, 2)
        m.output("in1_ready", ready)
        take = m.named(m.all(valid, ready), "take_matrix")
        _, results, words = self.group_sizes
        channels = [("lane", self.lanes), ("word_of_column", words)]
        columns = [("result_at_once", self.parallel), ("column_batch", results)]
        at: dict[str, Wire] = {}
        event: dict[str, Wire] = {}
        going = take
        for name, count in [*channels, *columns] if self.by_columns else [*columns, *channels]:
            at[name], last = m.counter(f"write_{name}", count, going)
            going = event[name] = m.all(going, last)
        done = m.named(going, "matrix_done")
        # The address advances by the number of words in a column.
        base = m.register("write_column", bits)
        moved = m.add(base.value, m.const(words, bits))
        base.set(m.mux(event["column_batch"], m.const(0, bits), moved), event["result_at_once"], reset=0)
        word = m.fit(m.zext(at["word_of_column"], max(bits, at["word_of_column"].width)), bits)
        bank = m.register("write_bank", 1)
        bank.set(m.invert(bank.value), done, reset=0)
        one, zero = m.const(1, 2), m.const(0, 2)
        more = m.mux(done, one, zero)
        self._filled.set(m.sub(m.add(self._filled.value, more), m.mux(image_end, one, zero)), reset=0)
        self._used.set(m.sub(m.add(self._used.value, more), m.mux(over, one, zero)), reset=0)
        selected = [
            m.all(take, *(m.compare("eq", at[name], i) for name, i, n in chosen if n > 1))
            for p in range(self.parallel)
            for q in range(self.lanes)
            for chosen in [(("result_at_once", p, self.parallel), ("lane", q, self.lanes))]
        ]
        return data, m.concat(bank.value, m.add(base.value, word)), selected


def is_by_columns(order: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Whether the matrices of a tensor `[images, channels, results]` arrive consecutively, column by column."""
    places = np.arange(prod(shape)).reshape(shape)
    return np.array_equal(order, places.swapaxes(-1, -2).ravel())
