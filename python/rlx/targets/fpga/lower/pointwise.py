"""Elementwise layers: arithmetic with constants and between streams, tables, conversions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.targets.fpga.lower.hdl import HdlModule, Wire, bits_for, index_bits
from rlx.targets.fpga.lower.layer import ConstantStream, Pipe, Stream, StreamLayer, dtype_range

# Each op on Python integers. It is applied to the ends of intervals to bound the result.
_EXACT: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": max,
    "min": min,
    "neg": operator.neg,
    "abs": abs,
    "relu": partial(max, 0),
    "shift_left": int.__lshift__,
    "shift_right": int.__rshift__,
    "cast": int,
}
BITWISE = ("and", "or", "xor")
SHIFTS = ("shift_left", "shift_right")
COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
KINDS = (*_EXACT, *BITWISE, *COMPARISONS, "where", "truth")
BINARY = ("add", "sub", "mul", "max", "min", *BITWISE)
UNARY = ("neg", "abs", "relu")


def interval_of(kind: str, intervals: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the least and the greatest result of an op before it wraps to a dtype."""
    if kind in COMPARISONS or kind == "truth":
        return 0, 1
    if kind == "where":
        return min(low for low, _ in intervals[1:]), max(high for _, high in intervals[1:])
    if kind in BITWISE:
        # Bitwise ops on non-negative numbers are non-negative, and an `and` is at most the smaller operand.
        signed = any(low < 0 for low, _ in intervals)
        ones = (1 << (max(bits_for(*i) for i in intervals) - 1)) - 1
        greatest = min(high for _, high in intervals) if kind == "and" and not signed else ones
        return (-ones - 1 if signed else 0), greatest
    corners = [_EXACT[kind](*corner) for corner in product(*intervals)]
    if kind == "abs" and intervals[0][0] <= 0 <= intervals[0][1]:
        corners.append(0)
    return min(corners), max(corners)


@dataclass(eq=False, repr=False)
class Pointwise(StreamLayer):
    """An elementwise op on integers that wrap to its dtype.

    Attributes:
        kind: One of `KINDS`.
        dtype: The dtype of the result.
        constants: The constant operands in stream order, by index of the operand.
    """

    kind: str = ""
    dtype: DType = field(kw_only=True)
    constants: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])

    def __post_init__(self) -> None:
        intervals = [self._interval(i) for i in range(len(self.inputs) + len(self.constants))]
        low, high = interval_of(self.kind, intervals)
        least, greatest = dtype_range(self.dtype)
        self._wraps = low < least or high > greatest
        if self._wraps:
            low, high = least, greatest
        first = self.inputs[0]
        self.output = Stream(first.shape, self.dtype, first.order, low, high, self)

    def _interval(self, position: int) -> tuple[int, int]:
        if position in self.constants:
            values = self.constants[position]
            return int(values.min()), int(values.max())
        stream = self.inputs[self._input_index(position)]
        return stream.low, stream.high

    def _input_index(self, position: int) -> int:
        return sum(i not in self.constants for i in range(position))

    @property
    def description(self) -> str:
        return self.kind

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        return np.maximum.reduce(arrivals) + self._depth

    def write(self, m: HdlModule) -> None:
        pipe = Pipe(m)
        data = pipe.join(self.inputs)
        operands: list[Wire] = []
        if self.constants:
            columns = np.stack([self.constants[i] for i in sorted(self.constants)], 1)
            widths = [bits_for(*self._interval(i)) for i in sorted(self.constants)]
            constants = ConstantStream(columns, widths)
            values = iter(constants.values(pipe))
            if not constants.are_scalar:
                data = pipe.stage(*data, name="operand")
        else:
            values = iter(())
        streams = iter(data)
        for i in range(len(self.inputs) + len(self.constants)):
            operands.append(next(values) if i in self.constants else next(streams))
        if self.kind == "mul" and not pipe.depth:
            names = [i for i in range(len(operands)) if i not in self.constants]
            staged = iter(pipe.stage(*(operands[i] for i in names), name="operand"))
            operands = [next(staged) if i in names else v for i, v in enumerate(operands)]
        result = self._result(m, operands)
        if self._wraps:
            bits = 1 if self.dtype.is_bool else 8 * self.dtype.itemsize
            result = m.fit(result, bits)
            if dtype_range(self.dtype)[0] == 0:
                result = m.zext(result, bits + 1)
        (result,) = pipe.stage(m.fit(result, self.output.width), name="result")
        pipe.finish(result)
        self.__dict__["_stages"] = pipe.depth

    @property
    def _depth(self) -> int:
        self.module  # noqa: B018 - the number of stages is known once the module is written
        return self.__dict__["_stages"]

    def _result(self, m: HdlModule, operands: Sequence[Wire]) -> Wire:
        intervals = [self._interval(i) for i in range(len(operands))]
        if self.kind == "mul":
            return m.mul(*operands)
        if self.kind in BITWISE:
            return m.bitwise(self.kind, *_alike(m, operands))
        if self.kind in SHIFTS:
            count = self._interval(1)[0]
            x = operands[0]
            return m.shift_left(x, count, x.width + count) if self.kind == "shift_left" else m.shift_right(x, count)
        if self.kind in COMPARISONS:
            left, right = _alike(m, operands)
            return m.zext(m.compare(COMPARISONS[self.kind], left, right), 2)
        if self.kind == "truth":
            return m.zext(m.compare("ne", operands[0], 0), 2)
        if self.kind == "where":
            yes, no = _alike(m, operands[1:])
            return m.mux(m.compare("ne", operands[0], 0), yes, no)
        if self.kind in ("max", "min"):
            left, right = _alike(m, operands)
            takes_left = m.compare("sgt" if self.kind == "max" else "slt", left, right)
            return m.mux(takes_left, left, right)
        width = bits_for(*interval_of(self.kind, intervals))
        width = max(width, *(v.width for v in operands)) if len(operands) > 1 else max(width, operands[0].width + 1)
        values = [m.sext(v, width) for v in operands]
        if self.kind == "add":
            return m.add(*values)
        if self.kind == "sub":
            return m.sub(*values)
        (x,) = values
        zero = m.const(0, width)
        negative = m.compare("slt", x, 0)
        if self.kind == "neg":
            return m.sub(zero, x)
        if self.kind == "abs":
            return m.mux(negative, m.sub(zero, x), x)
        return m.mux(negative, zero, x) if self.kind == "relu" else x


