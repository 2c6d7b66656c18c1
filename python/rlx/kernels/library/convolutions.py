"""The kernel of convolutions in one and two dimensions, with bias and activation.

A lane of a vector is a window. A workgroup computes some channels of some rows of the result. It copies what the windows read
to scratch memory, where padding is zeros and strides are 1, then goes over vectors of windows with the sums of several channels
in registers. Weights are read as they are, one for all lanes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rlx.ir.dtype import f32, i32
from rlx.kernels.buffer import Buffer, Lanes, Size, ceil_div, product
from rlx.kernels.case import KernelCase
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.elements import INDEX
from rlx.kernels.functions import ACTIVATIONS
from rlx.kernels.kernel import Kernel, KernelRegister
from rlx.kernels.library.windows import (
    WindowAxis,
    WindowBlock,
    WindowCopies,
    axes_of_images,
    convolution_axes,
    pieces,
    takes_windows,
)
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.support.cached_property import cached_property

_MOST_ELEMENTS, _MOST_SUMS = 16384, 16000  # in scratch memory
_MOST_CHANNELS = (64, 32, 16, 8)  # of the result, in a workgroup: fewer if rows are long
_MOST_TAPS = 256
_SLACK = 1.03  # of the cost of the best number of channels
_COSTS = {1: 1.5, 2: 1.2, 5: 1.1}  # of a vector, by the number of vectors in a tile
_LEAST_SHARE, _LONGEST_STRIDE = 0.65, 4
_CHEAPEST = "relu"  # activation
_MOST_AT_ONCE = 8  # channels of the result whose sums are in registers


@dataclass(frozen=True)
class ConvolutionPlan:
    """The division of a convolution into workgroups, blocks and tiles.

    Attributes:
        axes: The rows and columns of windows.
        channels: The most channels of the result that a workgroup computes.
        rows: The rows of windows in a workgroup; 0 if one row is too long for scratch memory.
        joined: The rows of the images that make up a row here, as windows of one element have no neighbours.
        cpu: The CPU.
    """

    axes: tuple[WindowAxis, WindowAxis]
    channels: int
    rows: int
    joined: int
    cpu: CpuModel

    @staticmethod
    def of(case: KernelCase) -> ConvolutionPlan:
        """Return the plan of a case. All sizes but that of the batch are known."""
        shapes = [s.dims for s in (*case.tensors[:2], *case.results)]
        axes, channels = convolution_axes(shapes, case.attributes), shapes[1][0]
        assert isinstance(channels, int)
        outputs, lanes = channels // case.attributes["groups"], case.cpu.lanes(f32)
        most, rows = _division(axes, outputs, lanes)
        joined, count = 1, axes[0].count
        if _is_pointwise(axes) and isinstance(count, int) and all(axis.size == axis.count for axis in axes):
            joined = max((n for n in range(1, rows + 1) if count % n == 0), default=1)
            axes = _with_joined_rows(axes, joined)
            most, rows = _division(axes, outputs, lanes)
        return ConvolutionPlan(axes, most, rows, joined, case.cpu)

    @property
    def share(self) -> float:
        """The share of lanes that are windows of the result."""
        count, columns = self.axes[0].count, self.axes[1].count
        assert isinstance(count, int) and isinstance(columns, int)
        return count * columns / (-(-count // self.rows) * self.vectors * self.cpu.lanes(f32))

    @cached_property
    def block(self) -> WindowBlock:
        """The elements of a workgroup."""
        return WindowBlock.of(*self.axes, self.rows)

    @cached_property
    def vectors(self) -> int:
        """The vectors of windows that a workgroup computes, some of whose lanes are not windows."""
        windows = ceil_div(self.block.windows, self.cpu.lanes(f32))
        assert isinstance(windows, int)
        return windows

    @property
    def tiles(self) -> tuple[int, ...]:
        """The vectors of tiles.

        Tiles of 3 and 4 vectors need the fewest reads of memory, and make up all numbers of vectors but 1, 2 and 5.
        """
        return (3, 4) if self.vectors in (3, 4) or self.vectors > 5 else (self.vectors,)

    @property
    def lanes_of_pieces(self) -> int:
        """The lanes of vectors in copies: at most the elements of a row, a power of two."""
        columns, length = self.axes[1], self.axes[1].row_length()
        count = columns.in_pairs if columns.stride == 2 else columns.copied
        counts = [length, columns.count, *(count(phase, length) for phase in columns.phases)]
        least_count = min(n for n in counts if isinstance(n, int) and n)
        return min(self.cpu.lanes(f32), 1 << (least_count.bit_length() - 1))

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers that the code reads when it runs: images of all sizes share it.

        `channels` and `rows` of a workgroup, the length of rows in scratch memory and the size of a channel there, the `depth`
        (the most channels there), the `vectors` of a workgroup, the rows that are `joined`, and the `lanes` of copies.
        """
        block, lanes = self.block, self.cpu.lanes(f32)
        assert isinstance(block.row_length, int)
        size = block.size(self.vectors * lanes)
        depth = max(1, _MOST_ELEMENTS // size)
        return {
            "channels": self.channels,
            "rows": self.rows,
            "row_length": block.row_length,
            "size": size,
            "depth": depth,
            "vectors": self.vectors,
            "joined": self.joined,
            "lanes": self.lanes_of_pieces,
        }


def _is_pointwise(axes: tuple[WindowAxis, WindowAxis]) -> bool:
    """Whether a window is one element. There may be more windows than elements: padding after these."""
    return all((axis.taps, axis.stride, axis.before) == (1, 1, 0) for axis in axes)


def _with_joined_rows(axes: tuple[WindowAxis, WindowAxis], joined: Size) -> tuple[WindowAxis, WindowAxis]:
    """Return the axes of the windows of one element, with several rows as one."""
    rows, columns = axes
    return (
        replace(rows, size=rows.size // joined, count=rows.count // joined),
        replace(columns, size=columns.size * joined, count=columns.count * joined),
    )


@cache
def _division(axes: tuple[WindowAxis, WindowAxis], outputs: int, lanes: int) -> tuple[int, int]:
    """Return the most channels, and the rows, of a workgroup: as many channels as cost little more than the best number.

    Args:
        axes: The rows and columns of windows.
        outputs: The channels of the result in a group.
        lanes: The lanes of vectors.
    """
    found = [(_cost_of_rows(axes, -(-outputs // -(-outputs // most)), most, lanes), most) for most in _MOST_CHANNELS]
    least = min(cost for (cost, _), _ in found)
    if least == math.inf:
        return 0, 0
    return next((most, rows) for (cost, rows), most in found if cost <= least * _SLACK)


def _cost_of_rows(axes: tuple[WindowAxis, WindowAxis], channels: int, most: int, lanes: int) -> tuple[float, int]:
    """Return the least cost of a channel, and the rows of windows in a workgroup that have it.

    Args:
        axes: The rows and columns of windows.
        channels: The channels of a workgroup.
        most: The channels for which it has memory.
        lanes: The lanes of vectors.
    """
    count, taps = axes[0].count, axes[0].taps * axes[1].taps
    assert isinstance(count, int)
    least: tuple[float, int] = math.inf, 0
    for rows in dict.fromkeys(-(-count // parts) for parts in range(1, count + 1)):
        block, parts = WindowBlock.of(*axes, rows), -(-count // rows)
        vectors = ceil_div(block.windows, lanes)
        assert isinstance(vectors, int)
        sums, size = vectors * lanes * (most + _MOST_AT_ONCE - 1), block.size(vectors * lanes)
        if sums <= _MOST_SUMS and size <= _MOST_ELEMENTS:
            # The products, and the copies, in about as many instructions.
            cost = parts * (vectors * _COSTS.get(vectors, 1.0) * taps + 3 * size / lanes / channels)
            least = min(least, (cost, rows))
    return least


def _takes(case: KernelCase) -> bool:
    if not takes_windows(case):
        return False
    plan = ConvolutionPlan.of(case)
    return plan.axes[0].taps * plan.axes[1].taps <= _MOST_TAPS and plan.rows > 0


def _takes_fused(case: KernelCase) -> bool:
    return _takes(case) and case.attributes["activation"] in ACTIVATIONS


def _pays(case: KernelCase) -> bool:
    """Whether most lanes of vectors are windows, and strides are small: there is code for each phase."""
    plan = ConvolutionPlan.of(case)
    return plan.share >= _LEAST_SHARE and plan.axes[1].stride <= _LONGEST_STRIDE


@dataclass(frozen=True)
class _ConvolutionCode:
    """The choices that the code of a convolution depends on.

    Attributes:
        tiles: The vectors of tiles.
        lanes: Choices for the lanes of vectors in copies: rows with few elements share the code of others.
        activation: The activation. Fused convolutions without one share the code of those with the cheapest one.
    """

    tiles: tuple[int, ...]
    lanes: tuple[int, ...]
    activation: str

    @staticmethod
    def of(case: KernelCase) -> _ConvolutionCode:
        plan = ConvolutionPlan.of(case)
        lanes, most = plan.lanes_of_pieces, case.cpu.lanes(f32)
        choices = tuple(n for n in (16, 8, 4) if n <= most) if lanes >= 4 else (lanes,)
        return _ConvolutionCode(plan.tiles, choices, case.attributes.get("activation", "") or _CHEAPEST)


def _numbers(case: KernelCase) -> dict[str, int]:
    return ConvolutionPlan.of(case).numbers


def _numbers_fused(case: KernelCase) -> dict[str, int]:
    """The numbers, and whether there is an activation: it takes the place of the attribute."""
    return _numbers(case) | {"activation": int(case.attributes["activation"] is not None)}


@kernel("conv", takes=_takes, pays=_pays, plan=_ConvolutionCode.of, numbers=_numbers, open_axes=axes_of_images)
def convolution(k: Kernel, x: Buffer, w: Buffer, y: Buffer, *, plan: _ConvolutionCode, **named: Any) -> None:
    """A convolution."""
    _Convolution(k, (x, w, y), None, plan, named).emit()


@kernel(
    "fused_conv_bias_act",
    takes=_takes_fused,
    pays=_pays,
    plan=_ConvolutionCode.of,
    numbers=_numbers_fused,
    open_axes=axes_of_images,
)
def convolution_bias_act(
    k: Kernel,
    x: Buffer,
    w: Buffer,
    bias: Buffer,
    y: Buffer,
    *,
    plan: _ConvolutionCode,
    **named: Any,
) -> None:
    """An activation of a convolution with a bias."""
    _Convolution(k, (x, w, y), bias, plan, named).emit()


class _Convolution:
    """The code of a convolution.

    Args:
        k: The kernel.
        tensors: Elements `[N, C, spatial…]`, weights `[O, C/groups, taps…]` and the result.
        bias: A number for each channel of the result, or None.
        choices: The choices that its code depends on.
        named: The attributes of the op, and the numbers of the plan.
    """

    def __init__(
        self,
        k: Kernel,
        tensors: tuple[Buffer, Buffer, Buffer],
        bias: Buffer | None,
        choices: _ConvolutionCode,
        named: Mapping[str, Any],
    ) -> None:
        x, w, y = tensors
        self.k, self.bias, self.choices = k, bias, choices
        self.groups, self.named = named["groups"], named
        axes = convolution_axes([t.shape for t in tensors], named)
        self.axes = rows, columns = _with_joined_rows(axes, named["joined"]) if _is_pointwise(axes) else axes
        self.block = WindowBlock(rows, columns, named["rows"], named["row_length"])
        self.lanes, self.taps = k.cpu.lanes(f32), rows.taps * columns.taps
        self.width = named["vectors"] * self.lanes  # of the sums of a channel
        self.batch, self.inputs, self.outputs = x.shape[0], w.shape[1], w.shape[0] // self.groups
        self.x = x.view(product(x.shape[:2]), rows.size, columns.size)
        self.w = w.view(w.shape[0], product([self.inputs, self.taps]))
        self.y = y.view(product(y.shape[:2]), rows.count, columns.count)

    def emit(self) -> None:
        """Emit the code of the workgroups."""
        k, inputs, outputs, block = self.k, self.inputs, self.outputs, self.block
        self.offsets = k.scratch(self.taps, element=i32)
        self.elements, self.sums = k.scratch(_MOST_ELEMENTS), k.scratch(_MOST_SUMS)
        strips, parts = ceil_div(self.axes[0].count, block.count), ceil_div(outputs, self.named["channels"])
        channels, depth = ceil_div(outputs, parts), ceil_div(inputs, ceil_div(inputs, self.named["depth"]))
        for i in k.parallel(product([self.batch, self.groups, parts, strips])):
            strip, part = i % strips * block.count, i // strips % parts * channels
            group, image = i // strips // parts % self.groups, i // strips // parts // self.groups
            source = (image * self.groups + group) * inputs
            for tap, offset in enumerate(block.offsets):
                self.offsets[tap] = k.index(offset).to(i32)
            first = group * outputs + part  # channel of the weights
            last = group * outputs + (outputs - 1)
            computed = k.least(channels, outputs - part)
            for start in k.range(0, inputs, depth):
                count = k.least(depth, inputs - start)
                for lanes in self._lanes():
                    copies = WindowCopies(k, block, self.x, self.elements, lanes=lanes)
                    for c in k.range(count):
                        copies.copy(c * self.named["size"], source + start + c, strip)
                for vectors, many, begin, end in self._loops():
                    for o in k.range(0, computed, many):
                        rows = [k.least(first + o + m, last) for m in range(many)]
                        for p in k.range(begin, end, vectors * self.lanes):
                            places = [k.at(p + u * self.lanes) for u in range(vectors)]
                            self._add(o, places, rows, start, count)
            self._store((image * self.groups + group) * outputs + part, computed, strip)

    def _lanes(self) -> Iterator[int]:
        """Branch to the code for the lanes of vectors in copies."""
        for lanes in self.choices.lanes:
            is_chosen = len(self.choices.lanes) == 1 or self.k.index(self.named["lanes"]) == lanes
            for _ in self.k.when(is_chosen):
                yield lanes

    def _loops(self) -> Iterator[tuple[int, int, Size, Size]]:
        """The loops over tiles: the vectors and channels whose sums are in registers, the first window, and the end."""
        end = self.width if len(self.choices.tiles) == 1 else self.width - self.named["vectors"] % 3 * (4 * self.lanes)
        for vectors, (first, last) in zip(self.choices.tiles, ((0, end), (end, self.width)), strict=False):
            yield vectors, min(self.k.cpu.sums // vectors, _MOST_AT_ONCE), first, last

    def _started(self, o: Value, places: list[Lanes], rows: list[Value], start: Value) -> list[list[KernelRegister]]:
        """The sums of a tile in registers, for each channel: the bias at first."""
        k, zero = self.k, self.k.constant(0.0, f32, self.lanes)
        sums = [[k.register(zero) for _ in places] for _ in rows]
        for _ in k.when(start > 0):
            for m, of_channel in enumerate(sums):
                for total, at in zip(of_channel, places, strict=True):
                    total.value = self.sums[at + (o + m) * self.width]
        if self.bias is not None:
            for _ in k.when(start < 1):
                for row, of_channel in zip(rows, sums, strict=True):
                    initial = self.bias[row].splat(self.lanes)
                    for total in of_channel:
                        total.value = initial
        return sums

    def _add(self, o: Value, places: list[Lanes], rows: list[Value], start: Value, count: Size) -> None:
        """Add the products of some channels of elements to the sums of a tile."""
        k, sums = self.k, self._started(o, places, rows, start)
        for c in k.range(count):
            first_weight, channel = (start + c) * self.taps, c * self.named["size"]
            for tap in k.range(self.taps):
                offset = self.offsets[tap].to(INDEX) + channel
                # The fewer of the elements and weights are in registers, and the others are read one at a time.
                if len(places) > len(rows):
                    weights = [self._weight(row, first_weight + tap) for row in rows]
                    for u, at in enumerate(places):
                        element = self.elements[at + offset]
                        for of_channel, weight in zip(sums, weights, strict=True):
                            of_channel[u].value = element.fma(weight, of_channel[u].value)
                else:
                    elements = [self.elements[at + offset] for at in places]
                    for row, of_channel in zip(rows, sums, strict=True):
                        weight = self._weight(row, first_weight + tap)
                        for total, element in zip(of_channel, elements, strict=True):
                            total.value = element.fma(weight, total.value)
        for m, of_channel in enumerate(sums):
            for total, at in zip(of_channel, places, strict=True):
                self.sums[at + (o + m) * self.width] = total.value

    def _weight(self, row: Value, position: Value) -> Value:
        return self.w[row, position].splat(self.lanes)

    def _store(self, target: Value, count: Value, strip: Value) -> None:
        """Store the activations of the sums.

        Args:
            target: The first plane of the result.
            count: The number of channels.
            strip: The first row.
        """
        k, (rows, columns) = self.k, self.axes
        for lanes in self._lanes():
            for o in k.range(count):
                for r in k.range(k.least(self.block.count, rows.count - strip)):
                    start = r * self.block.row_length + o * self.width
                    for at in pieces(k, columns.count, lanes):
                        self.y[target + o, strip + r, at] = self._activated(self.sums[at + start])

    def _activated(self, total: Value) -> Value:
        if self.bias is None:
            return total
        is_active = self.k.index(self.named["activation"]) > 0
        return self.k.where(is_active, ACTIVATIONS[self.choices.activation](total), total)
