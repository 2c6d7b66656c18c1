"""The head of Qwen3-Next that predicts further tokens, in NumPy, from tensors under the names of Hugging Face folders.

Written from the definition: both norms, embedding and state joined, a projection, a layer of gated full attention with a
mixture of experts, a norm, and the head of the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.weights import save_gguf
from tests.models.gguf_files import converted, metadata
from tests.models.references import reference, weights

Arrays = Mapping[str, np.ndarray]
CONTENT = reference("qwen3_next")
_GGUF = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}
_LAYER = "mtp.layers.0"


def tensors_with_head() -> dict[str, np.ndarray]:
    """Return the tensors of the reference, and those of a head whose layer is like the one with full attention."""
    shapes, config = CONTENT["tensors"], CONTENT["config"]
    prefix, width = f"model.layers.{config['layer_types'].index('full_attention')}.", config["hidden_size"]
    own = {f"{_LAYER}.{name.removeprefix(prefix)}": shape for name, shape in shapes.items() if name.startswith(prefix)}
    norms = ("pre_fc_norm_hidden", "pre_fc_norm_embedding", "norm")
    own |= {"mtp.fc.weight": [width, 2 * width]} | {f"mtp.{norm}.weight": [width] for norm in norms}
    return weights(shapes | own)


def write_gguf_with_head(
    path: Path, tensors: dict[str, np.ndarray], change: Callable[[dict[str, Any], dict[str, Any]], object]
) -> Path:
    """Write a GGUF file, after a change of its metadata and tensors. The head is a block after the last one."""
    config = CONTENT["config"]
    count = config["num_hidden_layers"]
    layers = {name: array for name, array in tensors.items() if not re.match(r"mtp\.[^l]", name)}
    renamed = {name.replace(_LAYER, f"model.layers.{count}"): array for name, array in layers.items()}
    arrays = converted(config, renamed, "qwen3next")
    values = metadata(config, arrays, "qwen3next")
    values |= {"qwen3next.block_count": count + 1, "qwen3next.nextn_predict_layers": 1}
    for name, other in _GGUF.items():
        shift = np.float32(0 if name == "fc" else 1)
        arrays[f"blk.{count}.nextn.{other}.weight"] = tensors[f"mtp.{name}.weight"] + shift
    change(values, arrays)
    save_gguf(path, arrays, values)
    return path


def predicted(tensors: Arrays, config: Mapping[str, Any], ids: np.ndarray, hidden: np.ndarray) -> tuple[Any, Any]:
    """Return the logits and the states of the head, f64.

    Args:
        tensors: The tensors of the model and of the head.
        config: The configuration.
        ids: The tokens after those of the states, `[tokens]`.
        hidden: The states of the model after its last norm, `[tokens, width]`.
    """
    t = {name: array.astype(np.float64) for name, array in tensors.items()}
    eps = config["rms_norm_eps"]
    embedded = _norm(t["model.embed_tokens.weight"][ids], t["mtp.pre_fc_norm_embedding.weight"], eps)
    joined = np.concatenate([embedded, _norm(hidden.astype(np.float64), t["mtp.pre_fc_norm_hidden.weight"], eps)], -1)
    x = joined @ t["mtp.fc.weight"].T
    x = x + _attention(t, config, _norm(x, t[f"{_LAYER}.input_layernorm.weight"], eps))
    x = x + _experts(t, config, _norm(x, t[f"{_LAYER}.post_attention_layernorm.weight"], eps))
    x = _norm(x, t["mtp.norm.weight"], eps)
    return x @ t["lm_head.weight"].T, x


def _norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * (1 + weight)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _silu(x: np.ndarray) -> np.ndarray:
    return x * _sigmoid(x)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _rotated(x: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Return heads `[tokens, heads, lanes]` with positions: pairs of lanes half of the rotated ones apart."""
    rope = config["rope_parameters"]
    lanes = int(x.shape[-1] * rope["partial_rotary_factor"])
    angles = np.arange(len(x))[:, None] * rope["rope_theta"] ** (-np.arange(0, lanes, 2) / lanes)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., : lanes // 2], x[..., lanes // 2 : lanes]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., lanes:]], -1)


def _attention(t: Arrays, config: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    part = f"{_LAYER}.self_attn."
    heads, kv_heads, lanes, eps = (
        config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps")
    )
    count = len(x)
    q, gate = np.split((x @ t[f"{part}q_proj.weight"].T).reshape(count, heads, 2 * lanes), 2, -1)
    k, v = ((x @ t[f"{part}{n}_proj.weight"].T).reshape(count, kv_heads, lanes) for n in "kv")
    q, k = (_rotated(_norm(h, t[f"{part}{n}_norm.weight"], eps), config) for h, n in ((q, "q"), (k, "k")))
    k, v = (np.repeat(h, heads // kv_heads, 1) for h in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * lanes**-0.5
    scores = np.where(np.tril(np.ones((count, count), bool)), scores, -np.inf)
    attended = np.einsum("hqk,khd->qhd", _softmax(scores), v) * _sigmoid(gate)
    return attended.reshape(count, heads * lanes) @ t[f"{part}o_proj.weight"].T


def _experts(t: Arrays, config: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    part = f"{_LAYER}.mlp."
    scores = _softmax(x @ t[f"{part}gate.weight"].T)
    result = _network(t, f"{part}shared_expert.", x) * _sigmoid(x @ t[f"{part}shared_expert_gate.weight"].T)
    for i, row in enumerate(scores):
        best = np.argsort(-row)[: config["num_experts_per_tok"]]
        for expert in best:
            result[i] += row[expert] / row[best].sum() * _network(t, f"{part}experts.{expert}.", x[i])
    return result


def _network(t: Arrays, part: str, x: np.ndarray) -> np.ndarray:
    gate, up = (x @ t[f"{part}{n}_proj.weight"].T for n in ("gate", "up"))
    return _silu(gate) * up @ t[f"{part}down_proj.weight"].T
