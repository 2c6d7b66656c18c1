"""Fused ops: composite ops whose decomposition is their definition. Back ends may claim them whole."""

from __future__ import annotations

from typing import Any

from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, sample
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops.contraction import Matmul
from rlx.ops.lift import same_dtype
from rlx.ops.norm import check_weights
from rlx.ops.reduce import FLOATS


class FusedMatmulBiasAct(Card, op="fused_matmul_bias_act"):
    def infer(self, x: Shape, w: Shape, bias: Shape, *, activation: str | None) -> Shape:
        if w.rank != 2:
            raise ShapeError(f"w must be [K, N], got {w}")
        check_weights(x, w.dims[1], bias=bias)
        return Matmul().infer(x, w)

    def decompose(self, b: Builder, x: Tensor, w: Tensor, bias: Tensor, *, activation: str | None) -> Tensor:
        result = b.matmul(x, w) + bias
        return result if activation is None else b.activation(activation, result)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        product = Matmul().cost(operands[:2], results, {})
        return Cost(product.flops + 11 * results[0].num_elements, product.bytes)

    def samples(self) -> Any:
        yield sample((3, 4), (4, 5), (5,), dtypes=FLOATS)
        for activation in ("gelu", "silu", "relu", "tanh"):
            yield sample((2, 3, 4), (4, 5), (5,), activation=activation, dtypes=("f32", "f16"))
        yield sample(("n", 4), (4, 5), (5,), activation="gelu_approx", dtypes=("f32",))


class FusedSwiglu(Card, op="fused_swiglu"):
    def infer(self, x: Shape, *, gate_first: bool) -> Shape:
        width = x.dims[-1] if x.rank else 1
        if type(width) is not int or width % 2:
            raise ShapeError(f"the last axis of {x} does not split into two halves")
        return x.with_dims((*x.dims[:-1], width // 2))

    def decompose(self, b: Builder, x: Tensor, *, gate_first: bool) -> Tensor:
        half = x.shape.dims[-1] // 2
        first, second = b.narrow(x, -1, 0, half), b.narrow(x, -1, half, half)
        up, gate = (second, first) if gate_first else (first, second)
        return up * b.silu(gate)

    def samples(self) -> Any:
        yield sample((3, 8), dtypes=FLOATS)
        yield sample(("n", 2, 6), gate_first=True, dtypes=("f32",))


class _ResidualNorm(Card):
    def infer(self, x: Shape, residual: Shape, bias: Shape | None, scale: Shape, shift: Shape, *, eps: float) -> Shape:
        same_dtype(x, residual)
        if x.rank < 1 or x.dims != residual.dims:
            raise ShapeError(f"x {x} and residual {residual} must have one shape of rank 1 or more")
        check_weights(x, x.dims[-1], bias=bias, scale=scale, shift=shift)
        return x

    def samples(self) -> Any:
        yield sample((3, 8), (3, 8), (8,), (8,), (8,), dtypes=FLOATS)
        yield sample((3, 8), (3, 8), None, (8,), (8,), eps=1e-3, dtypes=("f32",))
        yield sample(("n", 8), ("n", 8), None, (8,), (8,), dtypes=("f32",))


def _residual(x: Tensor, residual: Tensor, bias: Tensor | None) -> Tensor:
    total = x + residual
    return total if bias is None else total + bias


class FusedResidualLayerNorm(_ResidualNorm, op="fused_residual_layer_norm"):
    def decompose(
        self, b: Builder, x: Tensor, residual: Tensor, bias: Any, scale: Tensor, shift: Tensor, *, eps: float
    ) -> Tensor:
        return b.layer_norm(_residual(x, residual, bias), scale, shift, eps=eps)


class FusedResidualRmsNorm(_ResidualNorm, op="fused_residual_rms_norm"):
    def decompose(
        self, b: Builder, x: Tensor, residual: Tensor, bias: Any, scale: Tensor, shift: Tensor, *, eps: float
    ) -> Tensor:
        return b.rms_norm(_residual(x, residual, bias), scale, shift, eps=eps)
