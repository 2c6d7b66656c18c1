"""ONNX Runtime's own ops (`com.microsoft`), as its optimiser and exporters write them: products, activations, norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.importers.onnx.elementwise import leaky_relu
from rlx.importers.onnx.network import ConvAttributes, convolution, gemm, layer_normalization, rms_normalization
from rlx.importers.onnx.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import UnsupportedError


def _turned(g: Any, x: Tensor, transposed: int, batch: int) -> Tensor:
    """Return `x` with the last two axes exchanged if `transposed`, and the first axis after the batch axes if `batch`."""
    axes = list(range(x.shape.rank))
    if batch:
        axes = [*axes[1:-1], 0, axes[-1]]
    if transposed:
        axes[-2:] = axes[:-3:-1]
    return x if axes == sorted(axes) else g.transpose(x, tuple(axes))


@imports("com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul")
def fused_matmul(
    g: Any,
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    product = g.matmul(_turned(g, a, transA, transBatchA), _turned(g, b, transB, transBatchB))
    return product if alpha == 1 else g.mul(product, alpha)


def _activated(g: Any, x: Tensor, name: str, parameters: Any) -> Tensor:
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


@imports("com.microsoft.FusedGemm")
def fused_gemm(
    g: Any,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    given = [p for p in (activation_alpha, activation_beta) if p is not None]
    return _activated(g, gemm(g, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB), activation, given)


@convolution("com.microsoft.FusedConv")
def fused_conv(
    g: Any,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    added: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Any = None,
    window: ConvAttributes,
) -> Tensor:
    result = window.convolved(g, x, w, bias)
    return _activated(g, result if added is None else g.add(result, added), activation, activation_params)


@imports("com.microsoft.Gelu")
def gelu(g: Any, x: Tensor) -> Tensor:
    return g.gelu(x)


@imports("com.microsoft.FastGelu")
def fast_gelu(g: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return g.gelu_approx(x if bias is None else g.add(x, bias))


@imports("com.microsoft.BiasGelu")
def bias_gelu(g: Any, x: Tensor, bias: Tensor) -> Tensor:
    return g.gelu(g.add(x, bias))


@imports("com.microsoft.GemmFastGelu")
def gemm_fast_gelu(g: Any, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return fast_gelu(g, g.matmul(x, w), bias)


@imports("com.microsoft.QuickGelu")
def quick_gelu(g: Any, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return g.mul(x, g.sigmoid(g.mul(x, alpha)))


@imports("com.microsoft.BiasAdd")
def bias_add(g: Any, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return g.add(g.add(x, bias), skip)


@imports("com.microsoft.Inverse")
def inverse(g: Any, x: Tensor) -> Tensor:
    return g.inv(x)


@imports("com.microsoft.LayerNormalization")
def microsoft_layer_normalization(
    g: Any,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    outputs: int,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> list[Tensor]:
    return layer_normalization(g, x, scale, bias, outputs=outputs, axis=axis, epsilon=epsilon)


@imports("SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization")
def simplified_layer_normalization(
    g: Any, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    return rms_normalization(g, x, scale, axis=axis, epsilon=epsilon)


@imports("com.microsoft.SkipLayerNormalization")
def skip_layer_normalization(
    g: Any,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    outputs: int,
    epsilon: float = 1e-12,
) -> list[Tensor]:
    total = g.add(x, skip)
    total = total if bias is None else g.add(total, bias)
    return [*layer_normalization(g, total, scale, beta, outputs=3, epsilon=epsilon), total][:outputs]


@imports("com.microsoft.SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    g: Any,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    wanted: Sequence[bool],
    epsilon: float = 1e-12,
) -> list[Tensor]:
    if any(wanted[1:3]):
        raise UnsupportedError("with the mean or the inverse deviation as a result cannot be imported")
    total = g.add(x, skip)
    total = total if bias is None else g.add(total, bias)
    return [rms_normalization(g, total, scale, epsilon=epsilon), *(total,) * 3][: len(wanted)]


@imports("com.microsoft.EmbedLayerNormalization")
def embed_layer_normalization(
    g: Any,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    positions: Tensor,
    segment_table: Tensor | None,
    scale: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    outputs: int,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
) -> list[Tensor]:
    """Return the normalised sum of three embeddings, the length of each sequence from its mask, and the sum."""
    batch, length = ids.shape.dims
    placed = g.narrow(positions, 0, 0, length) if position_ids is None else g.gather(positions, position_ids)
    total = g.add(g.gather(words, ids), placed)
    if segments is not None and segment_table is not None:
        total = g.add(total, g.gather(segment_table, segments))
    normed = layer_normalization(g, total, scale, beta, outputs=1, epsilon=epsilon)[0]
    lengths = g.zeros((batch,), dtype="i32") if mask is None else g.sum(g.cast(g.ne(mask, 0), "i32"), (1,))
    return [normed, lengths, total][:outputs]
