"""Text encoders with a norm after each residual (BERT and related models): shared code and options.

Source: Devlin et al., BERT (2018), §3; the layer is Vaswani et al., Attention Is All You Need (2017), §3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.family import Encode, ModelFamily, TaskHead
from rlx.models.fields import ACTIVATIONS, Fields
from rlx.support.errors import Error, ShapeError

SIZES: Mapping[str, int | bool] = {"batch": 1, "sequence": 128}


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of a text encoder, with the names of BERT's `config.json`.

    Attributes:
        type_vocab_size: The number of token types; 0 in models without token types.
        pad_token_id: The padding token, if positions depend on it: they count the other tokens, from
            `pad_token_id + 1`.
        num_buckets: The number of distance buckets of the relative attention bias; 0 in models without one.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 0
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = None
    num_buckets: int = 0

    @property
    def max_length(self) -> int:
        """The largest number of tokens that have positions."""
        return self.max_position_embeddings - (0 if self.pad_token_id is None else self.pad_token_id + 1)

    @classmethod
    def read(cls, fields: Fields, model_type: str, **more: Any) -> EncoderConfig:
        """Return the configuration from the fields that BERT, RoBERTa and MPNet share; `more` has additional fields."""
        fields.only(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False, pruned_heads={})
        sizes = {
            name: fields.size(name)
            for name in (
                "vocab_size",
                "hidden_size",
                "num_hidden_layers",
                "num_attention_heads",
                "intermediate_size",
                "max_position_embeddings",
            )
        }
        config = cls(
            model_type,
            **sizes,
            hidden_act=fields.activation("hidden_act", "gelu"),
            layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
            **more,
        )
        fields.divided("num_attention_heads", config.hidden_size, config.num_attention_heads)
        if config.max_length < 1:
            raise Error(f"{fields.file}: {config.max_position_embeddings} positions leave none behind 'pad_token_id'")
        return config


@dataclass(frozen=True)
class LayerNames:
    """The names of the parameters of a layer."""

    layers: str
    query: str
    key: str
    value: str
    output: str
    attention_norm: str
    up: str
    down: str
    norm: str


BERT_NAMES = LayerNames(
    "encoder.layer.",
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)


def embeddings(scope: ParameterPrefix, config: EncoderConfig, ids: Tensor, types: Tensor | None) -> Tensor:
    """Return the normalised sum of word, position and token type embeddings.

    Args:
        scope: The parameters.
        config: Sizes.
        ids: Token ids `[B, S]`, i32.
        types: Token types `[B, S]`, i32; without them all tokens have type 0.

    Returns:
        `[B, S, E]`, f32.

    Raises:
        ShapeError: There are more tokens than positions.
    """
    g, part = scope.g, scope.at("embeddings")
    e, length = config.hidden_size, ids.shape.dims[1]
    if type(length) is int and length > config.max_length:
        raise ShapeError(f"{length} tokens are more than the model's {config.max_length} positions")
    with g.named("embeddings"):
        x = part.tokens("word_embeddings", config.vocab_size, e).rows(ids)
        positions = part.table("position_embeddings", config.max_position_embeddings, e)
        if config.pad_token_id is None:
            x = x + g.narrow(positions, 0, 0, length)
        else:
            is_token = g.cast(g.ne(ids, config.pad_token_id), "i32")
            x = x + g.embedding(positions, g.cumsum(is_token, 1) * is_token + config.pad_token_id)
        if config.type_vocab_size:
            kinds = part.table("token_type_embeddings", config.type_vocab_size, e)
            x = x + (kinds[0] if types is None else g.embedding(kinds, types))
        return g.layer_norm(x, *part.norm("LayerNorm", e), eps=config.layer_norm_eps)


def layers(
    scope: ParameterPrefix, config: EncoderConfig, names: LayerNames, x: Tensor, mask: Tensor, mask_kind: str
) -> Tensor:
    """Apply all layers, `[B, S, E]` to `[B, S, E]`. The mask is that of `attention`."""
    g, e, f = scope.g, config.hidden_size, config.intermediate_size
    for i in range(config.num_hidden_layers):
        part = scope.at(f"{names.layers}{i}")
        with g.named(f"layer{i}"):
            operands = [
                *part.dense(names.query, e, e),
                *part.dense(names.key, e, e),
                *part.dense(names.value, e, e),
                *part.dense(names.output, e, e),
                *part.norm(names.attention_norm, e),
                *part.dense(names.up, e, f),
                *part.dense(names.down, f, e),
                *part.norm(names.norm, e),
            ]
            x = g.transformer_encoder_block(
                x,
                *operands,
                mask,
                num_heads=config.num_attention_heads,
                activation=ACTIVATIONS[config.hidden_act],
                eps=config.layer_norm_eps,
                mask_kind=mask_kind,
            )
    return x


def encoder_family(
    model_type: str,
    config: Any,
    encode: Encode,
    layers: str,
    prefixes: tuple[str, ...],
    heads: Mapping[str, TaskHead],
) -> ModelFamily:
    """Return a family of text encoders.

    Its graphs have inputs `input_ids`, `attention_mask` and, for several token types, `token_type_ids`, all
    `[batch, sequence]` i32. The outputs are `last_hidden_state` `[batch, sequence, hidden_size]` and, if the checkpoint
    has a pooler, `pooler_output` `[batch, hidden_size]`; or those of a head.
    """

    def states(scope: ParameterPrefix, values: Any, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
        g, shape = scope.g, (sizes["batch"], sizes["sequence"])
        ids, mask = g.input("input_ids", shape, "i32"), g.input("attention_mask", shape, "i32")
        types = g.input("token_type_ids", shape, "i32") if getattr(values, "type_vocab_size", 0) > 1 else None
        return {"last_hidden_state": encode(scope, values, ids, mask, types)}

    def build(scope: ParameterPrefix, values: Any, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
        outputs = states(scope, values, sizes)
        return outputs | pooler_output(scope, outputs["last_hidden_state"])

    return ModelFamily(model_type, config, build, SIZES, layers, prefixes, encode, states=states, heads=heads)


def first_token(scope: ParameterPrefix, states: Tensor) -> Tensor:
    """Return the state of the first token, `[B, E]`."""
    batch, _, width = states.shape.dims
    return scope.g.reshape(scope.g.narrow(states, 1, 0, 1), (batch, width))


def pooled(scope: ParameterPrefix, states: Tensor) -> Tensor:
    """Return the result of the pooler, a tanh layer on the first token, `[B, E]`."""
    width: Any = states.shape.dims[2]
    first = first_token(scope, states)
    with scope.g.named("pooler"):
        return scope.g.tanh(scope.linear(first, "pooler.dense", width))


def pooler_output(scope: ParameterPrefix, states: Tensor) -> dict[str, Tensor]:
    """Return the output of the pooler by its name, if the checkpoint has that layer."""
    return {"pooler_output": pooled(scope, states)} if scope.has("pooler.dense.weight") else {}
