"""Pooling, resampling, and unfolding of images to columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.importers.torch.rules import Results, aten, each, static_size
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import UnsupportedError


def batched(g: Any, x: Tensor, rank: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of a batch. A single image is treated as a batch of one."""
    if x.rank > rank:
        return function(x)
    return g.squeeze(function(g.expand_dims(x, 0)), 0)


def _windows(rank: int, kernel: Any, stride: Any) -> tuple[Any, Any]:
    """Return kernel and stride. The default stride is the kernel size."""
    return each(kernel, rank), each(kernel if stride in ((), [], None) else stride, rank)


def _max_pool(rank: int, with_indices: bool) -> Any:
    def rule(
        g: Any, x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        sizes, steps = _windows(rank, kernel, stride)
        rows = x if x.rank == rank + 2 else g.expand_dims(x, 0)
        rest = {"padding": each(padding, rank), "dilation": each(dilation, rank), "ceil_mode": ceil_mode}
        made = g.max_pool(rows, sizes, steps, return_indices=with_indices, **rest)
        made = list(made) if with_indices else [made]
        return made if rows is x else [g.squeeze(t, 0) for t in made]

    return rule


def _avg_pool(rank: int) -> Any:
    def rule(
        g: Any,
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        sizes, steps = _windows(rank, kernel, stride)
        rest = ceil_mode, count_include_pad, divisor_override
        return batched(g, x, rank + 1, lambda x: g.avg_pool(x, sizes, steps, each(padding, rank), *rest))

    return rule


def _adaptive(rank: int, kind: str) -> Any:
    def rule(g: Any, x: Tensor, size: Any) -> Any:
        wanted = each(size, rank)
        if kind == "avg":
            if all(n == 1 for n in wanted):
                return g.mean(x, tuple(range(x.rank - rank, x.rank)), True)
            return batched(g, x, rank + 1, lambda x: g.adaptive_avg_pool(x, wanted))
        rows = x if x.rank == rank + 2 else g.expand_dims(x, 0)
        made = list(g.adaptive_max_pool(rows, wanted, return_indices=True))
        return made if rows is x else [g.squeeze(t, 0) for t in made]

    return rule


for _rank in (1, 2, 3):
    aten(f"max_pool{_rank}d")(_max_pool(_rank, False))
    aten(f"max_pool{_rank}d_with_indices")(_max_pool(_rank, True))
    aten(f"avg_pool{_rank}d")(_avg_pool(_rank))
    aten(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(_adaptive(_rank, "avg"))
    aten(f"adaptive_max_pool{_rank}d")(_adaptive(_rank, "max"))


def _resized(
    g: Any, x: Tensor, mode: str, align: bool, scales: Sequence[float | None], antialias: bool, to: Any
) -> Tensor:
    """Resize to the sizes from PyTorch. If scales are given, positions are computed from the scales instead of the sizes."""
    rank = x.rank - 2
    sizes = to.dims[2:]
    if align:
        scales = ()
    for axis, scale in enumerate(scales):
        if scale is not None and static_size(x, axis + 2) * scale != sizes[axis]:
            raise UnsupportedError(
                f"by {scale}, where {static_size(x, axis + 2)} does not become a whole size, cannot be imported",
                hint="give size instead of scale_factor, or recompute_scale_factor=True",
            )
    if mode == "nearest" and len(sizes) == rank and all(a == b for a, b in zip(sizes, x.shape.dims[2:], strict=True)):
        return x
    return g.resize(x, size=sizes, mode=mode, align_corners=align, antialias=antialias)


def _upsample(mode: str, has_align: bool, antialias: bool = False) -> Any:
    def rule(g: Any, x: Tensor, size: Any, *rest: Any, results: Results) -> Tensor:
        align, *scales = rest if has_align else (False, *rest)
        factors = [s for group in scales for s in (group if isinstance(group, (list, tuple)) else (group,))]
        return _resized(g, x, mode, bool(align), [] if None in factors else factors, antialias, results[0])

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
    g: Any, x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    return g.grid_sample(x, grid, _GRID_MODES[interpolation_mode], _GRID_PADDINGS[padding_mode], align_corners)


@aten("affine_grid_generator")
def affine_grid(g: Any, theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    return g.affine_grid(theta, tuple(size), align_corners)


@aten("im2col")
def im2col(g: Any, x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    window = [each(v, 2) for v in (kernel, dilation, padding, stride)]
    return batched(g, x, 3, lambda x: g.unfold(x, *window))


@aten("col2im")
def col2im(g: Any, x: Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    window = [each(v, 2) for v in (kernel, dilation, padding, stride)]
    return batched(g, x, 2, lambda x: g.fold(x, tuple(size), *window))
