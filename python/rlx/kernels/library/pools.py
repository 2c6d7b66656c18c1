"""The kernel of maxima, means and sums over windows.

A lane of a vector is a window. The elements of a channel are copied to scratch memory, as for convolutions. The taps in a row
of a window are joined first, because several windows read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlx.kernels.buffer import Buffer, Size, ceil_div, product
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.kernel import Kernel, joined_in_pairs
from rlx.kernels.library.windows import (
    MOST_PLANE_TAPS,
    WORKGROUP_WINDOWS,
    WindowAxis,
    WindowCopies,
    are_long_rows,
    pieces,
    plane_block,
)
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value
from rlx.ops.convolution.geometry import PoolGeometry


def _axes(
    x: Sequence[Any], y: Sequence[Any], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[WindowAxis, WindowAxis]:
    """Return the rows and columns of windows; a signal is an image of one row."""
    geometry, sizes = PoolGeometry(kernel, stride, padding), [tuple(x[2:]), tuple(y[2:])]
    if len(sizes[0]) == 1:
        geometry, sizes = geometry.with_row(), [(1, *s) for s in sizes]
    rows, columns = (
        WindowAxis(sizes[0][i], geometry.kernel[i], sizes[1][i], geometry.stride[i], geometry.edges[i][0], 1)
        for i in range(2)
    )
    return rows, columns


def _axes_of(case: KernelCase) -> tuple[WindowAxis, WindowAxis]:
    named = {name: case.attributes[name] for name in ("kernel", "stride", "padding")}
    return _axes(case.tensors[0].dims, case.results[0].dims, **named)


def _takes(case: KernelCase) -> bool:
    """Whether windows of f32 have known and few elements, and means do not depend on the position."""
    x, y, attributes = case.tensors[0], case.results[0], case.attributes
    sizes = (*x.dims[1:], *y.dims[1:])
    if not case.are_all("f32") or x.rank not in (3, 4) or not all(isinstance(d, int) and d > 0 for d in sizes):
        return False
    depends = attributes["kind"] == "mean" and not attributes["count_include_pad"] and any(attributes["padding"])
    return (
        not depends and math.prod(attributes["kernel"]) <= MOST_PLANE_TAPS and plane_block(_axes_of(case)) is not None
    )


def _open_axes(case: KernelCase) -> list[Axes]:
    """The axes of the batch and of channels."""
    return [[(0, axis), (1, axis)] for axis in (0, 1)]


@kernel("pool", takes=_takes, pays=are_long_rows, open_axes=_open_axes)
def window_pool(k: Kernel, x: Buffer, y: Buffer, *, kind: str, count_include_pad: bool, **geometry: Any) -> None:
    """Maxima, means or sums over windows."""
    division = plane_block(_axes(x.shape, y.shape, **geometry))
    assert division is not None
    block, at_once = division
    rows, columns = block.rows, block.columns
    planes = product(x.shape[:2])
    elements, result = k.scratch(block.size(block.windows)), y.view(planes, rows.count, columns.count)
    padding = -math.inf if kind == "max" else 0.0
    copies = WindowCopies(k, block, x.view(planes, rows.size, columns.size), elements, padding)
    strips = ceil_div(rows.count, block.count)
    is_whole = rows.count % block.count == 0
    join = k.join("max" if kind == "max" else "add")
    for i in k.parallel(product([planes, strips]), max(1, WORKGROUP_WINDOWS // block.windows)):
        strip, plane = i % strips * block.count, i // strips
        copies.copy(0, plane, strip)
        for r in k.range(0, block.count, at_once):
            for at in pieces(k, columns.count):
                joined: dict[Size, Value] = {}
                for row in range(at_once):
                    starts = [o + row * block.row_length for o in block.offsets[:: columns.taps]]
                    for start in starts:
                        if start not in joined:
                            places = [start + o - block.offsets[0] for o in block.offsets[: columns.taps]]
                            parts = [elements[at + (r * block.row_length + place)] for place in places]
                            joined[start] = joined_in_pairs(parts, join)
                    total = joined_in_pairs([joined[start] for start in starts], join)
                    target = strip + r + row
                    for _ in k.when(is_whole or target < rows.count):
                        result[plane, target, at] = total / (rows.taps * columns.taps) if kind == "mean" else total
