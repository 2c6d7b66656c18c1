"""Reductions, running reductions, extrema with positions, and statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.functions.reduction.statistics import elements_norm, root
from rlx.importers.torch.rules import Results, as_tensor, as_tensors, aten, axes_of, axis_of, known_size
from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ops.norm import statistics_input
from rlx.support.errors import UnsupportedError

Axes = int | Sequence[int] | None


def _reduced(g: Graph, method: str, x: Tensor, dim: Axes, keepdim: bool) -> Tensor:
    axes = axes_of(dim, x.rank)
    return getattr(g, method)(x, axes, keepdim) if axes else x


def _typed(method: str) -> Callable[..., Any]:
    """Return a rule that reduces in the dtype of the result: a sum of i32 is i64."""

    def rule(
        g: Graph, x: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: object = None, results: Results
    ) -> Any:
        return _reduced(g, method, as_tensor(g, x, results[0].dtype), dim, keepdim)

    return rule


aten("sum")(_typed("sum"))
aten("mean")(_typed("mean"))
aten("prod")(_typed("prod"))
aten("amax")(lambda g, x, dim=None, keepdim=False: _extreme(g, "max", x, dim, keepdim))
aten("amin")(lambda g, x, dim=None, keepdim=False: _extreme(g, "min", x, dim, keepdim))
aten("max")(lambda g, x: _extreme(g, "max", x, None, False))
aten("min")(lambda g, x: _extreme(g, "min", x, None, False))
aten("max.other")(lambda g, x, y, *, results: g.maximum(*as_tensors(g, results[0].dtype, x, y)))
aten("min.other")(lambda g, x, y, *, results: g.minimum(*as_tensors(g, results[0].dtype, x, y)))


def _extreme(g: Graph, method: str, x: Tensor, dim: Axes, keepdim: bool) -> Tensor:
    if x.dtype.is_bool:
        axes = axes_of(dim, x.rank)
        return (g.any if method == "max" else g.all)(x, axes, keepdim) if axes else x
    return _reduced(g, method, x, dim, keepdim)


@aten("nansum")
def nansum(
    g: Graph, x: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: object = None, results: Results
) -> Tensor:
    x = as_tensor(g, x, results[0].dtype)
    return _reduced(g, "sum", g.where(g.isnan(x), as_tensor(g, 0, x.dtype), x) if x.dtype.is_float else x, dim, keepdim)


def _truth(method: str) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, dim: Axes = None, keepdim: bool = False, *, results: Results) -> Tensor:
        axes = axes_of(dim, x.rank)
        made = getattr(g, method)(x, axes, keepdim) if axes else g.ne(x, as_tensor(g, 0, x.dtype))
        return as_tensor(g, made, results[0].dtype)  # u8 for a u8 operand

    return rule


aten("any")(_truth("any"))
aten("all")(_truth("all"))


@aten("count_nonzero")
def count_nonzero(g: Graph, x: Tensor, dim: Axes = None, *, results: Results) -> Tensor:
    return _reduced(g, "sum", g.cast(g.ne(x, as_tensor(g, 0, x.dtype)), results[0].dtype), dim, False)


def _position(method: str) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, dim: int | None = None, keepdim: bool = False, *, results: Results) -> Tensor:
        flat = g.reshape(x, (product(x.shape.dims),)) if dim is None or not x.rank else x
        found = getattr(g, method)(flat, axis=0 if flat is not x else axis_of(dim or 0, x.rank), keep_dims=False)
        return g.reshape(g.cast(found, results[0].dtype), results[0].dims)

    return rule


aten("argmax")(_position("argmax"))
aten("argmin")(_position("argmin"))


def _with_position(method: str) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, dim: int, keepdim: bool = False, *, results: Results) -> list[Tensor]:
        whole = g.cast(x, "i32") if x.dtype.is_bool else x
        positions = _position(f"arg{method}")(g, whole, dim, keepdim, results=results[1:])
        return [_extreme(g, method, x, dim, keepdim), positions]

    return rule


aten("max.dim")(_with_position("max"))
aten("min.dim")(_with_position("min"))


@aten("aminmax")
def aminmax(g: Graph, x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> list[Tensor]:
    return [_extreme(g, method, x, dim, keepdim) for method in ("min", "max")]


def _running(method: str) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, dim: int, *, dtype: object = None, results: Results) -> Tensor:
        x = as_tensor(g, x, results[0].dtype)
        return getattr(g, method)(x, axis=axis_of(dim, x.rank)) if x.rank else x

    return rule


aten("cumsum")(_running("cumsum"))
aten("cumprod")(_running("cumprod"))
aten("logcumsumexp")(_running("logcumsumexp"))


def _running_extreme(method: str, compare: str) -> Callable[..., Any]:
    """Return the rule of a running extreme. Positions are those of the last equal element."""

    def rule(g: Graph, x: Tensor, dim: int, *, results: Results) -> list[Tensor]:
        if not x.rank:
            return [x, g.full((), 0, "i64")]
        axis = axis_of(dim, x.rank)
        values = getattr(g, method)(x, axis=axis)
        new = getattr(g, compare)(x, values)
        new = g.logical_or(new, g.isnan(x)) if x.dtype.is_float else new
        positions = g.where(new, g.iota(x.shape.dims, axis, "i32"), as_tensor(g, 0, i32))
        return [values, g.cummax(positions, axis=axis)]

    return rule


aten("cummax")(_running_extreme("cummax", "ge"))
aten("cummin")(_running_extreme("cummin", "le"))


@aten("diff")
def diff(
    g: Graph, x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    parts = [t for t in (prepend, x, append) if t is not None]
    return g.diff(g.concat(parts, axis=dim) if len(parts) > 1 else x, n, axis=dim)


def _squares(g: Graph, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the sum of the squared distances from the mean, with reduced axes kept. f16 and bf16 are computed in f32."""
    x = statistics_input(g, x)
    centred = g.sub(x, g.mean(x, axes, True))
    return g.sum(g.square(g.abs(centred)) if x.dtype.is_complex else g.square(centred), axes, True)


