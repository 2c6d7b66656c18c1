"""Models in GGUF files: their metadata as the fields of a configuration, and their tensors under the names of graphs.

`gguf_architectures.py` has the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.models.checkpoint import ModelTensors
from rlx.models.decoder_config import DecoderConfig, num_layers_to_list
from rlx.models.family import ModelFamily
from rlx.models.fields import Fields
from rlx.models.gguf_architectures import ARCHITECTURES, KEYS, MODEL_NAMES, GgufArchitecture, architecture_of
from rlx.models.mamba import MambaConfig, shaped
from rlx.models.rope import RotaryTables
from rlx.models.tensor_names import TensorNames, split_fused
from rlx.support.errors import Error, UnsupportedError
from rlx.weights import Weight, Weights

_ROPE_DIVISORS = "rope_freqs.weight"
_LONG_ROPE = ("rope_factors_short.weight", "rope_factors_long.weight")
# Tensors of layers that old files have, and that can be computed.
_COMPUTED = ("attn_rot_embd", "rope_freqs")
_REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
_SCALING_KEYS = {
    "original_max_position_embeddings": "original_context_length",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
    "attention_factor": "yarn_attn_factor",
}
# Families whose folders have adjacent pairs of lanes.
_ADJACENT = ("deepseek", "llama4")
# The converter multiplies the value of DeepSeek by this factor.
_DEEPSEEK_LOG_FACTOR = 0.1


@dataclass(frozen=True)
class GgufModel:
    """A model in a GGUF file: family, configuration and tensors, and the names in the file."""

    family: ModelFamily
    config: DecoderConfig | MambaConfig
    tensors: ModelTensors
    names: GgufNames


@dataclass(frozen=True)
class GgufNames:
    """The names of the tensors in files of an architecture.

    Attributes:
        architecture: The name of the architecture.
        tensors: The names.
        is_permuted: Whether the rows of queries and keys are in another order than in a folder.
        parts: Returns the names of the parts of a layer in files, by those of graphs.
    """

    architecture: str
    tensors: TensorNames
    is_permuted: bool
    parts: Callable[[DecoderConfig | MambaConfig], Mapping[str, str]]

    @classmethod
    def of(cls, name: str, architecture: GgufArchitecture) -> GgufNames:
        """Return the names of an architecture."""
        # The pairs of lanes are adjacent in folders of DeepSeek and Llama 4, too.
        is_permuted = architecture.rope_style == "gptj" and not architecture.family.model_type.startswith(_ADJACENT)
        return cls(name, TensorNames(MODEL_NAMES, architecture.names, "blk."), is_permuted, architecture.file_names)

    def in_file(self, name: str, config: DecoderConfig | MambaConfig) -> str:
        """Return the name in files of a tensor that graphs call `name`, both without `.weight`.

        Names that files do not have stay as they are.
        """
        if name.startswith("layers."):
            _, number, *part = name.split(".", 2)
            parts = {**self.parts(config), "": ""}
            own = parts.get("".join(part))
            return name if own is None else f"blk.{number}.{own}".rstrip(".")
        return next((gguf for gguf, graph in MODEL_NAMES.items() if graph == name), name)

    def shown(self, config: DecoderConfig | MambaConfig) -> Callable[[str], str]:
        """Return a function that returns the name in files of a tensor or a layer, for messages."""

        def shown(name: str) -> str:
            stem, dot, suffix = name.rpartition(".")
            if suffix in ("weight", "bias"):
                return f"{self.in_file(stem, config)}{dot}{suffix}"
            return self.in_file(name, config)

        return shown


def read_gguf(weights: Weights) -> GgufModel:
    """Return the model of a GGUF file.

    Raises:
        Error: A key of the metadata is missing or has an unsupported value, or a tensor does not fit.
        UnsupportedError: The architecture is not known.
    """
    metadata, file = weights.metadata, weights.origin
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedError(f"{file} has a model of the architecture {name!r:.80}; known are {known}")
    prefix = f"{name}."
    values = {key.removeprefix(prefix): _uniform(v) for key, v in metadata.items() if key.startswith(prefix)}
    architecture = architecture_of(name, values, weights)
    names = GgufNames.of(name, architecture)
    tensors = names.tensors.renamed({n: w for n, w in weights.items() if not _is_computed(n)})
    fields = _fields(values, weights, name, tensors, architecture)
    config = architecture.family.config(fields)
    if isinstance(config, MambaConfig):
        return GgufModel(
            architecture.family, config, ModelTensors(shaped(tensors, config), file, (), names.shown(config)), names
        )
    assert isinstance(config, DecoderConfig)
    config = architecture.adapted(replace(config, rope_style=architecture.rope_style))
    if config.rope is not None:
        config = replace(config, rope=_with_tensors(config.rope, weights, fields, values, name))
    tensors = architecture.split(split_fused(tensors, config), config)
    config = replace(config, biases=_biases(tensors), head=True)
    return GgufModel(architecture.family, config, ModelTensors(tensors, file, (), names.shown(config)), names)


def _is_computed(name: str) -> bool:
    return name in (_ROPE_DIVISORS, *_LONG_ROPE) or name.split(".")[-2:-1] in [[part] for part in _COMPUTED]


def _fields(
    values: Mapping[str, Any],
    weights: Weights,
    name: str,
    tensors: Mapping[str, Weight],
    architecture: GgufArchitecture,
) -> Fields:
    """Return the metadata as the fields of config.json. Errors name the keys of the file."""
    file, keys = weights.origin, {**KEYS, **architecture.keys}
    data = {field: values[key] for field, key in keys.items() if key in values}
    table = tensors.get("embed_tokens.weight")
    if table is None or len(table.shape) != 2:
        raise Error(f"{file} has no tensor 'token_embd.weight' of rank 2")
    data |= {"vocab_size": table.shape[0], "tie_word_embeddings": "lm_head.weight" not in tensors}
    # Without the number of rotated lanes, all are rotated.
    data |= {"model_type": architecture.family.model_type, "partial_rotary_factor": 1.0}
    data |= _expert_widths(data, tensors)
    data |= architecture.derived(values, weights)
    data |= _rope_scaling(values, file, name)
    if data.get("sliding_window") == 0:
        data["sliding_window"] = None
    shown = {field: f"{name}.{key}" for field, key in keys.items()}
    shown |= {f"rope_scaling.{field}": f"{name}.rope.scaling.{key}" for field, key in _SCALING_KEYS.items()}
    shown |= {"rope_scaling.factor": f"{name}.rope.scaling.factor", "layer_types": shown["sliding_window_pattern"]}
    shown |= {"qk_nope_head_dim": f"{name}.attention.key_length", "v_head_dim": f"{name}.attention.value_length"}
    fields = Fields(data, file, names=shown)
    _check(fields, values, name, architecture)
    return _with_layer_types(fields)


def _with_layer_types(fields: Fields) -> Fields:
    """Return the fields with the window type of each layer, if the file has it as a list."""
    pattern = fields.data.get("sliding_window_pattern")
    if isinstance(pattern, bool):  # all layers are equal
        pattern = (pattern,) * num_layers_to_list(fields)
    if not isinstance(pattern, tuple):
        return fields
    kinds = ["sliding_attention" if flag else "full_attention" for flag in pattern]
    return fields.replaced(layer_types=kinds, sliding_window_pattern=None)


def _check(fields: Fields, values: Mapping[str, Any], name: str, architecture: GgufArchitecture) -> None:
    """Check that required keys exist, and that no key describes a computation that graphs lack."""
    for field in _REQUIRED:
        if not fields.has(field):
            raise Error(f"{fields.file} has no '{fields.shown(field)}'")
    if not fields.has("rms_norm_eps") and not fields.has("layer_norm_eps"):
        raise Error(f"{fields.file} has no '{fields.shown('rms_norm_eps')}' or '{fields.shown('layer_norm_eps')}'")
    lanes = values.get("attention.value_length")
    if not architecture.keys and lanes is not None and fields.has("head_dim") and lanes != fields.data["head_dim"]:
        expected = f"that of '{fields.shown('head_dim')}', {fields.data['head_dim']!r:.40}"
        raise Error(f"{fields.file}: '{name}.attention.value_length' must be {expected}, got {lanes!r:.40}")
    if values.get("ssm.dt_b_c_rms", False) is not False:
        raise UnsupportedError(
            f"{fields.file}: '{name}.ssm.dt_b_c_rms' is true, and norms of time steps are not supported"
        )
    if values.get("attention.causal", True) is not True:
        raise UnsupportedError(f"{fields.file}: '{name}.attention.causal' is false, and only causal models are known")


def _uniform(value: Any) -> Any:
    """Return the element of an array with equal elements: a value for each layer. Other arrays are tuples."""
    if isinstance(value, np.ndarray):
        value = tuple(value.tolist())
    if isinstance(value, tuple) and value and all(v == value[0] for v in value):
        return value[0]
    return value


def _expert_widths(data: Mapping[str, Any], tensors: Mapping[str, Weight]) -> dict[str, Any]:
    """Return the inner widths of experts, which old files have only in the shapes of tensors."""
    places = {
        "moe_intermediate_size": "mlp.experts.down_proj.weight",
        "shared_expert_intermediate_size": "mlp.shared_expert.down_proj.weight",
    }
    found = {field: tensors.get(f"layers.0.{name}") for field, name in places.items() if field not in data}
    return {field: weight.shape[-1] for field, weight in found.items() if weight is not None and weight.shape}


def _rope_scaling(values: Mapping[str, Any], file: str, name: str) -> dict[str, Any]:
    """Return the field `rope_scaling` for the keys of a file."""
    kind, factor = values.get("rope.scaling.type"), values.get("rope.scaling.factor")
    if kind is None and values.get("rope.scale_linear") is not None:  # older files
        kind, factor = "linear", values["rope.scale_linear"]
    if kind is None and factor is not None:  # as llama.cpp reads it
        kind = "linear"
    if kind in (None, "none", "longrope") or factor is None:
        return {}
    if kind == "linear":
        return {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    if kind != "yarn":
        raise UnsupportedError(f"{file}: '{name}.rope.scaling.type' {kind!r:.60} is not supported")
    if values.get("rope.scaling.yarn_ext_factor", 1.0) not in (1.0, -1.0):
        raise UnsupportedError(f"{file}: '{name}.rope.scaling.yarn_ext_factor' must be 1")
    scaling: dict[str, Any] = {"rope_type": "yarn", "factor": factor}
    for field, key in _SCALING_KEYS.items():
        if f"rope.scaling.{key}" in values:
            scaling[field] = values[f"rope.scaling.{key}"]
    weight = values.get("rope.scaling.yarn_log_multiplier")
    if type(weight) is float and weight:
        is_deepseek = name == "deepseek2"
        weight = weight / _DEEPSEEK_LOG_FACTOR if is_deepseek else weight
        scaling |= {"mscale": weight if is_deepseek else 1.0, "mscale_all_dim": weight}
    return {"rope_scaling": scaling}


def _with_tensors(
    rope: RotaryTables, weights: Weights, fields: Fields, values: Mapping[str, Any], name: str
) -> RotaryTables:
    """Return rotary positions with the divisors that are tensors of the file, and with the factor of cosines and sines."""
    factor = values.get("rope.scaling.attn_factor", 1.0)
    if type(factor) is not float or not 0 < factor < 1e6:
        raise Error(
            f"{weights.origin}: '{name}.rope.scaling.attn_factor' must be a positive number, got {factor!r:.60}"
        )
    rope = replace(rope, attention_factor=rope.attention_factor * factor)
    if _ROPE_DIVISORS in weights:
        rope = replace(rope, divisors=_divisors(weights[_ROPE_DIVISORS], rope))
    present = [tensor for tensor in _LONG_ROPE if tensor in weights]
    if not present:
        if values.get("rope.scaling.type") == "longrope":
            raise Error(f"{weights.origin} has positions of the type 'longrope', and no tensor '{_LONG_ROPE[1]}'")
        return rope
    if len(present) == 1:
        raise Error(f"{weights.origin} has '{present[0]}', and must have both {' and '.join(_LONG_ROPE)}")
    short, long = (_divisors(weights[tensor], rope) for tensor in _LONG_ROPE)
    scaling = Fields(
        {"original": values.get("rope.scaling.original_context_length", fields.data["max_position_embeddings"])},
        weights.origin,
        names={"original": f"{name}.rope.scaling.original_context_length"},
    )
    return replace(
        rope,
        rope_type="longrope",
        original_length=scaling.size("original"),
        divisors=short,
        long_divisors=long,
    )


def _divisors(weight: Weight, rope: RotaryTables) -> tuple[float, ...]:
    values = weight.numpy().astype(np.float64)
    expected = (rope.lanes // 2,)
    if values.shape != expected or not (np.isfinite(values) & (values > 0)).all():
        described = f"{weight.origin}: '{weight.name}' must have {expected[0]} positive numbers"
        raise Error(f"{described}, got {weight.dtype}{list(weight.shape)}")
    return tuple(values.tolist())


def _biases(tensors: Mapping[str, Weight]) -> frozenset[str]:
    """Return the parts with biases, as the first layer has them."""
    parts = {
        "qkv": "layers.0.self_attn.q_proj",
        "o": "layers.0.self_attn.o_proj",
        "mlp": "layers.0.mlp.down_proj",
        "head": "lm_head",
    }
    return frozenset(part for part, name in parts.items() if f"{name}.bias" in tensors)
