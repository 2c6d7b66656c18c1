"""Requantisation: sums times fixed-point numbers, rounded as in `requantize`, in a pipeline with one element per cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rlx.ir.dtype import DType
from rlx.ops.quantization.requantize import BITS, RIGHTMOST, FixedPoint, Requantization, requantized
from rlx.targets.fpga.lower.hdl import HdlModule, Wire, bits_for
from rlx.targets.fpga.lower.layer import ConstantStream, Pipe, Stream, StreamLayer

_I32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(eq=False, repr=False)
class Requantiser(StreamLayer):
    """The op `requantize`. A following ReLU or other clamp narrows the range of its results.

    Multiplier and shift are constants, or inputs after the first one, in this order.

    Attributes:
        multiplier: The multipliers, in the order of the stream; None if they are an input.
        shift: The shifts, in the order of the stream; None if they are an input.
        zero_point: The attribute of the op.
        mode: The attribute of the op.
        dtype: The attribute of the op.
        least: The least result.
        greatest: The greatest result.
        factor_bits: The widest signed factor of a hardware multiplier.
        in_logic: Whether the product is made of logic instead of hardware multipliers.
        serial: The bits of the multiplier for each cycle of a serial product; 0 if the product is not serial.
    """

    multiplier: np.ndarray | None = field(kw_only=True)
    shift: np.ndarray | None = field(kw_only=True)
    zero_point: int = field(kw_only=True)
    mode: str = field(kw_only=True)
    dtype: DType = field(kw_only=True)
    least: int = field(kw_only=True)
    greatest: int = field(kw_only=True)
    factor_bits: int = 18
    in_logic: bool = False
    serial: int = 0

    def __post_init__(self) -> None:
        x = self.inputs[0]
        most = BITS[self.mode] - 1
        streams = iter(self.inputs[1:])
        if self.multiplier is None:
            given = next(streams)
            self._factors = (given.low, given.high) if self.mode != "short" else (-(1 << 15), (1 << 15) - 1)
        else:
            self.multiplier = self.multiplier.astype(np.int64)
            if self.mode == "short":
                self.multiplier = self.multiplier.astype(np.int16).astype(np.int64)
            self._factors = int(self.multiplier.min()), int(self.multiplier.max())
        # The possible shifts. Computed shifts are a range.
        if self.shift is None:
            given = next(streams)
            low, high = (int(np.clip(v, RIGHTMOST, most)) for v in (given.low, given.high))
            self._shifts = list(range(low, high + 1))
        else:
            self.shift = np.clip(self.shift.astype(np.int64), RIGHTMOST, most)
            self._shifts = np.unique(self.shift).tolist()
        low, high = self._results(x)
        low, high = (min(max(v, self.least), self.greatest) for v in (low, high))
        self.output = Stream(x.shape, self.dtype, x.order, low, high, self)

    def clamped(self, least: int, greatest: int) -> Requantiser:
        """Return a copy with further clamped results."""
        # If the two intervals are disjoint, all results are the nearest end of the second interval.
        ends = [min(max(end, least), greatest) for end in (self.least, self.greatest)]
        return replace(self, least=ends[0], greatest=ends[1])

    @property
    def _lefts(self) -> list[int]:
        """The shifts before the product."""
        return [max(s, 0) if self.mode == "double" else 0 for s in self._shifts]

    @property
    def _rights(self) -> list[int]:
        """The shifts at the end."""
        return [max(-s, 0) if self.mode == "double" else BITS[self.mode] - s for s in self._shifts]

    def _results(self, x: Stream) -> tuple[int, int]:
        """The range of results, computed by the evaluator. Rounding is monotonic as long as nothing wraps."""
        most = max(self._lefts)
        if min(x.low << most, x.low) < _I32[0] or (x.high << most) > _I32[1]:
            return int(self.dtype.min), int(self.dtype.max)
        ends, factors, shifts = np.ix_([x.low, x.high], self._factors, self._shifts)
        found = requantized(ends, FixedPoint(factors, shifts), Requantization(self.zero_point, self.mode, self.dtype))
        return int(found.min()), int(found.max())

    @property
    def description(self) -> str:
        per = "tensor" if len(self._shifts) == 1 and len(set(self._factors)) == 1 else "channel"
        clamp = "" if self.least == self.dtype.min and self.greatest == self.dtype.max else ", clamp"
        how = f", {self.interval} cycles each" if self.serial else ", in logic" * self.in_logic
        return f"requantise ({self.mode}, per {per}{clamp}{how})"

    @property
    def interval(self) -> int:
        """The cycles from one element to the next."""
        return self._digits + 1 if self.serial else 1

    @property
    def _digits(self) -> int:
        return -(-bits_for(*self._factors) // self.serial)

    @property
    def cycles(self) -> int:
        return self.output.count * self.interval

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        self.module  # noqa: B018 - the number of stages is known once the module is written
        at = np.maximum.reduce(arrivals)
        if not self.serial:
            return at + self._depth
        # Serial: the distance between elements is at least the time of a product.
        places = np.arange(len(at)) * self.interval
        return np.maximum.accumulate(at - places) + places + self._digits + self._depth

    # --- hardware -----------------------------------------------------------------------------------------

    def write(self, m: HdlModule) -> None:
        pipe = Pipe(m)
        x, *streams = pipe.join(self.inputs)
        low, high = self.inputs[0].low, self.inputs[0].high
        factor, code, x = self._scales(pipe, x, iter(streams))
        lefts = self._lefts
        if any(lefts):
            moved = self._chosen(m, code, [m.shift_left(x, left, 32) for left in lefts])
            ends = [end << left for end in (low, high) for left in lefts]
            low, high = (min(ends), max(ends)) if _I32[0] <= min(ends) and max(ends) <= _I32[1] else _I32
            moved = m.fit(moved, bits_for(low, high))
            (x,), (factor, code) = self._staged(pipe, [moved], [factor, code])
        if self.serial:
            pipe, total, code = self._serial_product(pipe, x, factor, code)
        else:
            total, code = self._product(pipe, x, factor, code)
        corners = [end * f for end in (low, high) for f in self._factors]
        low, high = min(corners), max(corners)
        if self.mode == "double":
            total, code = self._high_half(pipe, total, code, (low, high))
            low, high = (low + (1 << 30)) >> 31, min((high + (1 << 30)) >> 31, _I32[1])
        shifted, low, high = self._rounded(pipe, total, code, self._rights, (low, high))
        pipe.finish(self._saturated(pipe, shifted, low, high))
        self._depth = pipe.depth

    def _scales(self, pipe: Pipe, x: Wire, streams: Iterator[Wire]) -> tuple[Wire, Wire, Wire]:
        """The multiplier, the index of its shift in the possible shifts, and the operand, all one stage later."""
        m = pipe.m
        widths = (bits_for(*self._factors), max((len(self._shifts) - 1).bit_length(), 1))
        given: list[Wire | None] = [None, None]
        if self.multiplier is None:
            given[0] = m.fit(next(streams), widths[0])
        if self.shift is None:
            shift = next(streams)
            wide = max(shift.width, 6) + 1
            shift = m.sext(shift, wide)
            for end, predicate in ((self._shifts[0], "slt"), (self._shifts[-1], "sgt")):
                shift = m.mux(m.compare(predicate, shift, end), m.const(end, wide), shift)
            given[1] = m.extract(m.sub(shift, m.const(self._shifts[0], wide)), 0, widths[1])
        known: list[tuple[int, np.ndarray]] = []
        if self.multiplier is not None:
            known.append((0, self.multiplier))
        if self.shift is not None:
            known.append((1, np.searchsorted(self._shifts, self.shift)))
        if known:
            columns = np.stack([c for _, c in known], 1)
            values = ConstantStream(columns, [widths[i] for i, _ in known]).values(pipe, "scales")
        else:
            values: list[Wire] = []
        computed = [v for v in given if v is not None]
        x, *computed = pipe.stage(x, *computed, name="operand")
        at, rest = dict(zip([i for i, _ in known], values, strict=True)), iter(computed)
        factor, code = (at[i] if i in at else next(rest) for i in (0, 1))
        return factor, code, x

    def _chosen(self, m: HdlModule, code: Wire, choices: Sequence[Wire]) -> Wire:
        """The choice with an index, by a tree of multiplexers."""
        if len(choices) == 1:
            return choices[0]
        bit = max((len(choices) - 1).bit_length() - 1, 0)
        half = 1 << bit
        no = self._chosen(m, code, choices[:half])
        return m.mux(m.extract(code, bit, 1), self._chosen(m, code, choices[half:]), no)

    def _staged(
        self, pipe: Pipe, values: Sequence[Wire], carried: Sequence[Wire], name: str = "stage"
    ) -> tuple[list[Wire], list[Wire]]:
        """Values and accompanying values, one stage later. Constants need no register."""
        moving = [v for v in carried if not pipe.m.is_constant(v)]
        staged = pipe.stage(*values, *moving, name=name)
        rest = iter(staged[len(values) :])
        return staged[: len(values)], [v if pipe.m.is_constant(v) else next(rest) for v in carried]

    def _product(self, pipe: Pipe, x: Wire, factor: Wire, code: Wire) -> tuple[Wire, Wire]:
        """The product, as a sum of partial products that fit hardware multipliers. Each level of the sum is a stage."""
        m = pipe.m
        width = x.width + factor.width
        if self.in_logic:
            rows = m.rows(x, factor)
            sums = [m.add(a, b) for a, b in zip(rows[::2], rows[1::2], strict=False)] + rows[len(rows) // 2 * 2 :]
            terms, (code,) = self._staged(pipe, sums, [code], "sum")
        else:
            pieces = _pieces(m, factor, self.factor_bits)
            parts = [(a, b, at + bt) for a, at in _pieces(m, x, self.factor_bits) for b, bt in pieces]
            # Parts of a constant multiplier may be 0, as all but one are where it is a power of two.
            parts = [p for p in parts if not m.is_zero(p[1])] or parts[:1]
            products, (code,) = self._staged(pipe, [m.mul(a, b) for a, b, _ in parts], [code], "product")
            terms = [m.shift_left(p, at, width) for p, (_, _, at) in zip(products, parts, strict=True)]
        while len(terms) > 1:
            sums = [m.add(a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms, (code,) = self._staged(pipe, sums + terms[len(sums) * 2 :], [code], "sum")
        return terms[0], code

    def _serial_product(self, pipe: Pipe, x: Wire, factor: Wire, code: Wire) -> tuple[Pipe, Wire, Wire]:
        """A serial product, with some bits of the factor per cycle. Returns a new pipeline, and product and code in it."""
        m, step, digits = pipe.m, self.serial, self._digits
        after = Pipe(m)
        busy, full = m.register("multiplies", 1), m.register("multiplied", 1)
        room = m.all(m.invert(busy.value), m.any(m.invert(full.value), after.advance))
        pipe.close(room)
        take = m.named(m.all(pipe.valid, room), "begin_product")
        _, last = m.counter("digit", digits, busy.value)
        busy.set(m.any(take, m.all(busy.value, m.invert(last))), reset=0)
        read = m.all(full.value, after.advance)
        full.set(m.any(m.all(busy.value, last), m.all(full.value, m.invert(read))), reset=0)
        held = m.delayed(x, "multiplicand", take)
        kept = code if m.is_constant(code) else m.delayed(code, "multiplier_code", take)
        width = x.width + step + 1
        total = m.register("partial", x.width + 1)
        # Used digits are shifted out at the lower end of the register, and digits of the product in at the upper end.
        bits = m.register("factor", digits * step)
        rows: list[Wire] = []
        for bit in range(step):
            row = m.shift_left(held, bit, width)
            if bit == step - 1:
                row = m.mux(last, m.sub(m.const(0, width), row), row)
            rows.append(m.mux(m.extract(bits.value, bit, 1), row, m.const(0, width)))
        summed = m.add(m.sext(total.value, width), *rows)
        upper = m.shift_right(summed, step)
        changes = m.any(take, busy.value)
        total.set(m.mux(take, m.const(0, upper.width), upper), changes)
        low = m.extract(summed, 0, step)
        moved = m.concat(low, m.extract(bits.value, step, (digits - 1) * step)) if digits > 1 else low
        bits.set(m.mux(take, m.sext(factor, digits * step), moved), changes)
        after.start(full.value)
        after.depth = pipe.depth + 1
        product = m.fit(m.concat(total.value, bits.value), x.width + factor.width)
        return after, product, kept

    def _high_half(self, pipe: Pipe, total: Wire, code: Wire, interval: tuple[int, int]) -> tuple[Wire, Wire]:
        """`min((total + 2^30) >> 31, 2^31 - 1)`."""
        m = pipe.m
        width = max(total.width, 32) + 1
        rounded = m.add(m.sext(total, width), m.const(1 << 30, width))
        (high,), (code,) = self._staged(pipe, [m.shift_right(rounded, 31)], [code], "high")
        if (interval[1] + (1 << 30)) >> 31 > _I32[1]:
            limit = m.const(_I32[1], high.width)
            high = m.mux(m.compare("sgt", high, limit), limit, high)
        return high, code

    def _rounded(
        self,
        pipe: Pipe,
        total: Wire,
        code: Wire,
        rights: Sequence[int],
        interval: tuple[int, int],
    ) -> tuple[Wire, int, int]:
        """`(total + half) >> right`. In mode `double`, ties of negative numbers are rounded down."""
        m = pipe.m
        low, high = interval
        if not any(rights):
            return m.fit(total, bits_for(low, high)), low, high
        halves = [(1 << right) >> 1 for right in rights]
        width = max(total.width, bits_for(low - 1, high + max(halves)))
        half = self._chosen(m, code, [m.const(h, width) for h in halves])
        total = m.sext(total, width)
        if self.mode == "double":
            rounds = self._chosen(m, code, [m.const(int(h > 0), 1) for h in halves])
            sign = m.extract(total, width - 1, 1)
            # half - 1 for negative numbers
            half = m.sub(half, m.zext(m.all(sign, rounds), width))
            (half, total), (code,) = self._staged(pipe, [half, total], [code], "half")
        (total,), (code,) = self._staged(pipe, [m.add(total, half)], [code], "rounded")
        shifted = self._chosen(m, code, [m.fit(m.shift_right(total, right), width) for right in rights])
        ends = [(end + h) >> r for end in (low - 1, high) for h, r in zip(halves, rights, strict=True)]
        low, high = min(ends), max(ends)
        (shifted,) = pipe.stage(m.fit(shifted, bits_for(low, high)), name="shifted")
        return shifted, low, high

    def _saturated(self, pipe: Pipe, value: Wire, low: int, high: int) -> Wire:
        """Add the zero point, and clamp the result."""
        m = pipe.m
        least, greatest = self.output.low, self.output.high
        low, high = low + self.zero_point, high + self.zero_point
        width = bits_for(min(low, least), max(high, greatest))
        value = m.sext(value, width) if width >= value.width else m.fit(value, width)
        if self.zero_point:
            value = m.add(value, m.const(self.zero_point, width))
            (value,) = pipe.stage(value, name="moved")
        if low < least:
            value = m.mux(m.compare("slt", value, least), m.const(least, width), value)
        if high > greatest:
            value = m.mux(m.compare("sgt", value, greatest), m.const(greatest, width), value)
        (value,) = pipe.stage(m.fit(value, self.output.width), name="result")
        return value


def _pieces(m: HdlModule, value: Wire, most: int) -> list[tuple[Wire, int]]:
    """Split a signed number into pieces that fit a hardware multiplier, each with the position of its lowest bit."""
    pieces: list[tuple[Wire, int]] = []
    at, step = 0, most - 1
    while value.width - at > most:
        pieces.append((m.zext(m.extract(value, at, step), most), at))
        at += step
    return [*pieces, (m.extract(value, at, value.width - at), at)]
