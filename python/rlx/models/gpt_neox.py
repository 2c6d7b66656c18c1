"""GPT-NeoX and Pythia (Black et al., 2022): parallel layers, and queries, keys and values fused by head."""

from __future__ import annotations

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import DecoderConfig
from rlx.models.fields import Fields
from rlx.models.tensor_names import TensorNames

_NAMES = TensorNames(
    {"embed_in": "embed_tokens", "final_layer_norm": "norm", "embed_out": "lm_head"},
    {
        "input_layernorm": "input_layernorm",
        "attention.query_key_value": "self_attn.qkv_proj",
        "attention.dense": "self_attn.o_proj",
        "post_attention_layernorm": "post_attention_layernorm",
        "mlp.dense_h_to_4h": "mlp.up_proj",
        "mlp.dense_4h_to_h": "mlp.down_proj",
    },
)


def _gpt_neox(fields: Fields) -> DecoderConfig:
    fields = fields.renamed(partial_rotary_factor="rotary_pct", rope_theta="rotary_emb_base")
    biases = {"mlp"} | ({"qkv", "o"} if fields.flag("attention_bias", True) else set())
    return DecoderConfig.read(
        fields,
        "gpt_neox",
        act="gelu",
        fraction=0.25,
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        norm_places="parallel" if fields.flag("use_parallel_residual", True) else "before",
        is_gated=False,
        biases=frozenset(biases),
    )


FAMILIES = (
    decoder_family("gpt_neox", _gpt_neox, _NAMES, ("gpt_neox.",), has_fused_groups=True, token_layer="classifier"),
)
