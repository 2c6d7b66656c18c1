"""Mixtral (Jiang et al., 2024): Mistral with a mixture of experts."""

from __future__ import annotations

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import DecoderConfig, ExpertsConfig
from rlx.models.fields import Fields
from rlx.models.tensor_names import TensorNames

_EXPERT = "block_sparse_moe.experts.N"
_NAMES = TensorNames(
    layer={
        "block_sparse_moe.gate": "mlp.gate",
        f"{_EXPERT}.w1": "mlp.experts.N.gate_proj",
        f"{_EXPERT}.w2": "mlp.experts.N.down_proj",
        f"{_EXPERT}.w3": "mlp.experts.N.up_proj",
    }
)


def _mixtral(fields: Fields) -> DecoderConfig:
    count = "num_local_experts" if fields.has("num_local_experts") else "num_experts"
    return DecoderConfig.read(
        fields,
        "mixtral",
        positions=4096 * 32,
        theta=1_000_000.0,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        sliding_window=fields.optional("sliding_window", fields.size, None),
        experts=ExpertsConfig.read(fields, count, "num_experts_per_tok", "intermediate_size"),
    )


FAMILIES = (decoder_family("mixtral", _mixtral, _NAMES),)
