"""Graphs of encoder–decoder models: an encoder, and a decoder that attends to its states and to earlier tokens.

All families have the parameter names of BART. Sources: Vaswani et al., Attention Is All You Need (2017), §3; Raffel et al., T5
(2020), §2.1; Lewis et al., BART (2020), §2; Radford et al., Whisper (2022), §2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix, TokenEmbedding
from rlx.models.encoder_heads import vocabulary_logits
from rlx.models.family import ModelFamily
from rlx.models.fields import ACTIVATIONS, Fields
from rlx.models.relative_bias import biases, distance_buckets, distances
from rlx.support.errors import ShapeError
from rlx.weights import Weight

SEQ2SEQ_HEAD = "ForConditionalGeneration"
_SIZES: Mapping[str, int | bool] = {
    "batch": 1,
    "sequence": 1,
    "encoder_sequence": 128,
    "past": 0,
    "cache": False,
    "last": False,
}
_ENCODER_SIZES: Mapping[str, int | bool] = {"batch": 1, "sequence": 128}


@dataclass(frozen=True)
class StackConfig:
    """The sizes of an encoder or a decoder.

    Attributes:
        layers: The number of layers.
        heads: The number of heads.
        inner: The inner width of the feed-forward network.
        positions: The rows of the table of positions; 0 in models without one.
    """

    layers: int
    heads: int
    inner: int
    positions: int = 0


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """Sizes and options of an encoder–decoder model.

    Attributes:
        encoder: The encoder.
        decoder: The decoder.
        head_dim: The number of lanes of a head.
        norm: The norms: `"layer"`, or `"rms"` without a bias.
        norms_first: Whether norms are before each part. Otherwise they are after each residual.
        has_embedding_norm: Whether embeddings are normalised.
        has_final_norm: Whether both parts end with a norm.
        biases: The linear layers with biases: `"q"`, `"k"`, `"v"`, `"out"`, `"mlp"`.
        has_sines: Whether the table of positions is of sines and cosines. Most checkpoints do not store it.
        first_position: The row of the table of positions for the first token.
        embedding_scale: The factor of embeddings.
        score_scale: The factor of attention scores.
        output_scale: The factor of the states before the logits.
        num_buckets: The buckets of distances of the relative bias; 0 in models without one.
        max_distance: The distance from which on all are in one bucket.
        is_gated: Whether the feed-forward network has a gate.
        mel_bins: The number of rows of a spectrogram, for models of speech; 0 for models of text.
        decoder_start_token_id: The first token of the decoder.
        eos_token_id: The token that ends a text, or None.
        pad_token_id: The padding token, or None.
        head: Whether the decoder computes logits.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    encoder: StackConfig
    decoder: StackConfig
    head_dim: int
    hidden_act: str
    norm_eps: float
    norm: str = "layer"
    norms_first: bool = False
    has_embedding_norm: bool = False
    has_final_norm: bool = False
    biases: frozenset[str] = frozenset({"q", "k", "v", "out", "mlp"})
    has_sines: bool = False
    first_position: int = 0
    embedding_scale: float = 1.0
    score_scale: float = 1.0
    output_scale: float = 1.0
    num_buckets: int = 0
    max_distance: int = 128
    is_gated: bool = False
    mel_bins: int = 0
    decoder_start_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    head: bool = True

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers of the decoder."""
        return self.decoder.layers

    @property
    def max_length(self) -> int | None:
        """The largest number of tokens of the encoder; None in models without a table of positions."""
        return self.encoder.positions or None


def read_token(fields: Fields, name: str) -> int | None:
    """Return a token of the configuration; None if it is absent.

    Raises:
        Error: It is not an integer.
    """
    value = fields.data.get(name)
    value = value[0] if isinstance(value, list) and value else value
    if value is not None and (type(value) is not int or value < 0):
        raise fields.refusal(name, "the number of a token or null")
    return value


def encoder_decoder_family(
    model_type: str,
    config: Callable[[Fields], EncoderDecoderConfig],
    adapted: Callable[[Mapping[str, Weight], Any], Mapping[str, Weight]],
) -> ModelFamily:
    """Return a family of encoder–decoder models.

    `encoder_graph` has the inputs `input_ids` and `attention_mask` `[batch, sequence]` i32, or `input_features` `[batch, mel
    bins, time]`, and the outputs `last_hidden_state`, `cross_key_<layer>` and `cross_value_<layer>` `[batch, sequence, heads ·
    head_dim]`: the keys and values of the encoder's states for each layer of the decoder.

    `graph` is the decoder. Its inputs are `decoder_input_ids` `[batch, sequence]` i32, `encoder_attention_mask` `[batch,
    encoder_sequence]` i32 (not for speech), and those keys and values. The output is `logits`, or `last_hidden_state` of a
    model without a head. With `cache=True`, `key_<layer>` and `value_<layer>` are outputs; with `past` other than 0, those of
    earlier tokens are inputs `past_key_<layer>` and `past_value_<layer>`. `last=True` computes the logits of only the last
    token.

    Args:
        model_type: The name in `config.json`.
        config: Reads the configuration.
        adapted: Returns the tensors of a folder under the names of graphs.
    """
    return ModelFamily(
        model_type,
        config,
        _build_decoder,
        _SIZES,
        "decoder.layers.",
        adapted=adapted,
        default_head=SEQ2SEQ_HEAD,
        encoder=_build_encoder,
        encoder_sizes=_ENCODER_SIZES,
    )


def sines(positions: int, width: int) -> np.ndarray:
    """Return a table of sines, then cosines, of positions, f32 `[positions, width]` (Vaswani et al., 2017, §3.5)."""
    lanes = np.arange(width) // 2 * 2 / width
    angles = np.arange(positions)[:, None] / np.power(10_000.0, lanes)
    return np.concatenate([np.sin(angles[:, ::2]), np.cos(angles[:, 1::2])], 1).astype(np.float32)


class _Stack:
    """The layers of an encoder or a decoder in one graph."""

    def __init__(self, scope: ParameterPrefix, config: EncoderDecoderConfig, is_decoder: bool):
        self.config, self.g, self.is_decoder = config, scope.g, is_decoder
        self.sizes = config.decoder if is_decoder else config.encoder
        self.scope = scope.at("decoder" if is_decoder else "encoder")

    def norm(self, scope: ParameterPrefix, name: str, x: Tensor) -> Tensor:
        """Return the norm over the last axis."""
        size, eps = self.config.hidden_size, self.config.norm_eps
        if self.config.norm == "layer":
            return self.g.layer_norm(x, *scope.norm(name, size), eps=eps)
        return self.g.rms_norm(x, scope.param(f"{name}.weight", (size,)), eps=eps)

    def positions(self, x: Tensor, start: Any, length: Any) -> Tensor:
        """Return embeddings with positions added, and normalised where the family does this."""
        config, g, rows = self.config, self.g, self.sizes.positions
        if rows:
            first = config.first_position
            if type(length) is int and type(start) is int and start + length > rows:
                raise ShapeError(f"{start + length} tokens are more than the model's {rows} positions")
            if config.has_sines and not self.scope.has("embed_positions.weight"):
                table = g.constant(sines(rows, config.hidden_size))
            else:
                table = self.scope.table("embed_positions", rows + first, config.hidden_size)
            x = x + g.embedding(table, g.arange(start, start + length) + first)
        return self.norm(self.scope, "layernorm_embedding", x) if config.has_embedding_norm else x

    def bias(self, start: Any, length: Any, total: Any) -> Tensor | None:
        """Return the relative bias of the scores, `[1, H, length, total]`; None in models without one."""
        config, g = self.config, self.g
        if not config.num_buckets:
            return None
        table = self.scope.table("relative_attention_bias", config.num_buckets, self.sizes.heads)
        buckets = distance_buckets(config.num_buckets, config.max_distance, is_causal=self.is_decoder)
        bias = biases(g, table, buckets, distances(g, start, length, total))
        return g.reshape(bias, (1, self.sizes.heads, length, total))

    def residual(self, layer: ParameterPrefix, name: str, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `x` plus a part of a layer, with its norm before the part or after the sum."""
        if self.config.norms_first:
            return x + part(self.norm(layer, name, x))
        return self.norm(layer, name, x + part(x))

    def heads(self, part: ParameterPrefix, x: Tensor, name: str) -> Tensor:
        """Return queries, keys or values, `[B, S, H·D]`."""
        return part.linear(x, f"{name}_proj", self.sizes.heads * self.config.head_dim, name in self.config.biases)

    def attended(
        self, part: ParameterPrefix, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Return the attention to keys and values, projected to the width of the model.

        Args:
            part: The scope of the attention.
            q: The queries.
            k: The keys.
            v: The values.
            keep: Whether each query sees each key, bool; None if all are seen.
            bias: The bias of the scores, or None.
        """
        config, options = self.config, dict[str, Any]()
        if bias is not None:
            options = {"mask": bias if keep is None else self.g.where(keep, bias, float("-inf")), "mask_kind": "bias"}
        elif keep is not None:
            options = {"mask": keep, "mask_kind": "custom"}
        heads, lanes = self.sizes.heads, config.head_dim
        x = self.g.attention(q, k, v, num_heads=heads, head_dim=lanes, score_scale=config.score_scale, **options)
        return part.linear(x, "out_proj", config.hidden_size, "out" in config.biases)

    def feed_forward(self, layer: ParameterPrefix, x: Tensor) -> Tensor:
        """Return the feed-forward network of a layer."""
        config, inner, has_bias = self.config, self.sizes.inner, "mlp" in self.config.biases
        wide = self.g.activation(ACTIVATIONS[config.hidden_act], layer.linear(x, "fc1", inner, has_bias))
        if config.is_gated:
            wide = wide * layer.linear(x, "fc1_up", inner, has_bias)
        return layer.linear(wide, "fc2", config.hidden_size, has_bias)

    def finished(self, x: Tensor) -> Tensor:
        """Return the states after the last layer."""
        return self.norm(self.scope, "layer_norm", x) if self.config.has_final_norm else x


def _tokens(scope: ParameterPrefix, config: EncoderDecoderConfig) -> TokenEmbedding:
    if scope.checkpoint is not None:
        for part in ("encoder.embed_tokens", "decoder.embed_tokens"):  # copies of the shared table
            scope.checkpoint.leave_out(part)
    return scope.tokens("shared", config.vocab_size, config.hidden_size)


def _spectrogram(stack: _Stack, batch: Any) -> tuple[Tensor, Any]:
    """Return the states of a spectrogram after two convolutions, and their number."""
    g, config, part = stack.g, stack.config, stack.scope
    e, length = config.hidden_size, config.encoder.positions
    x = g.input("input_features", (batch, config.mel_bins, 2 * length))
    for name, channels, stride in (("conv1", config.mel_bins, 1), ("conv2", e, 2)):
        weight, bias = part.param(f"{name}.weight", (e, channels, 3)), part.param(f"{name}.bias", (e,))
        x = g.gelu(g.conv(x, weight, stride=(stride,), padding=[(1, 1)], bias=bias))
    return g.transpose(x, (0, 2, 1)), length


def _build_encoder(scope: ParameterPrefix, config: EncoderDecoderConfig, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    g, stack = scope.g, _Stack(scope, config, is_decoder=False)
    keep: Tensor | None = None
    if config.mel_bins:
        x, length = _spectrogram(stack, sizes["batch"])
    else:
        ids = g.input("input_ids", (sizes["batch"], sizes["sequence"]), "i32")
        mask = g.input("attention_mask", ids.shape.dims, "i32")
        batch, length = ids.shape.dims
        keep = g.reshape(g.ne(mask, 0), (batch, 1, 1, length))
        x = _tokens(scope, config).rows(ids) * config.embedding_scale
    x, bias = stack.positions(x, 0, length), stack.bias(0, length, length)

    def attention(part: ParameterPrefix, y: Tensor) -> Tensor:
        q, k, v = (stack.heads(part, y, name) for name in "qkv")
        return stack.attended(part, q, k, v, keep, bias)

    for i in range(config.encoder.layers):
        layer = stack.scope.at(f"layers.{i}")
        with g.named(f"layer{i}"):
            x = stack.residual(layer, "self_attn_layer_norm", x, partial(attention, layer.at("self_attn")))
            x = stack.residual(layer, "final_layer_norm", x, partial(stack.feed_forward, layer))
    outputs = {"last_hidden_state": stack.finished(x)}
    decoder = _Stack(scope, config, is_decoder=True)
    for i in range(config.decoder.layers):
        part = decoder.scope.at(f"layers.{i}.encoder_attn")
        for kind, name in (("key", "k"), ("value", "v")):
            outputs[f"cross_{kind}_{i}"] = decoder.heads(part, outputs["last_hidden_state"], name)
    return outputs


def _build_decoder(scope: ParameterPrefix, config: EncoderDecoderConfig, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    g = scope.g
    ids = g.input("decoder_input_ids", (sizes["batch"], sizes["sequence"]), "i32")
    run = _DecoderRun(scope, config, ids, sizes)
    tokens = _tokens(scope, config)
    x = run.stack.positions(tokens.rows(ids) * config.embedding_scale, run.past, run.length)
    for i in range(config.decoder.layers):
        with g.named(f"layer{i}"):
            x = run.layer(x, i)
    if sizes["last"]:
        x = g.narrow(x, 1, run.length - 1, 1)
    x = run.stack.finished(x)
    if not config.head:
        return {"last_hidden_state": x} | run.cache
    with g.named("head"):
        bias = ("final_logits_bias",) if scope.has("final_logits_bias") else ()
        return {"logits": vocabulary_logits(scope, tokens, x * config.output_scale, "lm_head", bias)} | run.cache


class _DecoderRun:
    """The layers of a decoder in one graph, with the inputs and masks that they share.

    Attributes:
        past: The number of earlier tokens.
        length: The number of tokens.
        cache: The keys and values of all tokens by name, if they are outputs.
    """

    def __init__(self, scope: ParameterPrefix, config: EncoderDecoderConfig, ids: Tensor, sizes: Mapping[str, Any]):
        g, self.stack = scope.g, _Stack(scope, config, is_decoder=True)
        batch, self.length = ids.shape.dims
        width = config.decoder.heads * config.head_dim
        others = config.encoder.positions if config.mel_bins else sizes["encoder_sequence"]
        self.seen: Tensor | None = None
        if not config.mel_bins:
            mask = g.input("encoder_attention_mask", (batch, others), "i32")
            self.seen = g.reshape(g.ne(mask, 0), (batch, 1, 1, mask.shape.dims[1]))

        def pairs(prefix: str, dims: tuple[Any, ...]) -> list[list[Tensor]]:
            kinds = ("key", "value")
            return [[g.input(f"{prefix}_{kind}_{i}", dims) for kind in kinds] for i in range(config.decoder.layers)]

        self.cross = pairs("cross", (batch, others, width))
        self.earlier = pairs("past", (batch, sizes["past"], width)) if sizes["past"] != 0 else []
        self.past: Any = self.earlier[0][0].shape.dims[1] if self.earlier else 0
        self.has_cache, self.cache = sizes["cache"], dict[str, Tensor]()
        total = self.past + self.length
        self.causal = g.reshape(distances(g, self.past, self.length, total) <= 0, (1, 1, self.length, total))
        self.bias = self.stack.bias(self.past, self.length, total)

    def layer(self, x: Tensor, i: int) -> Tensor:
        """Return the result of one layer."""
        stack = self.stack
        layer = stack.scope.at(f"layers.{i}")
        x = stack.residual(layer, "self_attn_layer_norm", x, lambda y: self._own(layer.at("self_attn"), y, i))
        x = stack.residual(layer, "encoder_attn_layer_norm", x, lambda y: self._other(layer.at("encoder_attn"), y, i))
        return stack.residual(layer, "final_layer_norm", x, lambda y: stack.feed_forward(layer, y))

    def _own(self, part: ParameterPrefix, x: Tensor, i: int) -> Tensor:
        """Return the attention to earlier tokens."""
        q, k, v = (self.stack.heads(part, x, name) for name in "qkv")
        if self.earlier:
            k, v = (self.stack.g.concat([old, new], 1) for old, new in zip(self.earlier[i], (k, v), strict=True))
        if self.has_cache:
            self.cache |= {f"key_{i}": k, f"value_{i}": v}
        return self.stack.attended(part, q, k, v, self.causal, self.bias)

    def _other(self, part: ParameterPrefix, x: Tensor, i: int) -> Tensor:
        """Return the attention to the states of the encoder."""
        key, value = self.cross[i]
        return self.stack.attended(part, self.stack.heads(part, x, "q"), key, value, self.seen, None)
