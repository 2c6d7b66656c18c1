"""Sizes and options of decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlx.ir.dtype import dtype
from rlx.models.fields import Fields
from rlx.models.rope import RotaryTables
from rlx.models.rope_fields import read_rope
from rlx.schemes import SCHEMES
from rlx.support.errors import UnsupportedError

_LARGEST_HEAD = 4096
_LARGEST_LIST = 1 << 16  # checkpoints with more layers are rejected by `check_layers`
PACKED_CACHES = ("q8_0",)  # formats of caches with packed rows
_LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts: many feed-forward networks. Each token uses a few of them.

    Attributes:
        count: The number of experts.
        per_token: The number of experts of a token.
        width: The inner width of an expert.
        is_normalized: Whether the weights of the experts of a token are divided by their sum.
        shared_width: The inner width of an expert that all tokens use; 0 if there is none.
        has_shared_gate: Whether the shared expert is multiplied by the sigmoid of a product with the token.
        scoring: The function of the router's products: `"softmax"` over all experts, or `"sigmoid"`.
        scale: The factor of the weights.
        groups: The number of groups of experts. Experts are chosen from the best `groups_per_token` of them.
        groups_per_token: The number of groups for a token.
        has_selection_bias: Whether a bias is added to the scores that choose experts, but not to their weights.
        dense_layers: The layers that have a plain feed-forward network.
        scales_inputs: Whether the weights multiply the inputs of experts, and not their results.
    """

    count: int
    per_token: int
    width: int
    is_normalized: bool = True
    shared_width: int = 0
    has_shared_gate: bool = False
    scoring: str = "softmax"
    scale: float = 1.0
    groups: int = 1
    groups_per_token: int = 1
    has_selection_bias: bool = False
    dense_layers: frozenset[int] = frozenset()
    scales_inputs: bool = False

    @classmethod
    def read(cls, fields: Fields, count: str, per_token: str, width: str, **more: Any) -> ExpertsConfig:
        """Return the configuration from the fields of these names.

        Raises:
            Error: A token uses more experts than there are.
        """
        experts = fields.size(count)
        chosen = fields.size(per_token)
        if chosen > experts:
            raise fields.refusal(per_token, f"at most {experts}, the number of experts")
        return cls(experts, chosen, fields.size(width), **more)


@dataclass(frozen=True)
class LatentConfig:
    """Attention whose keys and values are products with a narrow vector of the token (DeepSeek).

    All heads attend to that vector and its rotated lanes, as to one head of keys and values: the products are moved to
    queries and results. So `num_key_value_heads` is 1, and `head_dim` is `kv_rank + rotated_lanes`.

    Attributes:
        q_rank: The width of the vector for queries; None if queries are products with the token itself.
        kv_rank: The width of the vector for keys and values.
        plain_lanes: The lanes of a head that are not rotated.
        rotated_lanes: The lanes of a head that are rotated. Their keys are the same for all heads.
        value_lanes: The lanes of a head's values.
    """

    q_rank: int | None
    kv_rank: int
    plain_lanes: int
    rotated_lanes: int
    value_lanes: int


@dataclass(frozen=True)
class LinearAttentionConfig:
    """Layers with a state instead of keys and values (Qwen3-Next).

    Attributes:
        layers: The layers.
        key_heads: The number of heads of queries and keys.
        value_heads: The number of heads of values, a multiple of `key_heads`.
        lanes: The number of lanes of a head.
        kernel: The number of tokens of the convolution.
    """

    layers: frozenset[int]
    key_heads: int
    value_heads: int
    lanes: int
    kernel: int

    @property
    def channels(self) -> int:
        """The number of channels of the convolution: those of queries, keys and values."""
        return (2 * self.key_heads + self.value_heads) * self.lanes


