"""Image sampling at computed positions (`grid_sample`, `affine_grid`), pixel shuffles, `unfold` and `fold`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as cartesian

import numpy as np

from rlx.ir.dims.dim import Dim, dim, exact_divide, product
from rlx.ir.dtype import DType, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Padding, Size, TensorLike, Window
from rlx.ir.shape import Shape
from rlx.ops.convolution.convolution import out_size, per_axis, per_edge
from rlx.ops.lift import cast, inexact, size_of, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer, is_sequence

_CUBIC = -0.75  # the slope of the cubic at its first zero, as in `resize`

# A neighbour along one axis: its position, an integer in the dtype of the grid, and its weight (None for 1).
_Tap = tuple[Tensor, Tensor | None]


@helper
def grid_sample(
    b: Builder,
    x: TensorLike,
    grid: TensorLike,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """PyTorch's `grid_sample`: an image interpolated at the positions of a grid.

    Args:
        b: The graph.
        x: `[N, C, H, W]` or `[N, C, D, H, W]`, floats.
        grid: `[N, out…, 2 or 3]`, floats: positions as (x, y) or (x, y, z), from -1 to 1 across the image.
        mode: `bilinear`, `nearest` (halves round to the even position) or, for two axes, `bicubic` (with slope -0.75,
            as in PyTorch).
        padding_mode: The values beyond the edges: `zeros`, `border` (the edge) or `reflection`.
        align_corners: Whether -1 and 1 are the centres of the outermost pixels; otherwise they are their outer edges.

    Returns:
        `[N, C, out…]`, in the dtype of `x`. The interpolation is differentiable with respect to both operands.

    Raises:
        ShapeError: Shapes do not fit together, or a mode is unknown.
    """
    x, grid = inexact(b, tensor_like(b, x, f32)), inexact(b, tensor_like(b, grid, f32))
    count = x.rank - 2
    if (
        count not in (2, 3)
        or grid.rank != x.rank
        or grid.shape.dims[-1] != count
        or grid.shape.dims[0] != x.shape.dims[0]
    ):
        raise ShapeError(
            f"x [N, C, H, W] needs a grid [N, out…, 2], x [N, C, D, H, W] [N, out…, 3]; got {x.shape}, {grid.shape}"
        )
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and count != 2):
        raise ShapeError(f"mode is 'bilinear', 'nearest' or, of two axes, 'bicubic', not {mode!r} of {count} axes")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ShapeError(f"padding_mode is 'zeros', 'border' or 'reflection', not {padding_mode!r}")
    wide = statistics_input(b, x)
    kind = wide.dtype
    taps: list[list[_Tap]] = []
    for axis, size in enumerate(x.shape.dims[2:]):
        at = b.narrow(cast(b, grid, kind), grid.rank - 1, count - 1 - axis, 1)
        line = _SampledAxis(b, size, kind, padding_mode, align_corners)
        taps.append(line.taps(b.reshape(at, (grid.shape.dims[0], product(grid.shape.dims[1:-1]))), mode))
    total = None
    n, channels, *sizes = x.shape.dims
    table = b.transpose(b.reshape(wide, (n, channels, product(sizes))), (0, 2, 1))
    for corner in cartesian(*taps):
        term = _corner(b, table, sizes, corner, padding_mode == "zeros")
        total = term if total is None else total + term
    assert total is not None
    result = b.reshape(b.transpose(total, (0, 2, 1)), (n, channels, *grid.shape.dims[1:-1]))
    return cast(b, result, x.dtype)


class _SampledAxis:
    """One axis of a sampled image."""

    def __init__(self, b: Builder, size: Dim, kind: DType, padding_mode: str, align_corners: bool):
        self.b, self.padding_mode, self.align_corners = b, padding_mode, align_corners
        self.size: float | Tensor = float(size) if type(size) is int else cast(b, size_of(b, size), kind)

    def taps(self, at: Tensor, mode: str) -> list[_Tap]:
        """Return the neighbours of positions from -1 to 1."""
        b, size = self.b, self.size
        place = (at + 1.0) * ((size - 1.0) * 0.5) if self.align_corners else ((at + 1.0) * size - 1.0) * 0.5
        if mode != "bicubic":
            place = self.held(place)
        if mode == "nearest":
            return [(b.stop_gradient(b.rint(place)), None)]
        before = b.stop_gradient(b.floor(place))
        share = place - before
        if mode == "bilinear":
            return [(before, 1.0 - share), (before + 1.0, share)]
        weights = [_far(share + 1.0), _near(share), _near(1.0 - share), _far(2.0 - share)]
        return [(self.held(before + float(i - 1)), w) for i, w in enumerate(weights)]

    def held(self, place: Tensor) -> Tensor:
        """Return positions moved into the image by `padding_mode`."""
        if self.padding_mode == "zeros":
            return place
        if self.padding_mode == "reflection":
            place = self._reflected(place)
        return self.b.minimum(self.b.maximum(place, 0.0), self.size - 1.0)

    def _reflected(self, place: Tensor) -> Tensor:
        """Return positions reflected into the image, at the outermost centres or at the outer edges, as often as needed."""
        b = self.b
        low, span = (0.0, self.size - 1.0) if self.align_corners else (-0.5, self.size)
        if isinstance(span, float) and span == 0.0:
            return place * 0.0
        period = span * 2.0 if isinstance(span, float) else b.maximum(span * 2.0, 1.0)
        distance = b.abs(place - low)
        turned = distance - b.stop_gradient(b.floor(distance / period)) * period
        return b.minimum(turned, period - turned) + low


def _near(distance: Tensor) -> Tensor:
    """Return the weight of a neighbour at a distance up to 1."""
    return ((distance * (_CUBIC + 2)) - (_CUBIC + 3)) * distance * distance + 1.0


def _far(distance: Tensor) -> Tensor:
    """Return the weight of a neighbour at a distance from 1 to 2."""
    return ((distance * _CUBIC - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC


def _corner(b: Builder, table: Tensor, sizes: list[Dim], corner: tuple[_Tap, ...], zeros: bool) -> Tensor:
    """Return the pixels at one tap of each axis, times their weight: `[N, positions, C]`."""
    index: Tensor | None = None
    weight = inside = None
    for (place, share), size in zip(corner, sizes, strict=True):
        length = size_of(b, size)
        held = b.minimum(b.maximum(b.cast(place, "i32"), 0), length - 1)
        index = held if index is None else index * length + held
        if share is not None:
            weight = share if weight is None else weight * share
        if zeros:
            end = float(length) if isinstance(length, int) else cast(b, length, place.dtype)
            within = (place >= 0.0) & (place < end)
            inside = within if inside is None else inside & within
    assert index is not None
    pixels = b.gather_batched(table, index, axis=1)
    if inside is not None:
        pixels = b.where(b.expand_dims(inside, -1), pixels, 0.0)
    return pixels if weight is None else pixels * b.expand_dims(weight, -1)


@helper
def affine_grid(b: Builder, theta: TensorLike, size: Sequence[Size], align_corners: bool = False) -> Tensor:
    """PyTorch's `affine_grid`: the pixel positions of an image under affine maps, for `grid_sample`.

    Args:
        b: The graph.
        theta: `[N, 2, 3]`, or `[N, 3, 4]` for three spatial axes, floats: rows of `matrix | shift`.
        size: The shape of the image: `(N, C, H, W)` or `(N, C, D, H, W)`.
        align_corners: As in `grid_sample`.

    Returns:
        `[N, H, W, 2]`, or `[N, D, H, W, 3]`.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    theta = inexact(b, tensor_like(b, theta, f32))
    dims = [dim(d) for d in size]
    count = len(dims) - 2
    if count not in (2, 3) or theta.rank != 3 or theta.shape.dims[1:] != (count, count + 1):
        raise ShapeError(f"theta is [N, 2, 3] for a size of 4 and [N, 3, 4] for one of 5; got {theta.shape}, {size}")
    if theta.shape.dims[0] != dims[0]:
        raise ShapeError(f"theta {theta.shape} has another N than size {tuple(dims)}")
    wide = statistics_input(b, theta)
    spatial = dims[2:]
    columns = [_centres(b, spatial[a], a, spatial, wide.dtype, align_corners) for a in reversed(range(count))]
    ones = b.expand(b.constant(1, dtype=wide.dtype), spatial)
    base = b.reshape(b.stack([*columns, ones], -1), (1, product(spatial), count + 1))
    moved = b.matmul(b.expand(base, (dims[0], product(spatial), count + 1)), b.transpose(wide, (0, 2, 1)))
    return cast(b, b.reshape(moved, (dims[0], *spatial, count)), theta.dtype)


