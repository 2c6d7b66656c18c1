"""Creation of tensors from sizes and numbers.

Random tensors have no rule, because RLX would draw different numbers than PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.torch.rules import Operand, Results, as_tensor, aten, known_size
from rlx.ir.dims.dim import DimExpr
from rlx.ir.dtype import DType, i64
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_LARGEST = 1 << 24  # the largest number of elements of a literal table


def _filled(g: Graph, value: Operand, results: Results) -> Tensor:
    return g.expand(as_tensor(g, value, results[0].dtype), results[0].dims)


@aten("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "new_empty", "empty_strided", "empty_permuted")
def zeros(g: Graph, *rest: Any, dtype: object = None, physical_layout: object = None, results: Results) -> Tensor:
    """Return zeros, also for empty tensors, whose content PyTorch does not define."""
    return _filled(g, 0, results)


@aten("new_empty_strided")
def new_empty_strided(g: Graph, *rest: Any, dtype: object = None, results: Results) -> Tensor:
    return _filled(g, 0, results)


@aten("ones", "ones_like", "new_ones")
def ones(g: Graph, *rest: Any, dtype: object = None, results: Results) -> Tensor:
    return _filled(g, 1, results)


@aten("full", "full_like", "new_full", "fill")
def full(g: Graph, like: Any, *rest: Any, dtype: object = None, fill_value: Any = None, results: Results) -> Tensor:
    """Return a constant tensor. Its value is the last positional argument."""
    return _filled(g, rest[-1] if rest else fill_value, results)


@aten("scalar_tensor")
def scalar_tensor(g: Graph, value: Operand, *, dtype: object = None, results: Results) -> Tensor:
    return as_tensor(g, value, results[0].dtype)


@aten("arange.default")
def arange_to(g: Graph, end: Any, *, dtype: object = None, results: Results) -> Tensor:
    return arange(g, 0, end, results=results)


@aten("arange")
def arange(g: Graph, start: Any, end: Any, step: Any = 1, *, dtype: object = None, results: Results) -> Tensor:
    kind, count = results[0].dtype, results[0].dims[0]
    start, step = (_truncated(n, kind) for n in (start, step))
    if isinstance(count, DimExpr) or any(isinstance(n, DimExpr) for n in (start, step)):
        whole = g.iota((count,), 0, "i64" if kind.is_integer else kind)
        scaled = whole if step == 1 else g.mul(whole, as_tensor(g, step, whole.dtype))
        return g.cast(scaled if start == 0 else g.add(scaled, as_tensor(g, start, whole.dtype)), kind)
    if kind.is_integer and start == 0 and step == 1:
        return g.iota((count,), 0, kind)
    wide = np.int64 if all(isinstance(n, int) for n in (start, step)) else np.float64
    return _table(g, start + np.arange(count, dtype=wide) * step, kind)


def _truncated(number: Any, kind: DType) -> Any:
    """Return an argument as PyTorch computes with it: for an integer result it is truncated first."""
    return int(number) if kind.is_integer and isinstance(number, float) else number


def _table(g: Graph, values: np.ndarray, kind: Any) -> Tensor:
    if values.size > _LARGEST:
        raise UnsupportedError(f"of {values.size} elements cannot be imported; at most {_LARGEST} are written down")
    return g.constant(values.astype(kind.numpy))


@dataclass(frozen=True)
class SpacedInterval(ArgumentGroup):
    """The ends of an interval, and the number of places in it."""

    start: Operand
    end: Operand
    steps: int

    def values(self, kind: DType, count: int) -> np.ndarray:
        """Return evenly spaced numbers for a result of a dtype, computed from both ends to the middle as in PyTorch."""
        first, last = (float(_truncated(_number(end), kind)) for end in (self.start, self.end))
        step = (last - first) / max(count - 1, 1)
        at = np.arange(count)
        return np.where(at < max(count // 2, 1), first + step * at, last - step * (count - 1 - at))


@aten("linspace")
def linspace(g: Graph, interval: SpacedInterval, *, dtype: object = None, results: Results) -> Tensor:
    kind, count = results[0].dtype, known_size(results[0].dims[0], "number of steps")
    return _table(g, interval.values(kind, count), kind)


def _number(value: Operand) -> float:
    if not isinstance(value, (int, float)):
        raise UnsupportedError("between tensors or sizes cannot be imported")
    return float(value)


@aten("logspace")
def logspace(
    g: Graph, interval: SpacedInterval, base: float = 10.0, *, dtype: object = None, results: Results
) -> Tensor:
    kind, count = results[0].dtype, known_size(results[0].dims[0], "number of steps")
    return _table(g, np.power(float(base), interval.values(kind, count)), kind)


@aten("eye")
def eye(g: Graph, n: int, m: int | None = None, *, dtype: object = None, results: Results) -> Tensor:
    rows, columns = (g.iota(results[0].dims, axis, i64) for axis in (0, 1))
    return g.cast(g.eq(rows, columns), results[0].dtype)


@aten("tril_indices")
def tril_indices(g: Graph, row: int, col: int, offset: int = 0, *, dtype: object = None, results: Results) -> Tensor:
    return _table(g, np.stack(np.tril_indices(row, offset, col)), results[0].dtype)


@aten("triu_indices")
def triu_indices(g: Graph, row: int, col: int, offset: int = 0, *, dtype: object = None, results: Results) -> Tensor:
    return _table(g, np.stack(np.triu_indices(row, offset, col)), results[0].dtype)


def _window(values: Any) -> Callable[..., Any]:
    def rule(g: Graph, length: int, periodic: bool = True, *, dtype: object = None, results: Results) -> Tensor:
        count = length + 1 if periodic and length > 1 else length
        made = np.asarray(values(count), np.float64) if count > 1 else np.ones(count)
        return _table(g, made[:length], results[0].dtype)

    return rule


aten("hann_window")(_window(lambda n: 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(n) / (n - 1))))
aten("hamming_window")(_window(lambda n: 0.54 - 0.46 * np.cos(2 * math.pi * np.arange(n) / (n - 1))))
