"""Products of 8-bit integers with constant weights, and their tables: reordered weights, and constants for each channel."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import i8, i32
from rlx.ir.shape import shape_of
from rlx.ops.quantization.quant_compute import QuantizedOperands
from rlx.targets.c.lower.contraction import sum_bounds
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.kernel import Channels, IndexBody, KernelWriter, stored_expression
from rlx.targets.c.lower.products import RANGES, depth_of, quads_of
from rlx.targets.c.lower.values import Affine, Index, Scalar, stored_type
from rlx.targets.c.lower.writer import Writer


def in_rows(rows: np.ndarray, *, exchanged: bool) -> np.ndarray:
    """Return rows of 8-bit weights in the layout of the kernels.

    Args:
        rows: `[rows, depth]`, i8.
        exchanged: Whether to swap bytes 1 and 2 of each four, for columns of 16-bit inputs.
    """
    quads = np.zeros((rows.shape[0], depth_of(rows.shape[1], 8)), np.int8)
    quads[:, : rows.shape[1]] = rows
    return quads.reshape(rows.shape[0], -1, 4)[..., [0, 2, 1, 3]].reshape(quads.shape) if exchanged else quads


def in_pairs(pairs: np.ndarray, bits: int) -> np.ndarray:
    """Return pairs of rows of 4-bit or 2-bit weights in the layout of the kernel for columns.

    Args:
        pairs: `[pairs, 2, depth]`, i8.
        bits: The bits of each weight.
    """
    count, _, depth = pairs.shape
    padded = np.zeros((count, 2, depth_of(depth, bits)), np.int16)
    padded[:, :, :depth] = pairs
    fields = (padded & ((1 << bits) - 1)).reshape(count, 2, -1, quads_of(bits), 4)[..., [0, 2, 1, 3]]
    shifts = bits * (np.arange(2)[:, None] + 2 * np.arange(quads_of(bits)))  # [row, quad]
    return (fields << shifts[None, :, None, :, None]).sum((1, 3)).reshape(count, -1).astype(np.uint8)


class ConstantProduct:
    """A product with constant weights.

    Attributes:
        kernel: The function.
        x: The inputs.
        rows: `[outputs, depth]`, the weights.
        bits: The bits of each weight.
        bounds: The least and greatest sum.
        channels: The constants for each output.
    """

    def __init__(
        self, kernel: KernelWriter, x: mlir.Value, rows: np.ndarray, bias: np.ndarray, zero_point: int, bounds: Any
    ):
        self.kernel, self.x, self.rows, self.bounds = kernel, x, rows, bounds
        self.bits = bits_of(rows)
        self.depth = depth_of(rows.shape[1], self.bits)
        self.channels = Channels("o", rows.shape[0])
        self.channels.fields["bias"] = bias
        self.finisher: str | None = None
        self.extra: list[str] = []

    @property
    def suffix(self) -> str:
        return f"s{self.bits}"

    @property
    def kind(self) -> str:
        """The type of the bytes of its weights."""
        return "int8_t" if self.bits == 8 else "uint8_t"

    def prepare(self, index: Index) -> bool:
        """Write the function of the epilogue. Returns False if it depends on more than channel and offset of the sum.

        Args:
            index: The index of the result, in the variables `n`, `o`, `row` and `position`. The last two are the merged axes.
        """
        kernel, group = self.kernel, self.kernel.group
        root = group.root
        assert root is not None
        writer = Writer(1)
        body = IndexBody(kernel, writer, self.channels)
        body.known[root.results[0], index] = Scalar("sum", i32, *self.bounds)
        made = body.element(group.result, index)
        for place in body.places:
            if Affine.of("row") in index and place.factor("row") != place.factor("position") * group.shape.static[-1]:
                return False
        if body.read & {"row", "position", "o", "n"}:
            return False
        result = group.shape.dtype
        writer.line(f"return {stored_expression(made, result)};")
        writer.drop_unused()
        if made.text == "sum":
            return True
        lines = [re.sub(r"\d+ \* row \+ |row \+ ", "", line) for line in writer.lines]
        text = "\n".join(lines)
        if not re.search(r"\bsum\b", text):
            text = f"    (void)sum;\n{text}"
        arguments = ["int32_t sum"]
        if "channel->" in text:
            arguments.append(f"const {kernel.program.record_kind(self.channels.fields)} *channel")
            self.extra.append("channel")
        for value in group.leaves():
            name = kernel.pointer(value)
            if re.search(rf"\b{name}\[", text):
                arguments.append(f"const {kernel.program.arena_type(shape_of(value).dtype)} *{name}")
                self.extra.append(name)
        for name in ("n", "o", "position"):
            if re.search(rf"\b{name}\b", text):
                arguments.append(f"int32_t {name}")
                self.extra.append(name)
        self.finisher = f"finish_{kernel.name}"
        w = kernel.before
        w.comment("The ops after a sum.")
        w.line(f"static inline {stored_type(result)} {self.finisher}({', '.join(arguments)})")
        w.line("{")
        w.lines += text.split("\n")
        w.line("}")
        w.line()
        return True

    def finished(self, sum_: str, channel: str, **variables: str) -> str:
        """The expression for a sum after the epilogue, as it is stored."""
        if self.finisher is None:
            return sum_
        arguments = [{"channel": channel, **variables}.get(name, name) for name in self.extra]
        return f"{self.finisher}({', '.join([sum_, *arguments])})"

    def tables(self, *, exchanged: bool) -> tuple[str, str]:
        """The names of the tables of 8-bit weights and of the constants for each channel."""
        note = f"{self.rows.shape[0]} rows of {self.rows.shape[1]} weights"
        note += ", with bytes 1 and 2 of each four exchanged" if exchanged else ""
        return self._tables(in_rows(self.rows, exchanged=exchanged), note)

    def _tables(self, rows: np.ndarray, note: str) -> tuple[str, str]:
        kernel, program = self.kernel, self.kernel.program
        weights = program.table(f"{kernel.name}_weights", rows, self.kind, note)
        return weights, program.record_table(f"{kernel.name}_channels", self.channels.fields, "")

    def paired_tables(self, groups: int) -> tuple[str, str]:
        """The same for weights of fewer bits, packed in pairs of rows. If their number is odd, the last pairs overlap."""
        count, depth = self.rows.shape
        each = count // groups
        starts = [g * each + max(0, min(p, each - 2)) for g in range(groups) for p in range(0, each, 2)]
        pairs = np.stack([np.stack([self.rows[s], self.rows[s + 1 if each > 1 else s]]) for s in starts])
        note = f"{len(starts)} pairs of rows of {depth} weights of {self.bits} bits"
        return self._tables(in_pairs(pairs, self.bits), note)

    def packed_tables(self) -> tuple[str, str]:
        """The same for packed weights, where several rows share a byte."""
        per_byte, (count, depth) = 8 // self.bits, self.rows.shape
        note = f"{count} rows of {depth} weights of {self.bits} bits, {per_byte} rows in each"
        return self._tables(joined(self.rows, self.bits), note)


def joined(rows: np.ndarray, bits: int) -> np.ndarray:
    """Return packed rows of 4-bit or 2-bit weights in the layout of the kernel for a vector.

    Args:
        rows: `[rows, depth]`, i8.
        bits: The bits of each weight.
    """
    count, depth = rows.shape
    padded = np.zeros((-(-count // 4) * 4, depth_of(depth, 8)), np.int16)
    padded[:count, :depth] = rows
    fields = (padded & ((1 << bits) - 1)).reshape(-1, 8 // bits, padded.shape[1])
    return (fields << (bits * np.arange(8 // bits))[None, :, None]).sum(1).astype(np.uint8)


def bits_of(rows: np.ndarray) -> int:
    """Return the smallest supported number of bits for all weights."""
    low, high = int(rows.min(initial=0)), int(rows.max(initial=0))
    return next(bits for bits, (least, most) in sorted(RANGES.items()) if least <= low and high <= most)


def layer_of(
    kernel: KernelWriter, operands: QuantizedOperands[mlir.Value], zeros: tuple[int, int], axis: int
) -> ConstantProduct | None:
    """Return a product if its weights are constant and its sums do not overflow, else None."""
    x, w, bias, multiplier = operands.x, operands.w, operands.bias, operands.multiplier
    weights = constant_of(w)
    known = None if bias is None else constant_of(bias)
    is_plain = x in kernel.group.leaves() and shape_of(x).dtype is i8
    if weights is None or (bias is not None and known is None) or multiplier is not None or zeros[1] or not is_plain:
        return None
    if 0 in weights.shape:
        return None
    rows = np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)
    moved = -zeros[0] * rows.sum(1, dtype=np.int64) + (0 if known is None else known.astype(np.int64))
    greatest = int((np.abs(rows.astype(np.int64)).sum(1) * 128 + np.abs(moved)).max())
    if greatest >= 2**31 or np.abs(moved).max() >= 2**31:
        return None
    bounds = sum_bounds(kernel, operands, zeros, axis)
    return ConstantProduct(kernel, x, rows, moved.astype(np.int32), zeros[0], bounds)
