"""Rules for products: with constants, and of two computed tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from rlx.ir.dtype import i32
from rlx.ops.contraction.contraction import DotDims
from rlx.ops.quantization.quant_compute import ProductQuantization, QuantizedOperands
from rlx.support.errors import UnsupportedError
from rlx.targets.fpga.lower.geometry import Geometry
from rlx.targets.fpga.lower.layer import Stream
from rlx.targets.fpga.lower.orders import columns_of, row_major
from rlx.targets.fpga.lower.product import Product, is_by_columns
from rlx.targets.fpga.lower.rules import with_offset, wrap_to_result
from rlx.targets.fpga.lower.site import LayerSite, Operand, constant, rule, stream
from rlx.targets.fpga.lower.window import WindowLayer


@rule("q_matmul")
def _q_matmul(site: LayerSite, operands: QuantizedOperands[Operand], *, quantization: ProductQuantization) -> Operand:
    if operands.multiplier is not None or quantization.dtype != i32:
        raise UnsupportedError("only sums in i32 are made", hint="use dtype=i32 without a multiplier, and requantize")
    x, w, bias, (x_zero_point, w_zero_point) = operands.x, operands.w, operands.bias, quantization.factors
    if isinstance(x, Stream) and isinstance(w, np.ndarray):
        weights = w.astype(np.int64) - w_zero_point
        added = np.zeros((), np.int64) if bias is None else constant(bias, "bias").astype(np.int64)
        return with_offset(site, _dense(site, x, weights), added - x_zero_point * weights.sum(0), len(site.dims) - 1)
    sums = _multiplied(site, _centred(site, x, x_zero_point), _centred(site, w, w_zero_point))
    return sums if bias is None else site.pointwise("add", [sums, bias], "bias")


def _centred(site: LayerSite, x: Operand, zero_point: int) -> Operand:
    """A tensor with its zero point subtracted."""
    if isinstance(x, np.ndarray):
        return x.astype(np.int64) - zero_point
    return site.pointwise("sub", [x, np.array(zero_point)], "centre", i32, x.shape) if zero_point else x


@rule("matmul")
def _matmul(site: LayerSite, left: Operand, right: Operand) -> Operand:
    return wrap_to_result(site, _multiplied(site, left, right))


@rule("dot_general")
def _dot_general(site: LayerSite, left: Operand, right: Operand, *, dims: DotDims) -> Operand:
    free = dims.free(len(left.shape), len(right.shape))
    batch = [left.shape[i] for i in dims.lhs_batch]
    inner = prod(left.shape[i] for i in dims.lhs_contracting)
    rows, columns = (prod(x.shape[i] for i in f) for x, f in zip((left, right), free, strict=True))
    a = _arranged(site, left, (*dims.lhs_batch, *free[0], *dims.lhs_contracting), (*batch, rows, inner))
    b = _arranged(site, right, (*dims.rhs_batch, *dims.rhs_contracting, *free[1]), (*batch, inner, columns))
    return wrap_to_result(site, _multiplied(site, a, b))


def _arranged(site: LayerSite, x: Operand, axes: Sequence[int], shape: tuple[int, ...]) -> Operand:
    """A tensor, transposed and then reshaped."""
    if isinstance(x, np.ndarray):
        return x.transpose(axes).reshape(shape)
    return site.moved(x, row_major(x.shape).reshape(x.shape).transpose(axes).reshape(shape))


def _multiplied(site: LayerSite, left: Operand, right: Operand) -> Stream:
    """`left @ right` in i32: `[…, rows, channels] @ […, channels, results]`."""
    if isinstance(right, np.ndarray) and prod(right.shape[:-2]) == 1:
        return _dense(site, stream(left), right.astype(np.int64).reshape(right.shape[-2:]))
    if isinstance(left, np.ndarray) and prod(left.shape[:-2]) == 1:
        return _dense_of_columns(site, left.astype(np.int64).reshape(left.shape[-2:]), stream(right))
    if not isinstance(left, Stream) or not isinstance(right, Stream):
        raise UnsupportedError(
            "a product with several constant matrices has no layer", hint="multiply by each of them, and concat"
        )
    rows, channels = left.shape[-2:]
    results = right.shape[-1]
    images = 1 if prod(right.shape[:-2]) == 1 else prod(site.dims[:-2])
    batch = () if images == 1 else _batch(left.shape, right.shape)
    rows = rows if images > 1 else left.count // channels
    a = _expanded(site, left, (*batch, *left.shape[-2:]) if images > 1 else left.shape, (images, rows, channels))
    b = _expanded(site, right, (*batch, channels, results) if images > 1 else right.shape, (images, channels, results))
    a = site.ordered(a, row_major(a.shape))
    by_columns = is_by_columns(b.order, b.shape)
    if not by_columns:
        b = site.ordered(b, row_major(b.shape))
    one = (1, 1)
    layer = Product(
        site.named("matmul"), site.place, [a, b], kind="conv", weights=None, fill=0, dtype=i32, images=images,
        geometry=Geometry((rows, 1), channels, one, one, (0, 0), one, (rows, 1)), results=results, by_columns=by_columns,
        order=row_major(site.dims), shape=site.dims,
    )  # fmt: skip
    return site.add(layer)


def _batch(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return np.broadcast_shapes(left[:-2], right[:-2])


def _expanded(site: LayerSite, x: Stream, whole: tuple[int, ...], shape: tuple[int, ...]) -> Stream:
    """A tensor, broadcast along its batch axes, which are merged into one axis."""
    places = np.array(np.broadcast_to(row_major(x.shape).reshape(x.shape), whole)).reshape(shape)
    return site.moved(x, places, order=None if places.size == x.count else row_major(shape))


def _dense(site: LayerSite, x: Stream, weights: np.ndarray, shape: tuple[int, ...] | None = None) -> Stream:
    """`x @ weights`, for constants of shape `[channels, results]`."""
    length, results = int(weights.shape[0]), int(weights.shape[1])
    found = columns_of(x.order, length)
    if found is None:
        x = site.ordered(x, row_major(x.shape))
    columns: np.ndarray = np.arange(length) if found is None else found
    rows = x.count // length
    one = (1, 1)
    geometry = Geometry((rows, 1), length, one, one, (0, 0), one, (rows, 1))
    shape = site.dims if shape is None else shape
    layer = WindowLayer(
        site.named("dense"), site.place, [x], kind="conv", geometry=geometry, fill=0, dtype=i32,
        weights=weights.T[None, :, columns].reshape(1, results, 1, 1, length), order=row_major(shape), shape=shape,
    )  # fmt: skip
    return site.add(layer)


def _dense_of_columns(site: LayerSite, weights: np.ndarray, x: Stream) -> Stream:
    """`weights @ x`, as the product of the transposed x and the transposed constants."""
    turned = site.moved(x, row_major(x.shape).reshape(x.shape).swapaxes(-1, -2))
    shape = (*turned.shape[:-1], len(weights))
    sums = _dense(site, turned, weights.T, shape)
    return site.moved(sums, row_major(shape).reshape(shape).swapaxes(-1, -2).reshape(site.dims))
