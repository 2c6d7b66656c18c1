"""The geometry of windows on an image, and the rows of the image that each row of results needs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Geometry:
    """Sizes of windows: pairs are of height and width.

    Attributes:
        image: The image.
        channels: Its channels.
        kernel: The size of the window.
        stride: The distance between windows.
        padding: Rows and columns before the image: top, left.
        dilation: The distance between taps of a window.
        results: The rows and columns of results.
    """

    image: tuple[int, int]
    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    results: tuple[int, int]

    @property
    def pads(self) -> bool:
        """Whether a window crosses the border of the image."""
        return any(
            p > 0 or (n - 1) * s - p + (k - 1) * d >= size
            for p, n, s, k, d, size in zip(
                self.padding, self.results, self.stride, self.kernel, self.dilation, self.image, strict=True
            )
        )

    def first_row(self, row: int) -> int:
        """The first row of the image that this or a later row of results needs."""
        return min(max(row * self.stride[0] - self.padding[0], 0), self.image[0])

    def last_row(self, row: int) -> int:
        """One more than the last row of the image that this row of results needs."""
        end = row * self.stride[0] - self.padding[0] + (self.kernel[0] - 1) * self.dilation[0] + 1
        return min(max(end, 0), self.image[0])

    def plan(self) -> list[tuple[int, int]]:
        """For each row of results: the number of stored rows that it requires, and the number of rows released after it."""
        rows = self.results[0]
        firsts = [self.first_row(r) for r in range(rows)] + [self.image[0]]
        gone = [after - before for before, after in pairwise(firsts)]
        return [(max(self.last_row(r) - firsts[r], gone[r]), gone[r]) for r in range(rows)]