def _centres(b: Builder, size: Dim, axis: int, spatial: list[Dim], kind: DType, align_corners: bool) -> Tensor:
    """Return the pixel centres along an axis, from -1 to 1, for all pixels of an image."""
    tail = (1,) * (len(spatial) - 1 - axis)
    if type(size) is int:
        index = np.arange(size)
        at = index * (2 / max(size - 1, 1)) - (1 if size > 1 else 0) if align_corners else (index * 2 + 1) / size - 1
        line = b.constant(at.astype(kind.numpy).reshape(-1, *tail))
    else:
        length = cast(b, size_of(b, size), kind)
        index = b.reshape(b.iota((size,), 0, kind), (size, *tail))
        if align_corners:
            line = index * (2.0 / b.maximum(length - 1.0, 1.0)) - b.minimum(length - 1.0, 1.0)
        else:
            line = (index * 2.0 + 1.0) / length - 1.0
    return b.expand(line, spatial)


def _factor(value: object, name: str) -> int:
    if not is_integer(value) or value < 1:
        raise ShapeError(f"{name} must be an integer from 1 on, got {value!r:.60}")
    return int(value)


def _parted(d: Dim, factor: int, what: str, x: Shape) -> Dim:
    part = exact_divide(d, factor)
    if part is None:
        raise ShapeError(f"{d} {what} of {x} do not divide by {factor}")
    return part


