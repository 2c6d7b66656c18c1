"""Kernels of ops on the rows of a tensor: softmax and the norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import f32
from rlx.kernels.buffer import Buffer, Lanes, Size, ceil_div, greatest
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.functions import exp_of_nonpositive
from rlx.kernels.kernel import Kernel
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_BYTES = 65536  # of a workgroup
_FEW = 256  # elements of a row
COLUMNS = 1024  # of a workgroup that goes over rows


def rows_per_workgroup(columns: Size) -> Size:
    """The number of rows of 4-byte elements of a workgroup."""
    return greatest(1, _BYTES // 4 // greatest(1, columns))


def are_fewer(dims: Sequence[Dim], number: int) -> bool:
    """Whether sizes are known, and their product is less than a number."""
    return all(isinstance(d, int) for d in dims) and math.prod(int(d) for d in dims) < number  # type: ignore[arg-type]


def is_short(dims: Sequence[Dim]) -> bool:
    """Whether a row with axes of some sizes has few vectors, for which code without loops is faster."""
    return are_fewer(dims, _FEW)


def strips(columns: Size, width: int = COLUMNS) -> Size:
    """The number of strips of `width` columns, the last one maybe less."""
    return ceil_div(columns, width)


def strip_width(k: Kernel, columns: Size, first: Value, width: int = COLUMNS) -> Size:
    """The number of columns of the strip that begins at one."""
    is_multiple = isinstance(columns, int) and columns % width == 0
    return width if is_multiple else k.least(width, k.index(columns) - first)


def _are_rows(case: KernelCase) -> bool:
    """Whether the op works on the last axis of f32 tensors."""
    x, axis = case.tensors[0], case.attributes.get("axis", case.tensors[0].rank - 1)
    return case.are_all("f32") and x.rank > 0 and axis == x.rank - 1


def _are_long_rows(case: KernelCase) -> bool:
    """Whether the rows are unknown, or long enough to fill a vector."""
    columns = case.tensors[0].dims[-1] if case.tensors[0].rank else 0
    return not isinstance(columns, int) or columns >= 8


def _leading_axes(case: KernelCase) -> list[Axes]:
    """All axes but the last one."""
    rank = case.tensors[0].rank
    like_first = [t for t, shape in enumerate([*case.tensors, *case.results]) if shape.rank == rank]
    return [[(t, axis) for t in like_first] for axis in range(rank - 1)]


@kernel("softmax", takes=_are_rows, pays=_are_long_rows, open_axes=_leading_axes)
def row_softmax(k: Kernel, x: Buffer, y: Buffer, *, axis: int) -> None:
    """The powers of a row over their sum, without overflow: exp(x - max x)."""
    x, y = x.rows(), y.rows()
    rows, columns = x.shape
    for i in k.parallel(rows, rows_per_workgroup(columns)):
        greatest = k.accumulator("fast_max")
        for c in k.vectors(columns):
            greatest.include(c, x[i, c])
        top, total = greatest.result(), k.accumulator("add")
        for c in k.vectors(columns):
            power = exp_of_nonpositive(x[i, c] - top)
            total.include(c, power)
            y[i, c] = power
        scale = 1.0 / total.result()
        for c in k.vectors(columns):
            y[i, c] = y[i, c] * scale


@dataclass(frozen=True)
class _RowNorm:
    """The normalisation of rows.

    Attributes:
        k: The kernel.
        y: The result.
        scale: The factors of columns.
        shift: The summands of columns, or None.
        eps: The summand of the variance or mean square.
        is_centred: Whether the mean is subtracted: layer norm; else RMS norm.
    """

    k: Kernel
    y: Buffer
    scale: Buffer
    shift: Buffer | None
    eps: float
    is_centred: bool

    def run(self, x: Buffer, added: Buffer | None = None, bias: Buffer | None = None) -> None:
        """Emit the normalisation of `x`, or of `x + added + bias`, whose rows are kept in the result meanwhile."""
        k, x, y = self.k, x.rows(), self.y.rows()
        other = added.rows() if added is not None else None
        rows, columns = x.shape
        size = k.number(columns, f32)
        for i in k.parallel(rows, rows_per_workgroup(columns)):
            source = x
            if other is not None:
                for c in k.vectors(columns):
                    value = x[i, c] if bias is None else x[i, c] + bias[c]
                    y[i, c] = value + other[i, c]
                source = y
            mean = self._mean(source, i, columns, size) if self.is_centred else None
            inverse = 1.0 / (self._mean_square(source, i, columns, mean) / size + self.eps).sqrt()
            for c in k.vectors(columns):
                y[i, c] = self._weighted(_centred(source[i, c], mean) * inverse, c)

    def _mean(self, source: Buffer, i: Value, columns: Size, size: Value) -> Value:
        total = self.k.accumulator("add")
        for c in self.k.vectors(columns):
            total.include(c, source[i, c])
        return total.result() / size

    def _mean_square(self, source: Buffer, i: Value, columns: Size, mean: Value | None) -> Value:
        squares = self.k.accumulator("add")
        for c in self.k.vectors(columns):
            deviation = _centred(source[i, c], mean)
            squares.include(c, deviation * deviation)
        return squares.result()

    def _weighted(self, normal: Value, c: Lanes) -> Value:
        weighted = normal * self.scale[c]
        return weighted if self.shift is None else weighted + self.shift[c]


def _centred(value: Value, mean: Value | None) -> Value:
    return value if mean is None else value - mean


@kernel("layer_norm", takes=_are_rows, pays=_are_long_rows, open_axes=_leading_axes)
def row_layer_norm(k: Kernel, x: Buffer, scale: Buffer, bias: Buffer, y: Buffer, *, axis: int, eps: float) -> None:
    """Rows with mean 0 and variance 1, weighted."""
    _RowNorm(k, y, scale, bias, eps, is_centred=True).run(x)


@kernel("rms_norm", takes=_are_rows, pays=_are_long_rows, open_axes=_leading_axes)
def row_rms_norm(k: Kernel, x: Buffer, scale: Buffer, bias: Buffer | None, y: Buffer, *, axis: int, eps: float) -> None:
    """Rows with mean square 1, weighted."""
    _RowNorm(k, y, scale, bias, eps, is_centred=False).run(x)


def _have_equal_rows(case: KernelCase) -> bool:
    """Whether `x` and the residual have the same shape, and the result as well."""
    x, residual, *_ = case.tensors
    return _are_rows(case) and x == residual == case.results[0]


@kernel("fused_residual_layer_norm", takes=_have_equal_rows, pays=_are_long_rows, open_axes=_leading_axes)
def row_residual_layer_norm(
    k: Kernel,
    x: Buffer,
    residual: Buffer,
    bias: Buffer | None,
    scale: Buffer,
    shift: Buffer,
    y: Buffer,
    *,
    eps: float,
) -> None:
    """The layer norm of a sum."""
    _RowNorm(k, y, scale, shift, eps, is_centred=True).run(x, residual, bias)


@kernel("fused_residual_rms_norm", takes=_have_equal_rows, pays=_are_long_rows, open_axes=_leading_axes)
def row_residual_rms_norm(
    k: Kernel,
    x: Buffer,
    residual: Buffer,
    bias: Buffer | None,
    scale: Buffer,
    shift: Buffer | None,
    y: Buffer,
    *,
    eps: float,
) -> None:
    """The RMS norm of a sum."""
    _RowNorm(k, y, scale, shift, eps, is_centred=False).run(x, residual, bias)
