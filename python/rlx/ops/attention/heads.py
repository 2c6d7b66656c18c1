"""Building blocks of attention and its derivatives: heads, scores, masks and weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Attributes
from rlx.ir.shape import Shape
from rlx.ops.elementwise.slopes import activation_derivative
from rlx.ops.lift import broadcast, cast, same_dtype, size_of
from rlx.ops.norm import statistics_input
from rlx.support.errors import ShapeError


class Heads:
    """Sizes of an attention call, read from its operands' shapes.

    Raises:
        ShapeError: Operands do not fit together.
    """

    def __init__(self, q: Shape, k: Shape, v: Shape, num_heads: int, head_dim: int):
        same_dtype(q, k, v)
        if not q.rank == k.rank == v.rank or q.rank not in (3, 4):
            raise ShapeError(f"q, k and v are all [B, S, H·D] or all [B, H, S, D]; got {q}, {k}, {v}")
        if num_heads < 1 or head_dim < 1:
            raise ShapeError(f"attention has heads, each of 1 element or more; got {num_heads} of {head_dim}")
        self.packed = q.rank == 3
        self.num_heads, self.head_dim = num_heads, head_dim
        self.batch, self.queries, width = self._sizes(q, "q", num_heads, head_dim)
        if width != head_dim:
            raise ShapeError(f"q {q} does not hold {num_heads} heads of {head_dim}")
        self.kv_heads = self._kv_heads(k)
        _, self.keys, _ = self._sizes(k, "k", self.kv_heads, head_dim)
        _, v_keys, self.value_dim = self._sizes(v, "v", self.kv_heads, None)
        if k.dims[0] != self.batch or v.dims[0] != self.batch or v_keys != self.keys:
            raise ShapeError(f"batch or key counts differ: q {q}, k {k}, v {v}")
        self.group = num_heads // self.kv_heads

    def _kv_heads(self, k: Shape) -> int:
        if self.packed:
            width = k.dims[2]
            if type(width) is not int or width % self.head_dim or width == 0:
                raise ShapeError(f"k {k} does not hold heads of {self.head_dim}")
            heads = width // self.head_dim
        else:
            heads = k.dims[1]
        if type(heads) is not int or heads < 1 or self.num_heads % heads:
            raise ShapeError(f"{self.num_heads} query heads are not a multiple of {heads} key heads")
        return heads

    def _sizes(self, x: Shape, name: str, heads: int, head_dim: int | None) -> tuple[Dim, Dim, Any]:
        if self.packed:
            width = x.dims[2]
            if type(width) is not int or width % heads:
                raise ShapeError(f"{name} {x} does not hold {heads} heads")
            return x.dims[0], x.dims[1], width // heads
        if x.dims[1] != heads:
            raise ShapeError(f"{name} {x} does not have {heads} heads")
        if head_dim is not None and x.dims[3] != head_dim:
            raise ShapeError(f"{name} {x} does not have heads of {head_dim}")
        return x.dims[0], x.dims[2], x.dims[3]

    def check_mask(self, mask: Shape | None, kind: str, window: int | None) -> None:
        """Check that the mask operand is present exactly when the kind needs it, and that its shape fits."""
        if (mask is not None) != (kind in ("custom", "bias")):
            requirement = "needs" if mask is None else "takes no"
            raise ShapeError(f"mask_kind '{kind}' {requirement} mask operand")
        if (window is not None) != (kind == "sliding_window"):
            raise ShapeError(f"window is {'missing' if window is None else 'only'} for mask_kind 'sliding_window'")
        if mask is None:
            return
        if kind == "bias" and not mask.dtype.is_float:
            raise ShapeError(f"a bias mask holds floats, not {mask.dtype.name}")
        full = (self.batch, self.num_heads, self.queries, self.keys)
        if kind == "custom" and mask.rank == 2:
            if mask.dims != (self.batch, self.keys):
                raise ShapeError(f"a custom mask of rank 2 is [B, T] = [{self.batch}, {self.keys}], got {mask}")
        elif mask.rank > 4 or broadcast(mask.dims, full) != full:
            raise ShapeError(f"mask {mask} does not broadcast to [{', '.join(map(str, full))}]")


def split_heads(b: Builder, heads: Heads, x: Tensor, count: int, width: int) -> Tensor:
    """Return an operand as `[B, count, S, width]`."""
    if not heads.packed:
        return x
    batch, length, _ = x.shape.dims
    return b.transpose(b.reshape(x, (batch, length, count, width)), (0, 2, 1, 3))


def split_queries(b: Builder, heads: Heads, x: Tensor, width: int) -> Tensor:
    """Return the queries, or a tensor in their layout, as `[B, Hkv, G, S, width]`; f16 and bf16 are widened to f32."""
    split = split_heads(b, heads, x, heads.num_heads, width)
    return statistics_input(b, b.reshape(split, (heads.batch, heads.kv_heads, heads.group, heads.queries, width)))


def split_keys(b: Builder, heads: Heads, k: Tensor) -> Tensor:
    """Return the keys as `[B, Hkv, T, D]`; f16 and bf16 are widened to f32."""
    return statistics_input(b, split_heads(b, heads, k, heads.kv_heads, heads.head_dim))


def split_values(b: Builder, heads: Heads, v: Tensor) -> Tensor:
    """Return the values as `[B, Hkv, T, width]`; f16 and bf16 are widened to f32."""
    return statistics_input(b, split_heads(b, heads, v, heads.kv_heads, heads.value_dim))


def scale_of(heads: Heads, score_scale: float | None) -> float:
    """Return the factor that scales the scores."""
    return heads.head_dim**-0.5 if score_scale is None else score_scale


def scaled_queries(b: Builder, heads: Heads, q: Tensor, score_scale: float | None) -> Tensor:
    """Return the queries times the score factor. This costs S·D products; scaling the scores would cost S·T."""
    return split_queries(b, heads, q, heads.head_dim) * scale_of(heads, score_scale)


def scores_of(b: Builder, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the scores `[B, Hkv, G, S, T]`, before softcap and mask."""
    return b.dot_general(queries, keys, (4,), (3,), (0, 1), (0, 1))


