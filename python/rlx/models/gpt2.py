"""GPT-2 (Radford et al., 2019): a table of positions, layer norms, and matrices that are stored as `[in, out]`."""

from __future__ import annotations

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import DecoderConfig
from rlx.models.fields import Fields
from rlx.models.tensor_names import TensorNames
from rlx.models.weight_views import transposed
from rlx.weights import Weight

_PARTS = {
    "ln_1": "input_layernorm",
    "attn.c_attn": "self_attn.qkv_proj",
    "attn.c_proj": "self_attn.o_proj",
    "ln_2": "post_attention_layernorm",
    "mlp.c_fc": "mlp.up_proj",
    "mlp.c_proj": "mlp.down_proj",
}


def _changed(name: str, weight: Weight) -> Weight:
    return transposed(weight) if name.endswith("_proj") else weight


_NAMES = TensorNames(
    {"wte": "embed_tokens", "wpe": "embed_positions", "ln_f": "norm"}, _PARTS, layers="h.", changed=_changed
)


def _gpt2(fields: Fields) -> DecoderConfig:
    fields = fields.renamed(
        hidden_size="n_embd",
        num_hidden_layers="n_layer",
        num_attention_heads="n_head",
        max_position_embeddings="n_positions",
        intermediate_size="n_inner",
        hidden_act="activation_function",
        layer_norm_eps="layer_norm_epsilon",
    )
    fields.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    if not fields.has("intermediate_size"):
        fields = fields.replaced(intermediate_size=4 * fields.size("hidden_size"))
    return DecoderConfig.read(
        fields,
        "gpt2",
        tied=True,
        act="gelu_new",
        positions=1024,
        rope=None,
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        is_gated=False,
        biases=frozenset({"qkv", "o", "mlp"}),
    )


FAMILIES = (decoder_family("gpt2", _gpt2, _NAMES, ("transformer.",), token_layer="classifier"),)
