"""The attributes of convolutions and pools that say which elements a window reads, as groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlx.ir.op.argument_groups import ArgumentGroup


def _edges(padding: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(padding[::2], padding[1::2], strict=True))


@dataclass(frozen=True)
class ConvGeometry(ArgumentGroup):
    """The windows of a `conv`: per spatial axis a stride, the padding before and after, and a dilation; and the groups."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The padding before and after each spatial axis."""
        return _edges(self.padding)

    def with_row(self) -> ConvGeometry:
        """The same windows over an image of one row, for windows with one spatial axis."""
        stride, padding, dilation = (1, *self.stride), (0, 0, *self.padding), (1, *self.dilation)
        return replace(self, stride=stride, padding=padding, dilation=dilation)


@dataclass(frozen=True)
class PoolGeometry(ArgumentGroup):
    """The windows of a `pool`: per spatial axis a size, a stride, and the padding before and after."""

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The padding before and after each spatial axis."""
        return _edges(self.padding)

    def with_row(self) -> PoolGeometry:
        """The same windows over an image of one row, for windows with one spatial axis."""
        return PoolGeometry((1, *self.kernel), (1, *self.stride), (0, 0, *self.padding))
