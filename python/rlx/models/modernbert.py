"""ModernBERT (Warner et al., 2024): an encoder with rotary positions, norms before each part, and windows in most layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.decoder_config import read_layer_types
from rlx.models.encoder import encoder_family
from rlx.models.encoder_heads import MODERNBERT_HEADS
from rlx.models.fields import ACTIVATIONS, Fields
from rlx.models.rope import RotaryTables
from rlx.models.rope_fields import read_rope

_FULL, _LOCAL = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class ModernBertConfig:
    """Sizes and options, with the names of `config.json`.

    Attributes:
        local_attention: The window. In layers with a window, a token attends to tokens up to half of it away in both
            directions.
        ropes: Rotary positions of layers without a window, and with one.
        biases: The parts with biases: `"attention"`, `"mlp"`, `"norm"`.
        classifier_bias: Whether the dense layer of heads has a bias.
        classifier_activation: The activation of that layer.
        classifier_pooling: The state that classifies a text: `"cls"`, the first one, or `"mean"`.
        decoder_bias: Whether the logits of masked tokens have a bias.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    layer_types: tuple[str, ...]
    ropes: dict[str, RotaryTables]
    biases: frozenset[str]
    local_attention: int = 128
    hidden_activation: str = "gelu"
    norm_eps: float = 1e-5
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    classifier_pooling: str = "cls"
    decoder_bias: bool = True

    @property
    def max_length(self) -> int:
        """The largest number of tokens in training."""
        return self.max_position_embeddings


def _read(fields: Fields) -> ModernBertConfig:
    every = fields.size("global_attn_every_n_layers", 3)
    heads, width = fields.size("num_attention_heads"), fields.size("hidden_size")
    lanes = fields.divided("num_attention_heads", width, heads)
    positions = fields.size("max_position_embeddings", 8192)
    ropes = {}
    for kind, name, theta in ((_FULL, "global_rope_theta", 160_000.0), (_LOCAL, "local_rope_theta", 10_000.0)):
        ropes[kind] = read_rope(fields, lanes, positions, fields.optional(name, fields.number, theta) or theta, kind)
    return ModernBertConfig(
        "modernbert",
        vocab_size=fields.size("vocab_size"),
        hidden_size=width,
        num_hidden_layers=fields.size("num_hidden_layers"),
        num_attention_heads=heads,
        intermediate_size=fields.size("intermediate_size"),
        max_position_embeddings=positions,
        layer_types=read_layer_types(fields, lambda i: _LOCAL if i % every else _FULL),
        ropes=ropes,
        biases=frozenset(name for name in ("attention", "mlp", "norm") if fields.flag(f"{name}_bias", False)),
        local_attention=fields.size("local_attention", 128),
        hidden_activation=fields.activation("hidden_activation", "gelu"),
        norm_eps=fields.number("norm_eps", 1e-5),
        classifier_bias=fields.flag("classifier_bias", False),
        classifier_activation=fields.activation("classifier_activation", "gelu"),
        classifier_pooling=fields.choice("classifier_pooling", ("cls", "mean"), "cls"),
        decoder_bias=fields.flag("decoder_bias", True),
    )


def _encode(
    scope: ParameterPrefix, config: ModernBertConfig, ids: Tensor, mask: Tensor, types: Tensor | None = None
) -> Tensor:
    g, part = scope.g, scope.at("embeddings")
    length = ids.shape.dims[1]
    tables = {kind: config.ropes[kind].tables(g, 0, length) for kind in dict.fromkeys(config.layer_types)}
    masks = {_FULL: mask, _LOCAL: _window_mask(g, mask, config.local_attention // 2)}
    x = part.tokens("tok_embeddings", config.vocab_size, config.hidden_size).rows(ids)
    x = _norm(part, config, "norm", x)
    for i, kind in enumerate(config.layer_types):
        layer = scope.at(f"layers.{i}")
        with g.named(f"layer{i}"):
            normal = _norm(layer, config, "attn_norm", x) if i else x  # the embeddings are already normalised
            x = x + _attention(layer.at("attn"), config, normal, tables[kind], masks[kind])
            x = x + _feed_forward(layer.at("mlp"), config, _norm(layer, config, "mlp_norm", x))
    return _norm(scope, config, "final_norm", x)


def _window_mask(g: Any, mask: Tensor, reach: int) -> Tensor:
    """Return the mask of layers with a window, bool `[B, 1, S, S]`."""
    batch, length = mask.shape.dims
    distance = g.iota((length, length), axis=1, dtype="i32") - g.iota((length, length), axis=0, dtype="i32")
    near = g.reshape(g.abs(distance) <= reach, (1, 1, length, length))
    return near & g.reshape(g.ne(mask, 0), (batch, 1, 1, length))


def _norm(scope: ParameterPrefix, config: ModernBertConfig, name: str, x: Tensor) -> Tensor:
    size = config.hidden_size
    weights = scope.norm(name, size) if "norm" in config.biases else (scope.param(f"{name}.weight", (size,)),)
    return scope.g.layer_norm(x, *weights, eps=config.norm_eps)


def _attention(scope: ParameterPrefix, config: ModernBertConfig, x: Tensor, tables: Any, mask: Tensor) -> Tensor:
    g, e, has_bias = scope.g, config.hidden_size, "attention" in config.biases
    lanes = e // config.num_attention_heads
    joined = scope.linear(x, "Wqkv", 3 * e, has_bias)
    q, k, v = (g.narrow(joined, 2, i * e, e) for i in range(3))
    q, k = g.rope(q, *tables, lanes), g.rope(k, *tables, lanes)
    heads = config.num_attention_heads
    attended = g.attention(q, k, v, mask, num_heads=heads, head_dim=lanes, mask_kind="custom")
    return scope.linear(attended, "Wo", e, has_bias)


def _feed_forward(scope: ParameterPrefix, config: ModernBertConfig, x: Tensor) -> Tensor:
    g, f, has_bias = scope.g, config.intermediate_size, "mlp" in config.biases
    joined = scope.linear(x, "Wi", 2 * f, has_bias)
    gate, up = (g.narrow(joined, 2, i * f, f) for i in range(2))
    return scope.linear(
        g.activation(ACTIVATIONS[config.hidden_activation], gate) * up, "Wo", config.hidden_size, has_bias
    )


FAMILIES = (encoder_family("modernbert", _read, _encode, "layers.", ("model.",), MODERNBERT_HEADS),)
