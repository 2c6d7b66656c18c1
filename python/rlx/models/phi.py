"""Phi-2 (Microsoft, 2023), with parallel layers, and Phi-3 and Phi-4-mini (2024, 2025), with fused matrices and LongRoPE."""

from __future__ import annotations

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import DecoderConfig
from rlx.models.fields import Fields
from rlx.models.tensor_names import TensorNames

_PHI2_NAMES = TensorNames(
    {"final_layernorm": "norm"},
    {"self_attn.dense": "self_attn.o_proj", "mlp.fc1": "mlp.up_proj", "mlp.fc2": "mlp.down_proj"},
)


def _phi2(fields: Fields) -> DecoderConfig:
    fields.only(qk_layernorm=False)
    return DecoderConfig.read(
        fields,
        "phi",
        act="gelu_new",
        fraction=0.5,
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        norm_places="shared",
        is_gated=False,
        biases=frozenset({"qkv", "o", "mlp", "head"}),
    )


def _phi3(fields: Fields) -> DecoderConfig:
    return DecoderConfig.read(
        fields,
        "phi3",
        positions=4096,
        fraction=1.0,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        sliding_window=fields.size("sliding_window") if fields.has("sliding_window") else None,
    )


FAMILIES = (decoder_family("phi", _phi2, _PHI2_NAMES), decoder_family("phi3", _phi3, TensorNames()))
