"""Reductions, softmax, running sums, sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.importers.onnx.rules import Static, dims, elements, extent, imports, integers, once, static_dims
from rlx.ir.dims import dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_REDUCTIONS: dict[str, Any] = {
    "ReduceSum": lambda g, x, a, k: g.sum(x, a, k),
    "ReduceMean": lambda g, x, a, k: g.mean(x, a, k),
    "ReduceProd": lambda g, x, a, k: g.prod(x, a, k),
    "ReduceL1": lambda g, x, a, k: g.sum(g.abs(x), a, k),
    "ReduceL2": lambda g, x, a, k: g.sqrt(g.sum(g.mul(x, x), a, k)),
    "ReduceSumSquare": lambda g, x, a, k: g.sum(g.mul(x, x), a, k),
    "ReduceLogSum": lambda g, x, a, k: g.log(g.sum(x, a, k)),
    "ReduceLogSumExp": lambda g, x, a, k: g.logsumexp(x, axis=a, keepdims=k),
}


@dataclass(frozen=True, kw_only=True)
class ReduceAttributes(ArgumentGroup):
    """The attributes of a reduction, with ONNX's names."""

    axes: Sequence[int] | None = None
    keepdims: int = 1
    noop_with_empty_axes: int = 0


def _register(name: str, reduced: Any) -> None:
    @imports(name)
    def rule(g: Graph, x: Tensor, where: Tensor | None = None, *, static: Static, reduce: ReduceAttributes) -> Tensor:
        given = tuple(reduce.axes) if reduce.axes is not None else integers(static, 1, "axes")
        if not given:
            given = () if reduce.noop_with_empty_axes else tuple(range(x.shape.rank))
        given = once(x, given)
        result = reduced(g, x, given, bool(reduce.keepdims))
        return result if result.dtype is x.dtype else g.cast(result, x.dtype)  # a mean of integers is one


def _extreme(kind: str) -> Callable[..., Any]:
    def reduced(g: Graph, x: Tensor, axes: Any, keep: bool) -> Tensor:
        if x.dtype.is_bool:
            return (g.any if kind == "max" else g.all)(x, axes, keep)
        return g.reduce(kind, x, axes, keep)

    return reduced


for _name, _reduced in {**_REDUCTIONS, "ReduceMax": _extreme("max"), "ReduceMin": _extreme("min")}.items():
    _register(_name, _reduced)


def _best(g: Graph, x: Tensor, axis: int, keepdims: int, last: int, method: str) -> Tensor:
    if not last:
        return g.cast(getattr(g, method)(x, axis, bool(keepdims)), "i64")
    found = g.cast(getattr(g, method)(g.reverse(x, (axis,)), axis, bool(keepdims)), "i64")
    return g.sub(extent(g, x.shape.dims[axis] - 1, "i64"), found)


@imports("ArgMax")
def arg_max(g: Graph, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _best(g, x, axis, keepdims, select_last_index, "argmax")


@imports("ArgMin")
def arg_min(g: Graph, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _best(g, x, axis, keepdims, select_last_index, "argmin")


def _over(g: Graph, x: Tensor, axis: int | None, opset: int, function: Any) -> Tensor:
    """Apply a function over an axis. Until opset 13, all axes from `axis` on were treated as one axis."""
    if opset >= 13:
        return function(x, -1 if axis is None else axis)
    axis = 1 if axis is None else axis + x.shape.rank if axis < 0 else axis
    dims = x.shape.dims
    flat = g.reshape(x, (*dims[:axis], dim.product(dims[axis:])))
    return g.reshape(function(flat, -1), dims)


@imports("Softmax")
def softmax(g: Graph, x: Tensor, *, opset: int, axis: int | None = None) -> Tensor:
    return _over(g, x, axis, opset, g.softmax)


@imports("LogSoftmax")
def log_softmax(g: Graph, x: Tensor, *, opset: int, axis: int | None = None) -> Tensor:
    return _over(g, x, axis, opset, g.log_softmax)


@imports("Hardmax")
def hardmax(g: Graph, x: Tensor, *, opset: int, axis: int | None = None) -> Tensor:
    def largest(x: Tensor, axis: int) -> Tensor:
        return g.one_hot(g.argmax(x, axis), static_dims(x, axis)[0], dtype=x.dtype, axis=axis)

    return _over(g, x, axis, opset, largest)


def _cumulative(g: Graph, x: Tensor, static: Static, exclusive: int, reverse: int, method: str) -> Tensor:
    position = elements(static, 1, "axis")
    axis = int(position.item()) if position is not None else 0
    axis = axis + x.shape.rank if axis < 0 else axis
    x = g.reverse(x, (axis,)) if reverse else x
    result = getattr(g, method)(x, axis, exclusive=bool(exclusive))
    return g.reverse(result, (axis,)) if reverse else result


@imports("CumSum")
def cumsum(g: Graph, x: Tensor, axis: Tensor, *, static: Static, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _cumulative(g, x, static, exclusive, reverse, "cumsum")


@imports("CumProd")
def cumprod(g: Graph, x: Tensor, axis: Tensor, *, static: Static, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _cumulative(g, x, static, exclusive, reverse, "cumprod")


@dataclass(frozen=True, kw_only=True)
class TopKAttributes(ArgumentGroup):
    """The attributes of `TopK`, with ONNX's names."""

    axis: int = -1
    largest: int = 1
    sorted: int = 1
    k: int | None = None


@imports("TopK")
def top_k(
    g: Graph, x: Tensor, how_many: Tensor | None = None, *, static: Static, top: TopKAttributes
) -> tuple[Tensor, Tensor]:
    count, axis, largest = (dims(static, 1, "K") or (top.k,))[0], top.axis, bool(top.largest)
    if count is None:
        raise UnsupportedError("without K cannot be imported")
    if not isinstance(count, int):
        order = g.narrow(g.argsort(x, axis, largest), axis, 0, count)
        return g.take_along_axis(x, order, axis=axis), g.cast(order, "i64")
    values, indices = g.topk(x, count, axis=axis, largest=largest)
    return values, g.cast(indices, "i64")
