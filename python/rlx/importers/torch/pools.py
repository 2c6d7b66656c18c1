"""Pooling, resampling, and unfolding of images to columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.importers.torch.rules import Results, aten, each, static_size
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.shape import Shape
from rlx.support.errors import UnsupportedError

# One number for all spatial axes, or one for each.
Axes = int | Sequence[int]


def batched(g: Graph, x: Tensor, rank: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of a batch. A single image is treated as a batch of one."""
    if x.rank > rank:
        return function(x)
    return g.squeeze(function(g.expand_dims(x, 0)), 0)


def _windows(rank: int, kernel: Axes, stride: Axes | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return kernel and stride. The default stride is the kernel size."""
    return each(kernel, rank), each(kernel if stride is None or stride in ((), []) else stride, rank)


@dataclass(frozen=True)
class MaxPoolArguments(ArgumentGroup):
    """The arguments of a pool by maxima, in PyTorch's order."""

    kernel: Axes
    stride: Axes = ()
    padding: Axes = 0
    dilation: Axes = 1
    ceil_mode: bool = False


def _max_pool(rank: int, with_indices: bool) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, pool: MaxPoolArguments) -> list[Tensor]:
        window = *_windows(rank, pool.kernel, pool.stride), each(pool.padding, rank), each(pool.dilation, rank)
        made = getattr(g, f"max_pool{rank}d")(x, *window, pool.ceil_mode, with_indices)
        return list(made) if with_indices else [made]

    return rule


@dataclass(frozen=True)
class AvgPoolArguments(ArgumentGroup):
    """The arguments of a pool by averages, in PyTorch's order."""

    kernel: Axes
    stride: Axes = ()
    padding: Axes = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None


def _avg_pool(rank: int) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, pool: AvgPoolArguments) -> Tensor:
        window = *_windows(rank, pool.kernel, pool.stride), each(pool.padding, rank)
        rest = pool.ceil_mode, pool.count_include_pad, pool.divisor_override
        return getattr(g, f"avg_pool{rank}d")(x, *window, *rest)

    return rule


def _adaptive(rank: int, kind: str) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, size: Axes) -> Tensor | list[Tensor]:
        if kind == "avg":
            return getattr(g, f"adaptive_avg_pool{rank}d")(x, each(size, rank))
        return list(getattr(g, f"adaptive_max_pool{rank}d")(x, each(size, rank), return_indices=True))

    return rule


for _rank in (1, 2, 3):
    aten(f"max_pool{_rank}d")(_max_pool(_rank, False))
    aten(f"max_pool{_rank}d_with_indices")(_max_pool(_rank, True))
    aten(f"avg_pool{_rank}d")(_avg_pool(_rank))
    aten(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(_adaptive(_rank, "avg"))
    aten(f"adaptive_max_pool{_rank}d")(_adaptive(_rank, "max"))


@dataclass(frozen=True)
class Resampling:
    """The interpolation of an upsample.

    Attributes:
        mode: The mode, with RLX's name.
        align: Whether the corners of both images are at the same places.
        antialias: Whether a smaller image is made of averages.
    """

    mode: str
    align: bool
    antialias: bool


def _resized(g: Graph, x: Tensor, how: Resampling, scales: Sequence[float | None], to: Shape) -> Tensor:
    """Resize to the sizes from PyTorch. If scales are given, positions are computed from the scales instead of the sizes."""
    rank = x.rank - 2
    sizes = to.dims[2:]
    if how.align:
        scales = ()
    for axis, scale in enumerate(scales):
        if scale is not None and static_size(x, axis + 2) * scale != sizes[axis]:
            raise UnsupportedError(
                f"by {scale}, where {static_size(x, axis + 2)} does not become a whole size, cannot be imported",
                hint="give size instead of scale_factor, or recompute_scale_factor=True",
            )
    if (
        how.mode == "nearest"
        and len(sizes) == rank
        and all(a == b for a, b in zip(sizes, x.shape.dims[2:], strict=True))
    ):
        return x
    return g.resize(x, size=sizes, mode=how.mode, align_corners=how.align, antialias=how.antialias)


def _upsample(mode: str, has_align: bool, antialias: bool = False) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, size: Any, *rest: Any, results: Results) -> Tensor:
        align, *scales = rest if has_align else (False, *rest)
        factors = [s for group in scales for s in (group if isinstance(group, (list, tuple)) else (group,))]
        how = Resampling(mode, bool(align), antialias)
        return _resized(g, x, how, [] if None in factors else factors, results[0])

    return rule


for _rank, _name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    aten(f"upsample_nearest{_rank}d")(_upsample("nearest", False))
    aten(f"_upsample_nearest_exact{_rank}d")(_upsample("nearest_exact", False))
    aten(f"upsample_{_name}")(_upsample("bilinear", True))
aten("upsample_bicubic2d")(_upsample("bicubic", True))
aten("_upsample_bilinear2d_aa")(_upsample("bilinear", True, True))
aten("_upsample_bicubic2d_aa")(_upsample("bicubic", True, True))

_GRID_MODES = ("bilinear", "nearest", "bicubic")
_GRID_PADDINGS = ("zeros", "border", "reflection")


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    g: Graph, x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    return g.grid_sample(x, grid, _GRID_MODES[interpolation_mode], _GRID_PADDINGS[padding_mode], align_corners)


@aten("affine_grid_generator")
def affine_grid(g: Graph, theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    return g.affine_grid(theta, tuple(size), align_corners)


@dataclass(frozen=True)
class BlockArguments(ArgumentGroup):
    """The window arguments of `im2col` and `col2im`, in PyTorch's order."""

    kernel: Axes
    dilation: Axes
    padding: Axes
    stride: Axes

    @property
    def both(self) -> list[tuple[int, ...]]:
        """The arguments, each for the two axes."""
        return [each(v, 2) for v in (self.kernel, self.dilation, self.padding, self.stride)]


@aten("im2col")
def im2col(g: Graph, x: Tensor, blocks: BlockArguments) -> Tensor:
    return batched(g, x, 3, lambda x: g.unfold(x, *blocks.both))


@aten("col2im")
def col2im(g: Graph, x: Tensor, size: Sequence[int], blocks: BlockArguments) -> Tensor:
    output: Any = tuple(size)
    return batched(g, x, 2, lambda x: g.fold(x, output, *blocks.both))
