"""Fused ops: composite ops whose decomposition is their definition. Back ends may implement them as single ops.

This file has products with their epilogues, and norms with the ops before or after them. Whole layers are in
`fused_layers.py`. No fused op defines a cost: it is that of the decomposition, so that fusion adds no operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Padding, TensorLike, Window
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, OpSample, sample
from rlx.ir.shape import Shape
from rlx.ops.contraction.contraction import Matmul
from rlx.ops.convolution.convolution import Conv, pads_of, per_axis
from rlx.ops.lift import broadcasts_to, same_dtype
from rlx.ops.norm import along, check_weights
from rlx.support.errors import ShapeError

V = TypeVar("V")


def linear_shape(x: Shape, w: Shape, bias: Shape | None = None, name: str = "w") -> Shape:
    """Return the shape of `x·w (+ bias)` with `w [K, N]` and `bias [N]`. Messages call the weight `name`."""
    if w.rank != 2:
        raise ShapeError(f"{name} must be [K, N], got {w}")
    check_weights(x, w.dims[1], **{"bias" if name == "w" else f"bias of {name}": bias})
    return Matmul().infer(x, w)


def _check_bias(bias: Shape | None, result: Shape) -> Shape:
    """Return the shape of a product to which a bias broadcasts.

    Raises:
        ShapeError: The bias does not broadcast, or its dtype differs.
    """
    if bias is not None:
        same_dtype(bias, result)
        if not broadcasts_to(bias.dims, result.dims):
            raise ShapeError(f"bias {bias} must broadcast to the product {result}")
    return result


class _Epilogue(Card):
    """A product with a bias and an activation."""

    def finished(self, b: Builder, biased: Tensor, activation: str | None) -> Tensor:
        return biased if activation is None else b.activation(activation, biased)


class FusedMatmulBiasAct(_Epilogue, op="fused_matmul_bias_act"):
    def infer(self, x: Shape, w: Shape, bias: Shape, *, activation: str | None) -> Shape:
        return _check_bias(bias, linear_shape(x, w))

    def decompose(self, b: Builder, x: Tensor, w: Tensor, bias: Tensor, *, activation: str | None) -> Tensor:
        return self.finished(b, b.matmul(x, w) + bias, activation)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 4), (4, 5), (5,), dtypes=FLOATS)
        for activation in ("gelu", "silu", "relu", "tanh"):
            yield sample((2, 3, 4), (4, 5), (5,), activation=activation, dtypes=("f32", "f16"))
        yield sample(("n", 4), (4, 5), (5,), activation="gelu_approx", dtypes=("f32",))
        yield sample((2, 3, 4), (4, 5), (2, 1, 5), activation="exp", dtypes=("f32",))
        yield sample((3, 4), (4, 5), (), dtypes=("f32",))


class FusedConvBiasAct(_Epilogue, op="fused_conv_bias_act"):
    def infer(self, x: Shape, w: Shape, bias: Shape, *, activation: str | None, **window: Any) -> Shape:
        check_weights(x, w.dims[0] if w.rank else 0, bias=bias)
        return Conv().infer(x, w, **window)

    def decompose(
        self, b: Builder, x: Tensor, w: Tensor, bias: Tensor, *, activation: str | None, **window: Any
    ) -> Tensor:
        product = b.emit("conv", (x, w), **window)
        return self.finished(b, product + along(b, bias, 1, product.rank), activation)

    def build(
        self,
        b: Builder,
        x: Tensor,
        w: Tensor,
        bias: Tensor,
        stride: Window = 1,
        padding: Padding = 0,
        dilation: Window = 1,
        groups: int = 1,
        activation: str | None = None,
    ) -> Tensor:
        count = max(x.rank - 2, 0)
        steps, dilations = per_axis(stride, count, "stride"), per_axis(dilation, count, "dilation")
        pads = pads_of(padding, x.shape, w.shape, steps, dilations)
        window: dict[str, Any] = {"stride": steps, "padding": pads, "dilation": dilations}
        return b.emit("fused_conv_bias_act", (x, w, bias), **window, groups=groups, activation=activation)

    def samples(self) -> Iterable[OpSample]:
        line: Attributes = {"stride": (1,), "padding": (0, 0), "dilation": (1,)}
        plane: Attributes = {"stride": (2, 1), "padding": (1, 1, 1, 0), "dilation": (1, 1), "groups": 2}
        yield sample((2, 3, 5), (4, 3, 2), (4,), **line, dtypes=FLOATS)
        yield sample((1, 4, 5, 4), (6, 2, 3, 3), (6,), **plane, activation="relu", dtypes=("f32",))
        yield sample(("n", 3, "l"), (4, 3, 2), (4,), **line, activation="gelu", dtypes=("f32",))


class FusedMatmulResidual(Card, op="fused_matmul_residual"):
    def infer(self, x: Shape, w: Shape, residual: Shape, bias: Shape | None) -> Shape:
        result = _check_bias(bias, linear_shape(x, w))
        if residual != result:
            raise ShapeError(f"residual {residual} must have the shape of the product, {result}")
        return result

    def decompose(self, b: Builder, x: Tensor, w: Tensor, residual: Tensor, bias: Tensor | None) -> Tensor:
        return project(b, x, w, bias) + residual

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 4), (4, 5), (3, 5), (5,), dtypes=FLOATS)
        yield sample(("n", 2, 4), (4, 5), ("n", 2, 5), None, dtypes=("f32",))


class FusedAdaLayerNorm(Card, op="fused_ada_layer_norm"):
    def infer(self, x: Shape, scale: Shape, shift: Shape, *, eps: float) -> Shape:
        same_dtype(x, scale, shift)
        if x.rank < 1 or not all(broadcasts_to(v.dims, x.dims) for v in (scale, shift)):
            raise ShapeError(f"scale {scale} and shift {shift} must broadcast to x {x}, of rank 1 or more")
        return x

    def decompose(self, b: Builder, x: Tensor, scale: Tensor, shift: Tensor, *, eps: float) -> Tensor:
        width = (x.shape.dims[-1],)
        one, zero = (b.expand(b.constant(v, x.dtype), width) for v in (1, 0))
        return b.layer_norm(x, one, zero, eps=eps) * (scale + 1.0) + shift

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 8), (2, 1, 8), (2, 1, 8), dtypes=FLOATS)
        yield sample(("n", 8), (8,), (), eps=1e-3, dtypes=("f32",))


class FusedGatedResidual(Card, op="fused_gated_residual"):
    def infer(self, x: Shape, gate: Shape, residual: Shape) -> Shape:
        same_dtype(x, gate, residual)
        if x.dims != residual.dims or not broadcasts_to(gate.dims, x.dims):
            raise ShapeError(f"x {x} and residual {residual} must have one shape, to which gate {gate} broadcasts")
        return x

    def decompose(self, b: Builder, x: Tensor, gate: Tensor, residual: Tensor) -> Tensor:
        return residual + gate * x

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 4), (2, 1, 4), (2, 3, 4), dtypes=FLOATS)
        yield sample(("n", 4), (4,), ("n", 4), dtypes=("f32",))


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

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 8), dtypes=FLOATS)
        yield sample(("n", 2, 6), gate_first=True, dtypes=("f32",))


@dataclass(frozen=True)
class NormWeights(ArgumentGroup, Generic[V]):
    """The weights of a fused norm: shapes or tensors."""

    scale: V
    shift: V | None


class _ResidualNorm(Card):
    def infer(self, x: Shape, residual: Shape, bias: Shape | None, weights: NormWeights[Shape], *, eps: float) -> Shape:
        same_dtype(x, residual)
        if x.rank < 1 or x.dims != residual.dims:
            raise ShapeError(f"x {x} and residual {residual} must have one shape of rank 1 or more")
        check_weights(x, x.dims[-1], bias=bias, scale=weights.scale, shift=weights.shift)
        return x

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 8), (3, 8), (8,), (8,), (8,), dtypes=FLOATS)
        yield sample((3, 8), (3, 8), None, (8,), (8,), eps=1e-3, dtypes=("f32",))
        yield sample(("n", 8), ("n", 8), None, (8,), (8,), dtypes=("f32",))


def _residual(x: Tensor, residual: Tensor, bias: Tensor | None) -> Tensor:
    return (x if bias is None else x + bias) + residual


class FusedResidualLayerNorm(_ResidualNorm, op="fused_residual_layer_norm"):
    def decompose(
        self, b: Builder, x: Tensor, residual: Tensor, bias: Tensor | None, weights: NormWeights[Tensor], *, eps: float
    ) -> Tensor:
        return b.layer_norm(_residual(x, residual, bias), weights.scale, weights.shift, eps=eps)


class FusedResidualRmsNorm(_ResidualNorm, op="fused_residual_rms_norm"):
    def decompose(
        self, b: Builder, x: Tensor, residual: Tensor, bias: Tensor | None, weights: NormWeights[Tensor], *, eps: float
    ) -> Tensor:
        return b.rms_norm(_residual(x, residual, bias), weights.scale, weights.shift, eps=eps)

    def build(
        self,
        b: Builder,
        x: Tensor,
        residual: Tensor,
        bias: TensorLike | None,
        scale: Tensor,
        shift: TensorLike | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        return b.emit("fused_residual_rms_norm", (x, residual, bias, scale, shift), eps=eps)

    def samples(self) -> Iterable[OpSample]:
        yield from super().samples()
        yield sample((2, 8), (2, 8), (8,), (8,), None, dtypes=("f32",))


def project(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, activation: str | None = None) -> Tensor:
    if bias is not None:
        return b.fused_matmul_bias_act(x, w, bias, activation=activation)
    product = b.matmul(x, w)
    return product if activation is None else b.activation(activation, product)
