"""Attention with every mask kind and grouped heads."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, Operand, moved_bytes, sample
from rlx.ir.dim import Dim
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import broadcast, cast, same_dtype, size_of
from rlx.ops.norm import widened
from rlx.ops.reduce import FLOATS
from rlx.ops.slopes import activation_derivative


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
        """The mask operand is there exactly when the kind needs it, and has a shape that fits."""
        if (mask is not None) != (kind in ("custom", "bias")):
            wanted = "needs" if mask is None else "takes no"
            raise ShapeError(f"mask_kind '{kind}' {wanted} mask operand")
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


class Attention(Card, op="attention"):
    def infer(self, q: Shape, k: Shape, v: Shape, mask: Shape | None, **attributes: Any) -> Shape:
        heads = Heads(q, k, v, attributes["num_heads"], attributes["head_dim"])
        heads.check_mask(mask, attributes["mask_kind"], attributes["window"])
        width = heads.num_heads * heads.value_dim if heads.packed else heads.value_dim
        return q.with_dims((*q.dims[:-1], width))

    def evaluate(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any, **attributes: Any) -> np.ndarray:
        shapes = [Shape(t.shape, t.dtype) for t in (q, k, v)]
        heads = Heads(shapes[0], shapes[1], shapes[2], attributes["num_heads"], attributes["head_dim"])
        split = [_split_array(t, n) for t, n in ((q, heads.num_heads), (k, heads.kv_heads), (v, heads.kv_heads))]
        query, key, value = (t.astype(np.float64) for t in split)
        key, value = np.repeat(key, heads.group, 1), np.repeat(value, heads.group, 1)
        scale = attributes["score_scale"]
        scores = np.einsum("bhsd,bhtd->bhst", query, key) * (heads.head_dim**-0.5 if scale is None else scale)
        if attributes["softcap"] is not None:
            scores = attributes["softcap"] * np.tanh(scores / attributes["softcap"])
        if attributes["mask_kind"] == "bias":
            scores = scores + mask.astype(np.float64)
        else:
            scores = np.where(_visible(scores.shape, mask, attributes), scores, -np.inf)
        top = np.max(scores, -1, keepdims=True, initial=-np.inf)
        unseeing = np.isneginf(top) & (attributes["mask_kind"] != "none")
        weights = np.exp(scores - np.where(unseeing, 0, top))
        total = weights.sum(-1, keepdims=True)
        result = np.einsum("bhst,bhtd->bhsd", weights / np.where(unseeing, 1, total), value)
        if heads.packed:
            result = result.transpose(0, 2, 1, 3).reshape(*q.shape[:2], heads.num_heads * heads.value_dim)
        return result.astype(q.dtype)

    def decompose(self, b: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Any, **attributes: Any) -> Tensor:
        heads = Heads(q.shape, k.shape, v.shape, attributes["num_heads"], attributes["head_dim"])
        scores = scores_of(b, scaled_queries(b, heads, q, attributes["score_scale"]), split_keys(b, heads, k))
        weights = cast(b, attention_weights(b, heads, scores, mask, attributes), v.dtype)
        result = weighted_values(b, weights, split_heads(b, heads, v, heads.kv_heads, heads.value_dim))
        return merge_heads(b, heads, result, heads.num_heads, heads.queries)

    def build(
        self,
        b: Builder,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any = None,
        *,
        num_heads: int,
        head_dim: int,
        mask_kind: Any = "none",
        window: int | None = None,
        score_scale: float | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        return b.emit(
            "attention",
            (q, k, v, mask),
            num_heads=num_heads,
            head_dim=head_dim,
            mask_kind=mask_kind,
            window=window,
            score_scale=score_scale,
            softcap=softcap,
        )

    def jvp(self, b: Builder, operands: Any, tangents: Any, results: Any, **attributes: Any) -> Any:
        (q, k, v, mask), (dq, dk, dv, dmask) = operands, tangents
        heads = Heads(q.shape, k.shape, v.shape, attributes["num_heads"], attributes["head_dim"])
        queries, keys = scaled_queries(b, heads, q, attributes["score_scale"]), split_keys(b, heads, k)
        scores = scores_of(b, queries, keys)
        weights = attention_weights(b, heads, scores, mask, attributes)
        moved = rules.total(
            b,
            (
                None if dq is None else scores_of(b, scaled_queries(b, heads, dq, attributes["score_scale"]), keys),
                None if dk is None else scores_of(b, queries, split_keys(b, heads, dk)),
            ),
        )
        if moved is not None and attributes["softcap"] is not None:
            moved = moved * softcap_slope(b, scores, attributes["softcap"])
        if dmask is not None and attributes["mask_kind"] == "bias":
            moved = rules.total(b, (moved, cast(b, _grouped_mask(b, heads, dmask), weights.dtype)))
        moved = (
            None if moved is None else weighted_values(b, weights_slope(b, weights, moved), split_values(b, heads, v))
        )
        result = rules.total(
            b, (moved, None if dv is None else weighted_values(b, weights, split_values(b, heads, dv)))
        )
        if result is None:  # of a mask that only hides keys
            return None
        return merge_heads(b, heads, cast(b, result, v.dtype), heads.num_heads, heads.queries)

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, **attributes: Any) -> Any:
        (q, k, v, mask), (dy,) = operands, cotangents

        def gradient(wrt: str) -> Tensor:
            return b.emit("attention_backward", (q, k, v, dy, mask), wrt=wrt, **attributes)

        of_mask = partial(gradient, "mask") if attributes["mask_kind"] == "bias" else None
        return *(partial(gradient, wrt) for wrt in ("query", "key", "value")), of_mask

    def vmap(self, b: Builder, operands: Any, batched: Any, *, size: Dim, **attributes: Any) -> Tensor:
        (*arrays, mask), (*own, own_mask) = operands, batched
        kind, along = attributes["mask_kind"], arrays[0].rank - 3
        if own == [True, False, False] and not own_mask and _hides_alike(mask, kind):
            # What all queries see alike is shared by those of all entries: they are queries of one call.
            queries = arrays[0].shape.dims[along + 1]
            result = b.emit("attention", (rules.folded(b, arrays[0], along), *arrays[1:], mask), **attributes)
            return rules.unfolded(b, result, along, size, queries)
        arrays = [rules.batch(b, x, is_own, size) for x, is_own in zip(arrays, own, strict=True)]
        rows = arrays[0].shape.dims[1]
        if mask is not None:
            mask = _folded_mask(b, mask, bool(own_mask), size, rows, kind)
        result = b.emit("attention", (*(rules.folded(b, x, 0) for x in arrays), mask), **attributes)
        return rules.unfolded(b, result, 0, size, rows)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        q, k, v = operands[:3]
        heads = Heads(q, k, v, attributes["num_heads"], attributes["head_dim"])
        pairs = heads.batch * heads.num_heads * heads.queries * heads.keys
        return Cost(pairs * (2 * heads.head_dim + 2 * heads.value_dim + 14), moved_bytes(operands, results))

    def samples(self) -> Any:
        packed, split = ((2, 5, 12),) * 3, ((2, 3, 5, 4),) * 3
        sizes: Any = {"num_heads": 3, "head_dim": 4}
        for kind in ("none", "causal"):
            yield sample(*packed, None, mask_kind=kind, **sizes, dtypes=FLOATS)
            yield sample(*split, None, mask_kind=kind, **sizes, dtypes=("f32",))
        yield sample(*packed, None, mask_kind="sliding_window", window=2, **sizes, dtypes=FLOATS)
        yield sample(*packed, Operand((2, 5), "f32", low=0, high=1), mask_kind="custom", **sizes, dtypes=FLOATS)
        yield sample(*packed, Operand((2, 5), "bool"), mask_kind="custom", **sizes, dtypes=("f32",))
        yield sample(*split, Operand((2, 1, 5, 5), "i32", low=0, high=2), mask_kind="custom", **sizes, dtypes=("f32",))
        yield sample(*packed, Operand((2, 3, 5, 5)), mask_kind="bias", **sizes, dtypes=FLOATS)
        yield sample(*split, Operand((5, 5), "f32"), mask_kind="bias", **sizes, dtypes=("f32",))
        # fewer queries than keys, fewer key heads than query heads, another value width
        yield sample((2, 2, 16), (2, 5, 8), (2, 5, 6), None, num_heads=4, head_dim=4, mask_kind="causal", dtypes=FLOATS)
        yield sample((2, 6, 2, 4), (2, 1, 5, 4), (2, 1, 5, 4), None, num_heads=6, head_dim=4, dtypes=("f32",))
        # more queries than keys: the first queries see nothing
        yield sample(
            (1, 5, 8), (1, 3, 8), (1, 3, 8), None, num_heads=2, head_dim=4, mask_kind="causal", dtypes=("f32",)
        )
        yield sample(*packed, None, score_scale=0.3, softcap=1.5, **sizes, dtypes=("f32", "f16"))
        dims = ("batch", "seq", 8)
        yield sample(dims, dims, dims, None, num_heads=2, head_dim=4, mask_kind="causal", dtypes=("f32",))
        past = ("batch", "past+seq", 8)
        yield sample(dims, past, past, None, num_heads=2, head_dim=4, mask_kind="causal", dtypes=("f32",))


def _split_array(x: np.ndarray, heads: int) -> np.ndarray:
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _visible(shape: tuple[int, ...], mask: Any, attributes: dict[str, Any]) -> np.ndarray:
    kind = attributes["mask_kind"]
    _, _, queries, keys = shape
    if kind == "none":
        return np.ones((), bool)
    if kind == "custom":
        keep = mask >= 0.5 if mask.dtype.kind not in "biu" else mask != 0
        return keep[:, None, None, :] if keep.ndim == 2 else keep
    own = np.arange(queries)[:, None] + keys - queries
    key = np.arange(keys)[None, :]
    visible = key <= own
    return visible if kind == "causal" else visible & (key >= own - attributes["window"])


def split_heads(b: Builder, heads: Heads, x: Tensor, count: int, width: int) -> Tensor:
    """An operand as `[B, count, S, width]`."""
    if not heads.packed:
        return x
    batch, length, _ = x.shape.dims
    return b.transpose(b.reshape(x, (batch, length, count, width)), (0, 2, 1, 3))


def split_queries(b: Builder, heads: Heads, x: Tensor, width: int) -> Tensor:
    """The queries, or what is laid out as they are, as `[B, Hkv, G, S, width]`, in f32 for f16 and bf16."""
    split = split_heads(b, heads, x, heads.num_heads, width)
    return widened(b, b.reshape(split, (heads.batch, heads.kv_heads, heads.group, heads.queries, width)))


def split_keys(b: Builder, heads: Heads, k: Tensor) -> Tensor:
    """The keys as `[B, Hkv, T, D]`, in f32 for f16 and bf16."""
    return widened(b, split_heads(b, heads, k, heads.kv_heads, heads.head_dim))


def split_values(b: Builder, heads: Heads, v: Tensor) -> Tensor:
    """The values as `[B, Hkv, T, width]`, in f32 for f16 and bf16."""
    return widened(b, split_heads(b, heads, v, heads.kv_heads, heads.value_dim))


def scale_of(heads: Heads, score_scale: float | None) -> float:
    """The factor of the scores."""
    return heads.head_dim**-0.5 if score_scale is None else score_scale


def scaled_queries(b: Builder, heads: Heads, q: Tensor, score_scale: float | None) -> Tensor:
    """The queries times the factor of the scores: that costs S·D products, scaling the scores S·T."""
    return split_queries(b, heads, q, heads.head_dim) * scale_of(heads, score_scale)


def scores_of(b: Builder, queries: Tensor, keys: Tensor) -> Tensor:
    """`[B, Hkv, G, S, T]`, before softcap and mask."""
    return b.dot_general(queries, keys, (4,), (3,), (0, 1), (0, 1))


def weighted_values(b: Builder, weights: Tensor, values: Tensor) -> Tensor:
    """`[B, Hkv, G, S, width]`."""
    return b.dot_general(weights, values, (4,), (2,), (0, 1), (0, 1))


def attention_weights(b: Builder, heads: Heads, scores: Tensor, mask: Any, attributes: dict[str, Any]) -> Tensor:
    """What each query takes of each value: the softmax of the scores after softcap and mask."""
    softcap, kind = attributes["softcap"], attributes["mask_kind"]
    if softcap is not None:
        scores = b.tanh(scores / softcap) * softcap
    if kind == "bias":
        scores = scores + cast(b, _grouped_mask(b, heads, mask), scores.dtype)
    elif kind != "none":
        scores = b.where(_keep(b, heads, mask, attributes), scores, float("-inf"))
    return _weights(b, scores, bounded=kind != "none")


def _grouped_mask(b: Builder, heads: Heads, mask: Tensor) -> Tensor:
    """A mask that broadcasts to `[B, H, S, T]`, as one that broadcasts to `[B, Hkv, G, S, T]`."""
    dims = (1,) * (4 - mask.rank) + mask.shape.dims
    head = (1, 1) if dims[1] == 1 else (heads.kv_heads, heads.group)
    return b.reshape(mask, (dims[0], *head, dims[2], dims[3]))


def _keep(b: Builder, heads: Heads, mask: Any, attributes: dict[str, Any]) -> Tensor:
    """Which keys a query sees: bool, broadcastable to `[B, Hkv, G, S, T]`."""
    kind = attributes["mask_kind"]
    if kind == "custom":
        keep = mask
        if not mask.dtype.is_bool:
            keep = b.ge(mask, 0.5) if mask.dtype.is_float else b.ne(mask, 0)
        if mask.rank == 2:
            return b.reshape(keep, (heads.batch, 1, 1, 1, heads.keys))
        return _grouped_mask(b, heads, keep)
    square = (heads.queries, heads.keys)
    distance = b.iota(square, axis=1) - b.iota(square, axis=0) + _offset(b, heads)  # key - own position
    keep = distance <= 0
    if kind == "sliding_window":
        keep = keep & (distance >= -attributes["window"])
    return keep


def _offset(b: Builder, heads: Heads) -> Any:
    """`S - T`: a number, or an i32 scalar when the sizes are symbolic."""
    difference = heads.queries - heads.keys
    return difference if type(difference) is int else size_of(b, heads.queries) - size_of(b, heads.keys)


def _weights(b: Builder, scores: Tensor, bounded: bool) -> Tensor:
    """`softmax(scores)` over the keys.

    With `bounded`, a row of scores may be -inf all over, and gives zeros: a finite bound on its maximum makes every
    weight 0, where a plain softmax would be NaN.
    """
    if not bounded:
        return b.softmax(scores, axis=-1)
    # The weights do not depend on what all scores of a row are lowered by, and neither do their derivatives.
    top = b.stop_gradient(b.max(scores, -1, keep_dims=True))
    weights = b.exp(scores - b.maximum(top, np.finfo(np.float32).min.item()))
    total = b.sum(weights, -1, keep_dims=True)
    return weights / b.where(total == 0.0, 1.0, total)


def weights_slope(b: Builder, weights: Tensor, d: Tensor) -> Tensor:
    """A tangent of the scores, or a cotangent of the weights, through the softmax, whose Jacobian is symmetric.

    It is 0 where the weight is, so in rows that see no key.
    """
    return weights * (d - b.sum(weights * d, -1, keep_dims=True))


def softcap_slope(b: Builder, scores: Tensor, softcap: float) -> Tensor:
    """The derivative of `softcap·tanh(scores/softcap)`."""
    return activation_derivative(b, "tanh", scores / softcap)


def merge_heads(b: Builder, heads: Heads, x: Tensor, count: int, length: Dim) -> Tensor:
    """`[B, Hkv, G, S, width]` or `[B, Hkv, T, width]` with `count` heads in all, in the layout of the operands."""
    width = x.shape.dims[-1]
    split = b.reshape(x, (heads.batch, count, length, width))
    if not heads.packed:
        return split
    return b.reshape(b.transpose(split, (0, 2, 1, 3)), (heads.batch, length, count * width))


# --- batches ----------------------------------------------------------------------------------------


def _hides_alike(mask: Tensor | None, kind: str) -> bool:
    """Whether the mask is the same for all queries of a row."""
    if mask is None:
        return kind == "none"
    return (kind == "custom" and mask.rank == 2) or mask.rank < 2 or mask.shape.dims[-2] == 1


def _folded_mask(b: Builder, mask: Tensor, batched: bool, size: Dim, rows: Dim, kind: str) -> Tensor:
    """A mask for a batch that is folded into the rows: one for each row of each entry, or one for all."""
    rank = mask.rank - batched
    if kind == "custom" and rank == 2:  # [B, T]
        return rules.folded(b, rules.batch(b, mask, batched, size), 0)
    dims = (1,) * (4 - rank) + mask.shape.dims[int(batched) :]
    if not batched and dims[0] == 1:
        return mask
    whole = b.reshape(mask, (size, *dims)) if batched else rules.batch(b, mask, False, size)
    return rules.folded(b, b.expand(whole, (size, rows, *dims[1:])), 0)
