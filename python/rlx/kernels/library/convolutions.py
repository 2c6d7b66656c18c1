"""The kernel of convolutions in one and two dimensions, with bias and activation.

A lane of a vector is a window. A workgroup computes some channels of some rows of the result. It copies what the windows read
to scratch memory, where padding is zeros and strides are 1, then goes over vectors of windows with the sums of several channels
in registers. Weights are read as they are, one for all lanes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlx.ir.dtype import f32, i32
from rlx.kernels.buffer import Buffer, Lanes, Size, product
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.elements import INDEX
from rlx.kernels.functions import ACTIVATIONS
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.windows import WindowAxis, WindowBlock, WindowCopies, convolution_axes, pieces, takes_windows
from rlx.kernels.registry import KernelCase, kernel
from rlx.kernels.values import Value
from rlx.support.cached_property import cached_property

_MOST_ELEMENTS, _MOST_SUMS = 16384, 16000  # in scratch memory
_MOST_CHANNELS = (64, 32, 16, 8)  # of the result, in a workgroup: fewer if rows are long
_MOST_TAPS = 256
_COSTS = {1: 1.5, 2: 1.2, 5: 1.1}  # of a vector, by the number of vectors in a tile
_LEAST_SHARE, _LONGEST_STRIDE = 0.65, 4
_MOST_AT_ONCE = 8  # channels of the result whose sums are in registers


@dataclass(frozen=True)
class ConvolutionPlan:
    """The division of a convolution into workgroups, blocks and tiles.

    Attributes:
        axes: The rows and columns of windows.
        groups: The number of groups of channels.
        inputs: The channels that a window reads: those of a group.
        outputs: The channels of the result in a group.
        cpu: The CPU.
    """

    axes: tuple[WindowAxis, WindowAxis]
    groups: int
    inputs: int
    outputs: int
    cpu: CpuModel

    @staticmethod
    def of(case: KernelCase) -> ConvolutionPlan:
        """Return the plan of a case. All sizes but that of the batch are known."""
        shapes = [s.dims for s in (*case.tensors[:2], *case.results)]
        return ConvolutionPlan.of_shapes(shapes, case.attributes, case.cpu)

    @staticmethod
    def of_shapes(shapes: Sequence[Sequence[Any]], attributes: Mapping[str, Any], cpu: CpuModel) -> ConvolutionPlan:
        """Return the plan for the sizes of elements, weights and results."""
        (outputs, inputs, *_), groups = shapes[1], attributes["groups"]
        return ConvolutionPlan(convolution_axes(shapes, attributes), groups, inputs, outputs // groups, cpu)

    @cached_property
    def channels(self) -> int:
        """The channels of the result that a workgroup computes."""
        return self._division[0]

    @cached_property
    def rows(self) -> int:
        """The rows of windows in a workgroup; 0 if one row is too long for scratch memory."""
        return self._division[1]

    @property
    def _division(self) -> tuple[int, int]:
        return _division(self.axes, self.outputs, self.lanes)

    @property
    def share(self) -> float:
        """The share of lanes that are windows of the result."""
        (rows, columns), parts = self.axes, -(-self.axes[0].count // self.rows)
        return rows.count * columns.count / (parts * self.vectors * self.lanes)

    @property
    def lanes(self) -> int:
        return self.cpu.lanes(f32)

    @cached_property
    def block(self) -> WindowBlock:
        """The elements of a workgroup."""
        return WindowBlock(*self.axes, self.rows)

    @cached_property
    def vectors(self) -> int:
        """The vectors of windows that a workgroup computes, some of whose lanes are not windows."""
        return -(-self.block.windows // self.lanes)

    @cached_property
    def tiles(self) -> list[tuple[int, int, int, int]]:
        """The tiles of a workgroup: the vectors and channels whose sums are in registers, the first vector, and the end.

        Tiles of 3 and 4 vectors need the fewest reads of memory, and make up all numbers of vectors but 1, 2 and 5.
        """
        vectors, fours = self.vectors, self.vectors % 3
        parts = [vectors - 4 * fours, 4 * fours] if vectors in (3, 4) or vectors > 5 else [vectors]
        result: list[tuple[int, int, int, int]] = []
        start = 0
        for width, count in zip((3, 4) if len(parts) > 1 else parts, parts, strict=True):
            if count:
                result.append((width, min(self.cpu.sums // width, _MOST_AT_ONCE), start, start + count))
                start += count
        return result

    @cached_property
    def size(self) -> int:
        """The elements of a channel in scratch memory."""
        return self.block.size(self.vectors * self.lanes)

    @cached_property
    def depth(self) -> int:
        """The channels in scratch memory at a time."""
        most = max(1, _MOST_ELEMENTS // self.size)
        return -(-self.inputs // -(-self.inputs // most))


@cache
def _division(axes: tuple[WindowAxis, WindowAxis], outputs: int, lanes: int) -> tuple[int, int]:
    """Return the channels and rows of a workgroup."""
    count, taps = axes[0].count, axes[0].taps * axes[1].taps
    for most in _MOST_CHANNELS:
        channels = -(-outputs // -(-outputs // most))
        best, least = 0, math.inf
        for rows in dict.fromkeys(-(-count // parts) for parts in range(1, count + 1)):
            block, parts = WindowBlock(*axes, rows), -(-count // rows)
            vectors = -(-block.windows // lanes)
            sums, size = vectors * lanes * (channels + _MOST_AT_ONCE - 1), block.size(vectors * lanes)
            # The products, and the copies, in about as many instructions.
            cost = parts * (vectors * _COSTS.get(vectors, 1.0) * channels * taps + 3 * size / lanes)
            if sums <= _MOST_SUMS and size <= _MOST_ELEMENTS and cost < least:
                best, least = rows, cost
        if best:
            return channels, best
    return 0, 0


def _takes(case: KernelCase) -> bool:
    if not takes_windows(case):
        return False
    plan = ConvolutionPlan.of(case)
    return plan.axes[0].taps * plan.axes[1].taps <= _MOST_TAPS and plan.rows > 0


def _takes_fused(case: KernelCase) -> bool:
    return _takes(case) and case.attributes["activation"] in ACTIVATIONS


def _pays(case: KernelCase) -> bool:
    """Whether most lanes of vectors are windows, and strides are small: there is code for each phase."""
    if not _takes(case):
        return False
    plan = ConvolutionPlan.of(case)
    return plan.share >= _LEAST_SHARE and plan.axes[1].stride <= _LONGEST_STRIDE


@kernel("conv", takes=_takes, pays=_pays)
def convolution(k: Kernel, x: Buffer, w: Buffer, y: Buffer, **geometry: Any) -> None:
    """A convolution."""
    _Convolution(k, (x, w, y), None, geometry, None).emit()


@kernel("fused_conv_bias_act", takes=_takes_fused, pays=_pays)
def convolution_bias_act(
    k: Kernel, x: Buffer, w: Buffer, bias: Buffer, y: Buffer, *, activation: str | None, **geometry: Any
) -> None:
    """An activation of a convolution with a bias."""
    _Convolution(k, (x, w, y), bias, geometry, activation).emit()


class _Convolution:
    """The code of a convolution.

    Args:
        k: The kernel.
        tensors: Elements `[N, C, spatial…]`, weights `[O, C/groups, taps…]` and the result.
        bias: A number for each channel of the result, or None.
        geometry: The attributes of the op.
        activation: The activation of the sums.
    """

    def __init__(
        self,
        k: Kernel,
        tensors: tuple[Buffer, Buffer, Buffer],
        bias: Buffer | None,
        geometry: Mapping[str, Any],
        activation: str | None,
    ) -> None:
        x, w, y = tensors
        self.k, self.bias, self.function = k, bias, ACTIVATIONS[activation]
        self.plan = plan = ConvolutionPlan.of_shapes([t.shape for t in tensors], geometry, k.cpu)
        self.axes, self.block = plan.axes, plan.block
        self.lanes, self.taps = k.cpu.lanes(f32), len(plan.block.offsets)
        rows, columns = plan.axes
        self.batch = x.shape[0]
        self.x = x.view(product(x.shape[:2]), rows.size, columns.size)
        self.w = w.view(plan.groups * plan.outputs, plan.inputs * self.taps)
        self.y = y.view(product(y.shape[:2]), rows.count, columns.count)

    def emit(self) -> None:
        """Emit the code of the workgroups."""
        k, plan = self.k, self.plan
        channels = max(-(-plan.channels // many) * many for _, many, _, _ in plan.tiles)
        self.offsets = k.scratch(self.taps, element=i32)
        self.elements = k.scratch(plan.depth, plan.size)
        self.sums = k.scratch(channels, plan.vectors * self.lanes)
        copies = WindowCopies(k, self.block, self.x, self.elements)
        strips, parts = -(-self.axes[0].count // plan.rows), -(-plan.outputs // plan.channels)
        for i in k.parallel(product([self.batch, plan.groups * parts * strips])):
            strip, part = i % strips * plan.rows, i // strips % parts * plan.channels
            group, image = i // (strips * parts) % plan.groups, i // (strips * parts * plan.groups)
            source = (image * plan.groups + group) * plan.inputs
            for tap, offset in enumerate(self.block.offsets):
                self.offsets[tap] = offset
            first = group * plan.outputs + part  # channel of the weights
            last = group * plan.outputs + (plan.outputs - 1)
            if plan.depth < plan.inputs:
                self._start_sums(first, last)
            for start in k.range(0, plan.inputs, plan.depth):
                count = k.least(plan.depth, plan.inputs - start)
                for c in k.range(count):
                    copies.copy(c, source + start + c, strip)
                for width, many, begin, end in plan.tiles:
                    for o in k.range(0, plan.channels, many):
                        rows = [k.least(first + o + m, last) for m in range(many)]
                        for p in k.range(begin * self.lanes, end * self.lanes, width * self.lanes):
                            places = [k.at(p + u * self.lanes) for u in range(width)]
                            self._add(o, places, rows, start, count)
            self._store(image * (plan.groups * plan.outputs) + group * plan.outputs, part, strip)

    def _start_sums(self, first: Value, last: Value) -> None:
        for o in self.k.range(self.sums.shape[0]):
            start = self._initial(self.k.least(first + o, last))
            for c in pieces(self.k, self.plan.vectors * self.lanes):
                self.sums[o, c] = start

    def _initial(self, row: Value) -> Value:
        """The number that the sums of a channel start with."""
        return self.k.constant(0.0, f32) if self.bias is None else self.bias[row]

    def _add(self, o: Value, places: list[Lanes], rows: list[Value], start: Value, count: Size) -> None:
        """Add the products of some channels of elements to the sums of a tile."""
        k = self.k
        is_whole = self.plan.depth == self.plan.inputs
        sums = [
            [k.register(self._initial(row).splat(self.lanes) if is_whole else self.sums[o + m, at]) for at in places]
            for m, row in enumerate(rows)
        ]
        for c in k.range(count):
            first_weight = (start + c) * self.taps
            for tap in k.range(self.taps):
                offset = self.offsets[tap].to(INDEX)
                # The fewer of the elements and weights are in registers, and the others are read one at a time.
                if len(places) > len(rows):
                    weights = [self._weight(row, first_weight + tap) for row in rows]
                    for u, at in enumerate(places):
                        element = self.elements[c, at + offset]
                        for of_channel, weight in zip(sums, weights, strict=True):
                            of_channel[u].value = element.fma(weight, of_channel[u].value)
                else:
                    elements = [self.elements[c, at + offset] for at in places]
                    for row, of_channel in zip(rows, sums, strict=True):
                        weight = self._weight(row, first_weight + tap)
                        for total, element in zip(of_channel, elements, strict=True):
                            total.value = element.fma(weight, total.value)
        for m, of_channel in enumerate(sums):
            for total, at in zip(of_channel, places, strict=True):
                self.sums[o + m, at] = total.value

    def _weight(self, row: Value, position: Value) -> Value:
        return self.w[row, position].splat(self.lanes)

    def _store(self, target: Value, part: Value, strip: Value) -> None:
        """Store the activations of the sums."""
        k, plan, (rows, columns) = self.k, self.plan, self.axes
        for o in k.range(k.least(plan.channels, plan.outputs - part)):
            for r in k.range(k.least(plan.rows, rows.count - strip)):
                for at in pieces(k, columns.count):
                    total = self.sums[o, at + r * self.block.row_length]
                    self.y[target + part + o, strip + r, at] = self.function(total)