def _alike(m: HdlModule, values: Sequence[Wire]) -> list[Wire]:
    """Sign-extend numbers to a common width."""
    width = max(v.width for v in values)
    return [m.sext(v, width) for v in values]


@dataclass(eq=False, repr=False)
class TableLayer(StreamLayer):
    """`table[clamp(x)]`, from a read-only memory.

    Attributes:
        table: The entries for 0, 1, …
        dtype: The dtype of the entries.
    """

    table: np.ndarray = field(kw_only=True)
    dtype: DType = field(kw_only=True)

    def __post_init__(self) -> None:
        x = self.inputs[0]
        last = len(self.table) - 1
        self._first, self._last = (int(np.clip(v, 0, last)) for v in (x.low, x.high))
        entries = self.table[self._first : self._last + 1]
        self.output = Stream(x.shape, self.dtype, x.order, int(entries.min()), int(entries.max()), self)

    @property
    def description(self) -> str:
        return f"table of {len(self.table)}"

    def times(self, arrivals: Sequence[np.ndarray]) -> np.ndarray:
        return arrivals[0] + 2

    def write(self, m: HdlModule) -> None:
        x = self.inputs[0]
        pipe = Pipe(m)
        (data,) = pipe.join(self.inputs)
        if x.low < self._first:
            data = m.mux(m.compare("slt", data, self._first), m.const(self._first, data.width), data)
        if x.high > self._last:
            data = m.mux(m.compare("sgt", data, self._last), m.const(self._last, data.width), data)
        entries = [int(v) for v in self.table[self._first : self._last + 1]]
        width = index_bits(len(entries))
        place = m.fit(m.sub(m.sext(data, data.width + 1), m.const(self._first, data.width + 1)), width)
        (place,) = pipe.stage(place, name="place")
        entry = m.read_only("table", entries, self.output.width, place, pipe.reads)
        pipe.next_stage()
        pipe.finish(entry)