def weighted_values(b: Builder, weights: Tensor, values: Tensor) -> Tensor:
    """Return the weighted sum of the values: `[B, Hkv, G, S, width]`."""
    return b.dot_general(weights, values, (4,), (2,), (0, 1), (0, 1))


def attention_weights(b: Builder, heads: Heads, scores: Tensor, mask: Tensor | None, attributes: Attributes) -> Tensor:
    """Return the weight of each value for each query: the softmax of the scores after softcap and mask."""
    softcap, kind = attributes["softcap"], attributes["mask_kind"]
    if softcap is not None:
        scores = b.tanh(scores / softcap) * softcap
    if kind == "bias":
        assert mask is not None
        scores = scores + cast(b, grouped_mask(b, heads, mask), scores.dtype)
    elif kind != "none":
        scores = b.where(_keep(b, heads, mask, attributes), scores, float("-inf"))
    return _weights(b, scores, bounded=kind != "none" and attributes["empty_rows"] == "zeros")


def grouped_mask(b: Builder, heads: Heads, mask: Tensor) -> Tensor:
    """Reshape a mask that broadcasts to `[B, H, S, T]` so that it broadcasts to `[B, Hkv, G, S, T]`."""
    dims = (1,) * (4 - mask.rank) + mask.shape.dims
    head = (1, 1) if dims[1] == 1 else (heads.kv_heads, heads.group)
    return b.reshape(mask, (dims[0], *head, dims[2], dims[3]))


def _keep(b: Builder, heads: Heads, mask: Tensor | None, attributes: Attributes) -> Tensor:
    """Return the keys that each query sees: bool, broadcastable to `[B, Hkv, G, S, T]`."""
    kind = attributes["mask_kind"]
    if kind == "custom":
        assert mask is not None
        keep = mask
        if not mask.dtype.is_bool:
            keep = b.ge(mask, 0.5) if mask.dtype.is_float else b.ne(mask, 0)
        if mask.rank == 2:
            return b.reshape(keep, (heads.batch, 1, 1, 1, heads.keys))
        return grouped_mask(b, heads, keep)
    square = (heads.queries, heads.keys)
    distance = b.iota(square, axis=1) - b.iota(square, axis=0) + _offset(b, heads)  # key position minus query position
    keep = distance <= 0
    if kind == "sliding_window":
        keep = keep & (distance >= -attributes["window"])
    return keep


def _offset(b: Builder, heads: Heads) -> int | Tensor:
    """Return `S - T`: a number, or an i32 scalar when the sizes are symbolic."""
    difference = heads.queries - heads.keys
    return difference if type(difference) is int else size_of(b, heads.queries) - size_of(b, heads.keys)


def _weights(b: Builder, scores: Tensor, bounded: bool) -> Tensor:
    """Return `softmax(scores)` over the keys.

    With `bounded`, a row whose scores are all -inf gives zeros; a plain softmax would give NaN. A finite lower bound on
    the row maximum makes every weight 0.
    """
    if not bounded:
        return b.softmax(scores, axis=-1)
    # Subtracting a number from all scores of a row changes neither the weights nor their derivatives.
    top = b.stop_gradient(b.max(scores, -1, keep_dims=True))
    weights = b.exp(scores - b.maximum(top, np.finfo(np.float32).min.item()))
    total = b.sum(weights, -1, keep_dims=True)
    return weights / b.where(total == 0.0, 1.0, total)


def weights_slope(b: Builder, weights: Tensor, d: Tensor) -> Tensor:
    """Propagate a tangent of the scores, or a cotangent of the weights, through the softmax. Its Jacobian is symmetric.

    The result is 0 where the weight is 0, and thus also in rows that see no key.
    """
    return weights * (d - b.sum(weights * d, -1, keep_dims=True))


def softcap_slope(b: Builder, scores: Tensor, softcap: float) -> Tensor:
    """The derivative of `softcap·tanh(scores/softcap)`."""
    return activation_derivative(b, "tanh", scores / softcap)


def merge_heads(b: Builder, heads: Heads, x: Tensor, count: int, length: Dim) -> Tensor:
    """Return `[B, Hkv, G, S, width]` or `[B, Hkv, T, width]`, with `count` heads in total, in the layout of the operands."""
    width = x.shape.dims[-1]
    split = b.reshape(x, (heads.batch, count, length, width))
    if not heads.packed:
        return split
    return b.reshape(b.transpose(split, (0, 2, 1, 3)), (heads.batch, length, count * width))
