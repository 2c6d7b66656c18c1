"""Convolutions of 8-bit integers with constant weights and a fused epilogue: scaling, clamping, tables, additions.

The inputs of two positions are copied into columns of 16-bit integers, and two rows of weights are multiplied with both. The
bias includes the zero points of inputs.
"""

from __future__ import annotations

from math import prod
from typing import Any

from rlx import mlir
from rlx.ir.shape import Shape, shape_of
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.ops.quantization.quant_compute import ProductQuantization, QuantizedOperands
from rlx.targets.c.lower.contraction import plain_conv
from rlx.targets.c.lower.depthwise import depthwise_conv
from rlx.targets.c.lower.grouping import OpGroup, constant_of
from rlx.targets.c.lower.kernel import KernelWriter
from rlx.targets.c.lower.layer import ConstantProduct, bits_of, layer_of
from rlx.targets.c.lower.nest import LoopNest
from rlx.targets.c.lower.products import depth_of, quads_of
from rlx.targets.c.lower.rules import loops
from rlx.targets.c.lower.values import Affine, Index
from rlx.targets.c.lower.writer import Writer


def _scratch(
    group: OpGroup,
    result: Shape,
    operands: QuantizedOperands[mlir.Value],
    *,
    groups: int,
    **_: Any,
) -> int:
    """Two columns of 16-bit inputs."""
    weights = constant_of(operands.w)
    if weights is None or operands.multiplier is not None or 0 in weights.shape or weights.shape[0] == groups:
        return 0
    return 4 * depth_of(prod(weights.shape[1:]), bits_of(weights))


@loops("q_conv2d", scratch=_scratch)
def q_conv2d(
    kernel: KernelWriter,
    result: Shape,
    operands: QuantizedOperands[mlir.Value],
    *,
    geometry: ConvGeometry,
    quantization: ProductQuantization,
) -> None:
    w = shape_of(operands.w)
    is_depthwise = w.static[0] == geometry.groups
    layer = None if is_depthwise else layer_of(kernel, operands, quantization.factors, 0)
    index = _index(result)
    if is_depthwise and depthwise_conv(kernel, result, operands, geometry, quantization):
        return
    if layer is None or 0 in result.static or not layer.prepare(index):
        plain_conv(kernel, result, operands, geometry, quantization)
        return
    _ConvWriter(layer, result, w, geometry, quantization.x_zero_point).write()


def _index(result: Shape) -> Index:
    """An index of the result in the variables of the loops. An axis of one element has no variable."""
    images, outputs, height, width = result.static
    names = ["n", "o", "row", "position"] if width > 1 else ["n", "o", "position", ""]
    sizes = (images, outputs, height, width)
    return tuple(Affine.of(name) if d > 1 else Affine() for name, d in zip(names, sizes, strict=True))


