"""Transposed convolution in one, two or three dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import gcd, prod
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Padding, TensorLike, Tensors, Window
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, moved_bytes, sample
from rlx.ir.shape import DimLike, Shape
from rlx.ops import rules
from rlx.ops.convolution.convolution import check_window, per_axis, per_edge, with_bias
from rlx.ops.convolution.convolution_gradient import apart, one_by_one, weight_gradient
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.ops.lift import common, same_dtype
from rlx.support.errors import ShapeError
from rlx.support.short import short_repr


class ConvTranspose(Card, op="conv_transpose"):
    def infer(self, x: Shape, w: Shape, *, groups: int, output_padding: tuple[int, ...], **window: Any) -> Shape:
        shared = same_dtype(x, w)
        if x.rank != w.rank or x.rank not in (3, 4, 5):
            raise ShapeError(f"x [N, C, spatial…] and w [C, O/groups, kernel…] have rank 3, 4 or 5; got {x} and {w}")
        count = x.rank - 2
        check_window(count, **window)
        if len(output_padding) != count:
            raise ShapeError(f"output_padding needs {count} entries, got {short_repr(list(output_padding))}")
        if not w.is_static:
            raise ShapeError(f"the kernel must have static sizes, got {w}")
        in_channels, per_group = w.static[:2]
        if x.dims[1] != in_channels or in_channels % groups:
            raise ShapeError(f"{x} with {groups} groups needs w [C = {x.dims[1]} = k·{groups}, O/groups, …], got {w}")
        axes = _axes(x.dims, w.static, output_padding, **window)
        for i, a in enumerate(axes):
            if type(a.out) is int and a.out < 0:
                positions = a.out + a.before + a.after
                raise ShapeError(
                    f"spatial axis {i} has {positions} positions: too few for padding {a.before} and {a.after}"
                )
        return Shape((x.dims[0], per_group * groups, *(a.out for a in axes)), shared)

    def evaluate(
        self, x: np.ndarray, w: np.ndarray, *, groups: int, output_padding: tuple[int, ...], **window: Any
    ) -> np.ndarray:
        axes = _axes(x.shape, w.shape, output_padding, **window)
        # The zeros beyond the edges of x that result positions read.
        edges = [(a.dilation * max(a.kernel - 1, 0) + a.output_padding) // a.stride + 1 for a in axes]
        wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((e, e) for e in edges)])
        n, per_group = x.shape[0], w.shape[1]
        grouped = wide.reshape(n, groups, x.shape[1] // groups, *wide.shape[2:])
        weights = w.astype(np.float64).reshape(groups, x.shape[1] // groups, per_group, *w.shape[2:])
        spread = [(s - 1) * a.stride + a.span for s, a in zip(wide.shape[2:], axes, strict=True)]
        total = np.zeros((n, groups, per_group, *spread))
        for tap in cartesian(*map(range, w.shape[2:])):
            places = (
                slice(t * a.dilation, t * a.dilation + (s - 1) * a.stride + 1, a.stride)
                for t, a, s in zip(tap, axes, wide.shape[2:], strict=True)
            )
            total[(..., *places)] += np.einsum("ngc...,gco->ngo...", grouped, weights[(..., *tap)])
        starts = [e * a.stride + a.before for e, a in zip(edges, axes, strict=True)]
        window_of_result = (slice(start, start + a.out) for start, a in zip(starts, axes, strict=True))
        result = total[(..., *window_of_result)]
        return result.reshape(n, groups * per_group, *result.shape[3:]).astype(x.dtype)

    def decompose(
        self, b: Builder, x: Tensor, w: Tensor, *, groups: int, output_padding: tuple[int, ...], **window: Any
    ) -> Tensor:
        """Emit convolutions of x without inserted zeros, one for all result positions with the same part of the kernel.

        Along an axis, position `j·stride + r` of the result uses only the taps `k` with `k·dilation = r (mod stride)`.
        Each phase `r` is therefore a convolution of stride 1, and phases with the same number of taps are channels of
        one convolution. Their results are concatenated and interleaved. Inserting zeros between the elements of x would
        multiply the cost by `stride` for each axis.
        """
        axes = _axes(x.shape.dims, w.shape.static, output_padding, **window)
        result = _phases(b, x, w, axes, groups, ())
        if any(a.stride > 1 for a in axes):
            positions_and_phases = [i for axis in range(2, 2 + len(axes)) for i in (axis + len(axes), axis)]
            result = b.transpose(result, (0, 1, *positions_and_phases))
        result = b.reshape(result, (*result.shape.dims[:2], *(a.count * a.stride for a in axes)))
        for i, a in enumerate(axes):
            if a.out != a.count * a.stride:
                result = b.narrow(result, 2 + i, a.before % a.stride, a.out)
        return result

    def build(
        self,
        b: Builder,
        x: TensorLike,
        w: TensorLike,
        stride: Window = 1,
        padding: Padding = 0,
        output_padding: Window = 0,
        dilation: Window = 1,
        groups: int = 1,
        bias: TensorLike | None = None,
    ) -> Tensor:
        """`bias` is `[O]`."""
        x, w = common(b, x, w)
        count = max(x.rank - 2, 0)
        attributes: dict[str, Any] = {
            "stride": per_axis(stride, count, "stride"),
            "padding": per_edge(padding, count),
            "output_padding": per_axis(output_padding, count, "output_padding"),
            "dilation": per_axis(dilation, count, "dilation"),
        }
        return with_bias(b, b.emit("conv_transpose", (x, w), **attributes, groups=groups), bias)

    linear = ("x", "w")

    def vjp(
        self,
        b: Builder,
        operands: Tensors,
        results: Tensors,
        cotangents: Tensors,
        *,
        output_padding: tuple[int, ...],
        geometry: ConvGeometry,
    ) -> rules.Cotangents:
        """Return the cotangents. The op transposes a convolution with the same kernel and windows in `output_padding` too."""
        (x, w), (dy,) = operands, cotangents
        extra_windows = [extra // stride for extra, stride in zip(output_padding, geometry.stride, strict=True)]

        def of_image() -> Tensor:
            result = b.emit("conv", (dy, w), **geometry.named)
            for i, extra in enumerate(extra_windows):
                result = b.narrow(result, 2 + i, 0, x.shape.dims[2 + i]) if extra else result
            return result

        def of_kernel() -> Tensor:
            padded = b.pad(x, [(0, 0), (0, 0), *((0, extra) for extra in extra_windows)]) if any(extra_windows) else x
            return weight_gradient(b, dy, padded, w.shape.static[2:], geometry)

        return of_image, of_kernel

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, groups: int, **window: Any) -> Tensor:
        """Batch as in `conv`."""
        (x, w), (x_batched, w_batched) = operands, batched
        if not w_batched:
            y = b.emit("conv_transpose", (rules.folded(b, x, 0), w), groups=groups, **window)
            return rules.unfolded(b, y, 0, size, x.shape.dims[1])
        if type(size) is not int or size == 0:
            return one_by_one(
                b, lambda *pair: b.emit("conv_transpose", pair, groups=groups, **window), operands, batched
            )
        if x_batched:
            pair = rules.folded(b, x, 1), rules.folded(b, w, 0)
            y = b.emit("conv_transpose", pair, groups=size * groups, **window)
            return rules.unfolded(b, y, 1, size, w.shape.static[2] * groups)
        y = b.emit("conv_transpose", (x, rules.folded(b, w, 1)), groups=groups, **window)
        return apart(b, y, groups, size)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        x, w = operands
        return Cost(2 * x.num_elements * product(w.dims[1:]), moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        def case(
            x: tuple[DimLike, ...],
            w: tuple[DimLike, ...],
            stride: tuple[int, ...],
            padding: tuple[int, ...],
            extra: tuple[int, ...],
            dilation: tuple[int, ...],
            **options: Any,
        ) -> OpSample:
            geometry: dict[str, Any] = {
                "stride": stride,
                "padding": padding,
                "output_padding": extra,
                "dilation": dilation,
            }
            return sample(x, w, **geometry, **options)

        yield case((2, 3, 4, 3), (3, 2, 3, 2), (2, 1), (1, 0, 0, 1), (1, 0), (1, 1), dtypes=FLOATS)
        yield case((2, 4, 5), (4, 3, 4), (2,), (1, 1), (0,), (1,), groups=2, dtypes=("f32",))
        yield case((1, 4, 3), (4, 1, 3), (3,), (5, 0), (2,), (2,), groups=4, dtypes=("f32",))
        yield case((1, 2, 2, 3, 2), (2, 3, 2, 1, 2), (2, 2, 1), (0,) * 6, (0, 1, 0), (1, 1, 2), dtypes=("f32",))
        yield case((2, 1, 2, 2), (1, 1, 1, 3), (2, 2), (0,) * 4, (0, 0), (1, 1), dtypes=("f32",))
        yield case((2, 2, 0), (2, 3, 3), (1,), (0, 0), (0,), (1,), dtypes=("f32",))
        yield case(("n", 2, "h", 4), (2, 2, 2, 3), (2, 1), (0, 0, 1, 1), (0, 0), (1, 1), dtypes=("f32",))
        yield case(("n", 2, "l"), (2, 3, 5), (2,), (2, 1), (1,), (1,), dtypes=("f32",))


@dataclass(frozen=True)
class _PhaseRun:
    """Adjacent phases of one axis with the same number of taps and the same input shift.

    Attributes:
        taps: For each phase the taps that it uses, in the order of a convolution's kernel, that is, last tap first.
        shift: Phase `r` of position `j` reads `x[j - shift]` with its first tap.
    """

    taps: tuple[tuple[int, ...], ...]
    shift: int


@dataclass(frozen=True)
class _Axis:
    """One spatial axis: `size` elements of x, and `out` positions of the result, which start at `before`."""

    size: Dim
    kernel: int
    stride: int
    before: int
    after: int
    output_padding: int
    dilation: int

    @property
    def span(self) -> int:
        """The number of result positions from the first tap to the last."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def out(self) -> Dim:
        """The size of the result."""
        return (self.size - 1) * self.stride - self.before - self.after + self.span + self.output_padding

    @property
    def first(self) -> int:
        """The first position that any phase needs."""
        return self.before // self.stride

    @property
    def last(self) -> int:
        """The number of positions of the phases beyond the end of x."""
        return -((self.stride + self.after - self.span - self.output_padding) // self.stride)

    @property
    def count(self) -> Dim:
        """The number of positions of every phase."""
        return self.size + self.last - self.first

    @property
    def step(self) -> int:
        """The distance in x between elements that neighbouring taps of a phase read."""
        return self.dilation // gcd(self.stride, self.dilation)

    def runs(self) -> list[_PhaseRun]:
        """Return the phases, in order."""
        result: list[_PhaseRun] = []
        for phase in range(self.stride):
            taps = tuple(k for k in range(self.kernel) if (k * self.dilation - phase) % self.stride == 0)[::-1]
            shift = (taps[-1] * self.dilation - phase) // self.stride if taps else 0
            if result and (len(result[-1].taps[0]), result[-1].shift) == (len(taps), shift):
                result[-1] = _PhaseRun((*result[-1].taps, taps), shift)
            else:
                result.append(_PhaseRun((taps,), shift))
        return result

    def edges(self, run: _PhaseRun) -> tuple[int, int]:
        """Return the zeros before and after x that the convolution of a run needs. A negative number crops x instead."""
        before = run.shift + (len(run.taps[0]) - 1) * self.step - self.first
        return before, self.last - run.shift


def _axes(
    x: Sequence[Dim],
    w: Sequence[int],
    output_padding: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[_Axis]:
    """Return the spatial axes of operands with these sizes."""
    geometry = zip(x[2:], w[2:], stride, padding[::2], padding[1::2], output_padding, dilation, strict=True)
    return [_Axis(*entries) for entries in geometry]


def _phases(
    b: Builder, x: Tensor, w: Tensor, axes: Sequence[_Axis], groups: int, chosen: tuple[_PhaseRun, ...]
) -> Tensor:
    """Return `[N, O, phases…, positions…]`, from the given runs of the first axes and all runs of the other axes."""
    if chosen and not chosen[-1].taps[0]:  # no tap of the kernel reaches these positions
        phases = [*(len(run.taps) for run in chosen), *(a.stride for a in axes[len(chosen) :])]
        dims = (x.shape.dims[0], w.shape.static[1] * groups, *phases, *(a.count for a in axes))
        return b.expand(b.constant(0, dtype=x.dtype), dims)
    if len(chosen) == len(axes):
        return _one_convolution(b, x, w, axes, groups, chosen)
    parts = [_phases(b, x, w, axes, groups, (*chosen, run)) for run in axes[len(chosen)].runs()]
    return b.concat(parts, 2 + len(chosen))


def _one_convolution(
    b: Builder, x: Tensor, w: Tensor, axes: Sequence[_Axis], groups: int, runs: Sequence[_PhaseRun]
) -> Tensor:
    """Return the result of one run per axis, as `[N, O, phases…, positions…]`."""
    phases, counts = [len(r.taps) for r in runs], [a.count for a in axes]
    batch, out_channels = x.shape.dims[0], w.shape.static[1] * groups
    dims = (batch, out_channels, *phases, *counts)
    padding: list[int] = []
    for i, (a, run) in enumerate(zip(axes, runs, strict=True)):
        x, edges = _cut(b, x, 2 + i, *a.edges(run))
        padding += edges
    window: dict[str, Any] = {"stride": (1,) * len(axes), "padding": tuple(padding)}
    window["dilation"] = tuple(a.step for a in axes)
    result = b.emit("conv", (x, _kernel(b, w, runs, groups)), **window, groups=groups)
    return b.reshape(result, dims)


def _kernel(b: Builder, w: Tensor, runs: Sequence[_PhaseRun], groups: int) -> Tensor:
    """Return the part of w that the runs use, as a kernel of an ordinary convolution: `[O·phases, C/groups, taps…]`."""
    channels, per_group = w.shape.static[:2]
    for i, run in enumerate(runs):
        w = b.gather(w, np.array(run.taps, np.int32), 2 + 2 * i)
    phases, taps = w.shape.static[2::2], w.shape.static[3::2]
    w = b.reshape(w, (groups, channels // groups, *w.shape.dims[1:]))
    w = b.transpose(w, (0, 2, *range(3, w.rank, 2), 1, *range(4, w.rank, 2)))
    return b.reshape(w, (groups * per_group * prod(phases), channels // groups, *taps))


def _cut(b: Builder, x: Tensor, axis: int, before: int, after: int) -> tuple[Tensor, tuple[int, int]]:
    """Return a tensor cropped at its negative edges, and the zeros that it still needs."""
    if before >= 0 and after >= 0:
        return x, (before, after)
    size = x.shape.dims[axis] + before + after
    if max(before, after) > 0:  # pad first: the other edge may crop more elements than x has
        edges = [(max(before, 0), max(after, 0)) if i == axis else (0, 0) for i in range(x.rank)]
        x = b.pad(x, edges)
    return b.narrow(x, axis, max(-before, 0), size), (0, 0)