@dataclass(frozen=True)
class QueryTemperature:
    """The factor of queries in layers without positions (Llama 4): `1 + scale · log(1 + ⌊(position + 1) / floor⌋)`.

    Attributes:
        floor: The number of tokens after which the factor first changes.
        scale: The factor of the logarithm.
    """

    floor: int
    scale: float


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and options of a decoder, with the names of `config.json`.

    Attributes:
        rope: Rotary positions; None if the model has a table of positions.
        local_rope: Rotary positions of layers with a window, where they differ.
        layer_types: Whether each layer has a window or chunks. It is empty if all layers are equal.
        sliding_window: The number of tokens that a token attends to, including itself, in layers with a window; None
            without windows.
        chunk_size: The number of tokens of a chunk: in layers of the type `chunked_attention`, tokens attend to tokens of
            their own chunk; None without chunks.
        unrotated_layers: The layers without positions.
        query_temperature: The factor of queries in these layers, or None.
        biases: The parts with biases: `"qkv"`, `"o"`, `"mlp"`, `"head"`.
        qk_norm: The norm of queries and keys: None, `"head"` (of each head), `"heads"` (of each head, with weights of its
            own), `"width"` (of all heads together), or `"rotated"` (of each head, after the rotation, without weights, and
            only in layers with positions).
        rope_style: The pairs of lanes that rotary positions turn: see the op `rope`.
        norm: The norms: `"rms"`, or `"layer"` with a bias.
        offset_norm: Whether norms multiply by 1 + their weights, as in Gemma.
        norm_places: The norms of a layer: `"before"` attention and feed-forward network, `"after"` both, `"around"` both;
            or, for a network that is parallel to attention, `"shared"` by both or `"parallel"`, one for each.
        embedding_scale: The factor of embeddings.
        residual_scale: The factor of the results of attention and feed-forward network.
        logit_scale: The factor of logits.
        score_scale: The factor of attention scores; None is `head_dim**-0.5`.
        is_gated: Whether the feed-forward network has a gate.
        experts: The mixture of experts that replaces the feed-forward network.
        latent: The sizes of attention with latent keys and values.
        linear_attention: The layers with a state instead of keys and values.
        has_query_gate: Whether the result of attention is multiplied by the sigmoid of a gate, which follows the queries of
            each head.
        head: Whether the graph computes logits of tokens; otherwise it ends with the last norm.
        pad_token_id: The padding token, or None.
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
    rope: RotaryTables | None
    local_rope: RotaryTables | None = None
    hidden_act: str = "silu"
    norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    chunk_size: int | None = None
    unrotated_layers: frozenset[int] = frozenset()
    query_temperature: QueryTemperature | None = None
    biases: frozenset[str] = frozenset()
    qk_norm: str | None = None
    rope_style: str = "neox"
    norm: str = "rms"
    offset_norm: bool = False
    norm_places: str = "before"
    embedding_scale: float | None = None
    residual_scale: float | None = None
    logit_scale: float | None = None
    score_scale: float | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    is_gated: bool = True
    experts: ExpertsConfig | None = None
    latent: LatentConfig | None = None
    linear_attention: LinearAttentionConfig | None = None
    has_query_gate: bool = False
    head: bool = True
    pad_token_id: int | None = None

    def window(self, layer: int) -> int | None:
        """Return the window of a layer."""
        alike = not self.layer_types or self.layer_types[layer] == "sliding_attention"
        return self.sliding_window if alike else None

    def chunk(self, layer: int) -> int | None:
        """Return the size of the chunks of a layer."""
        is_chunked = bool(self.layer_types) and self.layer_types[layer] == "chunked_attention"
        return self.chunk_size if is_chunked else None

    @property
    def max_length(self) -> int:
        """The largest number of tokens that have positions."""
        return self.max_position_embeddings

    @property
    def key_width(self) -> int:
        """The width of the keys of a token."""
        return self.num_key_value_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """The width of the values of a token."""
        return self.num_key_value_heads * (self.head_dim if self.latent is None else self.latent.kv_rank)

    @property
    def num_cached_layers(self) -> int:
        """The number of layers with keys and values."""
        return self.num_hidden_layers - (0 if self.linear_attention is None else len(self.linear_attention.layers))

    @property
    def recurrent_elements(self) -> int:
        """The number of elements of the recurrent states of a text; 0 without recurrent layers."""
        linear = self.linear_attention
        if linear is None:
            return 0
        return len(linear.layers) * (
            linear.value_heads * linear.lanes * linear.lanes + (linear.kernel - 1) * linear.channels
        )

    def cache_bytes(self, cache_dtype: str, predicts: bool = False) -> int:
        """Return the bytes of the keys and values of a token.

        Args:
            cache_dtype: A dtype, or a format of packed rows.
            predicts: Whether those of a head that predicts tokens are included.

        Raises:
            UnsupportedError: The heads do not divide into the blocks of the format.
        """
        layers, widths = self.num_cached_layers + predicts, (self.key_width, self.value_width)
        if cache_dtype not in PACKED_CACHES:
            return layers * sum(widths) * dtype(cache_dtype).itemsize
        scheme = SCHEMES[cache_dtype]
        for width in widths:
            lanes = width // self.num_key_value_heads
            if lanes % scheme.block:
                raise UnsupportedError(
                    f"a cache of {cache_dtype} has blocks of {scheme.block} elements, into which the heads of this "
                    f"{self.model_type}, of {lanes} elements, do not divide",
                    hint="use a cache of f16 or f32",
                )
        return layers * sum(map(scheme.row_bytes, widths))

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
        theta: float = 10_000.0,
        fraction: float | None = None,
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
            theta: The default base of rotary positions.
            fraction: The default fraction of rotated lanes, of families that do not rotate all.
            **more: Fields that only some decoders have, or that are not read from the usual names.
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
        if "rope" not in more:
            more["rope"] = read_rope(fields, head_dim, length, theta, fraction=fraction)
        if "norm_eps" not in more:
            more["norm_eps"] = fields.number("rms_norm_eps", 1e-6)
        return cls(
            model_type,
            fields.size("vocab_size"),
            width,
            fields.size("num_hidden_layers"),
            heads,
            kv_heads,
            head_dim,
            fields.size("intermediate_size"),
            length,
            hidden_act=fields.activation("hidden_activation" if fields.has("hidden_activation") else "hidden_act", act),
            tie_word_embeddings=fields.flag("tie_word_embeddings", tied),
            pad_token_id=_padding(fields),
            **more,
        )


