"""Products of 8-bit integers with constant weights, with all that follows each sum: scaling, clamping, tables, additions.

A convolution copies the inputs of two positions into columns of 16-bit numbers, and multiplies two rows of weights with both. A
product with a matrix takes four rows at a time. Zero points of inputs are part of the bias.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, i8, i32
from rlx.ir.shape import Shape, shape_of
from rlx.lower.c.contraction import plain_conv, plain_matmul, sum_bounds
from rlx.lower.c.grouping import Group, constant_of
from rlx.lower.c.kernel import Body, Channels, Kernel, stored
from rlx.lower.c.products import RANGES, depth_of, quads_of
from rlx.lower.c.rules import loops
from rlx.lower.c.values import Affine, Index, Scalar, stored_type
from rlx.lower.c.writer import Writer


def in_rows(rows: np.ndarray, *, exchanged: bool) -> np.ndarray:
    """Rows of weights of 8 bits as the kernels read them.

    Args:
        rows: `[rows, depth]`, i8.
        exchanged: Whether bytes 1 and 2 of each four change places: for columns of 16-bit inputs.
    """
    quads = np.zeros((rows.shape[0], depth_of(rows.shape[1], 8)), np.int8)
    quads[:, : rows.shape[1]] = rows
    return quads.reshape(rows.shape[0], -1, 4)[..., [0, 2, 1, 3]].reshape(quads.shape) if exchanged else quads


def in_pairs(pairs: np.ndarray, bits: int) -> np.ndarray:
    """Pairs of rows of weights of 4 or 2 bits as the kernel for columns reads them, without signs.

    Args:
        pairs: `[pairs, 2, depth]`, i8.
        bits: Of each weight.
    """
    count, _, depth = pairs.shape
    padded = np.zeros((count, 2, depth_of(depth, bits)), np.int16)
    padded[:, :, :depth] = pairs
    fields = (padded - RANGES[bits][0]).reshape(count, 2, -1, quads_of(bits), 4)[..., [0, 2, 1, 3]]
    shifts = bits * (np.arange(2)[:, None] + 2 * np.arange(quads_of(bits)))  # row by row, and quad by quad
    return (fields << shifts[None, :, None, :, None]).sum((1, 3)).reshape(count, -1).astype(np.uint8)


class Layer:
    """What is known of a product with constant weights.

    Attributes:
        kernel: The function.
        x: The inputs.
        rows: `[outputs, depth]`, the weights.
        bits: Of each weight.
        bounds: The least and greatest sum.
        channels: What is known for each output.
    """

    def __init__(self, kernel: Kernel, x: mlir.Value, rows: np.ndarray, bias: np.ndarray, zero_point: int, bounds: Any):
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
        """Write the function of what follows a sum, unless it needs to know more than the channel and the place of it.

        Args:
            index: Of the result, in the variables `n`, `o`, `row` and `position`; the last two are of the axes that are one.
        """
        kernel, group = self.kernel, self.kernel.group
        root = group.root
        assert root is not None
        writer = Writer(1)
        body = Body(kernel, writer, self.channels)
        body.known[root.results[0], index] = Scalar("sum", i32, *self.bounds)
        made = body.element(group.result, index)
        for place in body.places:
            if Affine.of("row") in index and place.factor("row") != place.factor("position") * group.shape.static[-1]:
                return False
        if body.read & {"row", "position", "o", "n"}:
            return False
        result = group.shape.dtype
        writer.line(f"return {stored(made, result)};")
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
        w.comment("What follows a sum.")
        w.line(f"static inline {stored_type(result)} {self.finisher}({', '.join(arguments)})")
        w.line("{")
        w.lines += text.split("\n")
        w.line("}")
        w.line()
        return True

    def finished(self, sum_: str, channel: str, **variables: str) -> str:
        """A sum with all that follows, as it is stored."""
        if self.finisher is None:
            return sum_
        arguments = [{"channel": channel, **variables}.get(name, name) for name in self.extra]
        return f"{self.finisher}({', '.join([sum_, *arguments])})"

    def tables(self, *, exchanged: bool) -> tuple[str, str]:
        """The names of the weights, of 8 bits, and of what is known for each channel."""
        note = f"{self.rows.shape[0]} rows of {self.rows.shape[1]} weights"
        note += ", with bytes 1 and 2 of each four exchanged" if exchanged else ""
        return self._tables(in_rows(self.rows, exchanged=exchanged), note)

    def _tables(self, rows: np.ndarray, note: str) -> tuple[str, str]:
        kernel, program = self.kernel, self.kernel.program
        weights = program.table(f"{kernel.name}_weights", rows, self.kind, note)
        return weights, program.record_table(f"{kernel.name}_channels", self.channels.fields, "")

    def paired_tables(self, groups: int) -> tuple[str, str]:
        """The same for weights of fewer bits, those of two rows in one; of an odd number, the last pairs overlap."""
        count, depth = self.rows.shape
        each = count // groups
        starts = [g * each + max(0, min(p, each - 2)) for g in range(groups) for p in range(0, each, 2)]
        pairs = np.stack([np.stack([self.rows[s], self.rows[s + 1 if each > 1 else s]]) for s in starts])
        note = f"{len(starts)} pairs of rows of {depth} weights of {self.bits} bits"
        note += f"; all weights are {-RANGES[self.bits][0]} too large"
        return self._tables(in_pairs(pairs, self.bits), note)

    def packed_tables(self) -> tuple[str, str]:
        """The same for weights of which those of several rows share a byte."""
        per_byte, (count, depth) = 8 // self.bits, self.rows.shape
        note = f"{count} rows of {depth} weights of {self.bits} bits, {per_byte} rows in each"
        note += f"; all weights are {-RANGES[self.bits][0]} too large"
        return self._tables(joined(self.rows, self.bits), note)


def joined(rows: np.ndarray, bits: int) -> np.ndarray:
    """Rows of weights of 4 or 2 bits as the kernel for a vector reads them: several in one, without signs.

    Args:
        rows: `[rows, depth]`, i8.
        bits: Of each weight.
    """
    count, depth = rows.shape
    padded = np.zeros((-(-count // 4) * 4, depth_of(depth, 8)), np.int16)
    padded[:count, :depth] = rows
    fields = (padded - RANGES[bits][0]).reshape(-1, 8 // bits, padded.shape[1])
    return (fields << (bits * np.arange(8 // bits))[None, :, None]).sum(1).astype(np.uint8)


def bits_of(rows: np.ndarray) -> int:
    """The least number of bits for all weights."""
    low, high = int(rows.min(initial=0)), int(rows.max(initial=0))
    return next(bits for bits, (least, most) in sorted(RANGES.items()) if least <= low and high <= most)


def layer_of(
    kernel: Kernel,
    x: mlir.Value,
    w: mlir.Value,
    bias: mlir.Value | None,
    multiplier: mlir.Value | None,
    zeros: tuple[int, int],
    axis: int,
) -> Layer | None:
    """A product whose weights are constants and whose sums fit; None for any other."""
    weights = constant_of(w)
    known = None if bias is None else constant_of(bias)
    is_plain = x in kernel.group.leaves() and shape_of(x).dtype is i8
    if weights is None or (bias is not None and known is None) or multiplier is not None or zeros[1] or not is_plain:
        return None
    if 0 in weights.shape:
        return None
    rows = np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)
    moved = -zeros[0] * rows.sum(1, dtype=np.int64) + (0 if known is None else known.astype(np.int64))
    # All that may happen on the way: products of 128, the bias, and sums that are as many times as large as weights are moved.
    if rows.shape[1] * 128 * (256 if bits_of(rows) == 8 else 32) >= 2**30:
        return None
    greatest = int((np.abs(rows.astype(np.int64)).sum(1) * 128 * (256 >> bits_of(rows)) + np.abs(moved)).max())
    if greatest >= 2**31 or np.abs(moved).max() >= 2**31:
        return None
    bounds = sum_bounds(kernel, x, w, bias, zeros, axis)
    return Layer(kernel, x, rows, moved.astype(np.int32), zeros[0], bounds)


# --- convolutions -------------------------------------------------------------------------------------------


def _scratch(
    group: Group,
    result: Shape,
    x: mlir.Value,
    w: mlir.Value,
    bias: mlir.Value | None,
    multiplier: mlir.Value | None,
    *,
    groups: int,
    **_: Any,
) -> int:
    """Two columns of 16-bit inputs."""
    weights = constant_of(w)
    if weights is None or multiplier is not None or 0 in weights.shape or weights.shape[0] == groups:
        return 0
    return 4 * depth_of(prod(weights.shape[1:]), bits_of(weights))


@loops("q_conv2d", scratch=_scratch)
def q_conv2d(
    kernel: Kernel,
    result: Shape,
    x: mlir.Value,
    w: mlir.Value,
    bias: mlir.Value | None,
    multiplier: mlir.Value | None,
    *,
    x_zero_point: int,
    w_zero_point: int,
    out_zero_point: int,
    dtype: DType,
    groups: int,
    **geometry: Any,
) -> None:
    zeros = (x_zero_point, w_zero_point)
    is_depthwise = shape_of(w).static[0] == groups
    layer = None if is_depthwise else layer_of(kernel, x, w, bias, multiplier, zeros, 0)
    index = _index(result)
    if layer is None or 0 in result.static or not layer.prepare(index):
        plain_conv(kernel, result, x, w, bias, multiplier, zeros, out_zero_point, dtype, groups=groups, **geometry)
        return
    _Conv(layer, result, shape_of(w), groups, x_zero_point, **geometry).write()


def _index(result: Shape) -> Index:
    """An index of the result in the variables of the loops. An axis of one element has none."""
    images, outputs, height, width = result.static
    names = ["n", "o", "row", "position"] if width > 1 else ["n", "o", "position", ""]
    sizes = (images, outputs, height, width)
    return tuple(Affine.of(name) if d > 1 else Affine() for name, d in zip(names, sizes, strict=True))


class _Conv:
    """Writes a convolution."""

    def __init__(
        self, layer: Layer, result: Shape, w: Shape, groups: int, zero: int, *, stride: Any, padding: Any, dilation: Any
    ):
        self.layer, self.kernel, self.result = layer, layer.kernel, result
        self.w, self.groups, self.zero = w.static, groups, zero
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.x_dims = shape_of(layer.x).static
        self.name = self.kernel.pointer(layer.x)

    @property
    def _is_pointwise(self) -> bool:
        return self.w[2:] == (1, 1) and tuple(self.stride) == (1, 1) and not any(self.padding)

    def write(self) -> None:
        """Loops over images, groups and pairs of positions."""
        kernel, layer = self.kernel, self.layer
        kernel.uses_scratch = True
        w = kernel.writer
        self._gather()
        images, outputs, height, width = self.result.static
        positions, per_group = height * width, outputs // self.groups
        is_packed = layer.bits < 8
        weights, channels = layer.paired_tables(self.groups) if is_packed else layer.tables(exchanged=True)
        function = kernel.program.need(f"multiply_2x2_{layer.suffix}")
        w.line("int16_t *const columns = (int16_t *)(void *)scratch; /* the inputs of two positions */")
        y = kernel.pointer(kernel.group.result)
        with _Loops(w) as nest:
            nest.loop("n", images)
            nest.loop("group", self.groups)
            nest.pairs("position", positions)
            second = nest.second("position", positions)
            if self.groups > 1 or images > 1:
                place = " + ".join(
                    [
                        *([f"n * {prod(self.x_dims[1:])}"] if images > 1 else []),
                        *([f"group * {self.w[1] * self.x_dims[2] * self.x_dims[3]}"] if self.groups > 1 else []),
                    ]
                )
                w.line(f"gather_{kernel.name}({self.name} + {place}, position, {second}, columns);")
            else:
                w.line(f"gather_{kernel.name}({self.name}, position, {second}, columns);")
            kind = kernel.program.record_kind(layer.channels.fields)
            if is_packed:
                excess, sum_of = -RANGES[layer.bits][0], kernel.need("sum_of_column")
                w.line(f"/* Weights are {excess} too large. */")
                for number, column in enumerate(("columns", f"columns + {layer.depth}")):
                    w.line(f"const int32_t excess_{number} = {excess} * {sum_of}({column}, {layer.depth});")
            # Pointers that advance take fewer instructions than an index.
            advances = self.groups == 1 and per_group % 2 == 0 and per_group > 2
            if advances:
                w.line(f"const {layer.kind} *rows = {weights}[0];")
                w.line(f"const {kind} *channel = {channels};")
            row = self._row(nest, w, per_group)
            if not advances:
                w.line(f"const {kind} *const channel = &{channels}[{row}];")
            biases = ["channel->bias", "channel[1].bias" if per_group > 1 else "channel->bias"]
            less = [" - excess_0", " - excess_1"] if is_packed else ["", ""]
            w.line(f"int32_t sums[4] = {{{', '.join(bias + by for bias in biases for by in less)}}};")
            stride = layer.depth if per_group > 1 else 0
            if is_packed:
                stride = layer.depth // quads_of(layer.bits) // 2  # of two rows
                at = self._pair(per_group)
                w.line(f"{function}({'rows' if advances else f'{weights}[{at}]'}, columns, {layer.depth}, sums);")
            else:
                rows = "rows" if advances else f"{weights}[{row}]"
                w.line(f"{function}({rows}, {stride}, columns, {layer.depth}, sums);")
            base = f"{outputs * positions} * n + " if images > 1 else ""
            for number in range(min(2, per_group)):
                for column, position in enumerate(dict.fromkeys(("position", second))):
                    at = f"{row} + {number}" if number else row
                    channel = "channel + 1" if number else "channel"
                    value = layer.finished(f"sums[{2 * number + column}]", channel, n="n", o=at, position=position)
                    place = f"{base}{positions} * {f'({at})' if number else at} + {position}"
                    w.line(f"{y}[{place}] = {value};")
            if advances:
                w.line(f"rows += {2 * stride};")
                w.line("channel += 2;")

    def _pair(self, per_group: int) -> str:
        """The number of a pair of rows of weights."""
        pairs = -(-per_group // 2)
        first = f"{pairs} * group" if self.groups > 1 else ""
        loop = "o" if self.groups == 1 and per_group % 2 == 0 else "pair"
        return " + ".join(p for p in (first, f"{loop} / 2" if per_group > 2 else "") if p) or "0"

    def _row(self, nest: _Loops, w: Writer, per_group: int) -> str:
        """A loop over pairs of rows of weights; of an odd number, the last pair has one that was there before."""
        if per_group <= 2 and self.groups == 1:
            w.line("const int32_t o = 0;")
            return "o"
        if per_group <= 2:
            w.line(f"const int32_t o = {per_group} * group;")
            return "o"
        start = f"{per_group} * group + " if self.groups > 1 else ""
        if per_group % 2 == 0 and not start:
            nest.loop("o", per_group, 2)
            return "o"
        nest.loop("pair", per_group, 2)
        row = "pair" if per_group % 2 == 0 else f"((pair < {per_group - 2}) ? pair : {per_group - 2})"
        w.line(f"const int32_t o = {start}{row};{' /* the last pairs overlap */' if per_group % 2 else ''}")
        return "o"

    def _gather(self) -> None:
        """The function that copies the inputs of two positions into columns."""
        w, name, layer = self.kernel.before, self.kernel.name, self.layer
        depth, count = layer.depth, layer.rows.shape[1]
        padded = any(self.padding)
        if padded:
            self._gather_one()
            w.line(
                f"static inline void gather_{name}(const int8_t *x, int32_t first, int32_t second, int16_t *columns)"
            )
            w.line("{")
            w.depth += 1
            w.line(f"gather_one_{name}(x, first, columns);")
            w.line(f"gather_one_{name}(x, second, columns + {depth});")
            w.depth -= 1
            w.line("}")
            w.line()
            return
        w.comment("Copy the inputs of two positions into columns.")
        w.line(f"static inline void gather_{name}(const int8_t *x, int32_t first, int32_t second, int16_t *columns)")
        w.line("{")
        w.depth += 1
        for variable, position in (("a", "first"), ("b", "second")):
            w.line(f"const int8_t *{variable} = x + {self._corner(position)};")
        is_paired = self._is_pointwise and prod(self.result.static[2:]) % 2 == 0 and self.w[1] % 2 == 0
        if is_paired:
            self._gather_pairs()
        w.line("int32_t k = 0;")
        with _Loops(w) as nest:
            nest.loop("c", self.w[1])
            nest.loop("ky", self.w[2])
            nest.loop("kx", self.w[3])
            place = self._tap()
            for variable, at in (("a", "k"), ("b", f"{depth} + k")):
                w.line(f"columns[{at}] = {variable}[{place}];")
            w.line("k++;")
        if is_paired:
            w.lines.append("#endif")
        self._tail(w, ["k", f"{depth} + k"], depth - count)
        w.depth -= 1
        w.line("}")
        w.line()

    def _gather_pairs(self) -> None:
        """Two inputs of two channels at once, where the core has the instructions."""
        w, depth, plane = self.kernel.before, self.layer.depth, self.x_dims[2] * self.x_dims[3]
        self.kernel.need("halves_at")
        w.lines.append("#if defined(__ARM_FEATURE_DSP)")
        w.line("int32_t k = 0;")
        w.line("(void)b; /* follows a */")
        with _Loops(w) as nest:
            nest.loop("c", self.w[1], 2)
            c = "c" if self.w[1] > 2 else "0"
            w.line(f"const uint32_t four = halves_at(a + {plane} * {c}, a + {plane} * {c} + {plane});")
            w.line("put_pair(columns + k, __sxtb16((int8x4_t)four));")
            w.line(f"put_pair(columns + {depth} + k, __sxtb16((int8x4_t)__ror(four, 8u)));")
            w.line("k += 2;")
        w.lines.append("#else")

    def _tap(self) -> str:
        """The place of a tap, from the first of its window."""
        (_, _, height, width), (dy, dx) = self.x_dims, self.dilation
        steps = (("c", height * width, self.w[1]), ("ky", dy * width, self.w[2]), ("kx", dx, self.w[3]))
        place = Affine()
        for variable, step, count in steps:
            if count > 1:
                place = place + Affine.of(variable) * step
        return str(place)

    def _corner(self, position: str) -> str:
        """The place of the first input of a position."""
        if self._is_pointwise:
            return position
        width, (sy, sx) = self.result.static[3], self.stride
        return f"{position} / {width} * {sy * self.x_dims[3]} + {position} % {width} * {sx}"

    def _tail(self, w: Writer, places: list[str], count: int) -> None:
        """Zeros up to the end of the rows of weights, which are zeros there, too."""
        if not count:
            return
        with w.block(f"for (; k < {self.layer.depth}; k++)"):
            for place in places:
                w.line(f"columns[{place}] = 0;")

    def _gather_one(self) -> None:
        """The function that copies the inputs of one position, with padding."""
        w, name = self.kernel.before, self.kernel.name
        (_, _, height, width), (sy, sx) = self.x_dims, self.stride
        out_width = self.result.static[3]
        spans = [(k - 1) * d + 1 for k, d in zip(self.w[2:], self.dilation, strict=True)]
        w.comment("Copy the inputs of a position into a column; outside of the image they are the zero point.")
        w.line(f"static inline void gather_one_{name}(const int8_t *x, int32_t position, int16_t *columns)")
        w.line("{")
        w.depth += 1
        w.line(f"const int32_t top = position / {out_width} * {sy} - {self.padding[0]};")
        w.line(f"const int32_t left = position % {out_width} * {sx} - {self.padding[2]};")
        w.line("int32_t k = 0;")
        last = [d - s for d, s in zip((height, width), spans, strict=True)]
        if min(last) < 0:  # every window reaches beyond the image
            with w.block(""):
                self._checked_taps(w)
        else:
            inside = f"(top >= 0) && (top <= {last[0]}) && (left >= 0) && (left <= {last[1]})"
            with w.block(f"if ({inside})"):
                w.line(f"const int8_t *const window = x + top * {width} + left;")
                with _Loops(w) as nest:
                    nest.loop("c", self.w[1])
                    nest.loop("ky", self.w[2])
                    nest.loop("kx", self.w[3])
                    w.line(f"columns[k] = window[{self._tap()}];")
                    w.line("k++;")
            with w.block("else"):
                self._checked_taps(w)
        self._tail(w, ["k"], self.layer.depth - self.layer.rows.shape[1])
        w.depth -= 1
        w.line("}")
        w.line()

    def _checked_taps(self, w: Writer) -> None:
        """Loops over a window that may reach beyond the image."""
        (_, _, height, width), (dy, dx) = self.x_dims, self.dilation
        with _Loops(w) as nest:
            nest.loop("c", self.w[1])
            nest.loop("ky", self.w[2])
            ky = ("ky" if dy == 1 else f"{dy} * ky") if self.w[2] > 1 else "0"
            w.line(f"const int32_t y = top + {ky};" if ky != "0" else "const int32_t y = top;")
            nest.loop("kx", self.w[3])
            kx = ("kx" if dx == 1 else f"{dx} * kx") if self.w[3] > 1 else "0"
            w.line(f"const int32_t column = left + {kx};" if kx != "0" else "const int32_t column = left;")
            test = f"(y >= 0) && (y < {height}) && (column >= 0) && (column < {width})"
            c = f"{height * width} * c + " if self.w[1] > 1 else ""
            w.line(f"columns[k] = ({test}) ? x[{c}{width} * y + column] : {self.zero};")
            w.line("k++;")


class _Loops:
    """Loops in each other, which end together."""

    def __init__(self, writer: Writer):
        self.writer = writer
        self.open = 0

    def __enter__(self) -> _Loops:
        return self

    def __exit__(self, *problem: object) -> None:
        for _ in range(self.open):
            self.writer.depth -= 1
            self.writer.line("}")

    def loop(self, variable: str, count: int, step: int = 1) -> None:
        """A loop, unless it would run once."""
        if count <= 1:
            return
        advance = f"{variable}++" if step == 1 else f"{variable} += {step}"
        self.writer.line(f"for (int32_t {variable} = 0; {variable} < {count}; {advance}) {{")
        self.writer.depth += 1
        self.open += 1

    def once(self, line: str) -> None:
        """A block that begins with a line."""
        self.writer.line("{")
        self.writer.depth += 1
        self.open += 1
        self.writer.line(line)

    def pairs(self, variable: str, count: int) -> None:
        """A loop by two; where it would run once, the variable is 0."""
        if count <= 2:
            self.once(f"const int32_t {variable} = 0;")
            return
        self.loop(variable, count, 2)

    def second(self, variable: str, count: int) -> str:
        """The other number of a pair; the last pair of an odd count is one number twice."""
        if count == 1:
            return variable
        if count % 2 == 0:
            return f"{variable} + 1"
        name = f"next_{variable}"
        self.writer.line(f"const int32_t {name} = ({variable} + 1 < {count}) ? {variable} + 1 : {variable};")
        return name


# --- products with a matrix -----------------------------------------------------------------------------------


@loops("q_matmul")
def q_matmul(
    kernel: Kernel,
    result: Shape,
    x: mlir.Value,
    w: mlir.Value,
    bias: mlir.Value | None,
    multiplier: mlir.Value | None,
    *,
    x_zero_point: int,
    w_zero_point: int,
    out_zero_point: int,
    dtype: DType,
) -> None:
    zeros = (x_zero_point, w_zero_point)
    layer = layer_of(kernel, x, w, bias, multiplier, zeros, 1)
    rows = prod(result.static[:-1])
    index = (
        *(Affine() for _ in result.static[:-2]),
        Affine.of("n") if rows > 1 else Affine(),
        Affine.of("o") if result.static[-1] > 1 else Affine(),
    )
    is_matrix = prod(result.static[:-2]) == 1
    if layer is None or 0 in result.static or not is_matrix or not layer.prepare(index):
        plain_matmul(kernel, result, x, w, bias, multiplier, zeros, out_zero_point, dtype)
        return
    _write_matmul(layer, rows, result.static[-1])


def _write_matmul(layer: Layer, rows: int, outputs: int) -> None:
    kernel, w = layer.kernel, layer.kernel.writer
    depth, is_packed = layer.rows.shape[1], layer.bits < 8
    weights, channels = layer.packed_tables() if is_packed else layer.tables(exchanged=False)
    x, y = kernel.pointer(layer.x), kernel.pointer(kernel.group.result)
    kind = kernel.program.record_kind(layer.channels.fields)
    inputs = f"{x} + n * {depth}" if rows > 1 else x
    base = f"{outputs} * n + " if rows > 1 else ""

    def block(count: int, start: str) -> None:
        """Four rows, of which so many are outputs."""
        w.line(f"const {kind} *const channel = &{channels}[{start}];")
        first = [f"channel[{i}].bias{' - excess' if is_packed else ''}" if i < count else "0" for i in range(4)]
        w.line(f"int32_t sums[4] = {{{', '.join(first)}}};")
        row = f"{weights}[{start} / {8 // layer.bits}]" if is_packed else f"{weights}[{start}]"
        stride = depth_of(depth, 8)
        function = kernel.program.need(f"multiply_4x1_{layer.suffix}")
        w.line(f"{function}({row}, {stride}, {inputs}, {depth}, sums);")
        for i in range(count):
            at = f"{start} + {i}" if i else start
            value = layer.finished(f"sums[{i}]", f"channel + {i}" if i else "channel", n="n", o=at)
            w.line(f"{y}[{base}{at}] = {value};")

    with _Loops(w) as nest:
        nest.loop("n", rows)
        if is_packed:
            total = kernel.program.need("sum_of_inputs")
            excess = -RANGES[layer.bits][0]
            w.line(
                f"const int32_t excess = {excess} * {total}({inputs}, {depth}); /* weights are {excess} too large */"
            )
            whole = outputs // 4 * 4
            if whole:
                with _Loops(w) as blocks:
                    blocks.loop("o", whole, 4) if whole > 4 else blocks.once("const int32_t o = 0;")
                    block(4, "o")
            if outputs > whole:
                with _Loops(w) as last:
                    last.once(f"const int32_t o = {whole}; /* the last rows */")
                    block(outputs - whole, "o")
            return
        if outputs < 4:
            function = kernel.program.need(f"multiply_1x1_{layer.suffix}")
            with w.loop("o", outputs):
                w.line(f"const {kind} *const channel = &{channels}[o];")
                w.line(f"const int32_t sum = channel->bias + {function}({weights}[o], {inputs}, {depth});")
                w.line(f"{y}[{base}o] = {layer.finished('sum', 'channel', n='n', o='o')};")
            return
        if outputs % 4 == 0:
            nest.loop("o", outputs, 4) if outputs > 4 else nest.once("const int32_t o = 0;")
        else:
            nest.loop("block", outputs, 4)
            w.line(f"const int32_t o = (block < {outputs - 4}) ? block : {outputs - 4}; /* the last four overlap */")
        block(4, "o")
