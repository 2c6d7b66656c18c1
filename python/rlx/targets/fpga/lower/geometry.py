"""Where windows lie on an image, and which of its rows are needed when."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Geometry:
    """Sizes of windows: pairs are of height and width.

    Attributes:
        image: The image.
        channels: Its channels.
        kernel: The window.
        stride: From one window to the next.
        padding: Rows and columns before the image: top, left.
        dilation: From one place of a window to the next.
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
        """Whether a window reaches out of the image."""
        return any(
            p > 0 or (n - 1) * s - p + (k - 1) * d >= size
            for p, n, s, k, d, size in zip(
                self.padding, self.results, self.stride, self.kernel, self.dilation, self.image, strict=True
            )
        )

    def first_row(self, row: int) -> int:
        """The first row of the image that any window from this row of results on needs."""
        return min(max(row * self.stride[0] - self.padding[0], 0), self.image[0])

    def last_row(self, row: int) -> int:
        """One more than the last row of the image that this row of results needs."""
        end = row * self.stride[0] - self.padding[0] + (self.kernel[0] - 1) * self.dilation[0] + 1
        return min(max(end, 0), self.image[0])

    def plan(self) -> list[tuple[int, int]]:
        """For each row of results the rows that have to be there, from the first one kept on, and those given up after it."""
        rows = self.results[0]
        firsts = [self.first_row(r) for r in range(rows)] + [self.image[0]]
        gone = [after - before for before, after in pairwise(firsts)]
        return [(max(self.last_row(r) - firsts[r], gone[r]), gone[r]) for r in range(rows)]
