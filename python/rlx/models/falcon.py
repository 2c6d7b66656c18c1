"""Falcon (TII, 2023): parallel layers, and one head of keys and values for all queries, or for groups of them."""

from __future__ import annotations

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import DecoderConfig
from rlx.models.fields import Fields
from rlx.models.tensor_names import TensorNames

_NAMES = TensorNames(
    {"word_embeddings": "embed_tokens", "ln_f": "norm"},
    {
        "input_layernorm": "input_layernorm",
        "ln_attn": "input_layernorm",
        "ln_mlp": "post_attention_layernorm",
        "post_attention_layernorm": "post_attention_layernorm",
        "self_attention.query_key_value": "self_attn.qkv_proj",
        "self_attention.dense": "self_attn.o_proj",
        "mlp.dense_h_to_4h": "mlp.up_proj",
        "mlp.dense_4h_to_h": "mlp.down_proj",
    },
    layers="h.",
)


def _falcon(fields: Fields) -> DecoderConfig:
    fields = fields.renamed(
        num_hidden_layers="n_layer",
        num_attention_heads="n_head",
        hidden_act="activation",
        layer_norm_eps="layer_norm_epsilon",
    )
    fields.only(alibi=False)
    is_new = fields.flag("new_decoder_architecture", False)
    heads = fields.size("num_attention_heads")
    if is_new:
        kv_heads = fields.size("num_kv_heads" if fields.has("num_kv_heads") else "n_head_kv", heads)
    elif not fields.has("num_key_value_heads"):  # present in GGUF files
        kv_heads = 1 if fields.flag("multi_query", True) else heads
    else:
        kv_heads = fields.size("num_key_value_heads")
    if fields.has("ffn_hidden_size"):
        fields = fields.replaced(intermediate_size=fields.size("ffn_hidden_size"))
    elif not fields.has("intermediate_size"):
        fields = fields.replaced(intermediate_size=4 * fields.size("hidden_size"))
    norms = fields.size("num_ln_in_parallel_attn", 2) if is_new and fields.has("num_ln_in_parallel_attn") else 2
    places = "parallel" if is_new and norms == 2 else "shared"
    if not is_new and not fields.flag("parallel_attn", True):
        places = "before"
    has_biases = fields.flag("bias", False)
    return DecoderConfig.read(
        fields.replaced(num_key_value_heads=kv_heads),
        "falcon",
        tied=True,
        act="gelu",
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        norm_places=places,
        is_gated=False,
        biases=frozenset({"qkv", "o", "mlp"} if has_biases else ()),
    )


FAMILIES = (
    decoder_family("falcon", _falcon, _NAMES, ("transformer.",), has_fused_groups=True, token_layer="classifier"),
)
