"""Shape ops, which move or select elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.values import known_integers
from rlx.importers.stablehlo.windows import pad_with_interior
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.shape import Shape
from rlx.support.errors import UnsupportedError


@imports("reshape", "dynamic_reshape")
def reshape(g: Graph, x: Tensor, sizes: Tensor | None = None, *, results: list[Shape]) -> Tensor:
    return g.reshape(x, results[0].dims)


@imports("transpose")
def transpose(g: Graph, x: Tensor, *, permutation: tuple[int, ...]) -> Tensor:
    return g.transpose(x, permutation)


@dataclass(frozen=True, kw_only=True)
class BroadcastAttributes(ArgumentGroup):
    """The attributes of a broadcast, with StableHLO's names."""

    broadcast_dimensions: tuple[int, ...]
    known_expanding_dimensions: tuple[int, ...] | None = None
    known_nonexpanding_dimensions: tuple[int, ...] | None = None


@imports("broadcast_in_dim", "dynamic_broadcast_in_dim")
def broadcast_in_dim(
    g: Graph,
    x: Tensor,
    sizes_of_result: Tensor | None = None,
    *,
    results: list[Shape],
    broadcast: BroadcastAttributes,
) -> Tensor:
    broadcast_dimensions = broadcast.broadcast_dimensions
    axes = sorted(range(len(broadcast_dimensions)), key=broadcast_dimensions.__getitem__)
    if axes != list(range(len(axes))):
        x = g.transpose(x, axes)
    sizes: list[Any] = [1] * results[0].rank
    for axis, size in zip(sorted(broadcast_dimensions), x.shape, strict=True):
        sizes[axis] = size
    return g.expand(g.reshape(x, sizes), results[0].dims)


@imports("broadcast")
def broadcast(g: Graph, x: Tensor, *, broadcast_sizes: tuple[int, ...]) -> Tensor:
    return g.expand(x, (*broadcast_sizes, *x.shape.dims))


@imports("real_dynamic_slice")
def real_dynamic_slice(g: Graph, x: Tensor, start: Tensor, limit: Tensor, stride: Tensor) -> Tensor:
    return g.slice(x, *(known_integers(v, "bounds") for v in (start, limit, stride)))


@imports("dynamic_pad")
def dynamic_pad(g: Graph, x: Tensor, value: Tensor, low: Tensor, high: Tensor, interior: Tensor) -> Tensor:
    return pad_with_interior(g, x, value, *(known_integers(v, "sizes") for v in (low, high, interior)))


@imports("get_dimension_size")
def get_dimension_size(g: Graph, x: Tensor, *, dimension: int) -> Tensor:
    return g.constant(np.int32(x.shape.static[dimension]))


@imports("set_dimension_size")
def set_dimension_size(g: Graph, x: Tensor, size: Tensor, *, dimension: int, results: list[Shape]) -> Tensor:
    (count,) = known_integers(size, "sizes")
    if count != results[0].dims[dimension]:
        raise UnsupportedError("to another size than that of the result cannot be imported")
    return x


@imports("slice")
def slice_(g: Graph, x: Tensor, *, start_indices: Any, limit_indices: Any, strides: Any) -> Tensor:
    return g.slice(x, start_indices, limit_indices, strides)


@imports("concatenate")
def concatenate(g: Graph, *xs: Tensor, dimension: int) -> Tensor:
    return g.concatenate(xs, dimension)


@imports("reverse")
def reverse(g: Graph, x: Tensor, *, dimensions: tuple[int, ...]) -> Tensor:
    return g.reverse(x, dimensions) if dimensions else x
