"""Shape ops: the same elements, or some of them, in another place."""

from __future__ import annotations

from functools import reduce as fold
from typing import Any

from rlx.importers.stablehlo.rules import imports
from rlx.ir.builder import Tensor
from rlx.ir.shape import Shape


@imports("reshape")
def reshape(g: Any, x: Tensor, *, results: list[Shape]) -> Tensor:
    return g.reshape(x, results[0].dims)


@imports("transpose")
def transpose(g: Any, x: Tensor, *, permutation: tuple[int, ...]) -> Tensor:
    return g.transpose(x, permutation)


@imports("broadcast_in_dim")
def broadcast_in_dim(g: Any, x: Tensor, *, broadcast_dimensions: tuple[int, ...], results: list[Shape]) -> Tensor:
    axes = sorted(range(len(broadcast_dimensions)), key=broadcast_dimensions.__getitem__)
    if axes != list(range(len(axes))):
        x = g.transpose(x, axes)
    sizes: list[Any] = [1] * results[0].rank
    for axis, size in zip(sorted(broadcast_dimensions), x.shape, strict=True):
        sizes[axis] = size
    return g.expand(g.reshape(x, sizes), results[0].dims)


@imports("slice")
def slice_(g: Any, x: Tensor, *, start_indices: Any, limit_indices: Any, strides: Any) -> Tensor:
    return g.slice(x, start_indices, limit_indices, strides)


@imports("concatenate")
def concatenate(g: Any, *xs: Tensor, dimension: int) -> Tensor:
    return fold(lambda a, b: g.concat([a, b], dimension), xs)


@imports("reverse")
def reverse(g: Any, x: Tensor, *, dimensions: tuple[int, ...]) -> Tensor:
    return g.reverse(x, dimensions) if dimensions else x
