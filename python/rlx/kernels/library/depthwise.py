"""The kernel of depthwise convolutions, with bias and activation: a channel of the result reads one channel.

A lane of a vector is a window. The elements of a channel are copied to scratch memory, with zeros for padding, without strides.
Several rows are computed at once, because their windows read the same elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlx.ir.dtype import f32
from rlx.kernels.buffer import Buffer, Size, ceil_div, product
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.functions import ACTIVATIONS
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.windows import (
    MOST_PLANE_TAPS,
    WORKGROUP_WINDOWS,
    WindowBlock,
    WindowCopies,
    are_long_rows,
    convolution_axes,
    piece_lanes,
    pieces,
    plane_block,
    takes_windows,
)
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value


def _takes(case: KernelCase) -> bool:
    if not takes_windows(case):
        return False
    shapes = [s.dims for s in (*case.tensors[:2], *case.results)]
    taps = product([d for d in shapes[1][2:] if isinstance(d, int)])
    is_depthwise = shapes[1][1] == 1 and case.attributes["groups"] == shapes[0][1]
    is_small = isinstance(taps, int) and taps <= MOST_PLANE_TAPS
    return is_depthwise and is_small and plane_block(convolution_axes(shapes, case.attributes)) is not None


def _takes_fused(case: KernelCase) -> bool:
    return _takes(case) and case.attributes["activation"] in ACTIVATIONS


def _open_axes(case: KernelCase) -> list[Axes]:
    """The axes of the batch and of channels; there may be several channels of the result for each one of the elements."""
    x, weights, result = 0, 1, len(case.tensors)
    return [[(x, 0), (result, 0)], [(x, 1)], [*((t, 0) for t in range(weights, result)), (result, 1)]]


def _groups(case: KernelCase) -> dict[str, int]:
    return {"groups": case.attributes["groups"]}


@kernel("conv", takes=_takes, pays=are_long_rows, numbers=_groups, open_axes=_open_axes)
def depthwise_convolution(k: Kernel, x: Buffer, w: Buffer, y: Buffer, **geometry: Any) -> None:
    """A depthwise convolution."""
    _depthwise(k, (x, w, y), None, geometry, ACTIVATIONS[None])


@kernel("fused_conv_bias_act", takes=_takes_fused, pays=are_long_rows, numbers=_groups, open_axes=_open_axes)
def depthwise_convolution_bias_act(
    k: Kernel, x: Buffer, w: Buffer, bias: Buffer, y: Buffer, *, activation: str | None, **geometry: Any
) -> None:
    """An activation of a depthwise convolution with a bias."""
    _depthwise(k, (x, w, y), bias, geometry, ACTIVATIONS[activation])


def _depthwise(
    k: Kernel,
    tensors: tuple[Buffer, Buffer, Buffer],
    bias: Buffer | None,
    geometry: Mapping[str, Any],
    function: Callable[[Value], Value],
) -> None:
    x, w, y = tensors
    division = plane_block(convolution_axes([t.shape for t in tensors], geometry))
    assert division is not None
    block, at_once = division
    rows, columns, channels = block.rows, block.columns, w.shape[0]
    assert isinstance(columns.count, int)
    images = x.view(product(x.shape[:2]), rows.size, columns.size)
    result = y.view(product(y.shape[:2]), rows.count, columns.count)
    weights, lanes = w.view(channels, rows.taps * columns.taps), piece_lanes(k, columns.count)
    elements = k.scratch(block.size(block.windows))
    copies = WindowCopies(k, block, images, elements)
    strips = ceil_div(rows.count, block.count)
    is_whole = rows.count % block.count == 0
    for i in k.parallel(product([*y.shape[:2], strips]), max(1, WORKGROUP_WINDOWS // block.windows)):
        strip, plane = i % strips * block.count, i // strips
        channel = plane % channels
        copies.copy(0, plane // (channels // x.shape[1]), strip)
        factors = [weights[channel, tap].splat(lanes) for tap in range(rows.taps * columns.taps)]
        start = (k.constant(0.0, f32) if bias is None else bias[channel]).splat(lanes)
        for r in k.range(0, block.count, at_once):
            for at in pieces(k, columns.count):
                sums = [start] * at_once
                for distance, terms in _shared_elements(block, at_once).items():
                    element = elements[at + (r * block.row_length + distance)]
                    for row, tap in terms:
                        sums[row] = element.fma(factors[tap], sums[row])
                for row, total in enumerate(sums):
                    target = strip + r + row
                    for _ in k.when(is_whole or target < rows.count):
                        result[plane, target, at] = function(total)


def _shared_elements(block: WindowBlock, rows: int) -> dict[Size, list[tuple[int, int]]]:
    """Return the rows of windows and the taps that read an element, by its distance from the first window."""
    result: dict[Size, list[tuple[int, int]]] = {}
    for row in range(rows):
        for tap, offset in enumerate(block.offsets):
            result.setdefault(offset + row * block.row_length, []).append((row, tap))
    return dict(sorted(result.items()))
