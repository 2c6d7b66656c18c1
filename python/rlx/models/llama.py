"""Llama 1 to 3 (Touvron et al., 2023) and Mistral (Jiang et al., 2023), which adds a window."""

from __future__ import annotations

from rlx.models.decoder import DecoderConfig, decoder_family
from rlx.models.fields import Fields


def _llama(fields: Fields) -> DecoderConfig:
    parts = {"attention_bias": ("qkv", "o"), "mlp_bias": ("mlp",)}
    biases = frozenset(part for name, parts_of in parts.items() if fields.flag(name, False) for part in parts_of)
    return DecoderConfig.read(fields, "llama", biases=biases)


def _mistral(fields: Fields) -> DecoderConfig:
    # A file without the field belongs to the first release, which had a window. In later releases the field is null.
    window = fields.optional("sliding_window", fields.size, 4096)
    return DecoderConfig.read(fields, "mistral", positions=4096 * 32, sliding_window=window)


FAMILIES = (decoder_family("llama", _llama), decoder_family("mistral", _mistral))
