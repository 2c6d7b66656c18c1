"""Gathers, scatters and other indexing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.peers.vocabulary import constant_of, count, flat, is_tensor, moved, needs, says, sizes

says("index_select")(lambda g, x, dim, index: _index_select(g, x, dim, index))
says("gather")(lambda g, x, dim, index, sparse_grad=False: _along(g, x, dim, index))
says("take_along_dim", differentiable=False)(lambda g, x, index, dim=None: _take_along(g, x, index, dim))
says("take")(lambda g, x, index: g.gather(flat(g, x), _wrapped(g, index, count(x, range(x.rank)))))
says("scatter")(lambda g, x, dim, index, source, reduce=None: _scatter(g, x, dim, index, source, _REDUCE[reduce]))
says("scatter_add")(lambda g, x, dim, index, source: _scatter(g, x, dim, index, source, "add"))
for _name, _kind in {"amax": "max", "amin": "min", "prod": "mul", "sum": "add"}.items():
    says(f"scatter_reduce.{_name}", differentiable=False)(
        lambda g, x, dim, index, source, reduce="", include_self=True, kind=_kind: _scatter_reduce(
            g, x, dim, index, source, kind, include_self
        )
    )
    if _name != "sum":
        says(f"index_reduce.{_name}", differentiable=False)(
            lambda g, x, dim, index, source, reduce="", include_self=True, kind=_kind: _index_reduce(
                g, x, dim, index, source, kind, include_self
            )
        )
says("index_add")(lambda g, x, dim, index, source, alpha=1: _index_add(g, x, dim, index, source, alpha))
says("index_copy")(lambda g, x, dim, index, source: _rows(g, x, dim, index, source, "set"))
says("index_fill")(lambda g, x, dim, index, value: _index_fill(g, x, dim, index, value))
says("index_put")(lambda g, x, indices, values, accumulate=False: _index_put(g, x, indices, values, accumulate))
says("__getitem__")(lambda g, x, index: _getitem(g, x, index))
says("nn.functional.embedding", differentiable=False)(
    lambda g, table, indices, padding_idx=None, max_norm=None, **_: _embedding(g, table, indices, max_norm)
)
says("nn.functional.one_hot")(lambda g, x, num_classes=-1: _one_hot(g, x, num_classes))
says("select_scatter")(lambda g, x, source, dim, index: _select_scatter(g, x, source, dim, index))
says("slice_scatter")(
    lambda g, x, source, dim=0, start=None, end=None, step=1: _slice_scatter(g, x, source, dim, start, end, step)
)
says("isin", differentiable=False)(lambda g, x, y, **k: _isin(g, x, y, **k))
says("searchsorted")(lambda g, s, v, **k: _searchsorted(g, s, v, **k))
says("bucketize")(lambda g, v, s, out_int32=False, right=False: _searchsorted(g, s, v, right=right))
says("repeat_interleave")(lambda g, x, repeats, dim=None, **_: _repeat_interleave(g, x, repeats, dim))
says("masked_scatter", differentiable=False)(lambda g, x, mask, source: _masked_scatter(g, x, mask, source))

_REDUCE = {None: "set", "add": "add", "multiply": "mul"}


def _wrapped(g: Any, index: Any, size: int) -> Any:
    return g.where(index < 0, index + size, index)


def _index_select(g: Any, x: Any, dim: int, index: Any) -> Any:
    if x.rank == 0:
        return x
    return g.gather(x, g.reshape(index, (-1,)), axis=dim)


def _positions(g: Any, x: Any, dim: int, index: Any) -> Any:
    """Return the complete index tuple into `x` for each element of `index`."""
    shape = sizes(index)
    columns = [index if axis == dim else g.iota(shape, axis=axis, dtype="i64") for axis in range(x.rank)]
    return (
        g.concat([g.reshape(g.cast(c, "i64"), (*shape, 1)) for c in columns], axis=-1)
        if x.rank > 1
        else g.reshape(g.cast(columns[0], "i64"), (*shape, 1))
    )


def _ranked(g: Any, *tensors: Any) -> list[Any]:
    return [g.reshape(t, (1,)) if is_tensor(t) and t.rank == 0 else t for t in tensors]


def _along(g: Any, x: Any, dim: int, index: Any) -> Any:
    if 0 in sizes(index):
        return g.expand(g.cast(g.constant(0), x.dtype), sizes(index))
    rows, places = _ranked(g, x, index)
    return g.reshape(g.gather_nd(rows, _positions(g, rows, dim % rows.rank, places)), sizes(index))


def _take_along(g: Any, x: Any, index: Any, dim: Any) -> Any:
    if dim is None:
        return _along(g, flat(g, x), 0, flat(g, index))
    shape = list(np.broadcast_shapes(*([d for i, d in enumerate(sizes(t)) if i != dim % x.rank] for t in (x, index))))
    for t in (x, index):
        needs(len(shape) == t.rank - 1, "ranks agree")
    target = [*shape]
    target.insert(dim % x.rank, sizes(index)[dim])
    source = [*shape]
    source.insert(dim % x.rank, sizes(x)[dim])
    return _along(g, g.expand(x, source), dim, _wrapped(g, g.expand(index, target), sizes(x)[dim]))


def _scatter(g: Any, x: Any, dim: int, index: Any, source: Any, reduction: str) -> Any:
    rows, places, updates = _ranked(g, x, index, source)
    if 0 in sizes(places):
        return x
    if is_tensor(updates):
        updates = updates[tuple(slice(d) for d in sizes(places))]
    else:
        updates = g.expand(g.cast(g.constant(updates), x.dtype), sizes(places))
    positions = _positions(g, rows, dim % rows.rank, places)
    return g.reshape(g.scatter_nd(rows, positions, updates, reduction=reduction), sizes(x))


def _neutral(kind: Any, reduction: str) -> Any:
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    if kind.is_float:
        return -np.inf if reduction == "max" else np.inf
    if kind.is_bool:
        return reduction == "min"
    return kind.min if reduction == "max" else kind.max


def _without_self(g: Any, x: Any, touched: Any, reduction: str) -> Any:
    return g.where(touched, g.constant(_neutral(x.dtype, reduction), dtype=x.dtype), x)


def _scatter_reduce(g: Any, x: Any, dim: int, index: Any, source: Any, reduction: str, include_self: bool) -> Any:
    if not include_self:
        zeros = g.expand(g.constant(False), sizes(x))
        x = _without_self(g, x, _scatter(g, zeros, dim, index, True, "set"), reduction)
    return _scatter(g, x, dim, index, source, reduction)


def _rows(g: Any, x: Any, dim: int, index: Any, source: Any, reduction: str) -> Any:
    whole = sizes(x)
    x, source = _ranked(g, x, source)
    index = g.reshape(index, (-1, 1))
    made = g.scatter_nd(moved(g, x, dim, 0), index, moved(g, source, dim, 0), reduction=reduction)
    return g.reshape(moved(g, made, 0, dim), whole)


def _index_add(g: Any, x: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    needs(x.dtype.is_signed or alpha >= 0, "a number fits the dtype beside which it stands")
    return _rows(g, x, dim, index, source if alpha == 1 else source * alpha, "add")


def _index_reduce(g: Any, x: Any, dim: int, index: Any, source: Any, reduction: str, include_self: bool) -> Any:
    if not include_self:
        x = _without_self(g, x, _index_fill(g, g.expand(g.constant(False), sizes(x)), dim, index, True), reduction)
    return _rows(g, x, dim, index, source, reduction)


def _index_fill(g: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
    if not is_tensor(value):
        value = constant_of(g, value, x.dtype)
    shape = [sizes(index)[0] if index.rank else 1 if i == dim % max(x.rank, 1) else d for i, d in enumerate(sizes(x))]
    if x.rank:
        shape = list(sizes(x))
        shape[dim] = count(index, range(index.rank))
    return _rows(g, x, dim, index, g.expand(value, shape), "set")


def _index_put(g: Any, x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    needs(all(t is not None and not t.dtype.is_bool for t in indices), "RLX has no masks as indices")
    shape = np.broadcast_shapes(*(sizes(t) for t in indices))
    columns = [
        g.reshape(g.expand(_wrapped(g, t, d), shape), (*shape, 1)) for t, d in zip(indices, sizes(x), strict=False)
    ]
    positions = g.concat(columns, axis=-1) if len(columns) > 1 else columns[0]
    values = g.expand(values, (*shape, *sizes(x)[len(columns) :]))
    return g.scatter_nd(x, positions, values, reduction="add" if accumulate else "set")


def _getitem(g: Any, x: Any, index: Any) -> Any:
    entries = index if isinstance(index, tuple) else (index,)
    needs(not any(is_tensor(e) and e.dtype.is_bool for e in entries), "RLX has no masks as indices")
    arrays = sum(is_tensor(e) or isinstance(e, list) for e in entries)
    needs(arrays < 2, "at most one axis is indexed by a tensor")
    return x[tuple(entries)]


def _embedding(g: Any, table: Any, indices: Any, max_norm: Any) -> Any:
    needs(max_norm is None, "PyTorch changes the table")
    return g.embedding(table, indices)


def _one_hot(g: Any, x: Any, num_classes: int) -> Any:
    needs(num_classes > 0, "the size would depend on values")
    return g.cast(g.reshape(x, (*sizes(x), 1)) == g.cast(g.iota((num_classes,)), x.dtype), "i64")


def _select_scatter(g: Any, x: Any, source: Any, dim: int, index: int) -> Any:
    dim %= x.rank
    row = g.reshape(source, [1 if i == dim else d for i, d in enumerate(sizes(x))])
    return g.where(_row_mask(g, x, dim, [index % sizes(x)[dim]]), row, x)


def _row_mask(g: Any, x: Any, dim: int, chosen: Any) -> Any:
    mask = np.isin(np.arange(sizes(x)[dim]), list(chosen))
    return g.reshape(g.constant(mask), [-1 if i == dim else 1 for i in range(x.rank)])


def _slice_scatter(g: Any, x: Any, source: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    dim %= x.rank
    chosen = range(*slice(start, end, step).indices(sizes(x)[dim]))
    if not chosen:
        return x
    return _rows(g, x, dim, g.constant(np.array(chosen)), source, "set")


def _isin(g: Any, x: Any, y: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    needs(is_tensor(x) and is_tensor(y), "two tensors")
    found = g.max(g.reshape(x, (*sizes(x), 1)) == flat(g, y), [-1])
    return ~found if invert else found


def _searchsorted(
    g: Any, s: Any, v: Any, right: bool = False, side: Any = None, out_int32: bool = False, sorter: Any = None
) -> Any:
    needs(sorter is None, "the sequence is sorted")
    whole = sizes(v) if is_tensor(v) else ()
    if not is_tensor(v):
        v = g.constant(v)
    right = right if side is None else side == "right"
    rows = g.reshape(s, (*sizes(s)[:-1], 1, sizes(s)[-1])) if s.rank > 1 else s
    values = g.reshape(v, (*whole, 1))
    return g.sum(rows <= values if right else ~(rows >= values), [-1])


def _repeat_interleave(g: Any, x: Any, repeats: Any, dim: Any) -> Any:
    needs(not is_tensor(repeats), "the size would depend on values")
    if dim is None:
        x, dim = flat(g, x), 0
    if x.rank == 0:
        x = g.reshape(x, (1,))
    return g.gather(x, g.constant(np.repeat(np.arange(sizes(x)[dim]), repeats)), axis=dim)


def _masked_scatter(g: Any, x: Any, mask: Any, source: Any) -> Any:
    shape = np.broadcast_shapes(sizes(x), sizes(mask))
    mask, x = g.expand(mask, shape), g.expand(x, shape)
    order = g.cumsum(g.cast(flat(g, mask), "i32"), 0) - 1
    return g.where(mask, g.reshape(g.gather(flat(g, source), order), shape), x)
