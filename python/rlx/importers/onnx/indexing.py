"""Gathers and scatters."""

from __future__ import annotations

import numpy as np

from rlx.importers.onnx.rules import Static, elements, extent, imports, static_dims
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph

_REDUCTION = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _from_start(g: Graph, indices: Tensor, size: Dim) -> Tensor:
    """Return indices with negative ones counted from the end."""
    return g.where(g.lt(indices, 0), g.add(indices, extent(g, size, indices.dtype)), indices)


@imports("Gather")
def gather(g: Graph, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return g.gather(x, _from_start(g, indices, x.shape.dims[axis]), axis=axis)


@imports("GatherElements")
def gather_elements(g: Graph, x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    if indices.shape.rank == x.shape.rank:
        starts, limits = (0,) * x.shape.rank, list(indices.shape.dims)
        limits[axis] = x.shape.dims[axis]
        x = g.slice(x, starts, limits)
    return g.take_along_axis(x, _from_start(g, indices, x.shape.dims[axis]), axis=axis)


def _rows_from_start(g: Graph, x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Return index tuples with negative ones counted from the end."""
    (depth,) = static_dims(indices, -1)
    sizes = [extent(g, d, indices.dtype) for d in x.shape.dims[batch_dims : batch_dims + depth]]
    if all(isinstance(s, int) for s in sizes):
        ends = g.constant(np.array(sizes, indices.dtype.numpy))
    else:
        ends = g.stack([g.constant(s, dtype=indices.dtype) if isinstance(s, int) else s for s in sizes], 0)
    return g.where(g.lt(indices, 0), g.add(indices, ends), indices)


@imports("GatherND")
def gather_nd(g: Graph, x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    return g.gather_nd(x, _rows_from_start(g, x, indices, batch_dims), batch_dims=batch_dims)


@imports("ScatterND")
def scatter_nd(g: Graph, x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    return g.scatter_nd(x, _rows_from_start(g, x, indices), updates, reduction=_REDUCTION[reduction])


@imports("ScatterElements", "Scatter")
def scatter_elements(
    g: Graph, x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    axis = axis % x.shape.rank
    dims = indices.shape.dims
    places = [g.cast(g.iota(dims, a, indices.dtype), indices.dtype) for a in range(len(dims))]
    places[axis] = _from_start(g, indices, x.shape.dims[axis])
    return g.scatter_nd(x, g.stack(places, axis=-1), updates, reduction=_REDUCTION[reduction])


@imports("OneHot")
def one_hot(g: Graph, indices: Tensor, depth: Tensor, values: Tensor, *, static: Static, axis: int = -1) -> Tensor:
    size = elements(static, 1, "depth")
    assert size is not None
    count = int(size.item())
    places = g.cast(indices, "i64")
    hot = g.one_hot(_from_start(g, places, count), count, dtype="bool", axis=axis)
    return g.where(hot, values[1], values[0])
