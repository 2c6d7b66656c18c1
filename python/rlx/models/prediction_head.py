"""The head of Qwen3-Next that predicts a further token from the state of the last one: multi-token prediction (MTP).

Sources: Gloeckle et al., Better & faster large language models via multi-token prediction (2024); DeepSeek-AI, DeepSeek-V3
(2024), §2.2, for one layer after another with a shared embedding and head. Qwen3-Next (2025) has one layer of full attention
with a mixture of experts. It takes the state after the last norm of the model, as the reference implementations in vLLM and
SGLang do, and the embedding comes first in the concatenation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.decoder import DecoderLayers, logits_of
from rlx.models.decoder_config import DecoderConfig
from rlx.models.tensor_names import split_fused
from rlx.support.errors import UnsupportedError
from rlx.weights import Weight

PREFIX = "mtp."
_LAYER = re.compile(r"layers\.(\d{1,6})\.(.+)")
_OWN_TABLES = ("embed_tokens", "shared_head_head")
# The names in GGUF files, and those in folders.
_GGUF_NAMES = {
    "nextn.eh_proj": "fc",
    "nextn.enorm": "pre_fc_norm_embedding",
    "nextn.hnorm": "pre_fc_norm_hidden",
    "nextn.shared_head_norm": "norm",
}


def head_of_folder(tensors: Mapping[str, Weight], config: DecoderConfig) -> dict[str, Weight]:
    """Return the tensors, with those of the head in the form of a layer of the model: experts stacked."""
    own = {name.removeprefix(PREFIX): weight for name, weight in tensors.items() if name.startswith(PREFIX)}
    others = {name: weight for name, weight in tensors.items() if not name.startswith(PREFIX)}
    return others | {f"{PREFIX}{name}": weight for name, weight in split_fused(own, config).items()}


def head_of_gguf(tensors: Mapping[str, Weight], config: DecoderConfig) -> dict[str, Weight]:
    """Return the tensors, with those of layers after the last one under the names of folders."""
    result: dict[str, Weight] = {}
    for name, weight in tensors.items():
        match = _LAYER.fullmatch(name)
        if match is None or int(match[1]) < config.num_hidden_layers:
            result[name] = weight
            continue
        number, (stem, _, suffix) = int(match[1]) - config.num_hidden_layers, match[2].rpartition(".")
        own = _GGUF_NAMES.get(stem) if number == 0 else None
        result[f"{PREFIX}{own}.{suffix}" if own else f"{PREFIX}layers.{number}.{match[2]}"] = weight
    norm = f"{PREFIX}norm.weight"  # without it, the norm of the model is used, as llama.cpp does
    if f"{PREFIX}fc.weight" in result and norm not in result and "norm.weight" in result:
        result[norm] = result["norm.weight"]
    return result


def build_prediction_head(scope: ParameterPrefix, config: DecoderConfig, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    """Build the graph. It has the inputs and options of a decoder without recurrent layers.

    Another input is `hidden_states` `[batch, sequence, hidden_size]`: the normalised states of the model for some tokens. The
    `input_ids` are those that follow them. Outputs are `logits` for the tokens after these, and `hidden_states` after the last
    norm of the head, from which it predicts one token more.

    Raises:
        UnsupportedError: The head has several layers, or an embedding of its own.
    """
    _check(scope)
    g, e = scope.g, config.hidden_size
    ids = g.input("input_ids", (sizes["batch"], sizes["sequence"]), "i32")
    hidden = g.input("hidden_states", (*ids.shape.dims, e))
    run = DecoderLayers(scope, replace(config, linear_attention=None), ids, sizes)
    tokens, head = scope.tokens("embed_tokens", config.vocab_size, e), scope.at(PREFIX[:-1])
    parts = [run.norm(head, "pre_fc_norm_embedding", tokens.rows(ids)), run.norm(head, "pre_fc_norm_hidden", hidden)]
    x = head.linear(g.concat(parts, 2), "fc", e, bias=False)
    with g.named("mtp"):
        x, _, _ = run.layer(x, config.num_hidden_layers, head.at("layers.0"))
    if sizes["last"]:
        x = g.narrow(x, 1, run.length - 1, 1)
    x = run.norm(head, "norm", x)
    with g.named("head"):
        return {"logits": logits_of(scope, config, x, tokens), "hidden_states": x}


def _check(scope: ParameterPrefix) -> None:
    """Check that the head has one layer, and shares the tables of the model."""
    if scope.has(f"{PREFIX}layers.1.input_layernorm.weight"):
        raise UnsupportedError("the head that predicts further tokens has several layers, and one is supported")
    for place in ("", "layers.0.nextn."):
        for table in _OWN_TABLES:
            if scope.has(f"{PREFIX}{place}{table}.weight"):
                raise UnsupportedError(f"the head that predicts further tokens has a table '{table}' of its own")
