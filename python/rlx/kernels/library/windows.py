"""Copies of the elements that windows read, in scratch memory, where each tap is at a constant distance from its window.

All rows of a block have the same length, with padding, so that a vector of windows may cross the end of a row.
Elements that are a stride apart are consecutive: each remainder of positions divided by the stride, a phase, has a plane of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rlx.ir.dtype import f32
from rlx.kernels.buffer import Buffer, Lanes, Size, ceil_div, greatest, least
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.kernel import Kernel
from rlx.kernels.values import Value
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.support.cached_property import cached_property

_SHORT_BLOCK = 6144  # elements of a plane's block: it should stay in the first cache
_LONGEST_BLOCK = 24576  # elements, if few rows are longer
_SHORTEST_ROW = 5  # of windows, that pays for the copies
# Of kernels that copy a plane of one channel for each plane of the result.
MOST_PLANE_TAPS = 49
WORKGROUP_WINDOWS = 16384


@dataclass(frozen=True)
class WindowAxis:
    """A spatial axis of windows.

    Attributes:
        size: The elements of the operand.
        taps: The elements of a window.
        count: The number of windows.
        stride: The distance of windows.
        before: The padding before the first element.
        dilation: The distance of taps.
    """

    size: Size
    taps: int
    count: Size
    stride: int
    before: int
    dilation: int

    def place(self, tap: int) -> tuple[int, int]:
        """The position of a tap of the first window in its phase, and the phase."""
        return divmod(tap * self.dilation, self.stride)

    @cached_property
    def phases(self) -> range:
        """The phases up to the last one that is read."""
        return range(1 + max(phase for _, phase in map(self.place, range(self.taps))))

    def reach(self, phase: int) -> int:
        """The last position that the first window reads in a phase."""
        return max((q for q, p in map(self.place, range(self.taps)) if p == phase), default=0)

    def start(self, phase: int) -> int:
        """The position of the first element in a phase: the number of positions of the padding."""
        return max(0, -((phase - self.before) // self.stride))

    def stop(self, phase: int) -> Size:
        """The position after the last element in a phase."""
        return greatest(self.start(phase), ceil_div(self.size + (self.before - phase), self.stride))

    def element(self, phase: int) -> int:
        """The position of the first element of a phase."""
        return self.start(phase) * self.stride + phase - self.before

    def copied(self, phase: int, length: Size) -> Size:
        """The number of elements of a phase in a row of some length in scratch memory."""
        return greatest(0, least(self.stop(phase), length) - self.start(phase))

    def in_pairs(self, phase: int, length: Size) -> Size:
        """How many of them have a neighbour: two vectors that are read for one of a phase must end before the row does."""
        return greatest(0, least(self.copied(phase, length), (self.size - self.element(phase)) // 2))

    def row_length(self) -> int:
        """The length of rows. Padding after a row is also that before the next one."""
        assert isinstance(self.count, int)
        length = self.count
        for phase in self.phases:
            needed, stop = self.count + self.reach(phase), self.stop(phase)
            assert isinstance(stop, int)
            length = max(length, needed - self.start(phase), min(stop, needed))
        return length


def convolution_axes(shapes: Sequence[Sequence[Any]], attributes: Mapping[str, Any]) -> tuple[WindowAxis, WindowAxis]:
    """Return the rows and columns of the windows of a convolution; a signal is an image of one row.

    Args:
        shapes: The sizes of elements `[N, C, spatial…]`, weights and results. All but the batch are integers.
        attributes: The attributes of the op.
    """
    geometry = ConvGeometry(*(attributes[name] for name in ("stride", "padding", "dilation")), groups=1)
    sizes = [tuple(shape[2:]) for shape in shapes]
    if len(sizes[0]) == 1:
        geometry, sizes = geometry.with_row(), [(1, *s) for s in sizes]
    x, w, y = sizes
    rows, columns = (
        WindowAxis(x[i], w[i], y[i], geometry.stride[i], geometry.edges[i][0], geometry.dilation[i]) for i in range(2)
    )
    return rows, columns


def axes_of_images(case: KernelCase) -> list[Axes]:
    """The axes of a convolution, with or without bias, whose sizes may be open: all but those of the taps."""
    x, weights, result = 0, 1, len(case.tensors)
    outputs = [(weights, 0), *((t, 0) for t in range(weights + 1, result)), (result, 1)]
    inputs = [[(weights, 1)], [(x, 1)]] if case.attributes["groups"] > 1 else [[(weights, 1), (x, 1)]]
    spatial = [[(tensor, axis)] for tensor in (x, result) for axis in range(2, case.tensors[0].rank)]
    return [[(x, 0), (result, 0)], outputs, *inputs, *spatial]


def takes_windows(case: KernelCase) -> bool:
    """Whether a convolution is of f32 and one or two spatial axes, with known sizes but that of the batch, none of them 0."""
    (x, w), (y,) = case.tensors[:2], case.results
    sizes = (*x.dims[1:], *w.dims, *y.dims[1:])
    return case.are_all("f32") and x.rank in (3, 4) and all(isinstance(d, int) and d > 0 for d in sizes)


def are_long_rows(case: KernelCase) -> bool:
    """Whether rows of windows fill a vector of some lanes."""
    columns = case.results[0].dims[-1]
    return isinstance(columns, int) and columns >= _SHORTEST_ROW


@dataclass(frozen=True)
class WindowBlock:
    """Elements that the windows of some consecutive rows read.

    Attributes:
        rows: The axis of rows.
        columns: The axis of columns.
        count: The number of rows of windows.
        row_length: The length of rows in scratch memory.
    """

    rows: WindowAxis
    columns: WindowAxis
    count: Size
    row_length: Size

    @staticmethod
    def of(rows: WindowAxis, columns: WindowAxis, count: int) -> WindowBlock:
        """Return the block of axes with known sizes."""
        return WindowBlock(rows, columns, count, columns.row_length())

    @cached_property
    def windows(self) -> Size:
        """The number of positions from the first window to the last one."""
        return (self.count - 1) * self.row_length + self.columns.count

    @cached_property
    def row_count(self) -> Size:
        """The number of rows in a plane."""
        return self.count + max(map(self.rows.reach, self.rows.phases))

    @cached_property
    def planes(self) -> list[Size]:
        """The positions of the planes of each phase of columns in a phase of rows, and their end. Padding follows a plane."""
        sizes = [self.row_count * self.row_length + self.columns.start(phase) for phase in self.columns.phases]
        return [0, *accumulate(sizes)]

    @cached_property
    def offsets(self) -> list[Size]:
        """The distance of each tap from its window."""
        result: list[Size] = []
        for row, row_phase in map(self.rows.place, range(self.rows.taps)):
            start = row_phase * self.planes[-1] + row * self.row_length
            result += [start + self.planes[phase] + q for q, phase in map(self.columns.place, range(self.columns.taps))]
        return result

    def size(self, windows: Size) -> int:
        """The number of elements, if the windows of some positions are computed."""
        end, last, count = self.planes[-1], max(self.offsets), windows  # type: ignore[type-var]
        assert isinstance(end, int) and isinstance(last, int) and isinstance(count, int)
        return max(len(self.rows.phases) * end, last + count)


def plane_block(axes: tuple[WindowAxis, WindowAxis]) -> tuple[WindowBlock, int] | None:
    """Return a block of windows that read one plane, and the rows that are computed at once; None if rows are too long."""
    count = axes[0].count
    assert isinstance(count, int)
    # Two rows have few sums that are independent.
    at_once = min((4, 5, 3, 2, 1), key=lambda n: -(-count // n) * n * (1 if n > 2 else 1.1 if n == 2 else 2))
    for most in (_SHORT_BLOCK, _LONGEST_BLOCK):
        for parts in range(1, -(-count // at_once) + 1):
            block = WindowBlock.of(*axes, -(-count // (at_once * parts)) * at_once)
            if block.size(block.windows) <= most:
                return block, at_once
    return None


def piece_lanes(k: Kernel, count: int) -> int:
    """The lanes of the vectors that `pieces` yields for a row: at most the elements of the row, a power of two."""
    return min(k.cpu.lanes(f32), 1 << (count.bit_length() - 1))


def pieces(k: Kernel, count: Size, lanes: int | None = None) -> Iterator[Lanes]:
    """Yield the positions of a row in vectors. The last two may overlap.

    Args:
        k: The kernel.
        count: The number of positions.
        lanes: The lanes of the vectors, at most `count`; those of `piece_lanes` by default, if the number is known.
    """
    if lanes is None:
        assert isinstance(count, int)
        lanes = piece_lanes(k, count) if count else 1
    for c in k.range(0, count // lanes * lanes, lanes):
        yield Lanes(c, lanes)
    for _ in k.when(count % lanes > 0):
        yield Lanes(count - lanes, lanes)


class WindowCopies:
    """Code that copies the elements of a block.

    Args:
        k: The kernel.
        block: The block.
        x: Images `[planes, rows, columns]`.
        elements: Scratch memory.
        padding: The number around the images.
        lanes: The lanes of the vectors, at most the elements of a row's phase that are copied, if sizes are unknown.
    """

    def __init__(
        self,
        k: Kernel,
        block: WindowBlock,
        x: Buffer,
        elements: Buffer,
        padding: float = 0.0,
        lanes: int | None = None,
    ) -> None:
        self.k, self.block, self.x, self.elements, self.padding, self.lanes = k, block, x, elements, padding, lanes

    def copy(self, target: Size, source: Value, strip: Value) -> None:
        """Copy the elements of one plane.

        Args:
            target: The first element in scratch memory.
            source: The plane of the images.
            strip: The first row of windows.
        """
        block, axis, k = self.block, self.block.rows, self.k
        for row_phase in k.range(len(axis.phases)):
            for phase, position in enumerate(block.planes[:-1]):
                plane = row_phase * block.planes[-1] + position + target
                for r in k.range(block.row_count):
                    row = (strip + r) * axis.stride + row_phase - axis.before
                    start, is_inside = r * block.row_length + plane, (row >= 0) & (row < axis.size)
                    for _ in k.when(is_inside):
                        self._copy_row(start, (source, row), phase)
                    for _ in k.when(~is_inside):
                        for at in pieces(k, block.row_length, self.lanes):
                            self.elements[at + start] = self.padding
                for j in k.range(block.columns.start(phase)):
                    self.elements[plane + (block.row_count * block.row_length) + j] = self.padding

    def _copy_row(self, start: Value, source: tuple[Value, Value], phase: int) -> None:
        """Copy one phase of a row.

        Args:
            start: The first element in scratch memory.
            source: The plane and row of the images.
            phase: The phase.
        """
        axis, k, length = self.block.columns, self.k, self.block.row_length
        first, count = axis.start(phase), axis.copied(phase, length)
        for j in k.range(least(first, length)):
            self.elements[j + start] = self.padding
        for j in k.range(count + first, length):
            self.elements[j + start] = self.padding
        element = axis.element(phase)
        if axis.stride == 1:
            for at in pieces(k, count, self.lanes):
                self.elements[at + (start + first)] = self.x[(*source, at + element)]
            return
        whole: Size = 0
        if axis.stride == 2:
            whole = axis.in_pairs(phase, length)
            for at in pieces(k, whole, self.lanes):
                low, high = (self.x[(*source, Lanes(at.start * 2 + (element + n), at.count))] for n in (0, at.count))
                self.elements[at + (start + first)] = low.shuffle(high, range(0, 2 * at.count, 2))
        for j in k.range(whole, count):
            self.elements[j + (start + first)] = self.x[(*source, j * axis.stride + element)]