def _padding(fields: Fields) -> int | None:
    """Return the padding token; None if the file has none."""
    value = fields.data.get("pad_token_id")
    if value is not None and type(value) is not int:
        raise fields.refusal("pad_token_id", "an integer or null")
    return value


def num_layers_to_list(fields: Fields) -> int:
    """Return the number of layers, for tables with an entry for each layer."""
    return min(fields.size("num_hidden_layers"), _LARGEST_LIST)


def read_layer_types(
    fields: Fields, default: Callable[[int], str], known: tuple[str, ...] = _LAYER_TYPES
) -> tuple[str, ...]:
    """Return the type of attention of each layer: the field `layer_types`, or a rule for files without the field.

    Raises:
        Error: The field has a different number of layers, or an unknown kind.
    """
    num_layers = fields.size("num_hidden_layers")
    if not fields.has("layer_types"):
        return tuple(default(i) for i in range(num_layers_to_list(fields)))
    kinds = fields.data["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in known for kind in kinds):
        raise fields.refusal("layer_types", f"a list of {num_layers} of {', '.join(known)}")
    return tuple(kinds)


def read_layer_flags(fields: Fields, name: str) -> tuple[bool, ...] | None:
    """Return a flag for each layer; None if the field is absent.

    Raises:
        Error: The field is not a list with 0 or 1 for each layer.
    """
    if not fields.has(name):
        return None
    num_layers, values = fields.size("num_hidden_layers"), fields.data[name]
    is_list = isinstance(values, (list, tuple)) and len(values) == num_layers
    if not is_list or any(type(v) not in (int, bool) or v not in (0, 1) for v in values):
        raise fields.refusal(name, f"a list of {num_layers} of 0 or 1")
    return tuple(bool(v) for v in values)
