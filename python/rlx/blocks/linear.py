"""Linear layers and feed-forward blocks."""

from __future__ import annotations

from typing import Any

from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Card, sample
from rlx.ir.shape import Shape
from rlx.ops.fused.fused import linear_shape
from rlx.ops.lift import same_dtype
from rlx.ops.norm import check_weights
from rlx.support.errors import ShapeError


class Linear(Card, op="linear"):
    def infer(self, x: Shape, w: Shape, bias: Shape | None, *, activation: str | None) -> Shape:
        return linear_shape(x, w, bias)

    def decompose(self, b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, *, activation: str | None) -> Tensor:
        result = b.matmul(x, w)
        if bias is not None:
            result = result + bias
        return result if activation is None else b.activation(activation, result)

    def samples(self) -> Any:
        yield sample((3, 4), (4, 5), (5,), dtypes=FLOATS)
        yield sample((2, 3, 4), (4, 5), None, activation="relu", dtypes=("f32", "f16"))
        yield sample(("batch", 4), (4, 5), (5,), activation="gelu", dtypes=("f32",))


class LinearFused(Card, op="linear_fused"):
    def infer(self, x: Shape, w: Shape, bias: Shape, *, activation: str | None) -> Shape:
        return linear_shape(x, w, bias)

    def decompose(self, b: Builder, x: Tensor, w: Tensor, bias: Tensor, *, activation: str | None) -> Tensor:
        return b.fused_matmul_bias_act(x, w, bias, activation=activation)

    def samples(self) -> Any:
        yield sample((3, 4), (4, 5), (5,), activation="silu", dtypes=FLOATS)
        yield sample(("batch", 4), (4, 5), (5,), dtypes=("f32",))


class SharedLinearPair(Card, op="shared_linear_pair"):
    def infer(self, x: Shape, w_first: Shape, w_second: Shape) -> tuple[Shape, Shape]:
        return linear_shape(x, w_first), linear_shape(x, w_second)

    def decompose(self, b: Builder, x: Tensor, w_first: Tensor, w_second: Tensor) -> tuple[Tensor, Tensor]:
        joined = b.matmul(x, b.concat([w_first, w_second], 1))
        first, second = w_first.shape.dims[1], w_second.shape.dims[1]
        return b.narrow(joined, -1, 0, first), b.narrow(joined, -1, first, second)

    def samples(self) -> Any:
        yield sample((3, 4), (4, 5), (4, 2), dtypes=FLOATS)
        yield sample(("batch", 2, 4), (4, 5), (4, 5), dtypes=("f32",))


class SwigluFfn(Card, op="swiglu_ffn"):
    def infer(self, x: Shape, up: Shape, gate: Shape, down: Shape) -> Shape:
        hidden = linear_shape(x, up)
        if up.dims != gate.dims:
            raise ShapeError(f"up {up} and gate {gate} must have one shape")
        same_dtype(up, gate)
        return linear_shape(hidden, down)

    def decompose(self, b: Builder, x: Tensor, up: Tensor, gate: Tensor, down: Tensor) -> Tensor:
        return b.matmul(b.matmul(x, up) * b.silu(b.matmul(x, gate)), down)

    def samples(self) -> Any:
        yield sample((3, 4), (4, 6), (4, 6), (6, 4), dtypes=FLOATS)
        yield sample(("batch", "seq", 4), (4, 6), (4, 6), (6, 4), dtypes=("f32",))


class ResidualRmsNorm(Card, op="residual_rms_norm"):
    def infer(self, x: Shape, residual: Shape, scale: Shape, bias: Shape, *, eps: float) -> Shape:
        same_dtype(x, residual)
        if x.rank < 1 or x.dims != residual.dims:
            raise ShapeError(f"x {x} and residual {residual} must have one shape of rank 1 or more")
        check_weights(x, x.dims[-1], scale=scale, bias=bias)
        return x

    def decompose(self, b: Builder, x: Tensor, residual: Tensor, scale: Tensor, bias: Tensor, *, eps: float) -> Tensor:
        return b.rms_norm(x + residual, scale, bias, eps=eps)

    def samples(self) -> Any:
        yield sample((3, 8), (3, 8), (8,), (8,), dtypes=FLOATS)
        yield sample((3, 8), (3, 8), (8,), (8,), eps=0.1, dtypes=("f32",))
        yield sample(("batch", "seq", 8), ("batch", "seq", 8), (8,), (8,), dtypes=("f32",))