def _variance(g: Graph, x: Tensor, dim: Axes, correction: Any, keepdim: bool, results: Results) -> Tensor:
    axes = axes_of(dim, x.rank)
    less = 1 if correction is None else correction
    if not axes:
        return as_tensor(g, math.nan if less else 0.0, results[0].dtype)
    total = _squares(g, x, axes)
    count = product(x.shape.dims[a] for a in axes)
    if isinstance(count, int):
        made = g.div(total, as_tensor(g, max(count - less, 0.0), total.dtype))
    else:
        rest = g.sub(g.cast(g.dim_size(count), total.dtype), float(less))
        made = g.div(total, g.maximum(rest, 0.0))
    return made if keepdim else g.squeeze(made, axes)


def _spread(of_root: bool, with_mean: bool) -> Callable[..., Any]:
    """Return the rule of `var` or `std`. The correction is 1 unless it is passed by name or as `unbiased`."""

    def rule(
        g: Graph, x: Tensor, *rest: Any, correction: Any = None, keepdim: bool = False, results: Results
    ) -> list[Tensor]:
        dim = rest[0] if rest and not isinstance(rest[0], bool) else None
        flags = [v for v in rest if isinstance(v, bool)]
        if flags:
            correction, keepdim = int(flags[0]), keepdim or any(flags[1:])
        made = _variance(g, x, dim, correction, keepdim, results)
        made = as_tensor(g, root(g, made) if of_root else made, results[0].dtype)
        return [made, _reduced(g, "mean", x, dim, keepdim)] if with_mean else [made]

    return rule


aten("var")(_spread(False, False))
aten("std")(_spread(True, False))
aten("var_mean")(_spread(False, True))
aten("std_mean")(_spread(True, True))


@aten("logsumexp")
def logsumexp(g: Graph, x: Tensor, dim: Axes, keepdim: bool = False, *, results: Results) -> Tensor:
    axes = axes_of(dim, x.rank)
    x = as_tensor(g, x, results[0].dtype)
    return g.logsumexp(x, axes, keepdim) if axes else x


@dataclass(frozen=True)
class VectorNormArguments(ArgumentGroup):
    """The order of a norm, its axes, and whether they are kept, in PyTorch's order."""

    ord: float = 2
    dim: Axes = None
    keepdim: bool = False


@aten("linalg_vector_norm")
def vector_norm(g: Graph, x: Tensor, norm: VectorNormArguments, *, dtype: object = None, results: Results) -> Tensor:
    x = x if x.dtype.is_complex else as_tensor(g, x, results[0].dtype)
    axes, order = axes_of(norm.dim, x.rank), float(norm.ord)
    if not axes:
        return g.cast(g.ne(x, as_tensor(g, 0, x.dtype)), results[0].dtype) if order == 0 else g.abs(x)
    return elements_norm(g, x, order, axes, norm.keepdim)


