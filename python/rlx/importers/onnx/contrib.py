"""ONNX Runtime's own ops (`com.microsoft`), as its optimiser and exporters write them: products, activations, norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.importers.onnx.elementwise import leaky_relu
from rlx.importers.onnx.network import (
    ConvAttributes,
    GemmAttributes,
    NormAttributes,
    ProductAttributes,
    layer_normalization,
    rms_normalization,
)
from rlx.importers.onnx.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError


def _turned(g: Graph, x: Tensor, transposed: int, batch: int) -> Tensor:
    """Return `x` with the last two axes exchanged if `transposed`, and the first axis after the batch axes if `batch`."""
    axes = list(range(x.shape.rank))
    if batch:
        axes = [*axes[1:-1], 0, axes[-1]]
    if transposed:
        axes[-2:] = axes[:-3:-1]
    return x if axes == sorted(axes) else g.transpose(x, tuple(axes))


@imports("com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul")
def fused_matmul(
    g: Graph, a: Tensor, b: Tensor, *, factors: ProductAttributes, transBatchA: int = 0, transBatchB: int = 0
) -> Tensor:
    left, right = _turned(g, a, factors.transA, transBatchA), _turned(g, b, factors.transB, transBatchB)
    return factors.scaled(g, g.matmul(left, right))


def _activated(g: Graph, x: Tensor, name: str, parameters: Sequence[float] | None) -> Tensor:
    """Return the result of an activation that was fused into an op."""
    given: tuple[float, ...] = tuple(parameters or ())
    if name == "LeakyRelu":
        return leaky_relu(g, x, alpha=given[0] if given else 0.01)
    if name == "Clip" and len(given) == 2:
        return g.clamp(x, *given)
    if name == "HardSigmoid":
        alpha, beta = given if len(given) == 2 else (0.2, 0.5)
        return g.clamp(g.add(g.mul(x, alpha), beta), 0.0, 1.0)
    if name not in ("Relu", "Sigmoid", "Tanh", "Softplus", ""):
        raise UnsupportedError(f"with the activation '{name}' cannot be imported")
    return getattr(g, name.lower())(x) if name else x


@dataclass(frozen=True, kw_only=True)
class FusedGemmAttributes(GemmAttributes):
    """The attributes of `FusedGemm`: those of `Gemm`, and of the activation of the result."""

    activation: str = ""
    activation_alpha: float | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None


@imports("com.microsoft.FusedGemm")
def fused_gemm(g: Graph, a: Tensor, b: Tensor, c: Tensor | None = None, *, fused: FusedGemmAttributes) -> Tensor:
    given = [p for p in (fused.activation_alpha, fused.activation_beta) if p is not None]
    return _activated(g, fused.sum(g, a, b, c), fused.activation, given)


@dataclass(frozen=True, kw_only=True)
class FusedConvAttributes(ConvAttributes):
    """The attributes of `FusedConv`: those of a convolution, and of the activation of the result."""

    activation: str = ""
    activation_params: Sequence[float] | None = None


@imports("com.microsoft.FusedConv")
def fused_conv(
    g: Graph,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    added: Tensor | None = None,
    *,
    fused: FusedConvAttributes,
) -> Tensor:
    result = fused.convolved(g, x, w, bias)
    return _activated(g, result if added is None else g.add(result, added), fused.activation, fused.activation_params)


@imports("com.microsoft.Gelu")
def gelu(g: Graph, x: Tensor) -> Tensor:
    return g.gelu(x)


@imports("com.microsoft.FastGelu")
def fast_gelu(g: Graph, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return g.gelu_approx(x if bias is None else g.add(x, bias))


@imports("com.microsoft.BiasGelu")
def bias_gelu(g: Graph, x: Tensor, bias: Tensor) -> Tensor:
    return g.gelu(g.add(x, bias))


@imports("com.microsoft.GemmFastGelu")
def gemm_fast_gelu(g: Graph, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return fast_gelu(g, g.matmul(x, w), bias)


@imports("com.microsoft.QuickGelu")
def quick_gelu(g: Graph, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return g.mul(x, g.sigmoid(g.mul(x, alpha)))


@imports("com.microsoft.BiasAdd")
def bias_add(g: Graph, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return g.add(g.add(x, bias), skip)


@imports("com.microsoft.Inverse")
def inverse(g: Graph, x: Tensor) -> Tensor:
    return g.inv(x)


@dataclass(frozen=True)
class SkippedSum(ArgumentGroup):
    """The output of a layer, and the residual input."""

    x: Tensor
    skip: Tensor

    def total(self, g: Graph, bias: Tensor | None) -> Tensor:
        """The sum of the two, and of a bias."""
        total = g.add(self.x, self.skip)
        return total if bias is None else g.add(total, bias)


@dataclass(frozen=True)
class SkipNormWeights(ArgumentGroup):
    """The scale and the bias of a norm, and the bias of its input."""

    scale: Tensor
    beta: Tensor | None = None
    bias: Tensor | None = None


@imports("com.microsoft.SkipLayerNormalization")
def skip_layer_normalization(
    g: Graph, sum: SkippedSum, weights: SkipNormWeights, *, outputs: int, epsilon: float = 1e-12
) -> list[Tensor]:
    total, norm = sum.total(g, weights.bias), NormAttributes(epsilon=epsilon)
    return [*layer_normalization(g, total, weights.scale, weights.beta, outputs=3, norm=norm), total][:outputs]


@imports("com.microsoft.SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    g: Graph,
    sum: SkippedSum,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    wanted: Sequence[bool],
    epsilon: float = 1e-12,
) -> list[Tensor]:
    if any(wanted[1:3]):
        raise UnsupportedError("with the mean or the inverse deviation as a result cannot be imported")
    total = sum.total(g, bias)
    normed = rms_normalization(g, total, scale, norm=NormAttributes(epsilon=epsilon))
    return [normed, *(total,) * 3][: len(wanted)]


@dataclass(frozen=True)
class EmbeddingOperands(ArgumentGroup):
    """The operands of `EmbedLayerNormalization`, in its order."""

    ids: Tensor
    segments: Tensor | None
    words: Tensor
    positions: Tensor
    segment_table: Tensor | None
    scale: Tensor
    beta: Tensor
    mask: Tensor | None = None
    position_ids: Tensor | None = None

    def sum(self, g: Graph) -> Tensor:
        """The sum of the embeddings."""
        length = self.ids.shape.dims[1]
        if self.position_ids is None:
            placed = g.narrow(self.positions, 0, 0, length)
        else:
            placed = g.gather(self.positions, self.position_ids)
        total = g.add(g.gather(self.words, self.ids), placed)
        if self.segments is None or self.segment_table is None:
            return total
        return g.add(total, g.gather(self.segment_table, self.segments))


@imports("com.microsoft.EmbedLayerNormalization")
def embed_layer_normalization(
    g: Graph, tables: EmbeddingOperands, *, outputs: int, epsilon: float = 1e-12, mask_index_type: int = 1
) -> list[Tensor]:
    """Return the normalised sum of three embeddings, the length of each sequence from its mask, and the sum."""
    total, mask, norm = tables.sum(g), tables.mask, NormAttributes(epsilon=epsilon)
    normed = layer_normalization(g, total, tables.scale, tables.beta, outputs=1, norm=norm)[0]
    batch = tables.ids.shape.dims[0]
    lengths = g.zeros((batch,), dtype="i32") if mask is None else g.sum(g.cast(g.ne(mask, 0), "i32"), (1,))
    return [normed, lengths, total][:outputs]
