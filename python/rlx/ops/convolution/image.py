"""Image ops: resizing, and rotary positions in two dimensions."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, exact_divide, maximum, minimum, product
from rlx.ir.dtype import FLOATS, DType, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, ShapeLike, Tensors
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.attention.rope import Rope, RopeLayout
from rlx.ops.contraction.contraction import DotDims, dots
from rlx.ops.convolution.resample import COMPOSED_MODES, mode_of, resample
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input
from rlx.ops.shape.index import index_dtype
from rlx.support.errors import ShapeError
from rlx.support.guards import is_array, is_sequence
from rlx.support.short import short_repr

# The largest denominator of a fraction that a symbolic size can be multiplied by.
_LARGEST_DENOMINATOR = 4096


@dataclass(frozen=True)
class Resizing(ArgumentGroup):
    """The attributes of a `resize`: the spatial sizes of the result, and how its pixels follow from those of the image."""

    size: tuple[Dim, ...]
    mode: str
    align_corners: bool


class Resize(Card, op="resize"):
    def infer(self, x: Shape, *, resizing: Resizing) -> Shape:
        size = resizing.size
        if x.rank not in (3, 4, 5):
            raise ShapeError(f"x must be [N, C, spatial…] of rank 3, 4 or 5, got {x}")
        if len(size) != x.rank - 2:
            raise ShapeError(f"size needs {x.rank - 2} entries for {x}, got {len(size)}")
        if resizing.align_corners and resizing.mode == "nearest":
            raise ShapeError(
                "align_corners says how to interpolate, and nearest does not", hint='use mode="bilinear" or drop it'
            )
        result = x.with_dims((*x.dims[:2], *size))
        for i, (old, new) in enumerate(zip(x.dims[2:], size, strict=True)):
            if old == 0 and new != 0 and result.num_elements != 0:
                raise ShapeError(f"spatial axis {i} of {x} is empty: there is nothing to resize to {new}")
        return result

    def requires(self, x: Shape, *, size: tuple[Dim, ...], **_: object) -> Iterable[tuple[Dim, str]]:
        # An empty image may only be resized to another empty image.
        least_size = minimum(1, product((*x.dims[:2], *size)))
        for i, old in enumerate(x.dims[2:]):
            yield old - least_size, f"spatial axis {i} is empty: there is nothing to resize"

    def evaluate(self, x: np.ndarray, *, resizing: Resizing) -> np.ndarray:
        wide = x.astype(np.float64)
        size: Any = resizing.size
        if 0 in (*x.shape[:2], *size):
            return np.zeros((*x.shape[:2], *size), x.dtype)
        for i, (old, new) in enumerate(zip(x.shape[2:], size, strict=True)):
            if resizing.mode == "nearest":
                wide = np.take(wide, np.arange(int(new)) * old // new, 2 + i)
            else:
                wide = _interpolated(wide, 2 + i, _ResizedAxis(old, new, resizing.align_corners))
        return wide.astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, *, resizing: Resizing) -> Tensor:
        size, mode = resizing.size, resizing.mode
        dims = (*x.shape.dims[:2], *size)
        if 0 in dims:
            return b.expand(b.constant(0, dtype=x.dtype), dims)
        result = x if mode == "nearest" else statistics_input(b, x)
        for i, new in enumerate(size):
            if x.shape.dims[2 + i] == new:
                continue
            line = _ResizedAxis(x.shape.dims[2 + i], new, resizing.align_corners)
            result = (_nearest if mode == "nearest" else _bilinear)(b, result, 2 + i, line)
        return cast(b, result, x.dtype)

    def build(
        self,
        b: Builder,
        x: Tensor,
        size: ShapeLike | None = None,
        scale: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
        antialias: bool = False,
    ) -> Tensor:
        """The result has the size `size`, or the size of `x` times `scale`, rounded down; one number, or one per axis.

        There are three more modes. `nearest_exact` takes the pixel `floor((i + 1/2)·in/out)`. `bicubic` takes four
        neighbours along each axis, with slope -0.75 as in PyTorch, clamped to the image. `area` takes the mean of all
        pixels from `floor(i·in/out)` up to `ceil((i + 1)·in/out)`. With `antialias`, bilinear and bicubic (here with
        slope -0.5) weight all pixels that a result pixel covers, as `jax.image.resize` does. All of these except
        `nearest_exact` need static sizes.

        Own arguments:
            size: The sizes of the spatial axes of the result; or None.
            scale: The sizes of the result over those of `x`: one number, or one for each spatial axis; or None.
            mode: 'nearest', 'nearest_exact', 'bilinear', 'bicubic' or 'area'.
            align_corners: Whether the centres of the corner pixels of `x` and of the result coincide.
        """
        if (size is None) == (scale is None):
            raise ShapeError("give one of size and scale")
        count = max(x.rank - 2, 0)
        sizes: Sequence[Any]
        if size is None:
            sizes = [_scaled(d, s) for d, s in zip(x.shape.dims[2:], _factors(scale, count), strict=True)]
        else:
            given: Any = size
            sizes = tuple(given) if isinstance(size, (list, tuple, Shape)) else (given,) * count
        mode = mode_of(mode)
        if antialias or (isinstance(mode, str) and mode in COMPOSED_MODES):
            return resample(b, x, sizes, mode, align_corners=align_corners, antialias=antialias)
        return b.emit("resize", (x,), size=tuple(sizes), mode=mode, align_corners=align_corners)

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, resizing: Resizing
    ) -> tuple[Tensor]:
        (x,), (dy,) = operands, cotangents
        if 0 in (*x.shape.dims, *dy.shape.dims):
            return (rules.zeros(b, x.shape),)
        result = statistics_input(b, dy)
        adjoint = _nearest_adjoint if resizing.mode == "nearest" else _bilinear_adjoint
        for i, new in enumerate(resizing.size):
            old = x.shape.dims[2 + i]
            if old != new:
                result = adjoint(b, result, 2 + i, _ResizedAxis(old, new, resizing.align_corners))
        return (cast(b, result, dy.dtype),)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        taps = 0 if attributes["mode"] == "nearest" else 4 * len(attributes["size"])
        return Cost(taps * results[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 4, 5), size=(7, 3), mode="nearest", dtypes=FLOATS)
        yield sample(("n", 2, "h", 6), size=("2*h", 3), mode="nearest", dtypes=("f32",))
        yield sample((1, 2, "l"), size=("m",), mode="nearest", dtypes=("f32",))
        yield sample((2, 3, 4, 5), size=(7, 3), mode="bilinear", dtypes=FLOATS)
        yield sample((1, 2, 3, 4, 2), size=(5, 4, 1), mode="bilinear", align_corners=True, dtypes=("f32",))
        yield sample(("n", 2, "h", 4), size=("2*h", 6), mode="bilinear", dtypes=("f32",))
        yield sample((1, 2, "l"), size=("m",), mode="bilinear", align_corners=True, dtypes=("f32", "f64"))


@dataclass(frozen=True)
class _ResizedAxis:
    """Positions of a resized axis in coordinates of the old axis, in integers: `numerator/denominator`.

    Attributes:
        old: The size before.
        new: The size after.
        align_corners: Whether the first and last positions of both axes coincide.
    """

    old: Dim
    new: Dim
    align_corners: bool

    @property
    def slope(self) -> Dim:
        """The increase of the numerator from one position to the next."""
        return self.old - 1 if self.align_corners else 2 * self.old

    @property
    def offset(self) -> Dim:
        """The numerator of position 0, before it is clamped to the image."""
        return 0 if self.align_corners else self.old - self.new

    @property
    def denominator(self) -> Dim:
        return maximum(self.new - 1, 1) if self.align_corners else 2 * self.new

    def positions(self) -> tuple[np.ndarray, np.ndarray]:
        """For static sizes, return the neighbour before each position, and the weight of the neighbour after it."""
        sizes: Any = (self.old, self.new, self.slope, self.offset, self.denominator)
        old, new, slope, offset, denominator = sizes
        numerator = np.clip(np.arange(int(new)) * slope + offset, 0, (old - 1) * denominator)
        return numerator // denominator, numerator % denominator / denominator


def _interpolated(x: np.ndarray, axis: int, line: _ResizedAxis) -> np.ndarray:
    before, share = line.positions()
    after = np.minimum(before + 1, x.shape[axis] - 1)
    share = share.reshape(-1, *(1,) * (x.ndim - 1 - axis))
    # A neighbour of weight 0 is ignored, even if it is NaN.
    return np.take(x, before, axis) * (1 - share) + np.where(share > 0, np.take(x, after, axis), 0) * share


def _nearest(b: Builder, x: Tensor, axis: int, line: _ResizedAxis) -> Tensor:
    """Resize one axis to its nearest pixels. Pixels are repeated or skipped if one size divides the other, else gathered."""
    old, new, dims = line.old, line.new, x.shape.dims
    times = exact_divide(new, old) if old != 0 else None
    if type(times) is int:
        split = b.reshape(x, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
        repeated = b.expand(split, (*dims[: axis + 1], times, *dims[axis + 1 :]))
        return b.reshape(repeated, (*dims[:axis], new, *dims[axis + 1 :]))
    every = exact_divide(old, new)
    if type(every) is int:
        strides = [every if i == axis else 1 for i in range(x.rank)]
        return b.slice(x, [0] * x.rank, dims, strides)
    return b.gather(x, _looked_up(b, line), axis)


def _looked_up(b: Builder, line: _ResizedAxis) -> Tensor:
    """Return the nearest pixel of each position."""
    old, new = line.old, line.new
    if type(old) is int and type(new) is int:
        return b.constant((np.arange(new) * old // new).astype(index_dtype(i32, old).numpy))
    return _quotient(b, b.iota((new,), dtype="i64") * _size(b, old), _size(b, maximum(new, 1)))


def _nearest_adjoint(b: Builder, dy: Tensor, axis: int, line: _ResizedAxis) -> Tensor:
    """The adjoint of `_nearest`."""
    old, new, dims = line.old, line.new, dy.shape.dims
    times, every = exact_divide(new, old), exact_divide(old, new)
    if type(times) is int:
        return b.sum(b.reshape(dy, (*dims[:axis], old, times, *dims[axis + 1 :])), axis + 1)
    if type(every) is int:
        split = b.reshape(dy, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
        room = [(0, every - 1 if i == axis + 1 else 0) for i in range(split.rank)]
        return b.reshape(b.pad(split, room), (*dims[:axis], old, *dims[axis + 1 :]))
    looked_up = _looked_up(b, line)
    chosen = b.reshape(looked_up, (new, 1)) == b.iota((old,), dtype=looked_up.dtype)
    return _times_matrix(b, dy, axis, cast(b, chosen, dy.dtype))


def _bilinear(b: Builder, x: Tensor, axis: int, line: _ResizedAxis) -> Tensor:
    """Interpolate one axis between its two neighbours, in the dtype of x."""
    before, share = _neighbours(b, line, x.dtype)
    after = b.minimum(before + 1, cast(b, _size(b, line.old) - 1, before.dtype))
    share = b.reshape(share, (line.new, *(1,) * (x.rank - 1 - axis)))
    # A neighbour of weight 0 is ignored, even if it is NaN.
    second = b.where(share > 0, b.gather(x, after, axis), b.constant(0, dtype=x.dtype))
    return b.gather(x, before, axis) * (1 - share) + second * share


def _bilinear_adjoint(b: Builder, dy: Tensor, axis: int, line: _ResizedAxis) -> Tensor:
    """The adjoint of `_bilinear`: a product with the matrix of weights, for any sizes, without scatters."""
    before, share = (b.reshape(t, (line.new, 1)) for t in _neighbours(b, line, dy.dtype))
    column = b.iota((line.old,), dtype=before.dtype)
    after = b.minimum(before + 1, cast(b, _size(b, line.old) - 1, before.dtype))
    matrix = b.where(column == before, 1 - share, 0.0) + b.where(column == after, share, 0.0)
    return _times_matrix(b, dy, axis, matrix)


def _times_matrix(b: Builder, dy: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """Contract one axis of `dy` with the rows of a matrix. The columns take the place of the axis."""
    return rules.move_axis(b, dots(b, dy, matrix, DotDims((axis,), (0,))), dy.rank - 1, axis)


def _neighbours(b: Builder, line: _ResizedAxis, kind: DType) -> tuple[Tensor, Tensor]:
    """Return `_ResizedAxis.positions` as tensors, for any sizes."""
    if type(line.old) is int and type(line.new) is int:
        before, share = line.positions()
        return b.constant(before.astype(index_dtype(i32, line.old).numpy)), b.constant(share.astype(kind.numpy))
    denominator = _size(b, line.denominator)
    offset = 0 if line.align_corners else _size(b, line.old) - _size(b, line.new)
    numerator = b.iota((line.new,), dtype="i64") * _size(b, line.slope) + offset
    numerator = b.minimum(b.maximum(numerator, 0), (_size(b, line.old) - 1) * denominator)
    before = _quotient(b, numerator, denominator)
    return before, cast(b, (numerator - before * denominator) / denominator, kind)


def _quotient(b: Builder, dividend: Tensor, divisor: Tensor) -> Tensor:
    """Return `dividend // divisor` of nonnegative i64, exact below 2^52.

    The f64 quotient cannot round up to the next integer: that is at least `1/divisor` away, which is more than 0.5 ulp.
    """
    return b.cast(dividend / divisor, "i64")


def _size(b: Builder, d: Dim) -> Tensor:
    """Return a dimension as an i64 scalar. The product of two dimensions may exceed 32 bits."""
    return b.constant(d, dtype="i64") if type(d) is int else b.cast(b.dim_size(d), "i64")


def _factors(scale: object, count: int) -> tuple[Any, ...]:
    """Return a factor for every spatial axis, from one number or a list."""
    values = tuple(scale) if is_sequence(scale) or is_array(scale) else (scale,) * count
    if len(values) != count:
        raise ShapeError(f"scale needs {count} entries, got {short_repr(list(values))}")
    return values


def _scaled(d: Dim, scale: Any) -> Dim:
    """`floor(d·scale)`."""
    if isinstance(scale, (bool, str)) or not 0 < scale < np.inf:
        raise ShapeError(f"scale must be positive numbers, got {scale!r}")
    if type(d) is int:
        scaled: float = d * scale
        return floor(scaled)
    exact = scale if isinstance(scale, Fraction) else Fraction(float(scale))
    if exact.denominator > _LARGEST_DENOMINATOR:
        raise ShapeError(
            f"{d} is not known yet, and {scale} is no simple fraction to multiply it with", hint="give size="
        )
    return d * exact.numerator // exact.denominator


@dataclass(frozen=True)
class AxialGrid(ArgumentGroup):
    """The attributes of an `axial_rope_2d`: the grid of its tokens, the heads, and the base of the frequencies."""

    end_x: int
    end_y: int
    head_dim: int
    num_heads: int
    theta: float
    repeat_factor: int

    @property
    def num_tokens(self) -> int:
        return self.end_x * self.end_y * self.repeat_factor


class AxialRope2d(Card, op="axial_rope_2d"):
    def infer(self, x: Shape, *, grid: AxialGrid) -> Shape:
        head_dim, num_heads, length = grid.head_dim, grid.num_heads, grid.num_tokens
        if x.rank not in (3, 4):
            raise ShapeError(f"x must be [B, S, H·D] or [B, H, S, D], got {x}")
        if head_dim % 4:
            raise ShapeError(f"head_dim = {head_dim} is not a multiple of 4: pairs of lanes turn by column and by row")
        expected = (length, num_heads * head_dim) if x.rank == 3 else (num_heads, length, head_dim)
        if x.dims[1:] != expected:
            raise ShapeError(
                f"{num_heads} heads of {head_dim} for {grid.repeat_factor}·{grid.end_y}·{grid.end_x} tokens are "
                f"[B, {', '.join(map(str, expected))}], got {x}"
            )
        return x

    def evaluate(self, x: np.ndarray, *, grid: AxialGrid) -> np.ndarray:
        (cos, sin), head_dim = rotations(grid), grid.head_dim
        turned = Rope().evaluate(x.astype(np.float64), cos, sin, **RopeLayout(head_dim, head_dim, "gptj").named)
        return turned.astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, *, grid: AxialGrid) -> Tensor:
        return _turned(b, x, 1, grid)

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, grid: AxialGrid
    ) -> tuple[Tensor]:
        return (_turned(b, cotangents[0], -1, grid),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, **grid: Any) -> Tensor:
        x = operands[0]
        return rules.unfolded(b, b.emit("axial_rope_2d", (rules.folded(b, x, 0),), **grid), 0, size, x.shape.dims[1])

    def build(
        self,
        b: Builder,
        x: Tensor,
        end_x: int,
        end_y: int,
        head_dim: int,
        num_heads: int,
        theta: float = 10000.0,
        repeat_factor: int = 1,
    ) -> Tensor:
        sizes: dict[str, Any] = {"end_x": end_x, "end_y": end_y, "head_dim": head_dim, "num_heads": num_heads}
        return b.emit("axial_rope_2d", (x,), **sizes, theta=theta, repeat_factor=repeat_factor)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(3 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 6, 16), end_x=3, end_y=2, head_dim=8, num_heads=2, dtypes=FLOATS)
        tokens: Attributes = {"end_x": 2, "end_y": 3, "head_dim": 4, "theta": 100.0, "repeat_factor": 2}
        yield sample((1, 3, 12, 4), num_heads=3, **tokens, dtypes=("f32",))
        yield sample(("b", 12, 4), num_heads=1, **tokens, dtypes=("f32",))
        yield sample((2, 0, 8), end_x=0, end_y=2, head_dim=4, num_heads=2, dtypes=("f32",))


def _turned(b: Builder, x: Tensor, sense: int, grid: AxialGrid) -> Tensor:
    """Return `axial_rope_2d`, forwards (1) or backwards (-1)."""
    head_dim = grid.head_dim
    wide, dims = statistics_input(b, x), x.shape.dims
    tokens: Any
    if x.rank == 3:
        tokens, pairs = (dims[1], 1), (*dims[:2], dims[2] // head_dim, head_dim // 2, 2)
    else:
        tokens, pairs = (dims[2],), (*dims[:3], head_dim // 2, 2)
    cosines, sines = (t.reshape(*tokens, head_dim // 2, 1) for t in rotations(grid))
    cos, sin = (b.constant(t.astype(wide.dtype.numpy)) for t in (cosines, sense * sines))
    lanes = b.reshape(wide, pairs)
    first, second = lanes[..., :1], lanes[..., 1:]
    # A `where` is one loop over all lanes; a concatenation would copy the lanes one by one.
    is_first = b.constant(np.array([True, False]))
    turned = b.where(is_first, first * cos - second * sin, second * cos + first * sin)
    return cast(b, b.reshape(turned, dims), x.dtype)


def rotations(grid: AxialGrid) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines `[S, D/2]` in f64 of the rotation angle of each pair of lanes, for each token."""
    token, head_dim, end_x, end_y = np.arange(grid.num_tokens), grid.head_dim, grid.end_x, grid.end_y
    column, row = token % max(end_x, 1), token % max(end_x * end_y, 1) // max(end_x, 1)
    frequency = grid.theta ** (-4 * np.arange(head_dim // 4) / head_dim)
    angle = np.concatenate([np.outer(column, frequency), np.outer(row, frequency)], 1)
    return np.cos(angle), np.sin(angle)
