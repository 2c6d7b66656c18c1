"""Blocks of image models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlx.blocks.linear import linear_shape
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Card, SampleOperand, sample
from rlx.ir.shape import Shape
from rlx.ops.lift import same_dtype
from rlx.ops.norm import GroupNorm, check_weights
from rlx.support.errors import ShapeError

V = TypeVar("V")


@dataclass(frozen=True)
class UnetWeights(ArgumentGroup, Generic[V]):
    """The weights of both halves of a `unet_residual_block`: shapes or tensors."""

    norm1_scale: V
    norm1_bias: V
    conv1_w: V
    conv1_b: V
    norm2_scale: V
    norm2_bias: V
    conv2_w: V
    conv2_b: V


@dataclass(frozen=True)
class UnetExtras(ArgumentGroup, Generic[V]):
    """The optional operands of a `unet_residual_block`: an embedding with its weights, and weights of the skip connection."""

    embedding: V | None
    embedding_w: V | None
    embedding_b: V | None
    skip_w: V | None
    skip_b: V | None


class UnetResidualBlock(Card, op="unet_residual_block"):
    def infer(
        self, x: Shape, weights: UnetWeights[Shape], extras: UnetExtras[Shape], *, num_groups: int, eps: float
    ) -> Shape:
        w, skip_w = weights, extras.skip_w
        if x.rank != 4:
            raise ShapeError(f"x must be [N, C, H, W], got {x}")
        batch, channels, *pixels = x.dims
        out_channels = w.conv1_w.dims[0] if w.conv1_w.rank == 4 else 0
        _check_kernel("conv1_w", x, w.conv1_w, (out_channels, channels, 3, 3))
        _check_kernel("conv2_w", x, w.conv2_w, (out_channels, out_channels, 3, 3))
        result = x.with_dims((batch, out_channels, *pixels))
        GroupNorm().infer(x, w.norm1_scale, w.norm1_bias, num_groups=num_groups, eps=eps)
        GroupNorm().infer(result, w.norm2_scale, w.norm2_bias, num_groups=num_groups, eps=eps)
        check_weights(x, out_channels, conv1_b=w.conv1_b, conv2_b=w.conv2_b, skip_b=extras.skip_b)
        _check_embedding(result, extras.embedding, extras.embedding_w, extras.embedding_b)
        if skip_w is not None:
            _check_kernel("skip_w", x, skip_w, (out_channels, channels, 1, 1))
        elif extras.skip_b is not None:
            raise ShapeError("skip_b needs skip_w")
        elif out_channels != channels:
            raise ShapeError(f"skip_w is missing: {channels} channels become {out_channels}")
        return result

    def decompose(
        self,
        b: Builder,
        x: Tensor,
        weights: UnetWeights[Tensor],
        extras: UnetExtras[Tensor],
        *,
        num_groups: int,
        eps: float,
    ) -> Tensor:
        def half(x: Tensor, scale: Tensor, bias: Tensor, w: Tensor, shift: Tensor) -> Tensor:
            active = b.silu(b.group_norm(x, scale, bias, num_groups=num_groups, eps=eps))
            return b.conv(active, w, padding=1) + _at_every_pixel(b, shift)

        w = weights
        h = half(x, w.norm1_scale, w.norm1_bias, w.conv1_w, w.conv1_b)
        if extras.embedding is not None and extras.embedding_w is not None:
            h = h + _at_every_pixel(b, b.linear(b.silu(extras.embedding), extras.embedding_w, extras.embedding_b))
        h = half(h, w.norm2_scale, w.norm2_bias, w.conv2_w, w.conv2_b)
        if extras.skip_w is not None:
            x = b.conv(x, extras.skip_w)
        if extras.skip_b is not None:
            x = x + _at_every_pixel(b, extras.skip_b)
        return x + h

    def samples(self) -> Any:
        def case(c: int, o: int, extra: Any, skip: Any, x: Any = None, **attributes: Any) -> Any:
            weights = [(c,), (c,), (o, c, 3, 3), (o,), (o,), (o,), (o, o, 3, 3), (o,)]
            optional = [None if e is None else SampleOperand(e, low=-0.7, high=0.7) for e in (*extra, *skip)]
            operands = [SampleOperand(w, low=-0.7, high=0.7) for w in weights]
            return sample(x or (2, c, 3, 4), *operands, *optional, num_groups=2, **attributes)

        embedded, neither = ((2, 3), (3, 6), (6,)), (None, None)
        yield case(4, 6, embedded, ((6, 4, 1, 1), (6,)), dtypes=("f32", "f16", "bf16", "f64"), tolerance=8)
        yield case(4, 4, (None,) * 3, neither, eps=0.1, dtypes=("f32",))
        yield case(2, 4, (None,) * 3, ((4, 2, 1, 1), None), x=("n", 2, 4, 3), dtypes=("f32",))
        yield case(4, 4, (("n", 3), (3, 4), (4,)), neither, x=("n", 4, "h", 3), dtypes=("f32",))


def _check_kernel(name: str, x: Shape, w: Shape, expected: tuple[Dim, ...]) -> None:
    same_dtype(x, w)
    if w.dims != expected:
        raise ShapeError(f"{name} must be [{', '.join(map(str, expected))}] to go with {x}, got {w}")


def _check_embedding(h: Shape, embedding: Shape | None, w: Shape | None, bias: Shape | None) -> None:
    """Check that the three operands of the embedding are either all given or all absent."""
    if embedding is None and w is None and bias is None:
        return
    if embedding is None or w is None or bias is None:
        raise ShapeError("embedding, embedding_w and embedding_b go together: give all three or none")
    same_dtype(h, embedding)
    if embedding.rank != 2 or linear_shape(embedding, w, bias).dims != h.dims[:2]:
        raise ShapeError(f"embedding {embedding} and embedding_w {w} must give [N, O] = [{h.dims[0]}, {h.dims[1]}]")


def _at_every_pixel(b: Builder, x: Tensor) -> Tensor:
    """Return `[…, C]` as `[…, C, 1, 1]`, which broadcasts over images."""
    return b.reshape(x, (*x.shape.dims, 1, 1))