@helper
def pixel_shuffle(b: Builder, x: TensorLike, upscale_factor: int) -> Tensor:
    """PyTorch's `pixel_shuffle`: `[…, C·r², H, W]` to `[…, C, H·r, W·r]`, for any dtype.

    Raises:
        ShapeError: The channels are not divisible by r², or the rank is below 3.
    """
    x, r = tensor_like(b, x, f32), _factor(upscale_factor, "upscale_factor")
    if x.rank < 3:
        raise ShapeError(f"x must be [..., C, H, W], got {x.shape}")
    *outer, channels, height, width = x.shape.dims
    left, n = _parted(channels, r * r, "channels", x.shape), len(outer)
    parted = b.reshape(x, (*outer, left, r, r, height, width))
    order = (*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return b.reshape(b.transpose(parted, order), (*outer, left, height * r, width * r))


@helper
def pixel_unshuffle(b: Builder, x: TensorLike, downscale_factor: int) -> Tensor:
    """PyTorch's `pixel_unshuffle`: `[…, C, H·r, W·r]` to `[…, C·r², H, W]`, the inverse of `pixel_shuffle`; any dtype.

    Raises:
        ShapeError: Height or width is not divisible by r, or the rank is below 3.
    """
    x, r = tensor_like(b, x, f32), _factor(downscale_factor, "downscale_factor")
    if x.rank < 3:
        raise ShapeError(f"x must be [..., C, H, W], got {x.shape}")
    *outer, channels, height, width = x.shape.dims
    rows, columns, n = _parted(height, r, "rows", x.shape), _parted(width, r, "columns", x.shape), len(outer)
    parted = b.reshape(x, (*outer, channels, rows, r, columns, r))
    order = (*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return b.reshape(b.transpose(parted, order), (*outer, channels * (r * r), rows, columns))


@helper
def channel_shuffle(b: Builder, x: TensorLike, groups: int) -> Tensor:
    """PyTorch's `channel_shuffle`: channels `[N, groups·k, …]` reordered to `[N, k·groups, …]`, for any dtype."""
    x, count = tensor_like(b, x, f32), _factor(groups, "groups")
    if x.rank < 2:
        raise ShapeError(f"x must be [N, C, …], got {x.shape}")
    n, channels, *spatial = x.shape.dims
    each = _parted(channels, count, "channels", x.shape)
    parted = b.reshape(x, (n, count, each, *spatial))
    return b.reshape(b.swapaxes(parted, 1, 2), x.shape.dims)


class _UnfoldWindows:
    """The windows of `unfold` and `fold` along each spatial axis."""

    def __init__(self, sizes: Sequence[Dim], kernel: Window, dilation: Window, padding: Padding, stride: Window):
        given = (("kernel", kernel), ("dilation", dilation), ("stride", stride))
        numbers = [tuple(_factor(v, name) for v in per_axis(value, 2, name)) for name, value in given]
        self.kernel, self.dilation, self.stride = numbers
        self.padding = per_edge(padding, 2)
        edges = zip(self.padding[::2], self.padding[1::2], strict=True)
        window = zip(sizes, self.kernel, self.stride, edges, self.dilation, strict=True)
        self.counts = [out_size(size, k, s, *edge, d) for size, k, s, edge, d in window]
        if any(type(c) is int and c < 1 for c in self.counts):
            raise ShapeError(f"a block of {list(self.kernel)} does not fit an image of {list(sizes)} with its padding")

    def starts(self) -> list[tuple[int, ...]]:
        """Return the position of each tap of the first block in the padded image."""
        return list(cartesian(*(range(0, k * d, d) for k, d in zip(self.kernel, self.dilation, strict=True))))


@helper
def unfold(
    b: Builder, x: TensorLike, kernel: Window, dilation: Window = 1, padding: Padding = 0, stride: Window = 1
) -> Tensor:
    """PyTorch's `unfold` (im2col): the blocks that a convolution reads, as columns.

    Args:
        b: The graph.
        x: `[N, C, H, W]`, any dtype of numbers.
        kernel: The size of a block: one integer or two.
        dilation: The distance between the elements of a block.
        padding: Zeros around the image: an integer, two, or (before, after) pairs.
        stride: The step from one block to the next.

    Returns:
        `[N, C·kernel elements, blocks]`.

    Raises:
        ShapeError: No block fits.
    """
    x = tensor_like(b, x, f32)
    if x.rank != 4:
        hint = "windows along one axis: g.stack([x[:, i : i + size] for i in range(0, n, step)], axis=1)"
        raise ShapeError(f"x must be [N, C, H, W], got {x.shape}", hint=hint)
    n, channels, *sizes = x.shape.dims
    blocks = _UnfoldWindows(sizes, kernel, dilation, padding, stride)
    (top, bottom, left, right), (rows, columns) = blocks.padding, blocks.counts
    padded = b.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)]) if any(blocks.padding) else x
    taps: list[Tensor] = []
    for start in blocks.starts():
        ends = [at + (c - 1) * s + 1 for at, c, s in zip(start, blocks.counts, blocks.stride, strict=True)]
        taps.append(b.slice(padded, (0, 0, *start), (n, channels, *ends), (1, 1, *blocks.stride)))
    return b.reshape(b.stack(taps, 2), (n, channels * len(taps), rows * columns))


