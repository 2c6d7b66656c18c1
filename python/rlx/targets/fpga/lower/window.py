"""Convolutions, products with matrices and pooling: windows on a line buffer, with several results at a time.

The image arrives pixel by pixel with all channels of a pixel together, and is stored in a ring of rows. The next rows arrive
while the windows of one row of results are computed. A word of the memory has `lanes` channels. A *dense* layer adds the
products of all channels of a word (`lanes` input channels at a time), for `parallel` results at once. A *per-channel* layer,
such as a depthwise convolution or pooling, has a result for each channel of a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from rlx.ir.dtype import DType
from rlx.targets.fpga.lower.addresses import Addresses, Ends
from rlx.targets.fpga.lower.geometry import Geometry
from rlx.targets.fpga.lower.hdl import HdlModule, Wire, bits_for, index_bits
from rlx.targets.fpga.lower.layer import Stream, StreamLayer, pack_word


@dataclass(eq=False, repr=False)
class WindowLayer(StreamLayer):
    """A layer over windows.

    Attributes:
        kind: `conv` (also a product with a matrix), `depthwise`, `max` or `sum`.
        geometry: Its sizes.
        weights: For `conv` `[groups, results of a group, kh, kw, channels of a group]`, for `depthwise` `[channels, kh, kw]`.
            Their zero point is subtracted, and channels are in their order of arrival.
        fill: The value of the padding.
        dtype: The dtype of the results.
        order: The order of the results.
        shape: Their dimensions.
        images: The images of a tensor.
        lanes: The channels of a word.
        parallel: The number of results of a dense layer that are computed at once.
        ternary: Whether weights of -1, 0 and 1 become additions instead of products.
        in_logic: Whether products are made of logic instead of hardware multipliers.
    """

    kind: str = field(kw_only=True)
    geometry: Geometry = field(kw_only=True)
    weights: np.ndarray | None = field(kw_only=True)
    fill: int = field(kw_only=True)
    dtype: DType = field(kw_only=True)
    order: np.ndarray = field(kw_only=True)
    shape: tuple[int, ...] = field(kw_only=True)
    images: int = field(kw_only=True, default=1)
    lanes: int = 1
    parallel: int = 1
    ternary: bool = False
    in_logic: bool = False

    def __post_init__(self) -> None:
        x = self.inputs[0]
        self._low, self._high = (x.low, x.high)
        if self.geometry.pads:
            self._low, self._high = min(x.low, self.fill), max(x.high, self.fill)
        low, high = self._results()
        self.exact = low >= -(1 << 31) and high < 1 << 31
        if not self.exact:
            low, high = -(1 << 31), (1 << 31) - 1
        self.output = Stream(self.shape, self.dtype, self.order, low, high, self)

    def _results(self) -> tuple[int, int]:
        low, high = self._low, self._high
        if self.kind == "max":
            return low, high
        if self.kind == "sum":
            taps = prod(self.geometry.kernel)
            return taps * low, taps * high
        assert self.weights is not None
        outer = self.weights.ndim - (3 if self.kind == "conv" else 2)
        w = self.weights.astype(np.int64).reshape(*self.weights.shape[:outer], -1)
        up, down = np.maximum(w, 0).sum(-1), np.minimum(w, 0).sum(-1)
        return int((up * low + down * high).min()), int((up * high + down * low).max())

    # --- sizes ----------------------------------------------------------------------------------------------

    @property
    def is_dense(self) -> bool:
        """Whether each result is a sum over channels."""
        return self.kind == "conv"

    @property
    def at_once(self) -> int:
        """The number of results that are computed at once."""
        return self.parallel if self.is_dense else self.lanes

    @property
    def dense_shape(self) -> tuple[int, int, int]:
        """The numbers of groups, results of a group and channels of a group of a dense layer."""
        assert self.weights is not None
        return self.weights.shape[0], self.weights.shape[1], self.weights.shape[-1]

    @property
    def group_sizes(self) -> tuple[int, int, int]:
        """The numbers of groups, batches of results of a group, and words of a group of channels."""
        if self.is_dense:
            groups, results, channels = self.dense_shape
            return groups, results // self.parallel, channels // self.lanes
        return self.geometry.channels // self.lanes, 1, 1

    @property
    def steps(self) -> int:
        """The number of steps for one batch of results."""
        return prod(self.geometry.kernel) * self.group_sizes[2]

    @property
    def batches(self) -> int:
        """The number of batches of results for a pixel."""
        return prod(self.group_sizes[:2])

    @property
    def interval(self) -> int:
        """The cycles from one batch of results to the next."""
        return max(self.steps, self.at_once)

    @property
    def rows_kept(self) -> int:
        """The number of rows in the memory: those that a window needs, and those that arrive meanwhile."""
        most = max(needed for needed, _ in self.geometry.plan())
        return most + max(1, min(self.geometry.stride[0], self.geometry.image[0]))

    @property
    def row_words(self) -> int:
        """The number of words in a row."""
        return self.geometry.image[1] * self.geometry.channels // self.lanes

    @property
    def _adds(self) -> int:
        return self.lanes if self.is_dense else 1

    @property
    def cycles(self) -> int:
        rows = self.images * self.geometry.results[0]
        work = rows * (self.geometry.results[1] * self.batches * self.interval + 1)
        return max(work, self.inputs[0].count)

    @property
    def description(self) -> str:
        kh, kw = self.geometry.kernel
        name = {"conv": "conv" if (kh, kw) != (1, 1) or self.geometry.image[1] > 1 else "dense"}.get(
            self.kind, self.kind
        )
        at_once = f"{self.parallel} x {self.lanes}" if self.is_dense else str(self.lanes)
        return f"{name} {kh}x{kw}, {at_once} at once" + (", ternary" if self.ternary else ", in logic" * self.in_logic)

    # --- timing -----------------------------------------------------------------------------------------------

    def _row_ends(self) -> np.ndarray:
        """The index of the last input element that each row of results needs."""
        g = self.geometry
        row = g.image[1] * g.channels
        ends: list[int] = []
        for image in range(self.images):
            kept = image * g.image[0]
            for r, (needed, _) in enumerate(g.plan()):
                ends.append(max((kept + g.first_row(r) + needed) * row - 1, 0))
        return np.minimum(ends, self.inputs[0].count - 1)

    def needs(self, needed: Sequence[np.ndarray]) -> np.ndarray:
        per_row = self.output.count // (self.images * self.geometry.results[0])
        return np.repeat(needed[0][self._row_ends()], per_row)

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        g, plan = self.geometry, self.geometry.plan()
        row = g.image[1] * g.channels
        arriving = arrivals[0].reshape(-1, row)[:, -1].tolist()
        batches = g.results[1] * self.batches
        batch = (np.arange(1, batches + 1)[:, None] * self.interval + np.arange(self.at_once)).ravel()
        latency = 6 + (self.lanes - 1).bit_length() * self.is_dense
        there: list[int] = []  # the cycle in which each row of the image is complete
        given_up: list[int] = []  # the cycle in which each row may be overwritten
        leaves: list[np.ndarray] = []
        ended: list[int] = []  # the cycle in which each image is finished
        free = 0
        for image in range(self.images):
            free = max(free, self._begins(image, ended, arrivals))
            for r, (needed, gone) in enumerate(plan):
                last = image * g.image[0] + g.first_row(r) + needed
                while len(there) < last:
                    place = len(there) - self.rows_kept
                    room = given_up[place] + row if place >= 0 else 0
                    there.append(max(arriving[len(there)], room, there[-1] + row if there else 0))
                start = max(there[last - 1] + 2 if last else 0, free)
                leaves.append(start + latency + batch)
                free = start + batches * self.interval + 1
                given_up += [free] * gone
            ended.append(free)
        return np.concatenate(leaves)

    def _begins(self, image: int, ended: Sequence[int], arrivals: Sequence[np.ndarray]) -> int:
        """The first cycle for an image, apart from its rows: when other operands are ready. `ended` has the previous images."""
        return 0

    # --- hardware -----------------------------------------------------------------------------------------------

    def write(self, m: HdlModule) -> None:
        self._advance = m.wire("advance", 1)
        self._reads = m.wire("reads", 1)
        read_address = m.wire("read_address", index_bits(self._words))
        row_freed, freed_rows = m.wire("row_freed", 1), m.wire("freed_rows", self._row_bits)
        row_done, write = self._writer(m, row_freed, freed_rows)
        data = m.memory("lines", self._words, self.lanes * self.inputs[0].width, (self._reads, read_address), write)
        self._reader(m, row_done, read_address, row_freed, freed_rows, data)

    @property
    def _words(self) -> int:
        return self.rows_kept * self.row_words

    @property
    def _row_bits(self) -> int:
        return index_bits(self.rows_kept + 1)

    def _writer(self, m: HdlModule, freed: Wire, freed_rows: Wire) -> tuple[Wire, tuple[Wire, Wire, Wire]]:
        """Write the logic that fills the rows. Returns whether a row is complete, and the write port."""
        x = self.inputs[0]
        valid, data = m.input("in0_valid", 1), m.input("in0_data", x.width)
        used = m.register("rows_used", self._row_bits)
        ready = m.compare("ult", used.value, self.rows_kept)
        m.output("in0_ready", ready)
        take = m.named(m.all(valid, ready), "take")
        word, filled = data, take
        if self.lanes > 1:
            _, lane_last = m.counter("write_lane", self.lanes, take)
            held = m.register("write_word", x.width * (self.lanes - 1))
            word = m.concat(data, held.value)  # the first channel in the lowest bits
            held.set(m.extract(word, x.width, held.value.width), take)
            filled = m.all(take, lane_last)
        address, _ = m.counter("write_address", self._words, filled)
        _, row_end = m.counter("write_place", self.row_words, filled)
        done = m.named(m.all(filled, row_end), "row_done")
        zero = m.const(0, self._row_bits)
        change = m.sub(m.mux(done, m.const(1, self._row_bits), zero), m.mux(freed, freed_rows, zero))
        used.set(m.add(used.value, change), reset=0)
        address = m.fit(address, index_bits(self._words))
        return done, (filled, address, word)

    def _reader(
        self, m: HdlModule, row_done: Wire, read_address: Wire, row_freed: Wire, freed_rows: Wire, data: Wire
    ) -> None:
        g, advance = self.geometry, self._advance
        # Rows that are complete for the reader. The writer may reuse released rows after the last read.
        ready_rows = m.register("rows_ready", self._row_bits)
        active = m.register("active", 1)
        step = m.named(m.all(active.value, advance), "step")
        groups, results, words = self.group_sizes
        # Counters from the innermost loop to the outermost.
        _, last_word = m.counter("word", words, step)
        ends = [last_word]
        loops: list[tuple[Wire, Wire]] = []
        for name, count in (("tap_x", g.kernel[1]), ("tap_y", g.kernel[0]), ("result", results), ("group", groups)):
            at, last = m.counter(name, count, m.all(step, *ends))
            loops.append((at, last))
            ends = [*ends, last]
        (_, last_x), (_, last_y), (_, last_result), (_, last_group) = loops
        _, last_column = m.counter("column", g.results[1], m.all(step, *ends))
        row, last_row = m.counter("row", g.results[0], m.all(step, *ends, last_column))
        tap_end = m.named(m.all(step, last_word), "tap_end")
        line_end = m.named(m.all(tap_end, last_x), "line_end")
        sum_end = m.named(m.all(line_end, last_y), "sum_end")
        group_end = m.named(m.all(sum_end, last_result), "group_end")
        pixel_end = m.named(m.all(group_end, last_group), "pixel_end")
        row_end = m.named(m.all(pixel_end, last_column), "row_end")
        first = self._first(m, sum_end, step)
        # A row of results begins when all rows that it needs, or that are released after it, are complete.
        plan = g.plan()
        needed = m.lookup(row, [n for n, _ in plan], self._row_bits)
        gone = m.lookup(row, [n for _, n in plan], self._row_bits)
        enough = self._may_begin(m, m.named(m.compare("uge", ready_rows.value, needed), "enough_rows"))
        active.set(m.mux(active.value, m.invert(row_end), enough), reset=0)
        zero = m.const(0, self._row_bits)
        change = m.sub(m.mux(row_done, m.const(1, self._row_bits), zero), m.mux(row_end, gone, zero))
        ready_rows.set(m.add(ready_rows.value, change), reset=0)
        ends_of = Ends(step, tap_end, line_end, sum_end, group_end, pixel_end, row_end, last_row)
        pixel = g.channels // self.lanes
        place, inside = Addresses(m, g, ends_of, self.rows_kept, pixel, words, groups).write()
        place = m.delayed(place, "read_place", advance)
        m.define(read_address, place)
        # Stages: 1 the address, 2 the words, 3 the factors, then products and sums.
        control = {"valid": active.value, "first": first, "last": m.all(active.value, *ends[:3])}
        freed = {"freed": row_end, "freed_count": gone}
        for stage in (1, 2):
            control = self._delayed(m, control, stage)
            if stage == 1:
                m.define(self._reads, m.all(advance, control["valid"]) if self.clock_enable else advance)
            freed = self._delayed(m, freed, stage)
            inside = None if inside is None else m.delayed(inside, f"inside{stage}", advance)
        m.define(row_freed, m.all(freed["freed"], advance))
        m.define(freed_rows, freed["freed_count"])
        values = self._operands(m, data, inside)
        self._last_row = last_row
        weights = self._weights(m, m.all(step), pixel_end)
        control = self._delayed(m, control, 3)
        sums, control = self._terms(m, values, weights, control)
        self._accumulate(m, sums, control)

    def _may_begin(self, m: HdlModule, enough: Wire) -> Wire:
        """Whether a row of results may begin, given that its rows of the image are complete."""
        return enough

    def _delayed(self, m: HdlModule, control: dict[str, Wire], stage: int) -> dict[str, Wire]:
        return {n: m.delayed(v, f"{n}{stage}", self._advance, reset=0) for n, v in control.items()}

    def _first(self, m: HdlModule, sum_end: Wire, step: Wire) -> Wire:
        """Whether a step is the first one of a sum."""
        if self.steps == 1:
            return m.const(1, 1)
        first = m.register("first", 1)
        first.set(sum_end, step, reset=1)
        return first.value

    def _operands(self, m: HdlModule, data: Wire, inside: Wire | None) -> list[Wire]:
        """The channels of the word that was read, or the padding."""
        x = self.inputs[0]
        width = bits_for(self._low, self._high)
        values: list[Wire] = []
        for lane in range(self.lanes):
            value = m.sext(m.extract(data, lane * x.width, x.width), width)
            if inside is not None:
                value = m.mux(inside, value, m.const(self.fill, width))
            values.append(m.delayed(value, f"x{lane}", self._advance))
        return values

    def _weights(self, m: HdlModule, step: Wire, pixel_end: Wire) -> list[Wire]:
        """The weights of a step: one for each channel of the word, for each result computed at once."""
        if self.weights is None:
            return []
        words, width = self.weight_words()
        # The address advances with each step, because the weights are stored in the order of the steps.
        place = m.register("weight_place", index_bits(len(words)))
        following = m.add(place.value, m.const(1, place.value.width))
        place.set(m.mux(pixel_end, m.const(0, place.value.width), following), step, reset=0)
        at = m.delayed(place.value, "weight_address", self._advance)
        word = m.read_only("weights", words, width * self.at_once * self._adds, at, self._reads)
        return [
            m.delayed(m.extract(word, i * width, width), f"w{i}", self._advance)
            for i in range(self.at_once * self._adds)
        ]

    def weight_words(self) -> tuple[list[int], int]:
        """The words of weights in the order of the steps, and the bits of a weight."""
        assert self.weights is not None
        w = self.weights.astype(np.int64)
        width = bits_for(int(w.min()), int(w.max()))
        if self.is_dense:
            g, o, kh, kw, c = w.shape
            shape = (g, o // self.parallel, self.parallel, kh, kw, c // self.lanes, self.lanes)
            rows = w.reshape(shape).transpose(0, 1, 3, 4, 5, 2, 6).reshape(-1, self.parallel * self.lanes)
        else:
            c, kh, kw = w.shape
            rows = w.reshape(c // self.lanes, self.lanes, kh, kw).transpose(0, 2, 3, 1).reshape(-1, self.lanes)
        return [pack_word(row, [width] * len(row)) for row in rows.tolist()], width

    def _terms(
        self, m: HdlModule, values: list[Wire], weights: list[Wire], control: dict[str, Wire]
    ) -> tuple[list[Wire], dict[str, Wire]]:
        """The terms of a step, for each result computed at once."""
        if not weights:
            return values, control
        stage = 4
        lanes = self._adds
        terms = [
            [self._product(m, values[q] if self.is_dense else values[p], weights[p * lanes + q]) for q in range(lanes)]
            for p in range(self.at_once)
        ]
        terms = [[m.delayed(t, f"product{p}", self._advance) for t in row] for p, row in enumerate(terms)]
        control = self._delayed(m, control, stage)
        while len(terms[0]) > 1:
            stage += 1
            terms = [[m.delayed(t, f"sum{p}", self._advance) for t in _paired(m, row)] for p, row in enumerate(terms)]
            control = self._delayed(m, control, stage)
        return [row[0] for row in terms], control

    def _product(self, m: HdlModule, x: Wire, weight: Wire) -> Wire:
        if not self.ternary:
            return m.add(*m.rows(x, weight)) if self.in_logic else m.mul(x, weight)
        width = x.width + 1
        x, zero = m.sext(x, width), m.const(0, width)
        negative = m.extract(weight, weight.width - 1, 1)
        return m.mux(m.compare("eq", weight, 0), zero, m.mux(negative, m.sub(zero, x), x))

    def _accumulate(self, m: HdlModule, terms: list[Wire], control: dict[str, Wire]) -> None:
        advance, width = self._advance, self.output.width
        valid = m.all(control["valid"], advance)
        sums: list[Wire] = []
        for p, term in enumerate(terms):
            total = m.register(f"total{p}", width)
            term = m.fit(term, width)
            if self.kind == "max":
                folded = m.mux(m.compare("sgt", term, total.value), term, total.value)
                following = m.mux(control["first"], term, folded)
            else:
                following = m.add(m.mux(control["first"], m.const(0, width), total.value), term)
            total.set(following, valid)
            sums.append(total.value)
        done = m.delayed(m.all(control["valid"], control["last"]), "done", advance, reset=0)
        self._drain(m, sums, done)

    def _drain(self, m: HdlModule, sums: list[Wire], done: Wire) -> None:
        """Output the results of a batch one by one."""
        count, width = len(sums), self.output.width
        ready = m.input("out_ready", 1)
        left = m.register("results_left", index_bits(count + 1))
        bits = left.value.width
        busy = m.compare("ne", left.value, 0)
        takes = m.named(m.all(busy, ready), "given")
        m.named(busy, "busy")
        room = m.any(m.invert(busy), m.all(m.compare("eq", left.value, 1), ready))
        # All earlier stages stall while results would be lost.
        m.define(self._advance, m.any(m.invert(done), room))
        load = m.named(m.all(done, room), "load")
        fewer = m.mux(takes, m.sub(left.value, m.const(1, bits)), left.value)
        left.set(m.mux(load, m.const(count, bits), fewer), reset=0)
        registers = [m.register(f"result{p}", width) for p in range(count)]
        for p, register in enumerate(registers):
            following = m.mux(load, sums[p], registers[p + 1].value) if p + 1 < count else sums[p]
            register.set(following, m.any(load, takes))
        m.output("out_valid", busy)
        m.output("out_data", registers[0].value)


def _paired(m: HdlModule, values: list[Wire]) -> list[Wire]:
    """Return the sums of pairs of signed numbers."""
    width = max(v.width for v in values) + 1
    values = [m.sext(v, width) for v in values]
    sums = [m.add(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
    return sums + values[len(sums) * 2 :]


def divisors(count: int, most: int) -> list[int]:
    """Return the divisors of a number up to a limit."""
    return [d for d in range(1, min(count, most) + 1) if count % d == 0]