class _ConvWriter:
    """Writes a convolution."""

    def __init__(self, layer: ConstantProduct, result: Shape, w: Shape, geometry: ConvGeometry, zero: int):
        self.layer, self.kernel, self.result = layer, layer.kernel, result
        self.w, self.groups, self.zero = w.static, geometry.groups, zero
        self.stride, self.padding, self.dilation = geometry.stride, geometry.padding, geometry.dilation
        self.x_dims = shape_of(layer.x).static
        self.name = self.kernel.pointer(layer.x)

    @property
    def _is_pointwise(self) -> bool:
        return self.w[2:] == (1, 1) and tuple(self.stride) == (1, 1) and not any(self.padding)

    def write(self) -> None:
        """Loops over images, groups and pairs of positions."""
        kernel, layer, w = self.kernel, self.layer, self.kernel.writer
        kernel.uses_scratch = True
        self._gather()
        images, outputs, height, width = self.result.static
        positions, per_group = height * width, outputs // self.groups
        weights, channels = layer.paired_tables(self.groups) if self.is_packed else layer.tables(exchanged=True)
        w.line("int16_t *const columns = (int16_t *)(void *)scratch; /* the inputs of two positions */")
        with LoopNest(w) as nest:
            nest.loop("n", images)
            nest.loop("group", self.groups)
            nest.pairs("position", positions)
            second = nest.second("position", positions)
            self._write_columns(images, second)
            kind = kernel.program.record_kind(layer.channels.fields)
            # Advancing pointers takes fewer instructions than an index.
            advances = self.groups == 1 and per_group % 2 == 0 and per_group > 2
            if advances:
                w.line(f"const {layer.kind} *rows = {weights}[0];")
                w.line(f"const {kind} *channel = {channels};")
            row = self._row(nest, w, per_group)
            if not advances:
                w.line(f"const {kind} *const channel = &{channels}[{row}];")
            at = self._pair(per_group) if self.is_packed else row
            self._write_sums("rows" if advances else f"{weights}[{at}]", per_group)
            self._write_results(row, per_group, second)
            if advances:
                # Packed rows are in pairs that share bytes.
                step = layer.depth // quads_of(layer.bits) if self.is_packed else 2 * layer.depth
                w.line(f"rows += {step};")
                w.line("channel += 2;")

    @property
    def is_packed(self) -> bool:
        """Whether weights have fewer than 8 bits, and share bytes."""
        return self.layer.bits < 8

    def _write_columns(self, images: int, second: str) -> None:
        """Gather the inputs of two positions."""
        kernel, w = self.kernel, self.kernel.writer
        offsets = [
            *([f"n * {prod(self.x_dims[1:])}"] if images > 1 else []),
            *([f"group * {self.w[1] * self.x_dims[2] * self.x_dims[3]}"] if self.groups > 1 else []),
        ]
        inputs = " + ".join([self.name, *offsets])
        w.line(f"gather_{kernel.name}({inputs}, position, {second}, columns);")

    def _write_sums(self, rows: str, per_group: int) -> None:
        """Multiply two rows with two columns."""
        layer, w = self.layer, self.kernel.writer
        biases = ["channel->bias", "channel[1].bias" if per_group > 1 else "channel->bias"]
        w.line(f"int32_t sums[4] = {{{', '.join(bias for bias in biases for _ in range(2))}}};")
        stride = "" if self.is_packed else f" {layer.depth if per_group > 1 else 0},"
        function = self.kernel.program.need(f"multiply_2x2_{layer.suffix}")
        w.line(f"{function}({rows},{stride} columns, {layer.depth}, sums);")

    def _write_results(self, row: str, per_group: int, second: str) -> None:
        """Apply the epilogue to each sum, and store the result."""
        images, outputs, height, width = self.result.static
        positions, y = height * width, self.kernel.pointer(self.kernel.group.result)
        base = f"{outputs * positions} * n + " if images > 1 else ""
        for number in range(min(2, per_group)):
            for column, position in enumerate(dict.fromkeys(("position", second))):
                at = f"{row} + {number}" if number else row
                channel = "channel + 1" if number else "channel"
                value = self.layer.finished(f"sums[{2 * number + column}]", channel, n="n", o=at, position=position)
                place = f"{base}{positions} * {f'({at})' if number else at} + {position}"
                self.kernel.writer.line(f"{y}[{place}] = {value};")

    def _pair(self, per_group: int) -> str:
        """The index of a pair of rows of weights."""
        pairs = -(-per_group // 2)
        first = f"{pairs} * group" if self.groups > 1 else ""
        loop = "o" if self.groups == 1 and per_group % 2 == 0 else "pair"
        return " + ".join(p for p in (first, f"{loop} / 2" if per_group > 2 else "") if p) or "0"

    def _row(self, nest: LoopNest, w: Writer, per_group: int) -> str:
        """A loop over pairs of rows of weights. If their number is odd, the last pair repeats a row."""
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
        """Write the function that copies the inputs of two positions into columns."""
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
        with LoopNest(w) as nest:
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
        """Copy two inputs of two channels at once, on cores with these instructions."""
        w, depth, plane = self.kernel.before, self.layer.depth, self.x_dims[2] * self.x_dims[3]
        self.kernel.need("halves_at")
        self.kernel.need("rotated")
        w.lines.append("#if defined(__ARM_FEATURE_DSP)")
        w.line("int32_t k = 0;")
        w.line("(void)b; /* follows a */")
        with LoopNest(w) as nest:
            nest.loop("c", self.w[1], 2)
            c = "c" if self.w[1] > 2 else "0"
            w.line(f"const uint32_t four = halves_at(a + {plane} * {c}, a + {plane} * {c} + {plane});")
            w.line("put_pair(columns + k, __sxtb16((int8x4_t)four));")
            w.line(f"put_pair(columns + {depth} + k, __sxtb16((int8x4_t)rotated(four)));")
            w.line("k += 2;")
        w.lines.append("#else")

    def _tap(self) -> str:
        """The offset of a tap from the first tap of its window."""
        (_, _, height, width), (dy, dx) = self.x_dims, self.dilation
        steps = (("c", height * width, self.w[1]), ("ky", dy * width, self.w[2]), ("kx", dx, self.w[3]))
        place = Affine()
        for variable, step, count in steps:
            if count > 1:
                place = place + Affine.of(variable) * step
        return str(place)

    def _corner(self, position: str) -> str:
        """The offset of the first input of a position."""
        if self._is_pointwise:
            return position
        width, (sy, sx) = self.result.static[3], self.stride
        return f"{_times(f'{position} / {width}', sy * self.x_dims[3])} + {_times(f'{position} % {width}', sx)}"

    def _tail(self, w: Writer, places: list[str], count: int) -> None:
        """Write zeros up to the padded length of the rows of weights, which also end in zeros."""
        if not count:
            return
        with w.block(f"for (; k < {self.layer.depth}; k++)"):
            for place in places:
                w.line(f"columns[{place}] = 0;")

    def _gather_one(self) -> None:
        """Write the function that copies the inputs of one position, with padding."""
        w, name = self.kernel.before, self.kernel.name
        (_, _, height, width), (sy, sx) = self.x_dims, self.stride
        out_width = self.result.static[3]
        spans = [(k - 1) * d + 1 for k, d in zip(self.w[2:], self.dilation, strict=True)]
        w.comment("Copy the inputs of a position into a column; outside of the image they are the zero point.")
        w.line(f"static inline void gather_one_{name}(const int8_t *x, int32_t position, int16_t *columns)")
        w.line("{")
        w.depth += 1
        w.line(f"const int32_t top = {_times(f'position / {out_width}', sy)}{_less(self.padding[0])};")
        w.line(f"const int32_t left = {_times(f'position % {out_width}', sx)}{_less(self.padding[2])};")
        w.line("int32_t k = 0;")
        last = [d - s for d, s in zip((height, width), spans, strict=True)]
        if min(last) < 0:  # every window crosses the border of the image
            with w.block(""):
                self._checked_taps(w)
        else:
            inside = f"(top >= 0) && (top <= {last[0]}) && (left >= 0) && (left <= {last[1]})"
            with w.block(f"if ({inside})"):
                w.line(f"const int8_t *const window = x + top * {width} + left;")
                with LoopNest(w) as nest:
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
        """Write loops over a window that may cross the border of the image."""
        (_, _, height, width), (dy, dx) = self.x_dims, self.dilation
        with LoopNest(w) as nest:
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


def _times(text: str, factor: int) -> str:
    """A quotient or a remainder times a number."""
    return text if factor == 1 else f"({text}) * {factor}"


def _less(number: int) -> str:
    """The subtraction of a number, if it changes anything."""
    return f" - {number}" if number else ""
