"""Blocks of image models."""

from __future__ import annotations

from typing import Any

from rlx.blocks.linear import linear_shape
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Card, SampleOperand, sample
from rlx.ir.shape import Shape
from rlx.ops.lift import same_dtype
from rlx.ops.norm import GroupNorm, check_weights
from rlx.support.errors import ShapeError


class UnetResidualBlock(Card, op="unet_residual_block"):
    def infer(
        self,
        x: Shape,
        norm1_scale: Shape,
        norm1_bias: Shape,
        conv1_w: Shape,
        conv1_b: Shape,
        norm2_scale: Shape,
        norm2_bias: Shape,
        conv2_w: Shape,
        conv2_b: Shape,
        embedding: Shape | None,
        embedding_w: Shape | None,
        embedding_b: Shape | None,
        skip_w: Shape | None,
        skip_b: Shape | None,
        *,
        num_groups: int,
        eps: float,
    ) -> Shape:
        if x.rank != 4:
            raise ShapeError(f"x must be [N, C, H, W], got {x}")
        batch, channels, *pixels = x.dims
        out_channels = conv1_w.dims[0] if conv1_w.rank == 4 else 0
        _check_kernel("conv1_w", x, conv1_w, (out_channels, channels, 3, 3))
        _check_kernel("conv2_w", x, conv2_w, (out_channels, out_channels, 3, 3))
        result = x.with_dims((batch, out_channels, *pixels))
        GroupNorm().infer(x, norm1_scale, norm1_bias, num_groups=num_groups, eps=eps)
        GroupNorm().infer(result, norm2_scale, norm2_bias, num_groups=num_groups, eps=eps)
        check_weights(x, out_channels, conv1_b=conv1_b, conv2_b=conv2_b, skip_b=skip_b)
        _check_embedding(result, embedding, embedding_w, embedding_b)
        if skip_w is not None:
            _check_kernel("skip_w", x, skip_w, (out_channels, channels, 1, 1))
        elif skip_b is not None:
            raise ShapeError("skip_b needs skip_w")
        elif out_channels != channels:
            raise ShapeError(f"skip_w is missing: {channels} channels become {out_channels}")
        return result

    def decompose(
        self,
        b: Builder,
        x: Tensor,
        norm1_scale: Tensor,
        norm1_bias: Tensor,
        conv1_w: Tensor,
        conv1_b: Tensor,
        norm2_scale: Tensor,
        norm2_bias: Tensor,
        conv2_w: Tensor,
        conv2_b: Tensor,
        embedding: Tensor | None,
        embedding_w: Tensor | None,
        embedding_b: Tensor | None,
        skip_w: Tensor | None,
        skip_b: Tensor | None,
        *,
        num_groups: int,
        eps: float,
    ) -> Tensor:
        def half(x: Tensor, scale: Tensor, bias: Tensor, w: Tensor, shift: Tensor) -> Tensor:
            active = b.silu(b.group_norm(x, scale, bias, num_groups=num_groups, eps=eps))
            return b.conv(active, w, padding=1) + _at_every_pixel(b, shift)

        h = half(x, norm1_scale, norm1_bias, conv1_w, conv1_b)
        if embedding is not None and embedding_w is not None:
            h = h + _at_every_pixel(b, b.linear(b.silu(embedding), embedding_w, embedding_b))
        h = half(h, norm2_scale, norm2_bias, conv2_w, conv2_b)
        if skip_w is not None:
            x = b.conv(x, skip_w)
        if skip_b is not None:
            x = x + _at_every_pixel(b, skip_b)
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
