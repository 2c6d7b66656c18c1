"""Llama 4 (Meta, 2025), text only: a mixture of experts in some layers, attention within chunks, and layers without positions.

Sources: the release of the models (Meta, The Llama 4 herd, 2025); positions in some layers only: Yang et al., RoPE to NoPE
and back again (2025); the temperature of long texts: Nakanishi, Scalable-Softmax (2025).
"""

from __future__ import annotations

from typing import Any

from rlx.models.decoder import decoder_family
from rlx.models.decoder_config import (
    DecoderConfig,
    ExpertsConfig,
    QueryTemperature,
    num_layers_to_list,
    read_layer_flags,
    read_layer_types,
)
from rlx.models.fields import Fields
from rlx.models.tensor_names import TensorNames
from rlx.models.weight_views import transposed_stack
from rlx.weights import Weight

_CHUNK, _FLOOR = 8192, 8192
_DEFAULTS = {"num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 1}
_PARTS = {"feed_forward.router": "mlp.gate"}
_PARTS |= {f"feed_forward.{n}_proj": f"mlp.{n}_proj" for n in ("gate", "up", "down")}
_PARTS |= {f"feed_forward.shared_expert.{n}_proj": f"mlp.shared_expert.{n}_proj" for n in ("gate", "up", "down")}
_PARTS |= {f"feed_forward.experts.{n}_proj": f"mlp.experts.{n}_proj" for n in ("gate_up", "down")}


def _changed(name: str, weight: Weight) -> Weight:
    """Return the matrices of experts as `[experts, out, in]`; they are stored as `[experts, in, out]`."""
    return transposed_stack(weight) if ".mlp.experts." in name else weight


_NAMES = TensorNames({"language_model.lm_head": "lm_head"}, _PARTS, changed=_changed)


def _experts(fields: Fields) -> ExpertsConfig | None:
    """Return the experts; None if no layer has any."""
    count = num_layers_to_list(fields)
    layers = frozenset[int]()
    if fields.has("moe_layers"):
        listed = fields.data["moe_layers"]
        if not isinstance(listed, (list, tuple)) or any(type(i) is not int or not 0 <= i < count for i in listed):
            raise fields.refusal("moe_layers", f"a list of layers from 0 to {count - 1}")
        layers = frozenset(listed)
    elif fields.size("num_local_experts", 16, least=0):
        step = fields.size("interleave_moe_layer_step", 1)
        layers = frozenset(range(step - 1, count, step))
    if not layers:
        return None
    return ExpertsConfig.read(
        fields.with_defaults(num_local_experts=16),
        "num_local_experts",
        "num_experts_per_tok",
        "intermediate_size",
        is_normalized=False,
        shared_width=fields.size("intermediate_size"),
        scoring="sigmoid",
        scales_inputs=True,
        dense_layers=frozenset(range(count)) - layers,
    )


def _llama4(fields: Fields, model_type: str = "llama4_text") -> DecoderConfig:
    fields = fields.with_defaults(**_DEFAULTS)
    interval = fields.size("no_rope_layer_interval", 4)
    is_rotated = read_layer_flags(fields, "no_rope_layers")  # the field is 1 where positions are rotated
    if is_rotated is None:
        is_rotated = tuple((i + 1) % interval != 0 for i in range(num_layers_to_list(fields)))
    more: dict[str, Any] = {}
    chunk = fields.optional("attention_chunk_size", fields.size, _CHUNK)
    if chunk is not None:
        kinds = ("full_attention", "chunked_attention")
        more = {"layer_types": read_layer_types(fields, lambda i: kinds[is_rotated[i]], kinds), "chunk_size": chunk}
    if fields.flag("attn_temperature_tuning", True):
        scale = fields.number("attn_scale", 0.1)
        more["query_temperature"] = QueryTemperature(fields.size("floor_scale", _FLOOR), scale)
    return DecoderConfig.read(
        fields.replaced(intermediate_size=fields.size("intermediate_size_mlp", 16384)),
        model_type,
        positions=4096 * 32,
        theta=500_000.0,
        biases=frozenset(("qkv", "o") if fields.flag("attention_bias", False) else ()),
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qk_norm="rotated" if fields.flag("use_qk_norm", True) else None,
        rope_style="gptj",
        unrotated_layers=frozenset(i for i, rotated in enumerate(is_rotated) if not rotated),
        experts=_experts(fields),
        **more,
    )


def _llama4_with_images(fields: Fields) -> DecoderConfig:
    """Return the configuration of the text model. The tensors of the image encoder are unused."""
    text = fields.within("text_config")
    if text is None:
        raise fields.refusal("text_config", "an object")
    return _llama4(text, "llama4")


FAMILIES = (
    decoder_family("llama4_text", _llama4, _NAMES),
    decoder_family("llama4", _llama4_with_images, _NAMES, prefixes=("language_model.model.", "model.language_model.")),
)
