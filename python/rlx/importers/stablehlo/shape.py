"""Shape ops, which move or select elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.values import known_integers
from rlx.importers.stablehlo.windows import padded
from rlx.ir.graph.builder import Tensor
from rlx.ir.shape import Shape
from rlx.support.errors import UnsupportedError


@imports("reshape", "dynamic_reshape")
def reshape(g: Any, x: Tensor, sizes: Tensor | None = None, *, results: list[Shape]) -> Tensor:
    return g.reshape(x, results[0].dims)


@imports("transpose")
def transpose(g: Any, x: Tensor, *, permutation: tuple[int, ...]) -> Tensor:
    return g.transpose(x, permutation)


@imports("broadcast_in_dim", "dynamic_broadcast_in_dim")
def broadcast_in_dim(
    g: Any,
    x: Tensor,
    sizes_of_result: Tensor | None = None,
    *,
    broadcast_dimensions: tuple[int, ...],
    results: list[Shape],
    known_expanding_dimensions: Any = None,
    known_nonexpanding_dimensions: Any = None,
) -> Tensor:
    axes = sorted(range(len(broadcast_dimensions)), key=broadcast_dimensions.__getitem__)
    if axes != list(range(len(axes))):
        x = g.transpose(x, axes)
    sizes: list[Any] = [1] * results[0].rank
    for axis, size in zip(sorted(broadcast_dimensions), x.shape, strict=True):
        sizes[axis] = size
    return g.expand(g.reshape(x, sizes), results[0].dims)


@imports("broadcast")
def broadcast(g: Any, x: Tensor, *, broadcast_sizes: tuple[int, ...]) -> Tensor:
    return g.expand(x, (*broadcast_sizes, *x.shape.dims))


@imports("real_dynamic_slice")
def real_dynamic_slice(g: Any, x: Tensor, start: Tensor, limit: Tensor, stride: Tensor) -> Tensor:
    return g.slice(x, *(known_integers(v, "bounds") for v in (start, limit, stride)))


@imports("dynamic_pad")
def dynamic_pad(g: Any, x: Tensor, value: Tensor, low: Tensor, high: Tensor, interior: Tensor) -> Tensor:
    return padded(g, x, value, *(known_integers(v, "sizes") for v in (low, high, interior)))


@imports("get_dimension_size")
def get_dimension_size(g: Any, x: Tensor, *, dimension: int) -> Tensor:
    return g.constant(np.int32(x.shape.static[dimension]))


@imports("set_dimension_size")
def set_dimension_size(g: Any, x: Tensor, size: Tensor, *, dimension: int, results: list[Shape]) -> Tensor:
    (count,) = known_integers(size, "sizes")
    if count != results[0].dims[dimension]:
        raise UnsupportedError("to another size than that of the result cannot be imported")
    return x


@imports("slice")
def slice_(g: Any, x: Tensor, *, start_indices: Any, limit_indices: Any, strides: Any) -> Tensor:
    return g.slice(x, start_indices, limit_indices, strides)


@imports("concatenate")
def concatenate(g: Any, *xs: Tensor, dimension: int) -> Tensor:
    return g.concatenate(xs, dimension)


@imports("reverse")
def reverse(g: Any, x: Tensor, *, dimensions: tuple[int, ...]) -> Tensor:
    return g.reverse(x, dimensions) if dimensions else x
