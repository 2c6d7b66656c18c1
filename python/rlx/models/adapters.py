"""`with_adapters`: a model with LoRA adapters, computed next to its weights."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from rlx.models.adapter_files import LARGEST_SCALE, AdapterFile, read_adapter
from rlx.models.decoder_config import DecoderConfig
from rlx.models.gguf import GgufNames
from rlx.models.gguf_architectures import ARCHITECTURES, architecture_name, order_of_rows
from rlx.models.low_rank import LowRankUpdate
from rlx.models.model import PretrainedModel
from rlx.models.tensor_names import split_fused
from rlx.models.weight_views import reordered, reshaped
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import file_name
from rlx.support.guards import is_real
from rlx.support.short import short_repr
from rlx.weights import Weight

_ROTATED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}


def with_adapters(model: PretrainedModel, lora: Any) -> PretrainedModel:
    """Return a model with LoRA adapters. A layer's result is that of the stored weights plus `scale·alpha/rank·B·(A·x)` in f32.

    Args:
        model: The model.
        lora: A path of an adapter, a pair of a path and a factor, a list of these, or a mapping of paths to factors. A path
            is that of a GGUF file, or of a folder of PEFT. The factor is 1 by default, and with 0 an adapter has no effect.

    Raises:
        Error: An adapter is missing or damaged, or does not fit the model.
        UnsupportedError: It is for another architecture, or has parts other than low-rank updates of layers.
    """
    updates: dict[str, list[LowRankUpdate]] = {}
    unused: dict[str, list[LowRankUpdate]] = {}
    for number, (path, factor) in enumerate(adapter_paths(lora)):
        for layer, update in _updates(model, read_adapter(path), factor, number).items():
            (updates if factor else unused).setdefault(layer, []).append(update)
    if unused:
        model.with_updates(unused)  # checks that they fit
    return model.with_updates(updates) if updates else model


def adapter_paths(lora: Any) -> list[tuple[str, float]]:
    """Return the paths and factors of adapters.

    Raises:
        Error: The argument has another form.
    """
    if isinstance(lora, Mapping):
        pairs: list[Any] = list(lora.items())
    elif isinstance(lora, (list, tuple)) and not (len(lora) == 2 and (is_real(lora[1]) or isinstance(lora[1], bool))):
        pairs = [entry if isinstance(entry, (list, tuple)) else (entry, 1.0) for entry in lora]
    else:
        pairs = [lora if isinstance(lora, tuple) else (lora, 1.0)]
    result: list[tuple[str, float]] = []
    for pair in pairs:
        path, factor = pair if len(pair) == 2 else (None, None)
        number = _number(factor)
        if not isinstance(path, (str, os.PathLike)) or not math.isfinite(number):
            expected = "a path, a pair of a path and a number, a list of these, or a mapping of paths to numbers"
            raise Error(f"lora must be {expected}, got {short_repr(lora)}")
        result.append((file_name(path, "an adapter"), number))
    return result


def _number(factor: Any) -> float:
    """Return a factor as a float; NaN if it is not a number, or an integer that no float has."""
    if not is_real(factor):
        return math.nan
    try:
        return float(factor)
    except OverflowError:
        return math.nan


def _updates(model: PretrainedModel, file: AdapterFile, factor: float, number: int) -> dict[str, LowRankUpdate]:
    """Return the updates of a file by the names of graphs."""
    if experts := next((layer for layer in file.layers if "exps" in layer or ".experts" in layer), None):
        raise UnsupportedError(f"{file.origin}: '{experts:.200}' belongs to experts, whose adapters are not supported")
    # A third axis, because some families transpose matrices, and the factors of an update are not transposed.
    parts = {f"{layer}.weight": reshaped(own.up, (*own.up.shape, 1)) for layer, own in file.layers.items()}
    layer_of = {own.up.name: own for own in file.layers.values()}
    names = model.gguf_names
    if file.architecture is not None:
        names = _names_of(model, file)
        renamed: Mapping[str, Weight] = names.tensors.renamed(parts)
        if isinstance(model.config, DecoderConfig):
            renamed = split_fused(renamed, model.config)
    elif model.family.adapted is not None:
        renamed = model.family.adapted(parts, model.config)
    else:
        prefix = next((p for p in model.family.prefixes if any(name.startswith(p) for name in parts)), "")
        renamed = {name.removeprefix(prefix): part for name, part in parts.items()}
    if len(renamed) < len(parts):
        raise Error(f"{file.origin} has two updates of one matrix, under different names")
    is_permuted = names is not None and names.is_permuted
    changes_order = is_permuted and (file.architecture is None) != (model.gguf_names is None)
    result: dict[str, LowRankUpdate] = {}
    for name, part in renamed.items():
        layer, own = name.removesuffix(".weight"), layer_of[part.name]
        up = reshaped(part, part.shape[:2])
        if changes_order:
            up = _permuted(layer, up, model.config, file.architecture is None)
        scale = factor * own.scale
        if not abs(scale) <= LARGEST_SCALE:
            raise Error(f"{file.origin}: the factor {scale:g} of '{own.up.name}' is too large")
        result[layer] = LowRankUpdate(own.down, up, scale, number, own.is_table)
    return result


def gguf_names_of(model: PretrainedModel, file: str) -> GgufNames:
    """Return the names that GGUF files have for a model from a folder.

    Raises:
        UnsupportedError: GGUF files are not known for its family.
    """
    name = architecture_name(model.model_type)
    if name is None or not isinstance(model.config, DecoderConfig):
        raise UnsupportedError(f"{file}: GGUF files of a {model.model_type} are not known", hint="write a folder")
    return GgufNames.of(name, ARCHITECTURES[name])


def rows_of_file(layer: str, up: Weight, config: Any, names: GgufNames) -> Weight:
    """Return the rows of the factor `up` in the order of GGUF files, for a layer of a model from a folder."""
    return _permuted(layer, up, config, True) if names.is_permuted else up


def _names_of(model: PretrainedModel, file: AdapterFile) -> GgufNames:
    """Return the names in an adapter's GGUF file, after a check of its architecture."""
    architecture, names = file.architecture, model.gguf_names
    if names is None:  # the model is from a folder
        own = architecture_name(model.model_type)
        if architecture == own and own is not None:
            return GgufNames.of(own, ARCHITECTURES[own])
        raise UnsupportedError(
            f"{file.origin} is an adapter for {short_repr(architecture)}, and the model is a {model.model_type}"
        )
    if names.architecture != architecture:
        raise UnsupportedError(
            f"{file.origin} is an adapter for {short_repr(architecture)}, and the model has the architecture"
            f" {short_repr(names.architecture)}"
        )
    return names


def _permuted(layer: str, up: Weight, config: Any, to_pairs: bool) -> Weight:
    """Return the rows of queries and keys in the order of the model's file: see `order_of_rows`."""
    part = layer.rpartition(".")[2]
    if part not in _ROTATED:
        return up
    heads = getattr(config, _ROTATED[part])
    if up.shape[0] % (2 * heads):
        raise Error(f"{up.origin}: '{up.name}' has {up.shape[0]} rows, which are not those of {heads} heads")
    return reordered(up, order_of_rows(up.shape[0], heads, to_pairs))
