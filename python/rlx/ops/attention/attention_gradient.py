"""Gradients of attention."""

from __future__ import annotations

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Attributes, Groups
from rlx.ops.attention.heads import (
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
from rlx.ops.lift import cast
from rlx.support.cached_property import cached_property

_BATCH = (0, 1)  # the axes of rows and key heads in every product


class AttentionGradient:
    """Cotangents of the operands of an `attention`. Each method emits one cotangent.

    Queries that see no key contribute nothing.

    Args:
        b: The builder that emits the ops.
        operands: q, k, v and the mask or None.
        dy: The cotangent of the result.
        attributes: The attributes of the op.
    """

    def __init__(self, b: Builder, operands: Groups, dy: Tensor, attributes: Attributes):
        self._b, self._dy, self._attributes = b, dy, attributes
        self._q, self._k, self._v, self._mask = operands
        sizes = attributes["num_heads"], attributes["head_dim"]
        self._heads = Heads(self._q.shape, self._k.shape, self._v.shape, *sizes)

    def of_query(self) -> Tensor:
        b, heads = self._b, self._heads
        result = b.dot_general(self._of_scores, self._keys, (4,), (2,), _BATCH, _BATCH)
        result = result * scale_of(heads, self._attributes["score_scale"])
        return cast(b, merge_heads(b, heads, result, heads.num_heads, heads.queries), self._q.dtype)

    def of_key(self) -> Tensor:
        b, heads = self._b, self._heads
        result = b.dot_general(self._of_scores, self._queries, (2, 3), (2, 3), _BATCH, _BATCH)
        return cast(b, merge_heads(b, heads, result, heads.kv_heads, heads.keys), self._k.dtype)

    def of_value(self) -> Tensor:
        b, heads = self._b, self._heads
        result = b.dot_general(self._weights, self._of_result, (2, 3), (2, 3), _BATCH, _BATCH)
        return cast(b, merge_heads(b, heads, result, heads.kv_heads, heads.keys), self._v.dtype)

    def of_mask(self) -> Tensor:
        """The cotangent of a bias, summed over the axes along which the bias was broadcast to `[B, H, S, T]`."""
        b, heads, mask = self._b, self._heads, self._mask
        full = (heads.batch, heads.num_heads, heads.queries, heads.keys)
        dims = (1,) * (4 - mask.rank) + mask.shape.dims
        repeated = [i for i in range(4) if dims[i] != full[i]]
        total = b.sum(b.reshape(self._of_biased, full), repeated, keep_dims=True)
        return cast(b, b.reshape(total, mask.shape.dims), mask.dtype)

    # --- the forward pass -------------------------------------------------------------------------

    @cached_property
    def _queries(self) -> Tensor:
        return scaled_queries(self._b, self._heads, self._q, self._attributes["score_scale"])

    @cached_property
    def _keys(self) -> Tensor:
        return split_keys(self._b, self._heads, self._k)

    @cached_property
    def _scores(self) -> Tensor:
        return scores_of(self._b, self._queries, self._keys)

    @cached_property
    def _weights(self) -> Tensor:
        return attention_weights(self._b, self._heads, self._scores, self._mask, self._attributes)

    # --- the backward pass ------------------------------------------------------------------------

    @cached_property
    def _of_result(self) -> Tensor:
        """`dy` as `[B, Hkv, G, S, width]`."""
        return split_queries(self._b, self._heads, self._dy, self._heads.value_dim)

    @cached_property
    def _of_biased(self) -> Tensor:
        """The cotangent of the softmax operand: the scores after softcap and mask."""
        b, heads = self._b, self._heads
        weights, values = self._weights, split_values(b, heads, self._v)
        of_weights = b.dot_general(self._of_result, values, (4,), (3,), _BATCH, _BATCH)
        if not heads.packed or weights.dtype is not self._v.dtype:
            return weights_slope(b, weights, of_weights)
        return weights * (of_weights - b.reshape(self._weighted(weights), (*weights.shape.dims[:-1], 1)))

    def _weighted(self, weights: Tensor) -> Tensor:
        """Return the sum over the keys of the weights times their cotangents: `[B, H, S]`.

        It equals the sum of the results times their cotangents over the width of a head, which has fewer terms (T. Dao
        et al., 2022, appendix B). The results are computed in the layout and dtype of the operands, so they are shared
        with the forward pass. In other layouts or dtypes they would be computed again.
        """
        b, heads = self._b, self._heads
        values = split_heads(b, heads, self._v, heads.kv_heads, heads.value_dim)
        y = merge_heads(b, heads, weighted_values(b, weights, values), heads.num_heads, heads.queries)
        products = b.reshape(y * self._dy, (heads.batch, heads.queries, heads.num_heads, heads.value_dim))
        return b.transpose(b.sum(products, -1), (0, 2, 1))

    @cached_property
    def _of_scores(self) -> Tensor:
        """The cotangent of the scores, before softcap."""
        softcap = self._attributes["softcap"]
        if softcap is None:
            return self._of_biased
        return self._of_biased * softcap_slope(self._b, self._scores, softcap)
