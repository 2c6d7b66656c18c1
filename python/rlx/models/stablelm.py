"""StableLM (Stability AI, 2024): layer norms, and rotary positions of a part of each head."""

from __future__ import annotations

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import DecoderConfig
from rlx.models.fields import Fields
from rlx.models.tensor_names import TensorNames

_NAMES = TensorNames(
    layer={f"self_attn.{n}_layernorm.norms.N": f"self_attn.{n}_norm.norms.N" for n in "qk"},
)


def _stablelm(fields: Fields) -> DecoderConfig:
    return DecoderConfig.read(
        fields,
        "stablelm",
        positions=4096,
        fraction=0.25,
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        norm_places="shared" if fields.flag("use_parallel_residual", False) else "before",
        qk_norm="heads" if fields.flag("qk_layernorm", False) else None,
        biases=frozenset({"qkv"} if fields.flag("use_qkv_bias", False) else ()),
    )


FAMILIES = (decoder_family("stablelm", _stablelm, _NAMES),)
