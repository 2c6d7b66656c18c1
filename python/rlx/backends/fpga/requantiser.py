"""Requantisation: sums times numbers in fixed point, rounded as `requantize` does, in a pipeline of one element a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx.backends.fpga.hdl import Module, Value, bits_for
from rlx.backends.fpga.layer import Constants, Layer, Pipe, Stream
from rlx.ir.dtype import DType
from rlx.ops.quantization.requantize import BITS, RIGHTMOST, Requantize

_I32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(eq=False, repr=False)
class Requantiser(Layer):
    """The op `requantize`, with a narrower range of results where a ReLU or another clamp comes after it.

    Attributes:
        multiplier: The multipliers, in the order of the stream.
        shift: The shifts, likewise.
        zero_point: As of the op.
        mode: As of the op.
        dtype: As of the op.
        least: The least result.
        greatest: The greatest result.
        factor_bits: The widest signed factor of a hardware multiplier.
        in_logic: Whether the product is made of logic, and not of hardware multipliers.
        serial: The bits of the multiplier that are taken in a cycle, if the product takes several cycles; else 0.
    """

    multiplier: np.ndarray = field(kw_only=True)
    shift: np.ndarray = field(kw_only=True)
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
        self.shift = np.clip(self.shift.astype(np.int64), RIGHTMOST, BITS[self.mode] - 1)
        self.multiplier = self.multiplier.astype(np.int64)
        if self.mode == "short":
            self.multiplier = self.multiplier.astype(np.int16).astype(np.int64)
        pairs = np.unique(np.stack([self.multiplier, self.shift], 1), axis=0)
        self._pairs = [(int(m), int(s)) for m, s in pairs]
        low, high = self._results(x)
        clamp = (self.least, self.greatest)
        low, high = (min(max(v, clamp[0]), clamp[1]) for v in (low, high))
        self.output = Stream(x.shape, self.dtype, x.order, low, high, self)

    def clamped(self, least: int, greatest: int) -> Requantiser:
        """The same, with results clamped further."""
        least, greatest = max(self.least, least), max(min(self.greatest, greatest), max(self.least, least))
        return Requantiser(
            self.name, self.place, self.inputs, multiplier=self.multiplier, shift=self.shift,
            zero_point=self.zero_point, mode=self.mode, dtype=self.dtype, least=least, greatest=greatest,
        )  # fmt: skip

    def _results(self, x: Stream) -> tuple[int, int]:
        """The range of results, by the evaluator: rounding keeps the order of numbers, as long as nothing wraps."""
        lefts = [max(s, 0) for _, s in self._pairs] if self.mode == "double" else [0]
        if min(x.low << max(lefts), x.low) < _I32[0] or (x.high << max(lefts)) > _I32[1]:
            return int(self.dtype.min), int(self.dtype.max)
        m, s = (np.array(v) for v in zip(*self._pairs, strict=True))
        ends = [
            Requantize().evaluate(np.array(v), m, s, zero_point=self.zero_point, mode=self.mode, dtype=self.dtype)
            for v in (x.low, x.high)
        ]
        return int(np.min(ends)), int(np.max(ends))

    @property
    def interval(self) -> int:
        """The cycles from one element to the next."""
        return self._digits + 1 if self.serial else 1

    @property
    def _digits(self) -> int:
        bits = bits_for(int(self.multiplier.min()), int(self.multiplier.max()))
        return -(-bits // self.serial)

    @property
    def cycles(self) -> int:
        return self.output.count * self.interval

    @property
    def description(self) -> str:
        per = "channel" if len(self._pairs) > 1 else "tensor"
        clamp = "" if self.least == self.dtype.min and self.greatest == self.dtype.max else ", clamp"
        how = f", {self.interval} cycles each" if self.serial else ", in logic" * self.in_logic
        return f"requantise ({self.mode}, per {per}{clamp}{how})"

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        self.module  # noqa: B018 - which knows its stages once it is written
        if not self.serial:
            return arrivals[0] + self._depth
        # One after the other: elements leave no closer than the product takes.
        places = np.arange(len(arrivals[0])) * self.interval
        return np.maximum.accumulate(arrivals[0] - places) + places + self._digits + self._depth

    # --- hardware -----------------------------------------------------------------------------------------

    def write(self, m: Module) -> None:
        pipe = Pipe(m)
        (x,) = pipe.join(self.inputs)
        low, high = self.inputs[0].low, self.inputs[0].high
        lefts, rights = self._shifts()
        codes = {pair: i for i, pair in enumerate(sorted(set(zip(lefts, rights, strict=True))))}
        code_bits = max((len(codes) - 1).bit_length(), 1)
        factor_bits = bits_for(int(self.multiplier.min()), int(self.multiplier.max()))
        by_element = [codes[pair] for pair in zip(lefts, rights, strict=True)]
        columns = np.stack([self.multiplier, np.array(by_element)], 1)
        constants = Constants(columns, [factor_bits, code_bits])
        factor, code = constants.values(pipe, "scales")
        (x,) = pipe.stage(x, name="operand")
        left_of = [pair[0] for pair in codes]
        if any(left_of):
            moved = self._chosen(m, code, [m.shift_left(x, left, 32) for left in left_of])
            ends = [end << left for end in (low, high) for left in left_of]
            low, high = (min(ends), max(ends)) if _I32[0] <= min(ends) and max(ends) <= _I32[1] else _I32
            moved = m.fit(moved, bits_for(low, high))
            (x,), (factor, code) = self._staged(pipe, constants, [moved], [factor, code])
        if self.serial:
            pipe, total, code = self._serial_product(pipe, constants, x, factor, code)
        else:
            total, code = self._product(pipe, constants, x, factor, code)
        corners = [end * f for end in (low, high) for f in (int(self.multiplier.min()), int(self.multiplier.max()))]
        low, high = min(corners), max(corners)
        right_of = [pair[1] for pair in codes]
        if self.mode == "double":
            total, code = self._high_half(pipe, constants, total, code, (low, high))
            low, high = (low + (1 << 30)) >> 31, min((high + (1 << 30)) >> 31, _I32[1])
        shifted, low, high = self._rounded(pipe, constants, total, code, right_of, (low, high))
        pipe.finish(self._saturated(pipe, shifted, low, high))
        self._depth = pipe.depth

    def _shifts(self) -> tuple[list[int], list[int]]:
        """The shifts to the left before the product and those to the right at the end, for each element."""
        if self.mode == "double":
            return np.maximum(self.shift, 0).tolist(), np.maximum(-self.shift, 0).tolist()
        return [0] * len(self.shift), (BITS[self.mode] - self.shift).tolist()

    def _chosen(self, m: Module, code: Value, choices: Sequence[Value]) -> Value:
        """The choice of a number, by halves."""
        if len(choices) == 1:
            return choices[0]
        bit = max((len(choices) - 1).bit_length() - 1, 0)
        half = 1 << bit
        no = self._chosen(m, code, choices[:half])
        return m.mux(m.extract(code, bit, 1), self._chosen(m, code, choices[half:]), no)

    def _staged(
        self, pipe: Pipe, constants: Constants, values: Sequence[Value], carried: Sequence[Value], name: str = "stage"
    ) -> tuple[list[Value], list[Value]]:
        """Values, and the constants that go with them, a stage later. Constants that never change need no register."""
        if constants.are_scalar:
            return pipe.stage(*values, name=name), list(carried)
        staged = pipe.stage(*values, *carried, name=name)
        return staged[: len(values)], staged[len(values) :]

    def _product(self, pipe: Pipe, constants: Constants, x: Value, factor: Value, code: Value) -> tuple[Value, Value]:
        """The product, from pieces that fit hardware multipliers, added a stage at a time."""
        m = pipe.m
        width = x.width + factor.width
        if self.in_logic:
            rows = m.rows(x, factor)
            sums = [m.add(a, b) for a, b in zip(rows[::2], rows[1::2], strict=False)] + rows[len(rows) // 2 * 2 :]
            terms, (code,) = self._staged(pipe, constants, sums, [code], "sum")
        else:
            pieces = _pieces(m, factor, self.factor_bits)
            parts = [(a, b, at + bt) for a, at in _pieces(m, x, self.factor_bits) for b, bt in pieces]
            products, (code,) = self._staged(pipe, constants, [m.mul(a, b) for a, b, _ in parts], [code], "product")
            terms = [m.shift_left(p, at, width) for p, (_, _, at) in zip(products, parts, strict=True)]
        while len(terms) > 1:
            sums = [m.add(a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms, (code,) = self._staged(pipe, constants, sums + terms[len(sums) * 2 :], [code], "sum")
        return terms[0], code

    def _serial_product(
        self, pipe: Pipe, constants: Constants, x: Value, factor: Value, code: Value
    ) -> tuple[Pipe, Value, Value]:
        """The product, some bits of the factor in a cycle; a pipeline after it, the product and the code in it."""
        m, step, digits = pipe.m, self.serial, self._digits
        after = Pipe(m)
        busy, full = m.register("multiplies", 1), m.register("multiplied", 1)
        room = m.all(m.invert(busy.value), m.any(m.invert(full.value), after.advance))
        pipe.close(room)
        take = m.all(pipe.valid, room)
        _, last = m.counter("digit", digits, busy.value)
        busy.set(m.any(take, m.all(busy.value, m.invert(last))), reset=0)
        read = m.all(full.value, after.advance)
        full.set(m.any(m.all(busy.value, last), m.all(full.value, m.invert(read))), reset=0)
        held = m.delayed(x, "multiplicand", take)
        kept = code if constants.are_scalar else m.delayed(code, "multiplier_code", take)
        width = x.width + step + 1
        total = m.register("partial", x.width + 1)
        # The digits that are done leave the factor at its lower end, and those of the product come in at the upper one.
        bits = m.register("factor", digits * step)
        rows = []
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

    def _high_half(
        self, pipe: Pipe, constants: Constants, total: Value, code: Value, interval: tuple[int, int]
    ) -> tuple[Value, Value]:
        """`min((total + 2^30) >> 31, 2^31 - 1)`."""
        m = pipe.m
        width = max(total.width, 32) + 1
        rounded = m.add(m.sext(total, width), m.const(1 << 30, width))
        (high,), (code,) = self._staged(pipe, constants, [m.shift_right(rounded, 31)], [code], "high")
        if (interval[1] + (1 << 30)) >> 31 > _I32[1]:
            limit = m.const(_I32[1], high.width)
            high = m.mux(m.compare("sgt", high, limit), limit, high)
        return high, code

    def _rounded(
        self,
        pipe: Pipe,
        constants: Constants,
        total: Value,
        code: Value,
        rights: Sequence[int],
        interval: tuple[int, int],
    ) -> tuple[Value, int, int]:
        """`(total + half) >> right`; where `mode` is `double`, ties of negative numbers go down."""
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
            # half - 1 where the number is negative
            half = m.sub(half, m.zext(m.all(sign, rounds), width))
            (half, total), (code,) = self._staged(pipe, constants, [half, total], [code], "half")
        (total,), (code,) = self._staged(pipe, constants, [m.add(total, half)], [code], "rounded")
        shifted = self._chosen(m, code, [m.fit(m.shift_right(total, right), width) for right in rights])
        ends = [(end + h) >> r for end in (low - 1, high) for h, r in zip(halves, rights, strict=True)]
        low, high = min(ends), max(ends)
        (shifted,) = pipe.stage(m.fit(shifted, bits_for(low, high)), name="shifted")
        return shifted, low, high

    def _saturated(self, pipe: Pipe, value: Value, low: int, high: int) -> Value:
        """The zero point added, and the result clamped."""
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


def _pieces(m: Module, value: Value, most: int) -> list[tuple[Value, int]]:
    """A signed number as pieces that a hardware multiplier takes, and the place of the lowest bit of each."""
    pieces, at, step = [], 0, most - 1
    while value.width - at > most:
        pieces.append((m.zext(m.extract(value, at, step), most), at))
        at += step
    return [*pieces, (m.extract(value, at, value.width - at), at)]