@aten("dist")
def dist(g: Graph, x: Tensor, y: Tensor, p: float = 2, *, results: Results) -> Tensor:
    return vector_norm(g, g.sub(x, y), VectorNormArguments(p), results=results)


def _lower_median(g: Graph, x: Tensor, axis: int, of_numbers: bool) -> list[Tensor]:
    """Return the lower median; NaN if there is a NaN, or the median of the numbers if `of_numbers`."""
    size = x.shape.dims[axis]
    order = g.argsort(x, axis=axis)  # NaN is last
    if x.dtype.is_float:
        missing = g.isnan(x)
        amount = g.sum(g.cast(missing, "i32"), [axis], True)
        middle = g.right_shift(g.sub(g.cast(g.dim_size(size), "i32"), g.add(amount, 1)), 1)
        first = g.cast(g.expand_dims(g.argmax(g.cast(missing, "i32"), axis=axis), axis), "i32")
        chosen = g.take_along_axis(order, g.maximum(middle, 0), axis=axis)
        where = chosen if of_numbers else g.where(g.gt(amount, 0), first, chosen)
    else:
        where = g.narrow(order, axis, (known_size(size, "size") - 1) // 2, 1)
    return [g.take_along_axis(x, where, axis=axis), where]


def _median(of_numbers: bool) -> Callable[..., Any]:
    def rule(g: Graph, x: Tensor, dim: int | None = None, keepdim: bool = False) -> list[Tensor]:
        rows = g.reshape(x, (product(x.shape.dims),)) if dim is None or not x.rank else x
        axis = 0 if rows is not x else axis_of(dim or 0, x.rank)
        values, where = _lower_median(g, rows, axis, of_numbers)
        if not keepdim or not x.rank:
            values, where = g.squeeze(values, axis), g.squeeze(where, axis)
        return [values] if dim is None else [values, where]

    return rule


aten("median")(_median(False))
aten("nanmedian")(_median(True))


@aten("kthvalue")
def kthvalue(g: Graph, x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> list[Tensor]:
    if not x.rank:
        return [x, g.full((), 0, "i64")]
    axis = axis_of(dim, x.rank)
    where = g.narrow(g.argsort(x, axis=axis), axis, k - 1, 1)
    made = [g.take_along_axis(x, where, axis=axis), where]
    return made if keepdim else [g.squeeze(t, axis) for t in made]


@aten("sort")
def sort(
    g: Graph, x: Tensor, dim: Any = -1, descending: bool = False, *, stable: object = None, results: Results
) -> list[Tensor]:
    if not x.rank:
        return [x, g.full((), 0, "i64")]
    axis = axis_of(dim, x.rank)
    whole = g.cast(x, "i32") if x.dtype.is_bool else x
    order = g.argsort(whole, axis=axis, descending=descending)
    return [g.take_along_axis(x, order, axis=axis), order]


@aten("sort.stable")
def sort_stable(
    g: Graph, x: Tensor, *, stable: object = None, dim: int = -1, descending: bool = False, results: Results
) -> Any:
    return sort(g, x, dim, descending, results=results)


@aten("argsort.stable")
def argsort_stable(
    g: Graph, x: Tensor, *, stable: bool, dim: int = -1, descending: bool = False, results: Results
) -> Tensor:
    return sort(g, x, dim, descending, results=results)[1]


@aten("argsort")
def argsort(
    g: Graph, x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True, results: Results
) -> Any:
    return sort(g, x, dim, descending, results=results)[1]


@dataclass(frozen=True)
class TopKArguments(ArgumentGroup):
    """The arguments of `topk` after the tensor, in PyTorch's order."""

    k: Dim
    dim: int = -1
    largest: bool = True
    sorted: bool = True


@aten("topk")
def topk(g: Graph, x: Tensor, top: TopKArguments, *, results: Results) -> list[Tensor]:
    k, axis = top.k, axis_of(top.dim, x.rank)
    if not x.rank:
        return [g.reshape(t, r.dims) for t, r in zip((x, g.full((), 0, "i64")), results, strict=True)]
    if isinstance(k, int) and not isinstance(x.shape.dims[axis], int):
        raise UnsupportedError("of an axis of symbolic size cannot be imported")
    return list(g.topk(x, known_size(k, "number of elements"), axis=axis, largest=top.largest))
