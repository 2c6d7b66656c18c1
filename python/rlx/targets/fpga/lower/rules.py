"""Rules for convolutions, pooling and elementwise ops.

An operand is a `Stream`, or an array if it is constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.dtype import DType, dtype, i32
from rlx.ops.convolution.geometry import ConvGeometry, PoolGeometry
from rlx.ops.quantization.quant_compute import ProductQuantization, QuantizedOperands
from rlx.ops.quantization.requantize import FixedPoint, Requantization
from rlx.passes.check_lir import INSTEAD
from rlx.support.errors import UnsupportedError
from rlx.targets.fpga.lower import pointwise
from rlx.targets.fpga.lower.geometry import Geometry
from rlx.targets.fpga.lower.layer import Stream, dtype_range
from rlx.targets.fpga.lower.movement_rules import movement
from rlx.targets.fpga.lower.orders import channels_of, row_major, usual
from rlx.targets.fpga.lower.pointwise import TableLayer
from rlx.targets.fpga.lower.requantiser import Requantiser
from rlx.targets.fpga.lower.site import LayerSite, Operand, constant, rule, stream
from rlx.targets.fpga.lower.window import WindowLayer

# --- convolutions, pools ----------------------------------------------------------------------------


def _sums(
    operands: QuantizedOperands[Operand], quantization: ProductQuantization
) -> tuple[Stream, np.ndarray, np.ndarray]:
    """Return x, the weights minus their zero point, and the offset of each channel of a quantised product."""
    if operands.multiplier is not None or quantization.dtype != i32:
        raise UnsupportedError("only sums in i32 are made", hint="use dtype=i32 without a multiplier, and requantize")
    weights, bias = constant(operands.w, "w").astype(np.int64) - quantization.w_zero_point, operands.bias
    added = np.zeros((), np.int64) if bias is None else constant(bias, "bias").astype(np.int64)
    return stream(operands.x), weights, added


def with_offset(site: LayerSite, sums: Stream, offset: np.ndarray, axis: int) -> Stream:
    """Add an offset to each channel of sums: biases, and the contributions of zero points. It wraps like i32."""
    if not offset.any():
        return sums
    offset = ((offset + (1 << 31)) % (1 << 32) - (1 << 31)).reshape(-1, *[1] * (len(sums.shape) - 1 - axis))
    return site.pointwise("add", [sums, offset], "bias")


@rule("q_conv2d")
def _q_conv2d(
    site: LayerSite,
    operands: QuantizedOperands[Operand],
    *,
    geometry: ConvGeometry,
    quantization: ProductQuantization,
) -> Operand:
    x, weights, bias = _sums(operands, quantization)
    groups, zero = geometry.groups, quantization.x_zero_point
    images, channels = x.shape[:2]
    results, depth = weights.shape[:2]
    x, places = _by_pixels(site, x)
    depthwise = depth == 1 and results == channels
    if groups > 1 and not depthwise and not np.array_equal(places, np.arange(channels)):
        x, places = site.ordered(x, usual(x.shape)), np.arange(channels)
    windows = PoolGeometry(weights.shape[2:], geometry.stride, geometry.padding)
    common: dict[str, Any] = {"fill": zero, "dtype": i32, "shape": site.dims, "images": images}
    common["geometry"] = _geometry(x.shape, site.dims, windows, geometry.dilation)
    if depthwise:
        order = _pixel_order(site.dims, places)
        kernels = weights[places, 0]
        layer = WindowLayer(
            site.named("depthwise"), site.place, [x], kind="depthwise", weights=kernels, order=order, **common
        )
    else:
        if groups == 1:
            weights = weights[:, places]
        shaped = weights.reshape(groups, results // groups, *weights.shape[1:]).transpose(0, 1, 3, 4, 2)
        name = site.named("conv")
        layer = WindowLayer(name, site.place, [x], kind="conv", weights=shaped, order=usual(site.dims), **common)
    offset = bias - zero * weights.sum((1, 2, 3))
    return with_offset(site, site.add(layer), offset, 1)


def _by_pixels(site: LayerSite, x: Stream) -> tuple[Stream, np.ndarray]:
    """Reorder a stream by pixels if necessary. Returns it with the order of its channels."""
    places = channels_of(x.order, x.shape)
    return (site.ordered(x, usual(x.shape)), np.arange(x.shape[1])) if places is None else (x, places)


def _pixel_order(shape: tuple[int, ...], places: np.ndarray) -> np.ndarray:
    """Return the order of a stream by pixels with this order of channels."""
    tensor = np.moveaxis(row_major(shape).reshape(shape), 1, -1)
    return tensor[..., places].ravel()


def _geometry(image: Sequence[int], results: Sequence[int], windows: PoolGeometry, dilation: Sequence[int]) -> Geometry:
    def pair(values: Sequence[int]) -> tuple[int, int]:
        return (1, values[0]) if len(values) == 1 else (values[0], values[1])

    before = windows.padding[::2]
    padding = (0, before[0]) if len(before) == 1 else (before[0], before[1])
    sizes = (pair(image[2:]), image[1], pair(windows.kernel), pair(windows.stride), padding, pair(dilation))
    return Geometry(*sizes, results=pair(results[2:]))


@rule("pool")
def _pool(site: LayerSite, x: Operand, *, kind: str, windows: PoolGeometry, **_: Any) -> Operand:
    x = stream(x)
    if kind not in ("max", "sum") or len(x.shape) == 5:
        raise UnsupportedError(f"a {kind} pool of rank {len(x.shape)} has no layer")
    x, places = _by_pixels(site, x)
    layer = WindowLayer(
        site.named("pool"), site.place, [x], kind=kind,
        geometry=_geometry(x.shape, site.dims, windows, (1,) * len(windows.kernel)),
        weights=None, fill=dtype_range(x.dtype)[0] if kind == "max" else 0, dtype=i32 if kind == "sum" else x.dtype,
        order=_pixel_order(site.dims, places), shape=site.dims, images=x.shape[0],
    )  # fmt: skip
    return wrap_to_result(site, site.add(layer))


def wrap_to_result(site: LayerSite, x: Stream) -> Stream:
    """Convert a stream to the dtype of the result. Numbers that do not fit wrap."""
    low, high = dtype_range(site.result.dtype)
    if low <= x.low and x.high <= high:
        return Stream(x.shape, site.result.dtype, x.order, x.low, x.high, x.source)
    return site.pointwise("cast", [x])


# --- elements -----------------------------------------------------------------------------------------------------


@rule("requantize")
def _requantize(site: LayerSite, x: Operand, factor: FixedPoint[Operand], *, requantization: Requantization) -> Operand:
    stream(x)
    streams, constants = site.broadcast([x, factor.multiplier, factor.shift])
    least, greatest = dtype_range(requantization.dtype)
    layer = Requantiser(
        site.named("requantise"), site.place, streams, multiplier=constants.get(1), shift=constants.get(2),
        **requantization.named, least=least, greatest=greatest,
    )  # fmt: skip
    return site.add(layer)


@rule("binary")
def _binary(site: LayerSite, left: Operand, right: Operand, *, kind: str) -> Operand:
    if site.result.dtype.is_bool:
        kind = {"add": "max", "mul": "min"}.get(kind, kind)
    if kind in pointwise.SHIFTS:
        return _shift(site, stream(left, "the number that is shifted"), right, kind)
    if kind not in pointwise.BINARY:
        raise UnsupportedError(f"binary {kind} has no layer", hint=INSTEAD.get(f"binary.{kind}"))
    if kind in ("max", "min") and (clamped := _clamped(site, left, right, kind)) is not None:
        return clamped
    return site.pointwise(kind, [left, right])


def _shift(site: LayerSite, x: Stream, counts: Operand, kind: str) -> Stream:
    """A shift by one constant, which needs only wires. Counts outside the width give 0, or the sign for right shifts."""
    count = np.unique(constant(counts, "the count of a shift"))
    if count.size != 1:
        raise UnsupportedError("a shift by several counts has no layer", hint="shift by one constant, or multiply")
    bits = 8 * x.dtype.itemsize
    inside = 0 <= count[0] < bits
    if kind == "shift_left" and not inside:
        return site.pointwise("mul", [x, np.zeros((), np.int64)])
    # An unsigned number has an additional bit in its stream, so that all bits can be shifted out.
    places = int(count[0]) if inside else bits - (x.dtype.min < 0)
    return site.pointwise(kind, [x, np.array(places)])


def _clamped(site: LayerSite, left: Operand, right: Operand, kind: str) -> Stream | None:
    """Merge a clamp by one number into the preceding requantisation, or remove it if it has no effect; else None."""
    x, limit = (left, right) if isinstance(left, Stream) else (right, left)
    if not isinstance(x, Stream) or not isinstance(limit, np.ndarray) or x.shape != site.dims:
        return None
    if np.unique(limit).size != 1:
        return None
    number = int(limit.ravel()[0])
    if number <= x.low if kind == "max" else number >= x.high:
        return x
    before = x.source
    # The clamp must be the only reader of the requantised stream under all its names.
    if not isinstance(before, Requantiser) or before.output is not x or not site.sole(x):
        return None
    after = before.clamped(*((number, 1 << 31) if kind == "max" else (-(1 << 31), number)))
    site.layers[site.layers.index(before)] = after
    return after.output


@rule("compare")
def _compare(site: LayerSite, left: Operand, right: Operand, *, kind: str) -> Operand:
    return site.pointwise(kind, [left, right], "compare")


@rule("where")
def _where(site: LayerSite, condition: Operand, yes: Operand, no: Operand) -> Operand:
    return site.pointwise("where", [condition, yes, no], "choose")


@rule("activation")
def _activation(site: LayerSite, x: Operand, *, kind: str) -> Operand:
    if kind not in pointwise.UNARY:
        raise UnsupportedError(f"activation {kind} has no layer", hint=INSTEAD["activation"])
    if kind == "relu" and isinstance(x, Stream):
        limit = np.zeros((), np.int64)
        if (clamped := _clamped(site, x, limit, "max")) is not None:
            return clamped
    return site.pointwise(kind, [x])


@rule("cast")
def _cast(site: LayerSite, x: Operand, *, dtype: DType) -> Operand:
    x = stream(x)
    if dtype.is_bool and not x.dtype.is_bool:
        return site.pointwise("truth", [x])
    return wrap_to_result(site, x)


@rule("gather")
def _gather(site: LayerSite, table: Operand, indices: Operand, *, axis: int) -> Operand:
    if isinstance(table, Stream):
        return movement(site, table, constant(indices, "indices of a computed table"), axis=axis)
    indices = stream(indices)
    entries = np.moveaxis(table, axis, 0)
    if entries.ndim > 1:
        # Each index selects a row of entries. It is repeated for each entry of the row, and becomes `index * length + offset`.
        inner = entries.shape[1:]
        length = int(np.prod(inner))
        inside = np.arange(length).reshape(inner)
        shape = site.dims[:axis] + indices.shape + site.dims[axis + len(indices.shape) :]
        lead, tail = (1,) * axis, (1,) * (len(site.dims) - axis - len(indices.shape))
        places = np.broadcast_to(np.arange(indices.count).reshape(*lead, *indices.shape, *tail), shape)
        offsets = inside.reshape(*inner[:axis], *(1,) * len(indices.shape), *inner[axis:])
        last = np.array(table.shape[axis] - 1)
        indices = site.pointwise(
            "max",
            [site.pointwise("min", [indices, last], to=i32, shape=indices.shape), np.array(0)],
            to=i32,
            shape=indices.shape,
        )
        spread = site.moved(indices, np.array(places))
        starts = site.pointwise("mul", [spread, np.array(length)], to=i32)
        indices = site.pointwise("add", [starts, offsets], to=i32)
        entries = entries.ravel()
    layer = TableLayer(site.named("table"), site.place, [indices], table=entries, dtype=dtype(table.dtype))
    return site.add(layer)
