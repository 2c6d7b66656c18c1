"""What layers each op becomes: a rule for each op that the FPGA target claims.

An operand is a `Stream`, or an array where it is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from rlx.backends.fpga import pointwise
from rlx.backends.fpga.layer import Layer, Stream, dtype_range
from rlx.backends.fpga.movement import Concat, Reorder
from rlx.backends.fpga.orders import channels_of, columns_of, inverse, row_major, usual
from rlx.backends.fpga.pointwise import Pointwise, Table
from rlx.backends.fpga.reduction import Reduce, rounds_of
from rlx.backends.fpga.requantiser import Requantiser
from rlx.backends.fpga.window import Geometry, Window
from rlx.ir.dtype import DType, dtype, i32
from rlx.ir.errors import UnsupportedError
from rlx.ir.shape import Shape

Operand = Stream | np.ndarray
Rule = Callable[..., Operand]
L = TypeVar("L", bound=Layer)
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of some ops. It takes a `Site`, the operands and the attributes."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@dataclass
class Site:
    """An op that is being turned into layers.

    Attributes:
        name: The name of the op.
        place: The user's line.
        result: The shape of its result.
        evaluate: Its evaluator.
        layers: All layers so far; new ones are added.
        counts: How many layers of each name there are.
        sole: Whether this op alone reads its first operand.
    """

    name: str
    place: str
    result: Shape
    evaluate: Callable[..., Any]
    layers: list[Layer]
    counts: dict[str, int] = field(default_factory=dict)
    sole: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes of the result."""
        return self.result.static

    def named(self, base: str) -> str:
        """A name for a new layer."""
        self.counts[base] = self.counts.get(base, 0) + 1
        return f"{base}{self.counts[base]}"

    def add(self, layer: Layer) -> Stream:
        """Add a layer; gives its output."""
        self.layers.append(layer)
        return layer.output

    def ordered(self, x: Stream, order: np.ndarray) -> Stream:
        """A stream in another order."""
        if np.array_equal(x.order, order):
            return x
        sources = inverse(x.order)[order]
        return self.add(Reorder(self.named("reorder"), self.place, [x], sources=sources, shape=x.shape, order=order))

    def moved(self, x: Stream, sources: np.ndarray, fill: int = 0, order: np.ndarray | None = None) -> Stream:
        """A tensor whose elements are those of another: for each its flat index there, or -1 for the fill."""
        flat = sources.ravel()
        if flat.size == x.count and np.array_equal(np.sort(flat), np.arange(x.count)):
            moved = x.like(sources.shape, inverse(flat)[x.order])
            return moved if order is None else self.ordered(moved, order)
        order = usual(sources.shape) if order is None else order
        wanted = flat[order]
        places = np.where(wanted < 0, -1, inverse(x.order)[wanted])
        layer = Reorder(
            self.named("reorder"), self.place, [x], sources=places, fill=fill, shape=sources.shape, order=order
        )
        return self.add(layer)

    def broadcast(
        self, operands: Sequence[Operand], shape: tuple[int, ...] | None = None
    ) -> tuple[list[Stream], dict[int, np.ndarray]]:
        """Operands in the shape of the result: streams in one order, and constants in that order, by position."""
        dims = self.dims if shape is None else shape
        whole = [o for o in operands if isinstance(o, Stream) and o.shape == dims]
        streams: list[Stream] = []
        order = whole[0].order if whole else usual(dims)
        for operand in operands:
            if not isinstance(operand, Stream):
                continue
            if operand.shape == dims:
                streams.append(self.ordered(operand, order))
            else:
                places = np.arange(operand.count).reshape(operand.shape)
                streams.append(self.moved(operand, np.array(np.broadcast_to(places, dims)), order=order))
        constants = {
            i: np.broadcast_to(o, dims).ravel()[order].astype(np.int64)
            for i, o in enumerate(operands)
            if not isinstance(o, Stream)
        }
        return streams, constants

    def pointwise(
        self,
        kind: str,
        operands: Sequence[Operand],
        base: str = "",
        to: DType | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Stream:
        """An op on elements."""
        streams, constants = self.broadcast(operands, shape)
        name = self.named(base or kind)
        to = self.result.dtype if to is None else to
        return self.add(Pointwise(name, self.place, streams, kind=kind, dtype=to, constants=constants))


def constant(operand: Operand | None, what: str) -> np.ndarray:
    """An operand that has to be a constant.

    Raises:
        UnsupportedError: It is not.
    """
    if isinstance(operand, np.ndarray):
        return operand
    raise UnsupportedError(
        f"{what} must be a constant", hint="weights are part of the hardware: give them as constants"
    )


def stream(operand: Operand | None, what: str = "x") -> Stream:
    """An operand that has to be computed."""
    if isinstance(operand, Stream):
        return operand
    raise UnsupportedError(f"{what} must not be a constant")


# --- products, convolutions, pools ----------------------------------------------------------------------------


def _sums(site: Site, operands: Sequence[Operand | None], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Operands of a quantised product: x, its weights without their zero point, and what is added to each channel."""
    x, w, bias, multiplier = operands
    if multiplier is not None or attributes["dtype"] != i32:
        raise UnsupportedError("only sums in i32 are made", hint="use dtype=i32 without a multiplier, and requantize")
    weights = constant(w, "w").astype(np.int64) - attributes["w_zero_point"]
    added = 0 if bias is None else constant(bias, "bias").astype(np.int64)
    return stream(x), weights, added


def _with_offset(site: Site, sums: Stream, offset: np.ndarray, axis: int) -> Stream:
    """Sums with a number added to each channel: biases, and what zero points come to. It wraps as i32 does."""
    if not offset.any():
        return sums
    offset = ((offset + (1 << 31)) % (1 << 32) - (1 << 31)).reshape(-1, *[1] * (len(sums.shape) - 1 - axis))
    return site.pointwise("add", [sums, offset], "bias")


@rule("q_matmul")
def _q_matmul(site: Site, *operands: Operand | None, **attributes: Any) -> Operand:
    x, weights, bias = _sums(site, operands, attributes)
    length, results = weights.shape
    columns = columns_of(x.order, length)
    if columns is None:
        x = site.ordered(x, row_major(x.shape))
        columns = np.arange(length)
    rows = x.count // length
    one = (1, 1)
    geometry = Geometry((rows, 1), length, one, one, (0, 0), one, (rows, 1))
    layer = Window(
        site.named("dense"), site.place, [x], kind="conv", geometry=geometry, fill=0, dtype=i32,
        weights=weights.T[None, :, columns].reshape(1, results, 1, 1, length),
        order=row_major(site.dims), shape=site.dims,
    )  # fmt: skip
    offset = bias - attributes["x_zero_point"] * weights.sum(0)
    return _with_offset(site, site.add(layer), offset, len(site.dims) - 1)


@rule("q_conv2d")
def _q_conv2d(site: Site, *operands: Operand | None, **attributes: Any) -> Operand:
    x, weights, bias = _sums(site, operands, attributes)
    groups, zero = attributes["groups"], attributes["x_zero_point"]
    images, channels = x.shape[:2]
    results, depth = weights.shape[:2]
    x, places = _by_pixels(site, x)
    depthwise = depth == 1 and results == channels
    if groups > 1 and not depthwise and not np.array_equal(places, np.arange(channels)):
        x, places = site.ordered(x, usual(x.shape)), np.arange(channels)
    geometry = _geometry(x.shape, site.dims, weights.shape[2:], attributes)
    common: dict[str, Any] = {"geometry": geometry, "fill": zero, "dtype": i32, "shape": site.dims, "images": images}
    if depthwise:
        order = _pixel_order(site.dims, places)
        kernels = weights[places, 0]
        layer = Window(
            site.named("depthwise"), site.place, [x], kind="depthwise", weights=kernels, order=order, **common
        )
    else:
        if groups == 1:
            weights = weights[:, places]
        shaped = weights.reshape(groups, results // groups, *weights.shape[1:]).transpose(0, 1, 3, 4, 2)
        name = site.named("conv")
        layer = Window(name, site.place, [x], kind="conv", weights=shaped, order=usual(site.dims), **common)
    offset = bias - zero * weights.sum((1, 2, 3))
    return _with_offset(site, site.add(layer), offset, 1)


def _by_pixels(site: Site, x: Stream) -> tuple[Stream, np.ndarray]:
    """A stream that goes by pixels, and the order of its channels."""
    places = channels_of(x.order, x.shape)
    return (site.ordered(x, usual(x.shape)), np.arange(x.shape[1])) if places is None else (x, places)


def _pixel_order(shape: tuple[int, ...], places: np.ndarray) -> np.ndarray:
    """The order of a stream by pixels whose channels are in an order."""
    tensor = np.moveaxis(row_major(shape).reshape(shape), 1, -1)
    return tensor[..., places].ravel()


def _geometry(
    image: Sequence[int], results: Sequence[int], kernel: Sequence[int], attributes: Mapping[str, Any]
) -> Geometry:
    def pair(values: Sequence[int]) -> tuple[int, int]:
        return (1, values[0]) if len(values) == 1 else (values[0], values[1])

    before = tuple(attributes["padding"][::2])
    padding = (0, before[0]) if len(before) == 1 else (before[0], before[1])
    dilation = attributes.get("dilation", (1,) * len(kernel))
    sizes = (pair(image[2:]), image[1], pair(kernel), pair(attributes["stride"]), padding, pair(dilation))
    return Geometry(*sizes, results=pair(results[2:]))


@rule("pool")
def _pool(site: Site, x: Operand, *, kind: str, kernel: Any, **attributes: Any) -> Operand:
    x = stream(x)
    if kind not in ("max", "sum") or len(x.shape) == 5:
        raise UnsupportedError(f"a {kind} pool of rank {len(x.shape)} has no layer")
    x, places = _by_pixels(site, x)
    layer = Window(
        site.named("pool"), site.place, [x], kind=kind, geometry=_geometry(x.shape, site.dims, kernel, attributes),
        weights=None, fill=dtype_range(x.dtype)[0] if kind == "max" else 0, dtype=i32 if kind == "sum" else x.dtype,
        order=_pixel_order(site.dims, places), shape=site.dims, images=x.shape[0],
    )  # fmt: skip
    return _fitted(site, site.add(layer))


def _fitted(site: Site, x: Stream) -> Stream:
    """A stream in the dtype of the result: numbers wrap where they do not fit."""
    low, high = dtype_range(site.result.dtype)
    if low <= x.low and x.high <= high:
        return Stream(x.shape, site.result.dtype, x.order, x.low, x.high, x.source)
    return site.pointwise("cast", [x])


# --- elements -----------------------------------------------------------------------------------------------------


@rule("requantize")
def _requantize(
    site: Site, x: Operand, multiplier: Operand, shift: Operand, *, zero_point: int, mode: str, dtype: DType
) -> Operand:
    stream(x)
    streams, constants = site.broadcast([x, multiplier, shift])
    least, greatest = dtype_range(dtype)
    layer = Requantiser(
        site.named("requantise"), site.place, streams, multiplier=constants.get(1), shift=constants.get(2),
        zero_point=zero_point, mode=mode, dtype=dtype, least=least, greatest=greatest,
    )  # fmt: skip
    return site.add(layer)


@rule("binary")
def _binary(site: Site, left: Operand, right: Operand, *, kind: str) -> Operand:
    if site.result.dtype.is_bool:
        kind = {"add": "max", "mul": "min"}.get(kind, kind)
    if kind not in pointwise.BINARY:
        raise UnsupportedError(f"binary {kind} has no layer")
    if kind in ("max", "min") and (clamped := _clamped(site, left, right, kind)) is not None:
        return clamped
    return site.pointwise(kind, [left, right])


def _clamped(site: Site, left: Operand, right: Operand, kind: str) -> Stream | None:
    """A clamp by one number, as part of the requantisation before it, or as nothing where it changes nothing."""
    x, limit = (left, right) if isinstance(left, Stream) else (right, left)
    if not isinstance(x, Stream) or not isinstance(limit, np.ndarray) or x.shape != site.dims:
        return None
    if np.unique(limit).size != 1:
        return None
    number = int(limit.ravel()[0])
    if number <= x.low if kind == "max" else number >= x.high:
        return x
    before = x.source
    # What is clamped must be all that reads it, and no other order of what something else reads.
    if not isinstance(before, Requantiser) or not site.sole or left is not x or before.output is not x:
        return None
    after = before.clamped(*((number, 1 << 31) if kind == "max" else (-(1 << 31), number)))
    site.layers[site.layers.index(before)] = after
    return after.output


@rule("compare")
def _compare(site: Site, left: Operand, right: Operand, *, kind: str) -> Operand:
    return site.pointwise(kind, [left, right], "compare")


@rule("where")
def _where(site: Site, condition: Operand, yes: Operand, no: Operand) -> Operand:
    return site.pointwise("where", [condition, yes, no], "choose")


@rule("activation")
def _activation(site: Site, x: Operand, *, kind: str) -> Operand:
    if kind not in pointwise.UNARY:
        raise UnsupportedError(f"activation {kind} has no layer", hint="a function of an i8 value is a table: gather")
    if kind == "relu" and isinstance(x, Stream):
        limit = np.zeros((), np.int64)
        if (clamped := _clamped(site, x, limit, "max")) is not None:
            return clamped
    return site.pointwise(kind, [x])


@rule("cast")
def _cast(site: Site, x: Operand, *, dtype: DType) -> Operand:
    x = stream(x)
    if dtype.is_bool and not x.dtype.is_bool:
        return site.pointwise("truth", [x])
    return _fitted(site, x)


@rule("gather")
def _gather(site: Site, table: Operand, indices: Operand, *, axis: int) -> Operand:
    if isinstance(table, Stream):
        return _movement(site, table, constant(indices, "indices of a computed table"), axis=axis)
    indices = stream(indices)
    entries = np.moveaxis(table, axis, 0)
    if entries.ndim > 1:
        # A row of entries for each index: it comes again for each of them, times the length of a row and their place in it.
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
    layer = Table(site.named("table"), site.place, [indices], table=entries, dtype=dtype(table.dtype))
    return site.add(layer)


# --- reductions ------------------------------------------------------------------------------------------------------


@rule("reduce")
def _reduce(site: Site, x: Operand, *, kind: str, axes: Sequence[int], keep_dims: bool) -> Operand:
    if kind not in ("sum", "max", "min"):
        raise UnsupportedError(f"reduce {kind} has no layer")
    return _reduced(site, stream(x), kind, tuple(axes))


@rule("argmax")
def _argmax(site: Site, x: Operand, *, axis: int, keep_dims: bool) -> Operand:
    return _reduced(site, stream(x), "argmax", (axis,))


def _reduced(site: Site, x: Stream, kind: str, axes: tuple[int, ...]) -> Stream:
    kept = [1 if i in axes else d for i, d in enumerate(x.shape)]
    results = np.array(np.broadcast_to(np.arange(int(np.prod(kept))).reshape(kept), x.shape)).ravel()
    length = x.count // int(np.prod(kept))
    if length == 1 and kind != "argmax":
        return x.like(site.dims, results[x.order])
    rounds = rounds_of(results[x.order], length)
    if rounds is None or (kind == "argmax" and not _ascends(x, axes[0], results)):
        last = [i for i in range(len(x.shape)) if i not in axes] + list(axes)
        x = site.ordered(x, row_major(x.shape).reshape(x.shape).transpose(last).ravel())
        rounds = rounds_of(results[x.order], length)
    assert rounds is not None
    order = results[x.order].reshape(-1, rounds.count, rounds.places)[:, 0].ravel()
    layer = Reduce(
        site.named(kind),
        site.place,
        [x],
        kind=kind,
        rounds=rounds,
        dtype=site.result.dtype,
        shape=site.dims,
        order=order,
    )
    return site.add(layer)


def _ascends(x: Stream, axis: int, results: np.ndarray) -> bool:
    """Whether the elements of each result come in the order of an axis."""
    along = np.array(np.broadcast_to(np.arange(x.shape[axis]).reshape([-1] + [1] * (len(x.shape) - 1 - axis)), x.shape))
    by_result = along.ravel()[x.order][np.argsort(results[x.order], kind="stable")]
    return np.array_equal(by_result, np.tile(np.arange(x.shape[axis]), x.count // x.shape[axis]))


# --- movement ----------------------------------------------------------------------------------------------------------


@rule("reshape", "transpose", "slice", "narrow", "reverse", "expand")
def _movement(site: Site, x: Operand, *others: np.ndarray, **attributes: Any) -> Operand:
    x = stream(x)
    places = np.arange(x.count).reshape(x.shape)
    return site.moved(x, np.asarray(site.evaluate(places, *others, **attributes)))


@rule("pad")
def _pad(site: Site, x: Operand, *, value: float, **attributes: Any) -> Operand:
    x = stream(x)
    places = np.arange(1, x.count + 1).reshape(x.shape)
    fill = int(np.asarray(value).astype(x.dtype.numpy))
    return site.moved(x, np.asarray(site.evaluate(places, value=0, **attributes)) - 1, fill)


@rule("concat")
def _concat(site: Site, left: Operand, right: Operand, *, axis: int) -> Operand:
    sides = [stream(left, "lhs"), stream(right, "rhs")]
    starts = (0, sides[0].count)
    numbers = [np.arange(s.count).reshape(s.shape) + start for s, start in zip(sides, starts, strict=True)]
    # Where each element of a side is in the result.
    places = inverse(np.concatenate(numbers, axis).ravel())
    where = [places[s.order + start] for s, start in zip(sides, starts, strict=True)]
    turns = _turns(sides, axis)
    rows = [w.reshape(-1, t) for w, t in zip(where, turns, strict=True)]
    order = np.concatenate(rows, 1).ravel()
    return site.add(Concat(site.named("concat"), site.place, sides, turns=turns, shape=site.dims, order=order))


def _turns(sides: Sequence[Stream], axis: int) -> tuple[int, int]:
    """How many elements of each side follow each other, so that what comes next finds a convenient order."""
    a, b = sides
    if axis == 1 and len(a.shape) in (3, 4) and all(channels_of(s.order, s.shape) is not None for s in sides):
        return a.shape[1], b.shape[1]
    if all(np.array_equal(s.order, row_major(s.shape)) for s in sides):
        outer = int(np.prod(a.shape[:axis]))
        return a.count // outer, b.count // outer
    return a.count, b.count
