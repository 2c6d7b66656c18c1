"""Text decoders with rotary positions, RMS norms and gated feed-forward networks: Llama, Mistral, Qwen and Gemma.

Sources: Touvron et al., Llama (2023), §2.2; grouped heads: Ainslie et al., GQA (2023); windows: Jiang et al., Mistral
7B (2023), §2; norms of queries and keys: Qwen3 (2025), §2; soft caps and norms after each part: Gemma 2 (2024), §2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.family import ModelFamily
from rlx.models.fields import ACTIVATIONS, Fields
from rlx.models.rope import RotaryTables, read_rope

SIZES: Mapping[str, int | bool] = {
    "batch": 1,
    "sequence": 128,
    "past": 0,
    "cache": False,
    "attention_mask": False,
    "last": False,
}
_LARGEST_HEAD = 4096
_LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and options of a decoder, with the names of `config.json`.

    Attributes:
        layer_types: Whether each layer has a window. It is empty if all layers are equal.
        sliding_window: The number of tokens that a token attends to, including itself, in layers with a window; None
            without windows.
        biases: The parts with biases: `"qkv"`, `"o"`, `"mlp"`.
        qk_norm: Whether queries and keys are normalised.
        offset_norm: Whether norms multiply by 1 + their weights, and embeddings are scaled, as in Gemma.
        post_norms: Whether there is also a norm after attention and after the feed-forward network.
        score_scale: The factor of attention scores; None is `head_dim**-0.5`.
        head: Whether the graph computes logits; otherwise it ends with the last norm.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    rope: RotaryTables
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    biases: frozenset[str] = frozenset()
    qk_norm: bool = False
    offset_norm: bool = False
    post_norms: bool = False
    score_scale: float | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    head: bool = True

    def window(self, layer: int) -> int | None:
        """Return the window of a layer."""
        alike = not self.layer_types or self.layer_types[layer] == "sliding_attention"
        return self.sliding_window if alike else None

    @classmethod
    def read(
        cls,
        fields: Fields,
        model_type: str,
        *,
        head_dim: int | None = None,
        tied: bool = False,
        act: str = "silu",
        positions: int = 2048,
        **more: Any,
    ) -> DecoderConfig:
        """Return the configuration from the fields that all decoders have.

        Args:
            fields: The file.
            model_type: The family.
            head_dim: The default number of lanes of a head; None is the width divided by the number of heads.
            tied: The default for whether logits are products with the embeddings.
            act: The default activation.
            positions: The default of `max_position_embeddings`.
            **more: Fields that only some decoders have.
        """
        heads, width = fields.size("num_attention_heads"), fields.size("hidden_size")
        kv_heads = fields.size("num_key_value_heads") if fields.has("num_key_value_heads") else heads
        if heads % kv_heads:
            raise fields.refusal("num_key_value_heads", f"a divisor of the {heads} heads")
        if fields.has("head_dim"):
            head_dim = fields.size("head_dim", most=_LARGEST_HEAD)
        elif head_dim is None:
            head_dim = fields.divided("num_attention_heads", width, heads)
        if head_dim > _LARGEST_HEAD:
            raise fields.refusal(
                "num_attention_heads", f"at least {-(-width // _LARGEST_HEAD)}, so that heads are narrower"
            )
        length = fields.size("max_position_embeddings", positions)
        num_layers = fields.size("num_hidden_layers")
        architectures = fields.data.get("architectures")
        return cls(
            model_type,
            fields.size("vocab_size"),
            width,
            num_layers,
            heads,
            kv_heads,
            head_dim,
            fields.size("intermediate_size"),
            length,
            read_rope(fields, head_dim, length),
            hidden_act=fields.activation("hidden_activation" if fields.has("hidden_activation") else "hidden_act", act),
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            tie_word_embeddings=fields.flag("tie_word_embeddings", tied),
            head=not isinstance(architectures, list) or not architectures or "For" in str(architectures[0]),
            **more,
        )


def read_layer_types(fields: Fields, default: Callable[[int], str]) -> tuple[str, ...]:
    """Return the window type of each layer: the field `layer_types`, or a rule for files without the field.

    Raises:
        Error: The field has a different number of layers, or an unknown kind.
    """
    num_layers = fields.size("num_hidden_layers")
    if not fields.has("layer_types"):
        return tuple(
            default(i) for i in range(min(num_layers, 1 << 16))
        )  # checkpoints with more layers are rejected by `check_layers`
    kinds = fields.data["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in _LAYER_TYPES for kind in kinds):
        raise fields.refusal("layer_types", f"a list of {num_layers} of {', '.join(_LAYER_TYPES)}")
    return tuple(kinds)


def decoder_family(model_type: str, config: Callable[[Fields], DecoderConfig]) -> ModelFamily:
    """Return a family of decoders.

    Its graphs have an input `input_ids` `[batch, sequence]` i32 and an output `logits` `[batch, sequence, vocab_size]`,
    or `last_hidden_state` if the checkpoint is of a model without a head. Options add inputs and outputs:

    - `cache=True` adds outputs `key_<layer>` and `value_<layer>`,
      `[batch, past + sequence, num_key_value_heads · head_dim]`. If `past` is not 0, the keys and values of earlier
      tokens are inputs `past_key_<layer>` and `past_value_<layer>`.
    - `attention_mask=True` adds an input `attention_mask` `[batch, past + sequence]` i32.
    - `last=True` computes the logits of only the last token.
    """
    return ModelFamily(model_type, config, _build, SIZES, "layers.", ("model.",))


def _build(scope: ParameterPrefix, config: DecoderConfig, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    g, e = scope.g, config.hidden_size
    ids = g.input("input_ids", (sizes["batch"], sizes["sequence"]), "i32")
    run = _DecoderLayers(scope, config, ids, sizes)
    embedded = scope.table("embed_tokens", config.vocab_size, e)
    x = g.embedding(embedded, ids)
    if config.offset_norm:
        x = x * e**0.5
    outputs: dict[str, Tensor] = {}
    for i in range(config.num_hidden_layers):
        with g.named(f"layer{i}"):
            x, key, value = run.layer(x, i)
        if sizes["cache"]:
            outputs |= {f"key_{i}": key, f"value_{i}": value}
    if sizes["last"]:
        x = g.narrow(x, 1, run.length - 1, 1)
    x = run.norm(scope, "norm", x)
    if not config.head:
        return {"last_hidden_state": x} | outputs
    with g.named("head"):
        w = g.transpose(embedded) if config.tie_word_embeddings else scope.matrix("lm_head", e, config.vocab_size)
        logits = g.matmul(x, w)
        cap = config.final_logit_softcapping
        return {"logits": logits if cap is None else g.tanh(logits / cap) * cap} | outputs


class _DecoderLayers:
    """The layers of one graph, with shared rotary tables and masks."""

    def __init__(self, scope: ParameterPrefix, config: DecoderConfig, ids: Tensor, sizes: Mapping[str, Any]):
        self.scope, self.config, self.g = scope, config, scope.g
        self.batch, self.length = ids.shape.dims
        self.past = sizes["past"]
        past: Any = 0
        width = config.num_key_value_heads * config.head_dim
        self.cached: dict[str, Tensor] = {}
        if self.past != 0:
            for i in range(config.num_hidden_layers):
                for name in (f"past_key_{i}", f"past_value_{i}"):
                    self.cached[name] = self.g.input(name, (self.batch, self.past, width))
            past = self.cached["past_key_0"].shape.dims[1]
        self.total = past + self.length
        self.mask = self.g.input("attention_mask", (self.batch, self.total), "i32") if sizes["attention_mask"] else None
        self.tables = config.rope.tables(self.g, past, self.length)

    def layer(self, x: Tensor, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result of one layer, and the keys and values of all tokens."""
        part, config = self.scope.at(f"layers.{i}"), self.config
        update, key, value = self._attention(part, self.norm(part, "input_layernorm", x), i)
        if config.post_norms:
            x = x + self.norm(part, "post_attention_layernorm", update)
            update = self._feed_forward(part, self.norm(part, "pre_feedforward_layernorm", x))
            return x + self.norm(part, "post_feedforward_layernorm", update), key, value
        x = x + update
        return x + self._feed_forward(part, self.norm(part, "post_attention_layernorm", x)), key, value

    def norm(self, scope: ParameterPrefix, name: str, x: Tensor) -> Tensor:
        """Return the RMS norm over the last axis."""
        size: Any = x.shape.dims[-1]
        weight = scope.param(f"{name}.weight", (size,))
        return self.g.rms_norm(x, 1.0 + weight if self.config.offset_norm else weight, eps=self.config.rms_norm_eps)

    def _attention(self, layer: ParameterPrefix, x: Tensor, i: int) -> tuple[Tensor, Tensor, Tensor]:
        config, part, g = self.config, layer.at("self_attn"), self.g
        heads, kv_heads, lanes = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        widths = {"q": heads * lanes, "k": kv_heads * lanes, "v": kv_heads * lanes}
        q, k, v = (part.linear(x, f"{n}_proj", width, "qkv" in config.biases) for n, width in widths.items())
        if config.qk_norm:
            q, k = self._normed_heads(part, "q_norm", q, heads), self._normed_heads(part, "k_norm", k, kv_heads)
        q, k = g.rope(q, *self.tables, lanes), g.rope(k, *self.tables, lanes)
        if self.cached:
            k = g.concat([self.cached[f"past_key_{i}"], k], 1)
            v = g.concat([self.cached[f"past_value_{i}"], v], 1)
        attended = g.attention(
            q,
            k,
            v,
            **self._mask(config.window(i)),
            num_heads=heads,
            head_dim=lanes,
            score_scale=config.score_scale,
            softcap=config.attn_logit_softcapping,
        )
        return part.linear(attended, "o_proj", config.hidden_size, "o" in config.biases), k, v

    def _normed_heads(self, part: ParameterPrefix, name: str, x: Tensor, heads: int) -> Tensor:
        """Normalise each head separately."""
        split = self.g.reshape(x, (self.batch, self.length, heads, self.config.head_dim))
        return self.g.reshape(self.norm(part, name, split), x.shape.dims)

    def _mask(self, window: int | None) -> dict[str, Any]:
        """Return the mask arguments of `attention`. The window of `attention` does not include the token itself."""
        if self.mask is None:
            return {"mask_kind": "causal"} if window is None else {"mask_kind": "sliding_window", "window": window - 1}
        g, square = self.g, (self.length, self.total)
        start = self.total - self.length
        own = g.reshape(g.arange(start, start + self.length), (self.length, 1))
        distance = g.iota(square, axis=1, dtype="i32") - own
        keep = distance <= 0
        if window is not None:
            keep = keep & (distance > -window)
        rows = g.reshape(g.ne(self.mask, 0), (self.batch, 1, 1, self.total))
        return {"mask_kind": "custom", "mask": rows & g.reshape(keep, (1, 1, *square))}

    def _feed_forward(self, layer: ParameterPrefix, x: Tensor) -> Tensor:
        config, part, g = self.config, layer.at("mlp"), self.g
        e, f, has_bias = config.hidden_size, config.intermediate_size, "mlp" in config.biases
        if config.hidden_act == "silu" and not has_bias:
            matrices = [part.matrix(*m) for m in (("up_proj", e, f), ("gate_proj", e, f), ("down_proj", f, e))]
            return g.swiglu_ffn(x, *matrices)
        gate = g.activation(ACTIVATIONS[config.hidden_act], part.linear(x, "gate_proj", f, has_bias))
        return part.linear(gate * part.linear(x, "up_proj", f, has_bias), "down_proj", e, has_bias)
