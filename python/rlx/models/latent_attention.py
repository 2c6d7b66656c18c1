"""Queries, keys and values of attention with latent keys and values (DeepSeek).

Source: DeepSeek-AI, DeepSeek-V2 (2024), §2.1. The matrices of keys and values are moved to queries and results, so that
only the latent vector of a token is cached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.decoder_config import DecoderConfig, LatentConfig

Norm = Callable[[ParameterPrefix, str, Tensor], Tensor]
Rotate = Callable[[Tensor, int], Tensor]
# The matrix of keys, `[heads, kv_rank, plain_lanes]`, as newer GGUF files have it.
TRANSPOSED_KEYS = "k_b_transposed"


def latent_qkv(
    part: ParameterPrefix, config: DecoderConfig, latent: LatentConfig, x: Tensor, norm: Norm, rotate: Rotate
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries `[B, S, heads · (kv_rank + rotated_lanes)]`, keys of one head, and values of one head.

    Args:
        part: The scope of the attention.
        config: The configuration.
        latent: Its sizes of latent attention.
        x: Tokens, `[B, S, E]`.
        norm: Adds a norm of a name.
        rotate: Rotates heads of this number of lanes.
    """
    g, heads = part.g, config.num_attention_heads
    batch, length, _ = x.shape.dims
    plain, rotated, rank = latent.plain_lanes, latent.rotated_lanes, latent.kv_rank
    query_width = heads * (plain + rotated)
    bias = "qkv" in config.biases
    if latent.q_rank is None:
        q = part.linear(x, "q_proj", query_width, bias=False)
    else:
        narrow = norm(part, "q_a_layernorm", part.linear(x, "q_a_proj", latent.q_rank, bias))
        q = part.linear(narrow, "q_b_proj", query_width, bias=False)
    q = g.reshape(q, (batch, length, heads, plain + rotated))
    joined = part.linear(x, "kv_a_proj_with_mqa", rank + rotated, bias)
    values = norm(part, "kv_a_layernorm", g.narrow(joined, 2, 0, rank))
    rotated_keys = rotate(g.narrow(joined, 2, rank, rotated), rotated)
    rotated_q = rotate(g.reshape(g.narrow(q, 3, plain, rotated), (batch, length, heads * rotated)), rotated)
    latent_q = _moved_to_queries(part, latent, g.narrow(q, 3, 0, plain), heads)
    rotated_q = g.reshape(rotated_q, (batch, length, heads, rotated))
    queries = g.reshape(g.concat([latent_q, rotated_q], 3), (batch, length, heads * (rank + rotated)))
    return queries, g.concat([values, rotated_keys], 2), values


def _moved_to_queries(part: ParameterPrefix, latent: LatentConfig, q: Tensor, heads: int) -> Tensor:
    """Return the products of queries `[B, S, heads, plain_lanes]` with the matrices of keys, `[B, S, heads, kv_rank]`."""
    g = part.g
    if part.has(f"{TRANSPOSED_KEYS}.weight"):
        matrices = part.param(f"{TRANSPOSED_KEYS}.weight", (heads, latent.kv_rank, latent.plain_lanes))
        axis = 2
    else:
        rows = part.param("k_b_proj.weight", (heads * latent.plain_lanes, latent.kv_rank))
        matrices, axis = g.reshape(rows, (heads, latent.plain_lanes, latent.kv_rank)), 1
    return g.transpose(g.dot_general(q, matrices, [3], [axis], [2], [0]), (1, 2, 0, 3))


def latent_results(part: ParameterPrefix, config: DecoderConfig, latent: LatentConfig, attended: Tensor) -> Tensor:
    """Return the values of all heads, `[B, S, heads · value_lanes]`, of attended latent vectors `[B, S, heads · kv_rank]`."""
    g: Any = part.g
    heads, lanes = config.num_attention_heads, latent.value_lanes
    batch, length, _ = attended.shape.dims
    split = g.reshape(attended, (batch, length, heads, latent.kv_rank))
    rows = part.param("v_b_proj.weight", (heads * lanes, latent.kv_rank))
    matrices = g.reshape(rows, (heads, lanes, latent.kv_rank))
    values = g.transpose(g.dot_general(split, matrices, [3], [2], [2], [0]), (1, 2, 0, 3))
    return g.reshape(values, (batch, length, heads * lanes))
