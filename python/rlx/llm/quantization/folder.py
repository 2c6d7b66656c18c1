"""Models in folders as GGUF files have them: names and changes of tensors, and metadata.

`rlx.models` reads the folder, so tensors have the names of its graphs first. Source of the changes: llama.cpp,
conversion/.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlx.ir.dtype import f32
from rlx.llm.quantization.file_types import PLAIN
from rlx.llm.quantization.folder_metadata import FUSED, architecture_of_folder, model_pairs
from rlx.llm.quantization.folder_tokenizer import tokenizer_pairs
from rlx.llm.quantization.mixture import is_quantised
from rlx.llm.quantization.packing import converted
from rlx.llm.quantization.source import SourceModel
from rlx.models.adapters import adapter_paths, with_adapters
from rlx.models.decoder_config import DecoderConfig
from rlx.models.decoder_heads import LANGUAGE_HEAD
from rlx.models.gguf import GgufNames
from rlx.models.gguf_architectures import ARCHITECTURES, MODEL_NAMES, GgufArchitecture, order_of_rows
from rlx.models.mixtral import FAMILIES as MIXTRAL
from rlx.models.model import load as load_model
from rlx.models.rope import RotaryTables
from rlx.models.weight_views import reordered
from rlx.support.errors import Error, UnsupportedError
from rlx.weights import Weight
from rlx.weights.encoding import Plain


def folder_source(path: str, lora: Any = None) -> SourceModel:
    """Return the model in a folder, with the updates of adapters added to its weights.

    Raises:
        Error: A file is missing or damaged, GGUF files cannot represent the model, or an adapter does not fit it.
        UnsupportedError: The family or the tokenizer is not known, or an adapter cannot be merged.
    """
    model = load_model(path)
    weights, config = dict(model.weights), model.config
    if lora is not None:
        weights |= with_adapters(model, lora).merged_weights()
    name = architecture_of_folder(model.model_type, config, path)
    assert isinstance(config, DecoderConfig)
    if model.head not in (None, LANGUAGE_HEAD):
        raise UnsupportedError(f"{path} has the head '{model.head}', which GGUF files of language models do not store")
    has_head = "lm_head.weight" in model.weights or config.tie_word_embeddings
    if not has_head:
        raise Error(f"{path} has a model without 'lm_head.weight', whose embeddings are not tied")
    architecture = ARCHITECTURES[name]
    if config.experts is not None and name == "llama":
        architecture = replace(architecture, family=MIXTRAL[0], names=ARCHITECTURES["qwen3moe"].names)
    tensors = dict(_named(weights, config, architecture, name))
    remarks: list[str] = []
    metadata = model_pairs(config, name, os.path.basename(os.path.abspath(path)), remarks)
    tokens = tokenizer_pairs(Path(path), config.vocab_size, remarks)
    tensors = {
        key: weight if is_quantised(key, weight.shape) else converted(weight, PLAIN["f32"])
        for key, weight in tensors.items()
    }
    # Everything but earlier results: stacked weights do not name all of their files.
    files = {os.path.join(path, file) for file in os.listdir(path) if not file.endswith(".gguf")}
    files |= set() if lora is None else {adapter for adapter, _ in adapter_paths(lora)}
    return SourceModel(path, tensors, {**metadata, **tokens}, frozenset(files), tuple(remarks))


def _named(
    weights: Mapping[str, Weight], config: DecoderConfig, architecture: GgufArchitecture, name: str
) -> Iterator[tuple[str, Weight]]:
    """Yield the tensors by the names of GGUF."""
    parts = architecture.file_names(config)
    if name == "falcon" and config.norm_places == "parallel":
        parts |= {"input_layernorm": "attn_norm_2", "post_attention_layernorm": "attn_norm"}
    model = {graph: gguf for gguf, graph in MODEL_NAMES.items()}
    is_reordered = GgufNames.of(name, architecture).is_permuted
    for full_name, weight in (_fused(weights, name) if name in FUSED else weights).items():
        stem, _, suffix = full_name.rpartition(".")
        if config.tie_word_embeddings and stem == "lm_head":
            continue
        changed = _changed(weight, stem, config, is_reordered)
        if not stem.startswith("layers."):
            key = f"{model[stem]}.{suffix}"
        else:
            _, number, part = stem.split(".", 2)
            if part not in parts:
                raise UnsupportedError(f"{weight.origin}: GGUF files have no name for '{weight.name}'")
            key = f"blk.{number}.{parts[part]}.{suffix}"
        yield key, replace(changed, name=key)
    yield from _rope_tensors(config, next(iter(weights.values())).origin)


def _changed(weight: Weight, stem: str, config: DecoderConfig, is_reordered: bool) -> Weight:
    if config.offset_norm and stem.endswith("norm"):
        return _computed(weight, lambda values: values.astype(np.float32) + np.float32(1))
    if is_reordered and stem.endswith(("self_attn.q_proj", "self_attn.k_proj")):
        heads = config.num_attention_heads if stem.endswith("q_proj") else config.num_key_value_heads
        return reordered(weight, order_of_rows(weight.shape[0], heads, to_pairs=True))
    return weight


def _computed(weight: Weight, function: Callable[[np.ndarray], np.ndarray]) -> Weight:
    """Return a small tensor, computed in f32 when it is read."""
    encoding = Plain(np.dtype(np.float32))
    return replace(
        weight,
        encoding=encoding,
        nbytes=encoding.nbytes(weight.shape),
        read=lambda: np.ascontiguousarray(function(weight.numpy())).reshape(-1).view(np.uint8),
    )


def _fused(weights: Mapping[str, Weight], name: str) -> dict[str, Weight]:
    """Return tensors with queries, keys and values joined and, for Phi-3, gates with the matrices after them."""
    groups: dict[str, tuple[str, tuple[str, ...]]] = {
        "self_attn.q_proj": ("self_attn.qkv_proj", ("self_attn.k_proj", "self_attn.v_proj"))
    }
    if name == "phi3":
        groups["mlp.gate_proj"] = ("mlp.gate_up_proj", ("mlp.up_proj",))
    others = {part for _, parts in groups.values() for part in parts}
    result: dict[str, Weight] = {}
    for full_name, weight in weights.items():
        stem, _, suffix = full_name.rpartition(".")
        layer, part = ".".join(stem.split(".")[:2]), ".".join(stem.split(".")[2:])
        if part in groups:
            fused, more = groups[part]
            result[f"{layer}.{fused}.{suffix}"] = _joined([weight, *(weights[f"{layer}.{m}.{suffix}"] for m in more)])
        elif part not in others:
            result[full_name] = weight
    return result


def _joined(weights: list[Weight]) -> Weight:
    """Return matrices or vectors as one, below each other."""
    first = weights[0]
    if any(weight.encoding != first.encoding for weight in weights):
        names = " and ".join(f"'{weight.name}'" for weight in weights)
        raise Error(f"{first.origin}: the tensors {names} must have the same dtype")
    return replace(
        first,
        shape=(sum(weight.shape[0] for weight in weights), *first.shape[1:]),
        nbytes=sum(weight.nbytes for weight in weights),
        read=lambda: np.concatenate([weight.stored() for weight in weights]),
    )


def _rope_tensors(config: DecoderConfig, origin: str) -> Iterator[tuple[str, Weight]]:
    """Yield the divisors of frequencies, which GGUF files have as tensors."""
    rope = config.rope
    if rope is None:
        return
    if rope.rope_type == "llama3":
        plain = RotaryTables(rope.lanes, rope.rope_theta).frequencies(1)
        yield _vector("rope_freqs.weight", plain / rope.frequencies(1), origin)
    if rope.rope_type == "longrope":
        yield _vector("rope_factors_long.weight", np.array(rope.long_divisors), origin)
        yield _vector("rope_factors_short.weight", np.array(rope.divisors), origin)


def _vector(name: str, values: np.ndarray, origin: str) -> tuple[str, Weight]:
    stored = values.astype(f32.numpy)
    return name, Weight(name, stored.shape, Plain(stored.dtype), stored.nbytes, origin, lambda: stored.view(np.uint8))
