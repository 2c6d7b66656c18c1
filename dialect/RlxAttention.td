//===- RlxAttention.td - Attention and rotary embeddings --------------------------------------===//

#ifndef RLX_ATTENTION_TD
#define RLX_ATTENTION_TD

include "RlxEnums.td"

def RLX_AttentionOp : RLX_Op<"attention", "attention", [RLX_IsProduct]> {
  let summary = "Scaled dot-product attention";
  let description = [{
    `softmax(mask(softcap(q·kᵀ·score_scale)))·v` for each head, with the softmax in f32.

    Layout: `q [B, S, H·D]`, `k [B, T, Hkv·D]`, `v [B, T, Hkv·Dv]`, or `q [B, H, S, D]`, `k [B, Hkv, T, D]`,
    `v [B, Hkv, T, Dv]`; the result has the layout of `q`. `H = num_heads` is a multiple of `Hkv`: query head `h`
    reads key head `h // (H/Hkv)`. `score_scale` defaults to `1/sqrt(D)`; `softcap` c maps a score s to `c·tanh(s/c)`.

    Masks: `causal`: query `i` sees keys `j <= i + T - S`; `sliding_window`: also `j >= i + T - S - window`; `custom`:
    `mask [B, T]` or broadcastable to `[B, H, S, T]` (rank 4), keeps keys where it is nonzero (bool, integer) or at
    least 0.5 (float); `bias`: `mask` broadcastable to `[B, H, S, T]` is added to the scores. `empty_rows` is the
    result of a query that sees no key: zeros, or NaN as in a plain softmax. A program may skip keys that a query does
    not see: a NaN or an infinity of their values then does not reach the result, as it does when it is multiplied by 0.
  }];
  let arguments = (ins RLX_FloatTensor:$q, RLX_FloatTensor:$k, RLX_FloatTensor:$v,
                       Optional<RLX_OrderedTensor>:$mask,
                       RLX_Count:$num_heads, RLX_Count:$head_dim,
                       DefaultValuedAttr<RLX_MaskKind, "\"none\"">:$mask_kind,
                       OptionalAttr<RLX_Amount>:$window, OptionalAttr<RLX_Finite>:$score_scale,
                       OptionalAttr<RLX_Positive>:$softcap,
                       DefaultValuedAttr<RLX_EmptyRows, "\"zeros\"">:$empty_rows);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_CachedAttentionOp : RLX_Op<"cached_attention", "cached", [RLX_IsProduct]> {
  let summary = "Attention to a cache of keys and values that is partly filled";
  let description = [{
    Causal attention of the queries `q [B, S, H·D]` of positions `start[b], start[b] + 1, …` to the keys and values of a
    cache, `k [B, T, Hkv·D]` and `v [B, T, Hkv·Dv]`: query `i` of entry `b` sees the keys `j <= start[b] + i`, and with
    `window` only those with `j >= start[b] + i - window`. A query that sees no key is zero. `start [B]` i32. The rest is
    as in `attention`; the cache may have another dtype than the queries, which is the dtype of the result.

    With `pages [B, N]` i32, the cache is divided into P pages of T rows, `k [P, T, Hkv·D]` and `v [P, T, Hkv·Dv]`, which
    the entries use in any order: key `j` of entry `b` is row `j % T` of page `pages[b, j // T]`. Page numbers are clamped
    to the pages that exist (Kwon et al., PagedAttention, 2023).

    With `scheme`, a key of `rlx.weights.schemes`, the rows of `k` and `v` are packed blocks, u8, as in `dequantize_packed`:
    `D/block·nbytes` bytes for each head. `D` and `Dv` are multiples of the block. `quantize_packed` makes such rows.
  }];
  let arguments = (ins RLX_FloatTensor:$q, RLX_CacheTensor:$k, RLX_CacheTensor:$v, RLX_I32Tensor:$start,
                       Optional<RLX_I32Tensor>:$pages,
                       RLX_Count:$num_heads, RLX_Count:$head_dim,
                       OptionalAttr<RLX_Amount>:$window, OptionalAttr<RLX_Finite>:$score_scale,
                       OptionalAttr<RLX_Positive>:$softcap, OptionalAttr<StrAttr>:$scheme);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_UpdateCacheOp : RLX_Op<"update_cache", "cached", [RLX_Updates]> {
  let summary = "A cache with rows written from a position on";
  let description = [{
    `cache [B, T, W]`, `rows [B, S, W]`, `start [B]` i32: the result is `cache`, with `rows[b, i]` at
    `[b, start[b] + i]`. A start is moved so that the rows fit: `0 <= start[b] <= T - S`. `B` is an integer. Where the
    cache is a state, a program on the CPU writes the rows into its memory.

    With `pages [B]` i32, the cache has P pages of T rows, `[P, T, W]`, and `rows[b]` is written to page `pages[b]`, one `b`
    after the other. Page numbers are clamped to the pages that exist.
  }];
  let arguments = (ins RLX_ComputeTensor:$cache, RLX_ComputeTensor:$rows, RLX_I32Tensor:$start,
                       Optional<RLX_I32Tensor>:$pages);
  let results = (outs RLX_ComputeTensor:$result);
}

def RLX_RopeOp : RLX_Op<"rope", "rope", [RLX_IsLocal]> {
  let summary = "Rotary position embedding";
  let description = [{
    Rotates the first `n_rot` lanes of every head; the other lanes are unchanged. `x [B, S, H·D]` or `[B, H, S, D]`
    with `D = head_dim`; `cos` and `sin` are `[S, n_rot/2]` or `[B, S, n_rot/2]`. `style` selects the pairs (a, b) of
    lanes: `a' = a·cos - b·sin`, `b' = b·cos + a·sin` (Su et al., RoFormer, eq. 34). Computed in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$cos, RLX_FloatTensor:$sin,
                       RLX_Count:$head_dim, RLX_Amount:$n_rot,
                       DefaultValuedAttr<RLX_RopeStyle, "\"neox\"">:$style);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_ATTENTION_TD
