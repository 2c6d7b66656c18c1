"""Layers with a recurrence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlx.blocks.linear import linear_shape
from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Card, SampleOperand, sample
from rlx.ir.shape import Shape
from rlx.ops.lift import cast, same_dtype
from rlx.ops.norm import statistics_input
from rlx.ops.recurrent import expect_dims, sizes_of
from rlx.support.errors import ShapeError

V = TypeVar("V")


@dataclass(frozen=True)
class MambaWeights(ArgumentGroup, Generic[V]):
    """The weights of a `mamba_block`: shapes or tensors."""

    in_w: V
    conv_w: V
    conv_b: V
    x_w: V
    dt_w: V
    dt_b: V
    a_log: V
    d: V
    out_w: V


class MambaBlock(Card, op="mamba_block"):
    def infer(self, x: Shape, weights: MambaWeights[Shape]) -> Shape:
        w, conv_w = weights, weights.conv_w
        same_dtype(x, *w.named.values())
        _, _, embedding = sizes_of("x", x, "BSE")
        inner, size = sizes_of("a_log", w.a_log, "IN")
        rank, _ = sizes_of("dt_w", w.dt_w, "RI")
        kernel_size = sizes_of("conv_w", conv_w, "I11K")[3]
        if type(kernel_size) is not int or kernel_size < 1:
            raise ShapeError(f"the kernel size K must be a positive number, got conv_w {conv_w}")
        expect_dims("in_w", w.in_w, embedding, 2 * inner)
        expect_dims("conv_w", conv_w, inner, 1, 1, kernel_size)
        expect_dims("x_w", w.x_w, inner, rank + 2 * size)
        expect_dims("dt_w", w.dt_w, rank, inner)
        for name, vector in (("conv_b", w.conv_b), ("dt_b", w.dt_b), ("d", w.d)):
            expect_dims(name, vector, inner)
        expect_dims("out_w", w.out_w, inner, embedding)
        return linear_shape(x.with_dims((*x.dims[:2], inner)), w.out_w)

    def decompose(self, b: Builder, x: Tensor, weights: MambaWeights[Tensor]) -> Tensor:
        w = weights
        inner, size = w.a_log.shape.dims
        rank = w.dt_w.shape.dims[0]
        projected = b.matmul(x, w.in_w)
        gate = b.narrow(projected, -1, inner, inner)
        u = b.silu(_convolved(b, b.narrow(projected, -1, 0, inner), w.conv_w) + w.conv_b)
        coefficients = b.matmul(u, w.x_w)
        ranks, b_, c = (
            b.narrow(coefficients, -1, start, count) for start, count in ((0, rank), (rank, size), (rank + size, size))
        )
        delta = b.softplus(statistics_input(b, b.matmul(ranks, w.dt_w)) + statistics_input(b, w.dt_b))
        u, b_, c, gate = (statistics_input(b, t) for t in (u, b_, c, gate))
        y = b.selective_scan(u, delta, -b.exp(statistics_input(b, w.a_log)), b_, c) + statistics_input(b, w.d) * u
        return b.matmul(cast(b, y * b.silu(gate), x.dtype), w.out_w)

    def samples(self) -> Any:
        def case(batch: Any, steps: Any, kernel_size: int, **options: Any) -> Any:
            e, inner, rank, size = 4, 6, 2, 3
            weights = [(e, 2 * inner), (inner, 1, 1, kernel_size), (inner,), (inner, rank + 2 * size)]
            weights += [(rank, inner), (inner,), (inner, size), (inner,), (inner, e)]
            return sample((batch, steps, e), *[SampleOperand(w, low=-0.7, high=0.7) for w in weights], **options)

        yield case(2, 5, 4, dtypes=FLOATS)
        yield case("batch", "seq", 2, dtypes=("f32",))


def _convolved(b: Builder, x: Tensor, w: Tensor) -> Tensor:
    """Return the causal convolution of `[B, S, I]`, with zeros before the first step."""
    kernel_size: Any = w.shape.dims[3]
    batch, _, channels = x.shape.dims
    before = b.expand(b.constant(0.0, dtype=x.dtype), (batch, kernel_size - 1, channels))
    return b.depthwise_conv1d_causal(x, w, before, kernel_size=kernel_size)
