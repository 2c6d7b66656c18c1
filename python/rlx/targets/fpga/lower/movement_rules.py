"""Rules for data movement and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.support.errors import UnsupportedError
from rlx.targets.fpga.lower.layer import Stream
from rlx.targets.fpga.lower.movement import ConcatLayer
from rlx.targets.fpga.lower.orders import channels_of, inverse, row_major
from rlx.targets.fpga.lower.reduction import PLACES, ReduceLayer, rounds_of
from rlx.targets.fpga.lower.site import LayerSite, Operand, rule, stream

# --- reductions ------------------------------------------------------------------------------------------------------


@rule("reduce")
def _reduce(site: LayerSite, x: Operand, *, kind: str, axes: Sequence[int], keep_dims: bool) -> Operand:
    if kind not in ("sum", "max", "min"):
        raise UnsupportedError(f"reduce {kind} has no layer")
    return _reduced(site, stream(x), kind, tuple(axes))


@rule("argmax")
def _argmax(site: LayerSite, x: Operand, *, axis: int, keep_dims: bool) -> Operand:
    return _reduced(site, stream(x), "argmax", (axis,))


@rule("argmin")
def _argmin(site: LayerSite, x: Operand, *, axis: int, keep_dims: bool) -> Operand:
    return _reduced(site, stream(x), "argmin", (axis,))


def _reduced(site: LayerSite, x: Stream, kind: str, axes: tuple[int, ...]) -> Stream:
    kept = [1 if i in axes else d for i, d in enumerate(x.shape)]
    results = np.array(np.broadcast_to(np.arange(int(np.prod(kept))).reshape(kept), x.shape)).ravel()
    length = x.count // int(np.prod(kept))
    if length == 1 and kind not in PLACES:
        return x.like(site.dims, results[x.order])
    rounds = rounds_of(results[x.order], length)
    if rounds is None or (kind in PLACES and not _ascends(x, axes[0], results)):
        last = [i for i in range(len(x.shape)) if i not in axes] + list(axes)
        x = site.ordered(x, row_major(x.shape).reshape(x.shape).transpose(last).ravel())
        rounds = rounds_of(results[x.order], length)
    assert rounds is not None
    order = results[x.order].reshape(-1, rounds.count, rounds.places)[:, 0].ravel()
    layer = ReduceLayer(
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
    """Whether the elements of each result arrive in the order of an axis."""
    along = np.array(np.broadcast_to(np.arange(x.shape[axis]).reshape([-1] + [1] * (len(x.shape) - 1 - axis)), x.shape))
    by_result = along.ravel()[x.order][np.argsort(results[x.order], kind="stable")]
    return np.array_equal(by_result, np.tile(np.arange(x.shape[axis]), x.count // x.shape[axis]))


# --- movement ----------------------------------------------------------------------------------------------------------


@rule("reshape", "transpose", "slice", "narrow", "reverse", "expand")
def movement(site: LayerSite, x: Operand, *others: np.ndarray, **attributes: Any) -> Operand:
    """The rule of ops that move elements independently of values."""
    x = stream(x)
    places = np.arange(x.count).reshape(x.shape)
    return site.moved(x, np.asarray(site.evaluate(places, *others, **attributes)))


@rule("pad")
def _pad(site: LayerSite, x: Operand, *, value: float, **attributes: Any) -> Operand:
    x = stream(x)
    places = np.arange(1, x.count + 1).reshape(x.shape)
    fill = int(np.asarray(value).astype(x.dtype.numpy))
    return site.moved(x, np.asarray(site.evaluate(places, value=0, **attributes)) - 1, fill)


@rule("concat")
def _concat(site: LayerSite, left: Operand, right: Operand, *, axis: int) -> Operand:
    if not (isinstance(left, Stream) and isinstance(right, Stream)):
        return _with_constant(site, left, right, axis)
    sides = [left, right]
    starts = (0, sides[0].count)
    numbers = [np.arange(s.count).reshape(s.shape) + start for s, start in zip(sides, starts, strict=True)]
    # The position of each operand's elements in the result.
    places = inverse(np.concatenate(numbers, axis).ravel())
    where = [places[s.order + start] for s, start in zip(sides, starts, strict=True)]
    turns = _turns(sides, axis)
    rows = [w.reshape(-1, t) for w, t in zip(where, turns, strict=True)]
    order = np.concatenate(rows, 1).ravel()
    return site.add(ConcatLayer(site.named("concat"), site.place, sides, turns=turns, shape=site.dims, order=order))


def _with_constant(site: LayerSite, left: Operand, right: Operand, axis: int) -> Stream:
    """Concatenate a stream and a constant: pad the stream with zeros, which are then replaced."""
    x = stream(left if isinstance(left, Stream) else right)
    here = np.arange(x.count).reshape(x.shape)
    computed = np.concatenate([here if o is x else np.full(np.shape(o), -1) for o in (left, right)], axis)
    numbers = np.concatenate([o if isinstance(o, np.ndarray) else np.zeros(x.shape, int) for o in (left, right)], axis)
    return site.pointwise("or", [site.moved(x, computed), numbers], "concat")


def _turns(sides: Sequence[Stream], axis: int) -> tuple[int, int]:
    """Return the block size of each operand that gives a convenient element order for later layers."""
    a, b = sides
    if axis == 1 and len(a.shape) in (3, 4) and all(channels_of(s.order, s.shape) is not None for s in sides):
        return a.shape[1], b.shape[1]
    if all(np.array_equal(s.order, row_major(s.shape)) for s in sides):
        outer = int(np.prod(a.shape[:axis]))
        return a.count // outer, b.count // outer
    return a.count, b.count