@helper
def fold(
    b: Builder,
    x: TensorLike,
    output_size: TensorLike,
    kernel: Window,
    dilation: Window = 1,
    padding: Padding = 0,
    stride: Window = 1,
) -> Tensor:
    """PyTorch's `fold` (col2im): the sum of blocks at their positions in an image, the adjoint of `unfold`.

    Args:
        b: The graph.
        x: `[N, C·kernel elements, blocks]`.
        output_size: Height and width of the image.
        kernel: As in `unfold`.
        dilation: Likewise.
        padding: Likewise.
        stride: Likewise.

    Returns:
        `[N, C, H, W]`.

    Raises:
        ShapeError: The number of blocks or rows does not match.
    """
    x = tensor_like(b, x, f32)
    sizes = [dim(d) for d in (output_size if is_sequence(output_size) else (output_size,) * 2)]
    blocks = _UnfoldWindows(sizes, kernel, dilation, padding, stride)
    (top, _, left, _), (rows, columns), taps = blocks.padding, blocks.counts, len(blocks.starts())
    if x.rank != 3 or x.shape.dims[2] != rows * columns:
        raise ShapeError(f"x must be [N, C*{taps}, {rows * columns}], got {x.shape}")
    n, channels = x.shape.dims[0], _parted(x.shape.dims[1], taps, "rows", x.shape)
    parted = b.reshape(x, (n, channels, taps, rows, 1, columns, 1))
    (down, across), total = blocks.stride, None
    edges = [size + sum(blocks.padding[2 * i : 2 * i + 2]) for i, size in enumerate(sizes)]
    for number, (row, column) in enumerate(blocks.starts()):
        tap = b.reshape(b.narrow(parted, 2, number, 1), (n, channels, rows, 1, columns, 1))
        spread = b.pad(tap, [(0, 0), (0, 0), (0, 0), (0, down - 1), (0, 0), (0, across - 1)])
        image = b.reshape(spread, (n, channels, rows * down, columns * across))
        held = b.narrow(b.narrow(image, 2, 0, (rows - 1) * down + 1), 3, 0, (columns - 1) * across + 1)
        room = [(row, edges[0] - row - (rows - 1) * down - 1), (column, edges[1] - column - (columns - 1) * across - 1)]
        placed = b.pad(held, [(0, 0), (0, 0), *room])
        total = placed if total is None else total + placed
    assert total is not None
    return b.narrow(b.narrow(total, 2, top, sizes[0]), 3, left, sizes[1])
