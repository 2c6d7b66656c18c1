"""Gradients of attention and of rotary position embedding."""

from __future__ import annotations

from typing import Any

from rlx.ir import registry
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, Operand, moved_bytes, sample
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops.attention import (
    Heads,
    attention_weights,
    merge_heads,
    scale_of,
    scaled_queries,
    scores_of,
    softcap_slope,
    split_heads,
    split_keys,
    split_queries,
    split_values,
    weighted_values,
    weights_slope,
)
from rlx.ops.backward import check_cotangent
from rlx.ops.lift import cast
from rlx.ops.reduce import FLOATS


class AttentionBackward(Card, op="attention_backward"):
    def infer(
        self, q: Shape, k: Shape, v: Shape, dy: Shape, mask: Shape | None, *, wrt: str, **attributes: Any
    ) -> Shape:
        check_cotangent(dy, registry.card("attention").infer(q, k, v, mask, **attributes))
        if wrt == "mask" and attributes["mask_kind"] != "bias":
            raise ShapeError(
                f"wrt 'mask' needs mask_kind 'bias': one of kind '{attributes['mask_kind']}' has no gradient"
            )
        return {"query": q, "key": k, "value": v}[wrt] if mask is None or wrt != "mask" else mask

    def decompose(
        self, b: Builder, q: Tensor, k: Tensor, v: Tensor, dy: Tensor, mask: Any, *, wrt: str, **attributes: Any
    ) -> Tensor:
        heads = Heads(q.shape, k.shape, v.shape, attributes["num_heads"], attributes["head_dim"])
        queries, keys = scaled_queries(b, heads, q, attributes["score_scale"]), split_keys(b, heads, k)
        scores = scores_of(b, queries, keys)
        weights = attention_weights(b, heads, scores, mask, attributes)
        cotangent = split_queries(b, heads, dy, heads.value_dim)
        if wrt == "value":
            result = b.dot_general(weights, cotangent, (2, 3), (2, 3), (0, 1), (0, 1))
            return cast(b, merge_heads(b, heads, result, heads.kv_heads, heads.keys), v.dtype)
        of_weights = b.dot_general(cotangent, split_values(b, heads, v), (4,), (3,), (0, 1), (0, 1))
        slope = _weights_slope(b, heads, weights, of_weights, v, dy)
        if wrt == "mask":
            return cast(b, _sum_to_mask(b, heads, slope, mask.shape), mask.dtype)
        if attributes["softcap"] is not None:
            slope = slope * softcap_slope(b, scores, attributes["softcap"])
        if wrt == "key":
            result = b.dot_general(slope, queries, (2, 3), (2, 3), (0, 1), (0, 1))
            return cast(b, merge_heads(b, heads, result, heads.kv_heads, heads.keys), k.dtype)
        result = b.dot_general(slope, keys, (4,), (2,), (0, 1), (0, 1)) * scale_of(heads, attributes["score_scale"])
        return cast(b, merge_heads(b, heads, result, heads.num_heads, heads.queries), q.dtype)

    def build(
        self,
        b: Builder,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        dy: Tensor,
        mask: Any = None,
        *,
        num_heads: int,
        head_dim: int,
        wrt: Any,
        mask_kind: Any = "none",
        window: int | None = None,
        score_scale: float | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        return b.emit(
            "attention_backward",
            (q, k, v, dy, mask),
            num_heads=num_heads,
            head_dim=head_dim,
            wrt=wrt,
            mask_kind=mask_kind,
            window=window,
            score_scale=score_scale,
            softcap=softcap,
        )

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        q, k, v = operands[:3]
        heads = Heads(q, k, v, attributes["num_heads"], attributes["head_dim"])
        pairs = heads.batch * heads.num_heads * heads.queries * heads.keys
        # Scores and weights again, then the products that lead to the operand.
        products = heads.value_dim if attributes["wrt"] == "value" else heads.value_dim + heads.head_dim
        return Cost(pairs * (2 * heads.head_dim + 2 * products + 18), moved_bytes(operands, results))

    def samples(self) -> Any:
        sizes: Any = {"num_heads": 4, "head_dim": 4}
        # fewer key heads than query heads, more queries than keys (the first see nothing), another value width
        packed = ((2, 5, 16), (2, 3, 8), (2, 3, 6), (2, 5, 12))
        split = ((2, 4, 5, 4), (2, 2, 3, 4), (2, 2, 3, 4), (2, 4, 5, 4))
        keep = Operand((2, 3), "bool")
        yield sample(*packed, None, mask_kind="causal", wrt="query", **sizes, dtypes=FLOATS)
        yield sample(*split, None, wrt="key", score_scale=0.3, softcap=1.5, **sizes, dtypes=FLOATS)
        yield sample(*packed, keep, mask_kind="custom", wrt="value", **sizes, dtypes=FLOATS)
        yield sample(*split, (2, 1, 5, 3), mask_kind="bias", wrt="mask", **sizes, dtypes=FLOATS)
        yield sample(*packed, None, mask_kind="sliding_window", window=1, wrt="key", **sizes, dtypes=FLOATS)
        dims, past = ("batch", "seq", 8), ("batch", "past+seq", 8)
        symbolic: Any = {"num_heads": 2, "head_dim": 4, "mask_kind": "causal", "dtypes": ("f32",)}
        yield sample(dims, past, past, dims, None, wrt="query", **symbolic)


def _weights_slope(b: Builder, heads: Heads, weights: Tensor, of_weights: Tensor, v: Tensor, dy: Tensor) -> Tensor:
    """The cotangent of the scores, of that of the weights.

    The sum of weights times their cotangents, over the keys, is that of results times their cotangents over a head's
    width, which is shorter (T. Dao et al., 2022, appendix B). Results in the layout of the operands are those of the
    forward pass; in other layouts and dtypes they would have to be computed again.
    """
    if not heads.packed or weights.dtype is not v.dtype:
        return weights_slope(b, weights, of_weights)
    values = split_heads(b, heads, v, heads.kv_heads, heads.value_dim)
    y = merge_heads(b, heads, weighted_values(b, weights, values), heads.num_heads, heads.queries)
    split = b.reshape(y * dy, (heads.batch, heads.queries, heads.num_heads, heads.value_dim))
    along = b.transpose(b.sum(split, -1), (0, 2, 1))
    return weights * (of_weights - b.reshape(along, (*weights.shape.dims[:-1], 1)))


def _sum_to_mask(b: Builder, heads: Heads, slope: Tensor, mask: Shape) -> Tensor:
    """The gradient of a mask that was broadcast to `[B, H, S, T]`."""
    full = (heads.batch, heads.num_heads, heads.queries, heads.keys)
    dims = (1,) * (4 - mask.rank) + mask.dims
    repeated = [i for i in range(4) if dims[i] != full[i]]
    return b.reshape(b.sum(b.reshape(slope, full), repeated, keep_dims=True), mask.dims)


class RopeBackward(Card, op="rope_backward"):
    def infer(self, dy: Shape, cos: Shape, sin: Shape, **attributes: Any) -> Any:
        return registry.card("rope").infer(dy, cos, sin, **attributes)

    def decompose(self, b: Builder, dy: Tensor, cos: Tensor, sin: Tensor, **attributes: Any) -> Tensor:
        return b.rope(dy, cos, -sin, **attributes)

    def build(
        self,
        b: Builder,
        dy: Tensor,
        cos: Tensor,
        sin: Tensor,
        head_dim: int,
        n_rot: int | None = None,
        style: Any = "neox",
    ) -> Tensor:
        lanes = head_dim if n_rot is None else n_rot
        return b.emit("rope_backward", (dy, cos, sin), head_dim=head_dim, n_rot=lanes, style=style)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return registry.card("rope").cost(operands, results, attributes)

    def samples(self) -> Any:
        yield sample((2, 3, 8), (3, 2), (3, 2), head_dim=4, n_rot=4, dtypes=FLOATS)
        yield sample((2, 2, 3, 6), (3, 2), (3, 2), head_dim=6, n_rot=4, style="gptj", dtypes=("f32",))
        yield sample(("b", "s", 8), ("s", 2), ("s", 2), head_dim=4, n_rot=4, dtypes=("f32",))
