"""Feed-forward networks of decoders: one network, or a mixture of experts.

Sources: Shazeer, GLU Variants Improve Transformer (2020); Jiang et al., Mixtral of Experts (2024), §2.1; DeepSeek-AI,
DeepSeek-V3 (2024), §2.1.2, for groups of experts and the bias that chooses them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.decoder_config import DecoderConfig, ExpertsConfig
from rlx.models.fields import ACTIVATIONS
from rlx.ops.contraction.linear_algebra import RowBlocks, row_blocks

_EXCLUDED = -1e30  # below all scores of experts


def feed_forward(part: ParameterPrefix, config: DecoderConfig, x: Tensor, layer: int) -> Tensor:
    """Return the result of the feed-forward network of a layer.

    Args:
        part: The scope of the network.
        config: The configuration.
        x: Tokens, `[B, S, E]`.
        layer: The number of the layer.
    """
    experts = config.experts
    if experts is None or layer in experts.dense_layers:
        return _dense(part, config, x, config.intermediate_size)
    result = _experts(part, config, experts, x)
    if not experts.shared_width:
        return result
    shared = _dense(part.at("shared_expert"), config, x, experts.shared_width)
    if experts.has_shared_gate:
        shared = shared * part.g.sigmoid(part.exact().linear(x, "shared_expert_gate", 1, bias=False))
    return result + shared


def _dense(part: ParameterPrefix, config: DecoderConfig, x: Tensor, width: int) -> Tensor:
    g, e, has_bias = part.g, config.hidden_size, "mlp" in config.biases
    act = ACTIVATIONS[config.hidden_act]
    if not config.is_gated:
        return part.linear(g.activation(act, part.linear(x, "up_proj", width, has_bias)), "down_proj", e, has_bias)
    gate = g.activation(act, part.linear(x, "gate_proj", width, has_bias))
    return part.linear(gate * part.linear(x, "up_proj", width, has_bias), "down_proj", e, has_bias)


def _experts(part: ParameterPrefix, config: DecoderConfig, experts: ExpertsConfig, x: Tensor) -> Tensor:
    """Return the weighted sum of the experts of each token."""
    g, e, chosen = part.g, config.hidden_size, experts.per_token
    batch, length, _ = x.shape.dims
    rows = batch * length
    tokens = g.reshape(x, (rows, e))
    weights, indices = _route(part, experts, tokens)
    if experts.scales_inputs:
        tokens = g.reshape(tokens, (rows, 1, e)) * g.reshape(weights, (rows, chosen, 1))
        copies = g.reshape(tokens, (rows * chosen, e))
    else:
        copies = g.reshape(g.expand(g.reshape(tokens, (rows, 1, e)), (rows, chosen, e)), (rows * chosen, e))
    products = _GroupedProducts(part.at("experts"), experts.count, g.reshape(indices, (rows * chosen,)))
    gate = g.activation(ACTIVATIONS[config.hidden_act], products.of(copies, "gate_proj", experts.width))
    results = products.of(gate * products.of(copies, "up_proj", experts.width), "down_proj", e)
    results = g.reshape(results, (rows, chosen, e))
    if not experts.scales_inputs:
        results = results * g.reshape(weights, (rows, chosen, 1))
    return g.reshape(g.sum(results, 1), x.shape.dims)


def _route(part: ParameterPrefix, experts: ExpertsConfig, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights and the numbers of the experts of each token, `[rows, per_token]`.

    Products of the router are not rounded: a small difference chooses another expert.
    """
    g = part.g
    products = part.exact().linear(tokens, "gate", experts.count, bias=False)
    scores = g.softmax(products, -1) if experts.scoring == "softmax" else g.sigmoid(products)
    choice = scores
    if experts.has_selection_bias:
        choice = scores + part.param("gate.e_score_correction_bias", (experts.count,))
    if experts.groups > 1:
        choice = _of_best_groups(g, experts, choice)
    weights, indices = g.topk(choice, experts.per_token)
    if choice is not scores:
        weights = g.gather_batched(scores, indices, 1)
    if experts.is_normalized:
        weights = weights / g.sum(weights, -1, keep_dims=True)
    return (weights if experts.scale == 1 else weights * experts.scale), indices


def _of_best_groups(g: Any, experts: ExpertsConfig, choice: Tensor) -> Tensor:
    """Return the scores, with those of experts outside of the best groups replaced by a very low score."""
    rows, size = choice.shape.dims[0], experts.count // experts.groups
    by_group = g.reshape(choice, (rows, experts.groups, size))
    # The score of a group is the sum of its two best experts (DeepSeek-V3), or its best (DeepSeek-V2).
    score = g.sum(g.topk(by_group, min(2 if experts.has_selection_bias else 1, size))[0], -1)
    best = g.topk(score, experts.groups_per_token)[1]
    hits = g.reshape(best, (rows, experts.groups_per_token, 1)) == g.reshape(g.iota((experts.groups,)), (1, 1, -1))
    kept = g.reshape(g.sum(g.cast(hits, "i32"), 1) > 0, (rows, experts.groups, 1))
    return g.reshape(g.where(kept, by_group, _EXCLUDED), choice.shape.dims)


class _GroupedProducts:
    """Products of rows with the matrices of their experts.

    Matrices in f32 are operands of `grouped_matmul`. Others are widened or unpacked one expert at a time: rows are grouped
    into blocks of the same expert, and each step of a loop gathers the stored matrix of one block.

    Args:
        part: The scope of the matrices, each a tensor `[experts, out, in]`.
        count: The number of experts.
        indices: The expert of each row, i32 `[rows]`.
    """

    def __init__(self, part: ParameterPrefix, count: int, indices: Tensor):
        self._part, self._count, self._indices, self._g = part, count, indices, part.g
        self._blocks: RowBlocks | None = None

    def of(self, x: Tensor, name: str, size_out: int) -> Tensor:
        """Return the products of `x [rows, in]`."""
        g, size_in = self._g, x.shape.dims[1]
        assert type(size_in) is int
        stored = self._part.stored(f"{name}.weight", (self._count, size_out, size_in))
        if stored.scheme is None and stored.tensor.dtype.name == "f32":
            return g.grouped_matmul(x, g.transpose(stored.tensor, (0, 2, 1)), self._indices)
        if self._blocks is None:
            self._blocks = row_blocks(g, self._indices, x.shape.dims[0], self._count)

        def product(rows: Tensor, expert: Tensor) -> Tensor:
            return self._part.products(rows, replace(stored, tensor=g.gather(stored.tensor, expert, 0)))

        return self._blocks.products(x, product)
