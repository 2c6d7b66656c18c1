"""Ops that rearrange elements, and creation of tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tests.peers.vocabulary import (
    at_least,
    cast_all,
    constant_of,
    flat,
    is_tensor,
    moved,
    needs,
    rlx_dtype,
    says,
    sizes,
)


def _spread(values: Sequence[Any]) -> tuple[Any, ...]:
    """Accept both `f(2, 3)` and `f((2, 3))`."""
    return tuple(values[0]) if len(values) == 1 and not isinstance(values[0], int) else tuple(values)


says("reshape", "view", "view_copy")(lambda g, x, *shape: _reshape(g, x, shape))
says("reshape_as", "view_as")(lambda g, x, other: g.reshape(x, sizes(other)))
says("ravel")(flat)
says("flatten")(lambda g, x, start_dim=0, end_dim=-1: _flatten(g, x, start_dim, end_dim))
says("unflatten")(lambda g, x, dim, shape: _unflatten(g, x, dim, shape))
says("permute", "permute_copy")(lambda g, x, *dims: g.transpose(x, _spread(dims)))
says("transpose", "transpose_copy")(lambda g, x, a, b: _swapped(g, x, a, b))
says("T", "t", "t_copy")(lambda g, x: x.T)
says("H")(lambda g, x: _conjugated(g, x.T))
says("mT")(lambda g, x: _swapped(g, x, -1, -2))
says("mH")(lambda g, x: _conjugated(g, _swapped(g, x, -1, -2)))
says("movedim")(lambda g, x, source, target: _movedim(g, x, source, target))
says("squeeze", "squeeze.multiple", "squeeze_copy")(lambda g, x, dim=None: _squeeze(g, x, dim))
says("unsqueeze", "unsqueeze_copy")(lambda g, x, dim: _unsqueeze(g, x, dim))
says("expand", "broadcast_to", "expand_copy")(lambda g, x, *shape: _expand(g, x, _spread(shape)))
says("expand_as")(lambda g, x, other: g.expand(x, sizes(other)))
says("broadcast_tensors")(lambda g, *xs: _broadcast(g, xs))
says("repeat", "tile")(lambda g, x, *reps: _tile(g, x, _spread(reps)))
says("cat")(lambda g, xs, dim=0: _cat(g, xs, dim))
says("stack")(lambda g, xs, dim=0: g.concat([_unsqueeze(g, x, dim) for x in cast_all(g, *xs)], axis=dim))
says("hstack")(lambda g, xs: _hstack(g, xs))
says("vstack")(lambda g, xs: g.concat([at_least(g, x, 2) for x in cast_all(g, *xs)], axis=0))
says("dstack")(lambda g, xs: g.concat([_at_least_3d(g, x) for x in cast_all(g, *xs)], axis=2))
says("column_stack")(lambda g, xs: g.concat([_column(g, x) for x in cast_all(g, *xs)], axis=1))
says("atleast_1d")(lambda g, *xs: _each(lambda x: at_least(g, x, 1), xs))
says("atleast_2d")(lambda g, *xs: _each(lambda x: at_least(g, x, 2), xs))
says("atleast_3d")(lambda g, *xs: _each(lambda x: _at_least_3d(g, x), xs))
says("split", "split.list_args", "split_with_sizes", "split_with_sizes_copy", "unsafe_split")(
    lambda g, x, pieces, dim=0: _split(g, x, pieces, dim)
)
says("chunk", "unsafe_chunk")(lambda g, x, chunks, dim=0: _split(g, x, max(-(-sizes(x)[dim] // chunks), 1), dim))
says("tensor_split")(lambda g, x, sections, dim=0: _tensor_split(g, x, sections, dim))
says("hsplit")(lambda g, x, sections: _tensor_split(g, x, sections, 0 if x.rank == 1 else 1))
says("vsplit")(lambda g, x, sections: _tensor_split(g, x, sections, 0))
says("dsplit")(lambda g, x, sections: _tensor_split(g, x, sections, 2))
says("unbind", "unbind_copy")(lambda g, x, dim=0: [_select(g, x, dim, i) for i in range(sizes(x)[dim])])
says("narrow", "narrow_copy")(lambda g, x, dim, start, length: _narrow(g, x, dim, start, length))
says("select")(lambda g, x, dim, index: _select(g, x, dim, index))
says("slice")(
    lambda g, x, dim=0, start=None, end=None, step=1: x[(slice(None),) * (dim % x.rank) + (slice(start, end, step),)]
)
says("flip")(lambda g, x, dims: g.reverse(x, dims) if len(dims) else x)
says("fliplr")(lambda g, x: g.reverse(x, [1]))
says("flipud")(lambda g, x: g.reverse(x, [0]))
says("roll")(lambda g, x, shifts, dims=None: _roll(g, x, shifts, dims))
says("rot90")(lambda g, x, k=1, dims=(0, 1): _rot90(g, x, k, dims))
says("tril")(lambda g, x, diagonal=0: g.triangular(x, False, diagonal))
says("triu")(lambda g, x, diagonal=0: g.triangular(x, True, diagonal))
says("nn.functional.pixel_shuffle")(lambda g, x, upscale_factor: _pixel_shuffle(g, x, upscale_factor))
says("nn.functional.pixel_unshuffle")(lambda g, x, downscale_factor: _pixel_unshuffle(g, x, downscale_factor))
says("nn.functional.channel_shuffle")(lambda g, x, groups: _channel_shuffle(g, x, groups))
says("nn.functional.pad.constant")(lambda g, x, pad, mode="constant", value=None: _pad(g, x, pad, "constant", value))
says("constant_pad_nd")(lambda g, x, pad, value=0: _pad(g, x, pad, "constant", value))
says("nn.functional.pad.reflect")(lambda g, x, pad, mode="reflect", value=None: _pad(g, x, pad, mode))
says("nn.functional.pad.replicate", "nn.functional.pad.replicate_negative")(
    lambda g, x, pad, mode="replicate", value=None: _pad(g, x, pad, mode)
)
says("nn.functional.pad.circular")(lambda g, x, pad, mode="circular", value=None: _pad(g, x, pad, mode))
says("meshgrid.variadic_tensors")(lambda g, *xs, indexing="ij": _meshgrid(g, xs, indexing))
says("meshgrid.list_of_tensors")(lambda g, xs, indexing="ij": _meshgrid(g, xs, indexing))
says("cartesian_prod")(lambda g, *xs: _cartesian(g, xs))
says("outer")(lambda g, x, y: g.reshape(x, (-1, 1)) * y)
says("kron")(lambda g, x, y: _kron(g, x, y))
says("full")(lambda g, shape, value, **kw: _full(g, shape, value, **kw))
says("zeros")(lambda g, *shape, **kw: _full(g, _spread(shape), 0.0, **kw))
says("ones")(lambda g, *shape, **kw: _full(g, _spread(shape), 1.0, **kw))
says("new_full")(lambda g, x, shape, value, dtype=None, **_: _full(g, shape, value, dtype or x.dtype))
says("new_zeros")(lambda g, x, shape, dtype=None, **_: _full(g, shape, 0, dtype or x.dtype))
says("new_ones")(lambda g, x, shape, dtype=None, **_: _full(g, shape, 1, dtype or x.dtype))
says("eye")(lambda g, n, m=None, dtype=None, **_: _eye(g, n, n if m is None else m, dtype))
says("unfold", "unfold_copy")(lambda g, x, dim, size, step: _windows(g, x, dim, size, step))


def _each(function: Any, xs: Sequence[Any]) -> Any:
    xs = xs[0] if len(xs) == 1 and not is_tensor(xs[0]) else xs
    made = [function(x) for x in xs]
    return made if len(made) > 1 else made[0]


def _reshape(g: Any, x: Any, shape: Any) -> Any:
    import torch

    shape = _spread(shape)
    needs(not isinstance(shape[0], torch.dtype) if shape else True, "RLX does not read bits as another dtype")
    return g.reshape(x, shape)


def _flatten(g: Any, x: Any, start: int, end: int) -> Any:
    if x.rank == 0:
        return g.reshape(x, (1,))
    start, end, dims = start % x.rank, end % x.rank, sizes(x)
    return g.reshape(x, (*dims[:start], math.prod(dims[start : end + 1]), *dims[end + 1 :]))


def _unflatten(g: Any, x: Any, dim: int, shape: Any) -> Any:
    dim %= x.rank
    known = math.prod(s for s in shape if s != -1)
    shape = [sizes(x)[dim] // known if s == -1 else s for s in shape]
    return g.reshape(x, (*sizes(x)[:dim], *shape, *sizes(x)[dim + 1 :]))


def _swapped(g: Any, x: Any, a: int, b: int) -> Any:
    if x.rank == 0:
        return x
    order = list(range(x.rank))
    order[a], order[b] = order[b], order[a]
    return g.transpose(x, order)


def _conjugated(g: Any, x: Any) -> Any:
    return g.conjugate(x) if x.dtype.is_complex else x


def _movedim(g: Any, x: Any, source: Any, target: Any) -> Any:
    source, target = ([v] if isinstance(v, int) else list(v) for v in (source, target))
    pairs = sorted((t % max(x.rank, 1), s % max(x.rank, 1)) for s, t in zip(source, target, strict=True))
    order = [i for i in range(x.rank) if i not in [s for _, s in pairs]]
    for t, s in pairs:
        order.insert(t, s)
    return g.transpose(x, order) if x.rank else x


def _squeeze(g: Any, x: Any, dim: Any) -> Any:
    dims = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {d % max(x.rank, 1) for d in dims}
    return g.reshape(x, [d for i, d in enumerate(sizes(x)) if i not in gone or d != 1])


def _unsqueeze(g: Any, x: Any, dim: int) -> Any:
    shape = list(sizes(x))
    shape.insert(dim % (x.rank + 1), 1)
    return g.reshape(x, shape)


def _expand(g: Any, x: Any, shape: Sequence[int]) -> Any:
    own = (1,) * (len(shape) - x.rank) + sizes(x)
    return g.expand(x, tuple(d if s == -1 else s for s, d in zip(shape, own, strict=True)))


def _broadcast(g: Any, xs: Sequence[Any]) -> Any:
    import numpy as np

    shape = np.broadcast_shapes(*(sizes(x) for x in xs))
    return [g.expand(x, shape) for x in xs]


def _tile(g: Any, x: Any, reps: Sequence[int]) -> Any:
    rank = max(len(reps), x.rank)
    reps = (1,) * (rank - len(reps)) + tuple(reps)
    x = at_least(g, x, rank)
    dims = sizes(x)
    spread = g.expand(
        g.reshape(x, [v for d in dims for v in (1, d)]), [v for r, d in zip(reps, dims, strict=False) for v in (r, d)]
    )
    return g.reshape(spread, [r * d for r, d in zip(reps, dims, strict=False)])


def _cat(g: Any, xs: Sequence[Any], dim: int) -> Any:
    xs = cast_all(g, *xs)
    kept = [x for x in xs if sizes(x) != (0,)] or xs[:1]
    return g.concat(kept, axis=dim) if len(kept) > 1 else kept[0]


def _hstack(g: Any, xs: Sequence[Any]) -> Any:
    xs = [at_least(g, x, 1) for x in cast_all(g, *xs)]
    return g.concat(xs, axis=0 if xs[0].rank == 1 else 1)


def _at_least_3d(g: Any, x: Any) -> Any:
    return x if x.rank > 2 else g.reshape(x, {0: (1, 1, 1), 1: (1, -1, 1)}.get(x.rank, (*sizes(x), 1)))


def _column(g: Any, x: Any) -> Any:
    return x if x.rank > 1 else g.reshape(x, (-1, 1))


def _narrow(g: Any, x: Any, dim: int, start: Any, length: int) -> Any:
    needs(not is_tensor(start), "the start of a range is a number")
    return g.narrow(x, dim, start % sizes(x)[dim] if start < 0 else start, length)


def _split(g: Any, x: Any, pieces: Any, dim: int) -> Any:
    size = sizes(x)[dim]
    if isinstance(pieces, int):
        pieces = [min(pieces, size - at) for at in range(0, size, pieces)] if pieces and size else [size]
    starts = [sum(pieces[:i]) for i in range(len(pieces))]
    return [g.narrow(x, dim, start, length) for start, length in zip(starts, pieces, strict=True)]


def _tensor_split(g: Any, x: Any, sections: Any, dim: int) -> Any:
    needs(not is_tensor(sections), "sections are numbers")
    size = sizes(x)[dim]
    if isinstance(sections, int):
        small, more = divmod(size, sections)
        return _split(g, x, [small + (i < more) for i in range(sections)], dim)
    cuts = [0, *(slice(None, c).indices(size)[1] for c in sections), size]
    return [g.narrow(x, dim, a, max(b - a, 0)) for a, b in itertools.pairwise(cuts)]


def _select(g: Any, x: Any, dim: int, index: int) -> Any:
    needs(not is_tensor(index), "an index is a number")
    return x[(slice(None),) * (dim % x.rank) + (index,)]


def _roll(g: Any, x: Any, shifts: Any, dims: Any) -> Any:
    if dims is None or dims == ():
        return g.reshape(_roll(g, flat(g, x), shifts, 0), sizes(x))
    shifts, dims = ([v] if isinstance(v, int) else v for v in (shifts, dims))
    for shift, dim in zip(shifts, dims, strict=True):
        size = sizes(x)[dim] if x.rank else 0
        shift = shift % size if size else 0
        if shift:
            x = g.concat([g.narrow(x, dim, size - shift, shift), g.narrow(x, dim, 0, size - shift)], axis=dim)
    return x


def _rot90(g: Any, x: Any, k: int, dims: Sequence[int]) -> Any:
    for _ in range(k % 4):
        x = g.reverse(_swapped(g, x, *dims), [dims[0]])
    return x


def _pixel_shuffle(g: Any, x: Any, factor: int) -> Any:
    *batch, channels, height, width = sizes(x)
    n, r = len(batch), factor
    x = g.reshape(x, (*batch, channels // (r * r), r, r, height, width))
    x = g.transpose(x, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return g.reshape(x, (*batch, channels // (r * r), height * r, width * r))


def _pixel_unshuffle(g: Any, x: Any, factor: int) -> Any:
    *batch, channels, height, width = sizes(x)
    n, r = len(batch), factor
    x = g.reshape(x, (*batch, channels, height // r, r, width // r, r))
    x = g.transpose(x, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return g.reshape(x, (*batch, channels * r * r, height // r, width // r))


def _channel_shuffle(g: Any, x: Any, groups: int) -> Any:
    batch, channels, *rest = sizes(x)
    x = g.reshape(x, (batch, groups, channels // groups, *rest))
    return g.reshape(_swapped(g, x, 1, 2), (batch, channels, *rest))


def _pad(g: Any, x: Any, pad: Sequence[int], mode: str, value: Any = None) -> Any:
    needs(not isinstance(value, complex), "RLX pads with real numbers")
    pairs = [(0, 0)] * (x.rank - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    for axis, (low, high) in enumerate(pairs):
        cut = min(low, 0), min(high, 0)
        if cut != (0, 0):
            needs(mode == "constant", "PyTorch pads before it cuts")
            x = g.narrow(x, axis, -cut[0], sizes(x)[axis] + sum(cut))
    return g.pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], mode=mode, value=value or 0)


def _meshgrid(g: Any, xs: Sequence[Any], indexing: str) -> Any:
    xs = [at_least(g, x, 1) for x in xs]
    if indexing == "xy" and len(xs) > 1:
        return [_swapped(g, y, 0, 1) for y in _meshgrid(g, xs, "ij")]
    shape = tuple(sizes(x)[0] for x in xs)
    return [
        g.expand(g.reshape(x, [d if i == axis else 1 for i, d in enumerate(shape)]), shape) for axis, x in enumerate(xs)
    ]


def _cartesian(g: Any, xs: Sequence[Any]) -> Any:
    if len(xs) == 1:
        return xs[0]
    return g.concat([g.reshape(y, (-1, 1)) for y in _meshgrid(g, xs, "ij")], axis=1)


def _kron(g: Any, x: Any, y: Any) -> Any:
    rank = max(x.rank, y.rank)
    x, y = at_least(g, x, rank), at_least(g, y, rank)
    wide = g.reshape(x, [v for d in sizes(x) for v in (d, 1)]) * g.reshape(y, [v for d in sizes(y) for v in (1, d)])
    return g.reshape(wide, [a * b for a, b in zip(sizes(x), sizes(y), strict=True)])


def _full(g: Any, shape: Any, value: Any, dtype: Any = None, **_: Any) -> Any:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    needs(not is_tensor(value), "a number fills")
    return g.expand(g.constant(value) if dtype is None else constant_of(g, value, rlx_dtype(dtype)), shape)


def _eye(g: Any, n: int, m: int, dtype: Any) -> Any:
    ones = g.iota((n, m), axis=0) == g.iota((n, m), axis=1)
    return g.cast(ones, "f32" if dtype is None else rlx_dtype(dtype))


def _windows(g: Any, x: Any, dim: int, size: int, step: int) -> Any:
    if x.rank == 0:
        return g.reshape(x, (1,)) if size else g.reshape(x, (1,))[:0]
    dim %= x.rank
    number = (sizes(x)[dim] - size) // step + 1
    positions = g.iota((number, size), axis=0) * step + g.iota((number, size), axis=1)
    return moved(g, g.gather(x, positions, axis=dim), dim + 1, -1)


@says("block_diag")
def _block_diag(g: Any, *xs: Any) -> Any:
    blocks = [at_least(g, x, 2) for x in cast_all(g, *xs)]
    width, at, rows = sum(sizes(x)[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(g.pad(x, [(0, 0), (at, width - at - sizes(x)[1])]))
        at += sizes(x)[1]
    return g.concat(rows, axis=0) if len(rows) > 1 else rows[0]


@says("diag_embed")
def _diag_embed(g: Any, x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    needs((dim1, dim2) == (-2, -1) and x.rank, "the last two axes hold matrices")
    n = sizes(x)[-1] + abs(offset)
    low, high = max(offset, 0), max(-offset, 0)
    wide = g.pad(x, [(0, 0)] * (x.rank - 1) + [(low, high)])
    place = g.iota((n, n), axis=1) - g.iota((n, n), axis=0) == offset
    return g.where(place, g.reshape(wide, (*sizes(x)[:-1], 1, n)), g.cast(g.constant(0), x.dtype))


@says("diagonal", "diagonal_copy", "linalg.diagonal")
def diagonal(g: Any, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return a diagonal of the matrices along two axes, as the last axis."""
    dim1, dim2 = dim1 % x.rank, dim2 % x.rank
    rest = [i for i in range(x.rank) if i not in (dim1, dim2)]
    x = g.transpose(x, (*rest, dim1, dim2))
    rows, columns = sizes(x)[-2:]
    length = max(min(rows - max(-offset, 0), columns - max(offset, 0)), 0)
    dims = sizes(x)[:-2]
    if not length:
        return g.reshape(x[..., :0, :0], (*dims, 0))
    places = (g.iota((length,)) + max(-offset, 0)) * columns + g.iota((length,)) + max(offset, 0)
    return g.gather(g.reshape(x, (*dims, rows * columns)), places, axis=-1)


@says("diag")
def _diag(g: Any, x: Any, offset: int = 0) -> Any:
    return _diag_embed(g, x, offset) if x.rank == 1 else diagonal(g, x, offset)


@says("diagflat")
def _diagflat(g: Any, x: Any, offset: int = 0) -> Any:
    return _diag_embed(g, flat(g, x), offset)
