"""Read addresses for the steps of a window, computed by additions without products."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.targets.fpga.lower.geometry import Geometry
from rlx.targets.fpga.lower.hdl import HdlModule, Wire, bits_for, index_bits


@dataclass(frozen=True)
class Ends:
    """The ends of loops: each wire is 1 in the last step of its loop. `last_row` is 1 during the whole last row of results.

    Attributes:
        step: Whether there is a step in this cycle.
        tap: The last word at a position of a window.
        line: The last step of a line of a window.
        sum: The last step of the results that are computed at once.
        group: The last step of a group of channels.
        pixel: The last step of a pixel of results.
        row: The last step of a row of results.
        last_row: Whether this row is the last one.
    """

    step: Wire
    tap: Wire
    line: Wire
    sum: Wire
    group: Wire
    pixel: Wire
    row: Wire
    last_row: Wire


@dataclass(frozen=True)
class Addresses:
    """The addresses of the steps of a layer, in a ring of rows of an image.

    Attributes:
        m: The module to write to.
        geometry: The geometry of the windows.
        ends: The ends of loops.
        rows_kept: The rows of the ring.
        pixel_words: The words of a pixel.
        group_words: The words of a group of channels.
        groups: The groups.
    """

    m: HdlModule
    geometry: Geometry
    ends: Ends
    rows_kept: int
    pixel_words: int
    group_words: int
    groups: int

    @property
    def _row_words(self) -> int:
        return self.geometry.image[1] * self.pixel_words

    @property
    def _width(self) -> int:
        return index_bits(self.rows_kept * self._row_words)

    def write(self) -> tuple[Wire, Wire | None]:
        """The address of the word of a step, and whether it is inside the image (None if it always is)."""
        width, word = self._width, self._column()
        address = self.m.add(self._line(), self.m.fit(word, width))
        return address, self._inside() if self.geometry.pads else None

    def _line(self) -> Wire:
        """The address of the row of a step. The first line of a window may be before the image."""
        g, ends = self.geometry, self.ends
        start = -g.padding[0] % self.rows_kept * self._row_words
        to_next_image = g.image[0] - (g.results[0] - 1) * g.stride[0]
        moves = [(ends.row, g.stride[0]), (self.m.all(ends.row, ends.last_row), to_next_image)]
        _, following = self._ring("window_row", start, moves, None)
        line, _ = self._ring("line_row", start, [(ends.line, g.dilation[0])], (ends.sum, following))
        return line

    def _ring(
        self, name: str, start: int, moves: list[tuple[Wire, int]], load: tuple[Wire, Wire] | None
    ) -> tuple[Wire, Wire]:
        """The address of a row in the ring, and its next value. Of several moves that apply, the last one is used."""
        m, width, words = self.m, self._width, self.rows_kept * self._row_words
        register = m.register(name, width)
        following = register.value
        enable: list[Wire] = []
        for condition, rows in moves:
            by = rows % self.rows_kept * self._row_words
            moved = m.add(m.zext(register.value, width + 1), m.const(by, width + 1))
            over = m.compare("uge", moved, words)
            wrapped = m.sub(moved, m.const(words, width + 1))
            following = m.mux(condition, m.extract(m.mux(over, wrapped, moved), 0, width), following)
            enable.append(condition)
        if load is not None:
            following = m.mux(load[0], load[1], following)
            enable.append(load[0])
        register.set(following, m.any(*enable), reset=start % words)
        return register.value, following

    def _column(self) -> Wire:
        """The word of a step, relative to its row. It may be before or after the row."""
        m, g, ends, pixel = self.m, self.geometry, self.ends, self.pixel_words
        stride, dilation, left = g.stride[1], g.dilation[1], -g.padding[1] * pixel
        span = bits_for(left - 1, (g.image[1] + (g.kernel[1] + 1) * dilation + stride) * pixel)
        origin = m.register("window_word", span)
        moved = m.mux(ends.row, m.const(left, span), m.add(origin.value, m.const(stride * pixel, span)))
        origin.set(moved, ends.pixel, reset=left)
        after = m.mux(ends.pixel, moved, origin.value)
        if self.groups > 1:
            base = m.register("group_word", span)
            next_group = m.add(base.value, m.const(self.group_words, span))
            after = m.mux(ends.pixel, moved, m.mux(ends.group, next_group, base.value))
            base.set(after, ends.group, reset=left)
        word = m.register("window_place", span)
        on = m.add(word.value, m.const(1, span))
        if (jump := dilation * pixel - self.group_words + 1) != 1:
            on = m.mux(ends.tap, m.add(word.value, m.const(jump, span)), on)
        word.set(m.mux(ends.line, after, on), ends.step, reset=left)
        return word.value

    def _inside(self) -> Wire:
        """Whether the position of a step is inside the image."""
        m, g, ends = self.m, self.geometry, self.ends
        bits: list[Wire] = []
        turns = ((ends.line, ends.sum, ends.row, ends.last_row), (ends.tap, ends.line, ends.pixel, ends.row))
        for axis, (name, (inner, outer, on, back)) in enumerate(zip(("y", "x"), turns, strict=True)):
            size, stride, pad = g.image[axis], g.stride[axis], g.padding[axis]
            dilation, kernel = g.dilation[axis], g.kernel[axis]
            last = (g.results[axis] - 1) * stride - pad + (kernel - 1) * dilation
            if pad == 0 and last < size:
                continue
            width = bits_for(-pad - 1, max(last, size) + stride + dilation + 1)
            origin = m.register(f"window_{name}", width)
            going = m.mux(m.all(on, back), m.const(-pad, width), m.add(origin.value, m.const(stride, width)))
            origin.set(going, on, reset=-pad)
            here = m.register(f"place_{name}", width)
            following = m.mux(outer, m.mux(on, going, origin.value), m.add(here.value, m.const(dilation, width)))
            here.set(following, m.any(inner, outer), reset=-pad)
            bits += [m.compare("sge", here.value, 0), m.compare("slt", here.value, size)]
        return m.all(*bits)
