"""Reductions, running reductions, order and statistics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.peers.vocabulary import axes_list, count, flat, moved, needs, rlx_dtype, says, sizes, to_float


def _typed(g: Any, x: Any, dtype: Any) -> Any:
    if dtype is None:
        return x
    needs(not rlx_dtype(dtype).is_bool, "bools count in i32")
    return g.cast(x, rlx_dtype(dtype))


def _reduction(kind: str) -> Any:
    def reduce(g: Any, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None, **_: Any) -> Any:
        return g.reduce(kind, _typed(g, x, dtype), axes_list(x, dim), keepdim)

    return reduce


says("sum")(_reduction("sum"))
says("mean")(_reduction("mean"))
says("prod")(_reduction("prod"))
says("amax", "max.reduction_no_dim")(_reduction("max"))
says("amin", "min.reduction_no_dim")(_reduction("min"))
says("sum_to_size")(lambda g, x, *shape: _sum_to_size(g, x, shape))
says("any")(lambda g, x, dim=None, keepdim=False: g.max(x != 0, axes_list(x, dim), keepdim))
says("all")(lambda g, x, dim=None, keepdim=False: g.min(x != 0, axes_list(x, dim), keepdim))
says("count_nonzero")(lambda g, x, dim=None: g.sum(x != 0, axes_list(x, dim)))
says("cumsum")(lambda g, x, dim, dtype=None: _running(g, g.cumsum, _typed(g, x, dtype), dim))
says("cumprod")(lambda g, x, dim, dtype=None: _running(g, g.cumprod, _typed(g, x, dtype), dim))
says("cummax", differentiable=False)(lambda g, x, dim: (_cummax(g, x, dim), None))
says("logsumexp", finite=True)(lambda g, x, dim, keepdim=False: _logsumexp(g, to_float(g, x), dim, keepdim))
says("nansum")(lambda g, x, dim=None, keepdim=False, dtype=None: _nansum(g, x, dim, keepdim, dtype))
says("nanmean")(lambda g, x, dim=None, keepdim=False, dtype=None: _nanmean(g, x, dim, keepdim, dtype))
says("softmax", "softmax.with_dtype")(lambda g, x, dim, dtype=None: _over(g, g.softmax, _typed(g, x, dtype), dim))
says("nn.functional.softmin", "nn.functional.softmin.with_dtype")(
    lambda g, x, dim, dtype=None: _over(g, g.softmax, _typed(g, -x, dtype), dim)
)
says("log_softmax", "log_softmax.with_dtype", finite=True)(
    lambda g, x, dim, dtype=None: log_softmax(g, _typed(g, x, dtype), dim)
)
says("aminmax")(lambda g, x, dim=None, keepdim=False: tuple(_reduction(k)(g, x, dim, keepdim) for k in ("min", "max")))
says("trace")(lambda g, x: g.sum(_diagonal(g, x)))
says("var", "var.unbiased")(lambda g, x, *a, **k: _moments(g, x, *a, **k)[0])
says("std", "std.unbiased")(lambda g, x, *a, **k: g.sqrt(_moments(g, x, *a, **k)[0]))
says("var_mean", "var_mean.unbiased")(lambda g, x, *a, **k: _moments(g, x, *a, **k))
says("std_mean", "std_mean.unbiased")(lambda g, x, *a, **k: _std_mean(g, x, *a, **k))
says("dist", finite=True)(lambda g, x, y, p=2: vector_norm(g, x - y, p))
says("linalg.vector_norm", finite=True, differentiable=False)(
    lambda g, x, ord=2, dim=None, keepdim=False, dtype=None: vector_norm(g, _typed(g, x, dtype), ord, dim, keepdim)
)
says("norm", "norm.inf", finite=True, differentiable=False)(
    lambda g, x, p="fro", dim=None, keepdim=False, dtype=None: _norm(g, _typed(g, x, dtype), p, dim, keepdim)
)
says("norm.fro", finite=True, differentiable=False)(
    lambda g, x, p="fro", dim=None, keepdim=False, **_: _norm(g, x, p, dim, keepdim)
)
says("diff")(lambda g, x, n=1, dim=-1, prepend=None, append=None: _diff(g, x, n, dim, prepend, append))
says("trapz", "trapezoid")(lambda g, y, x=None, dim=-1, dx=1.0: g.sum(_areas(g, y, x, dim, dx), [dim]))
says("cumulative_trapezoid")(lambda g, y, x=None, dim=-1, dx=1.0: g.cumsum(_areas(g, y, x, dim, dx), dim))
says("sort", differentiable=False)(
    lambda g, x, dim=-1, descending=False, stable=False: _sort(g, x, dim, descending, stable)
)
says("argsort")(lambda g, x, dim=-1, descending=False, stable=False: _argsort(g, x, dim, descending, stable))
says("msort")(lambda g, x: g.sort(x, axis=0) if x.rank else x)
says("kthvalue")(lambda g, x, k, dim=-1, keepdim=False: (_kth(g, x, k, dim, keepdim), None))
says("renorm", finite=True, differentiable=False)(lambda g, x, p, dim, maxnorm: _renorm(g, x, p, dim, maxnorm))
says("equal")(lambda g, x, y: g.min(x == y) if sizes(x) == sizes(y) else g.constant(False))


def _scalar_safe(g: Any, x: Any) -> Any:
    return g.reshape(x, (1,)) if x.rank == 0 else x


def _over(g: Any, function: Any, x: Any, dim: int) -> Any:
    """Apply a function along an axis. A scalar is treated as having one axis of size 1, as in PyTorch."""
    return g.reshape(function(_scalar_safe(g, x), axis=dim), sizes(x))


def _running(g: Any, function: Any, x: Any, dim: int) -> Any:
    if x.dtype.is_bool:
        x = g.cast(x, "i64")
    return _over(g, function, x, dim)


def _cummax(g: Any, x: Any, dim: int) -> Any:
    needs(not x.dtype.is_bool, "numbers")
    return _over(g, g.cummax, x, dim)


def _position(kind: str) -> Any:
    def position(g: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        found = (
            getattr(g, kind)(flat(g, x), axis=0) if dim is None else getattr(g, kind)(_scalar_safe(g, x), dim, keepdim)
        )
        if dim is None and keepdim:
            return g.reshape(found, (1,) * x.rank)
        return g.reshape(found, ()) if x.rank == 0 else found

    return position


def _extreme(kind: str) -> Any:
    def extreme(g: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
        return _reduction(kind)(g, x, dim, keepdim), _position(f"arg{kind}")(g, x, dim, keepdim)

    return extreme


says("max.reduction_with_dim", differentiable=False)(_extreme("max"))
says("min.reduction_with_dim", differentiable=False)(_extreme("min"))
says("argmax")(_position("argmax"))
says("argmin")(_position("argmin"))


def _sum_to_size(g: Any, x: Any, shape: Any) -> Any:
    shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    padded = (1,) * (x.rank - len(shape)) + tuple(shape)
    axes = [i for i, (d, s) in enumerate(zip(sizes(x), padded, strict=True)) if d != s or i < x.rank - len(shape)]
    return g.reshape(g.sum(x, axes) if axes else x, shape)


def _logsumexp(g: Any, x: Any, dim: Any, keepdim: bool = False) -> Any:
    axes = axes_list(x, dim)
    top = g.max(x, axes, keep_dims=True)
    top = g.where(g.abs(top) == np.inf, 0.0, top)
    total = g.log(g.sum(g.exp(x - top), axes, keepdim))
    return total + g.reshape(top, total.shape.dims)


def log_softmax(g: Any, x: Any, dim: int) -> Any:
    """Log-softmax without exponentials of large numbers."""

    def of(x: Any, axis: int) -> Any:
        shifted = x - g.max(x, [axis], keep_dims=True)
        return shifted - g.log(g.sum(g.exp(shifted), [axis], keep_dims=True))

    return _over(g, of, x, dim)


def _nansum(g: Any, x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    x = _typed(g, x, dtype)
    return g.sum(g.where(x != x, 0, x) if x.dtype.is_float else x, axes_list(x, dim), keepdim)


def _nanmean(g: Any, x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    x, axes = _typed(g, x, dtype), axes_list(x, dim)
    total = g.sum(g.where(x != x, 0.0, x), axes, keepdim)
    return total / g.sum(g.cast(x == x, x.dtype), axes, keepdim)


def _moments(
    g: Any, x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    less = correction if correction is not None else 1 if unbiased is None or unbiased else 0
    axes = axes_list(x, dim)
    centred = x - g.mean(x, axes, keep_dims=True)
    squares = g.complex_norm_sq(centred) if x.dtype.is_complex else centred * centred
    rest = max(count(x, axes) - less, 0)
    total = g.sum(squares, axes, keepdim)
    return total / rest if rest else total / 0.0, g.mean(x, axes, keepdim)


def _std_mean(g: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    variance, mean = _moments(g, x, *args, **kwargs)
    return g.sqrt(variance), mean


def vector_norm(g: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    """Return the norm of the elements along axes."""
    axes, size = axes_list(x, dim), g.abs(x)
    if ord in (math.inf, -math.inf):
        return g.reduce("max" if ord > 0 else "min", size, axes, keepdim)
    if ord == 0:
        return g.sum(g.cast(size != 0, size.dtype), axes, keepdim)
    if ord == 1:
        return g.sum(size, axes, keepdim)
    if ord == 2:
        return g.sqrt(g.sum(size * size, axes, keepdim))
    return g.pow(g.sum(g.pow(size, float(ord)), axes, keepdim), 1 / ord)


def _norm(g: Any, x: Any, p: Any, dim: Any, keepdim: bool) -> Any:
    needs(p != "nuc", "RLX has no singular values")
    return vector_norm(g, x, 2 if p in ("fro", None) else p, dim, keepdim)


def _diff(g: Any, x: Any, n: int, dim: int, prepend: Any, append: Any) -> Any:
    if n == 0:
        return x
    parts = [t for t in (prepend, x, append) if t is not None]
    x = g.concat(parts, axis=dim) if len(parts) > 1 else x
    for _ in range(n):
        size = sizes(x)[dim]
        if size == 0:
            return x
        after, before = g.narrow(x, dim, 1, size - 1), g.narrow(x, dim, 0, size - 1)
        x = after != before if x.dtype.is_bool else after - before
    return x


def _areas(g: Any, y: Any, x: Any, dim: int, dx: Any) -> Any:
    size = sizes(y)[dim]
    needs(size > 0, "PyTorch gives zeros for no points")
    pairs = g.narrow(y, dim, 1, size - 1) + g.narrow(y, dim, 0, size - 1)
    if x is None:
        return pairs * (dx / 2)
    if x.rank == 1 and y.rank > 1:
        x = g.reshape(x, (-1,) + (1,) * (y.rank - 1 - dim % y.rank))
        dim = dim % y.rank - y.rank
    width = sizes(x)[dim]
    return pairs * (g.narrow(x, dim, 1, width - 1) - g.narrow(x, dim, 0, width - 1)) / 2.0


def _sort(g: Any, x: Any, dim: int, descending: bool, stable: bool) -> Any:
    rows = _scalar_safe(g, x)
    values = g.reshape(g.sort(rows, axis=dim, descending=descending), sizes(x))
    positions = g.reshape(g.argsort(rows, axis=dim, descending=descending), sizes(x))
    return values, positions if stable or x.dtype.name in ("f32", "f64") else None


def _argsort(g: Any, x: Any, dim: int, descending: bool, stable: bool) -> Any:
    needs(stable or x.dtype.name in ("f32", "f64"), "the order of equal elements is not said")
    return _sort(g, x, dim, descending, True)[1]


@says("topk", differentiable=False)
def _topk(g: Any, x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    needs(sorted, "the order is not said")
    if x.rank == 0:
        return tuple(g.reshape(t, () if k else (0,)) for t in g.topk(g.reshape(x, (1,)), k)) if k else (x, None)
    rows = moved(g, x, dim, -1)
    if largest:
        values, positions = g.topk(rows, k)
    else:
        values, positions = (g.narrow(t, -1, 0, k) for t in (g.sort(rows), g.argsort(rows)))
    said = x.dtype.name in ("f32", "f64")  # in other dtypes some are equal, and PyTorch does not define their order
    return moved(g, values, -1, dim), moved(g, positions, -1, dim) if said else None


def _kth(g: Any, x: Any, k: int, dim: int, keepdim: bool) -> Any:
    if x.rank == 0:
        return x
    chosen = g.narrow(g.sort(x, axis=dim), dim, k - 1, 1)
    return chosen if keepdim else g.reshape(chosen, [d for i, d in enumerate(sizes(x)) if i != dim % x.rank])


def _diagonal(g: Any, x: Any) -> Any:
    size = min(sizes(x))
    if not size:
        return g.reshape(x[:0, :0], (0,))
    return g.reshape(g.gather_batched(x[:size], g.iota((size, 1)), axis=1), (size,))


def _renorm(g: Any, x: Any, p: Any, dim: int, maxnorm: float) -> Any:
    axes = [i for i in range(x.rank) if i != dim % x.rank]
    norm = vector_norm(g, x, p, axes, True)
    return g.where(norm > maxnorm, x * (maxnorm / (norm + 1e-7)), x)


# Reductions of masked elements.


def _kept(g: Any, x: Any, mask: Any, other: Any) -> Any:
    return x if mask is None else g.where(mask, x, other)


def _masked(kind: str, neutral: Any) -> Any:
    def reduce(g: Any, x: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
        x = _typed(g, x, dtype)
        needs(not (x.dtype.is_bool and callable(neutral)), "numbers")
        value = neutral(x.dtype) if callable(neutral) else neutral
        return g.reduce(kind, _kept(g, x, mask, value), axes_list(x, dim), keepdim)

    return reduce


def _least(kind: Any) -> Any:
    return -math.inf if kind.is_float else kind.min


def _greatest(kind: Any) -> Any:
    return math.inf if kind.is_float else kind.max


says("masked.sum")(_masked("sum", 0))
says("masked.prod")(_masked("prod", 1))
says("masked.amax", differentiable=False)(_masked("max", _least))
says("masked.amin", differentiable=False)(_masked("min", _greatest))
says("masked.cumsum")(
    lambda g, x, dim, dtype=None, mask=None: _running(g, g.cumsum, _kept(g, _typed(g, x, dtype), mask, 0), dim)
)
says("masked.cumprod")(
    lambda g, x, dim, dtype=None, mask=None: _running(g, g.cumprod, _kept(g, _typed(g, x, dtype), mask, 1), dim)
)


@says("masked.mean", differentiable=False)
def _masked_mean(g: Any, x: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    x, axes = _typed(g, x, dtype), axes_list(x, dim)
    if mask is None:
        return g.mean(x, axes, keepdim)
    number = g.sum(g.cast(g.expand(mask, x.shape.dims), "f32"), axes, keepdim)
    return g.sum(_kept(g, x, mask, 0), axes, keepdim) / g.cast(number, x.dtype)
