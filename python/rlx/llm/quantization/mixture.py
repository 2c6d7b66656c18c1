"""The format of each tensor in a quantised file, chosen as llama.cpp does.

Source of the rules: src/llama-quant.cpp. Layers are counted in the order of their numbers, not in that of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.llm.quantization.file_types import PLAIN, FileType
from rlx.schemes import SCHEMES, Scheme

_BLOCK = re.compile(r"blk\.(\d{1,6})")
_LOW_BITS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M")
_ROUND_THE_OUTPUT = ("IQ3_XXS", *_LOW_BITS)
# Tensors of these formats are useless without an importance matrix.
_NEED_IMPORTANCE = ("iq3_xxs", "iq2_xxs", "iq2_xs", "iq2_s")
OUTPUT = "output.weight"
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
# Formats for rows that do not divide into blocks.
_FALLBACKS = {
    **dict.fromkeys(("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q1_0", "q2_0", "q2_k", "q3_k", "tq1_0", "tq2_0", "nvfp4"), "q4_0"),
    **{"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"},
}
# Parts of the names of matrices that stay as they are: routers, convolutions, positions, and small matrices.
_KEPT = (
    *("_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj"),
    *("ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight", "attn_rel_b.weight"),
    *(f"time_mix_{name}.weight" for name in ("first", "decay_w1", "decay_w2", "lerp_fused")),
    *(f"time_mix_{name}.weight" for name in ("w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2", "g1", "g2")),
    *(".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger"),
    *("a.rvq.codebook", "mm.a.code_embd"),
)
_KEPT_NAMES = ("position_embd.weight", "token_types.weight")
# Kinds of tensors by a part of their name. The first that occurs decides.
_KINDS = {
    **{"attn_qkv.weight": "v", "attn_kv_b.weight": "v", "attn_v.weight": "v", "attn_k.weight": "k"},
    **{"attn_q.weight": "q", "attn_output.weight": "o", "ffn_up": "up", "ffn_gate": "gate", "ffn_down": "down"},
}


@dataclass(frozen=True)
class ModelFacts:
    """The facts of a model that decide about formats.

    Attributes:
        architecture: `general.architecture`.
        num_layers: The number of layers.
        heads_per_group: The number of queries for each head of keys and values.
        num_experts: The number of experts; 0 without.
        is_70b: Whether it is one of the models of 70 B parameters, whose matrices of values are small.
    """

    architecture: str
    num_layers: int
    heads_per_group: int
    num_experts: int
    is_70b: bool

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> ModelFacts:
        """Return the facts in the metadata of a GGUF file. Missing values are 0."""
        name = metadata.get("general.architecture")
        architecture = name if isinstance(name, str) else ""

        def number(key: str, default: int = 0) -> int:
            value = metadata.get(f"{architecture}.{key}", default)
            first = value[0] if isinstance(value, (tuple, np.ndarray)) and len(value) else value
            return int(first) if isinstance(first, (int, np.integer)) and not isinstance(first, bool) else default

        heads = number("attention.head_count")
        kv_heads = number("attention.head_count_kv", heads)
        layers = number("block_count")
        is_70b = layers == (68 if architecture == "jais2" else 80) and (
            architecture in ("qwen2", "deci", "olmo", "jais2") or (architecture == "llama" and heads != kv_heads)
        )
        return cls(architecture, layers, heads // kv_heads if kv_heads else 0, number("expert_count"), is_70b)


@dataclass(frozen=True)
class ChosenFormat:
    """The format of a tensor.

    Attributes:
        target: The format.
        wanted: The format that its rows do not divide into, if `target` replaces it.
    """

    target: Scheme
    wanted: Scheme | None = None


@dataclass(frozen=True)
class Mixture:
    """The choice of formats for the tensors of a file.

    Attributes:
        facts: The facts of the model.
        file_type: The type of the file.
        is_pure: Whether all tensors have the format of the type.
        overrides: Patterns of names, each with a format. The first that matches decides.
        has_importance: Whether there is an importance matrix.
    """

    facts: ModelFacts
    file_type: FileType
    is_pure: bool = False
    overrides: Sequence[tuple[re.Pattern[str], Scheme]] = ()
    has_importance: bool = False

    def choose(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, ChosenFormat]:
        """Return the formats of tensors by name. Tensors that keep their format are missing."""
        state = _Counters(self, is_tied=OUTPUT not in shapes)
        state.total = sum(_kind(name) == "v" for name in shapes)
        result: dict[str, ChosenFormat] = {}
        for name in sorted(shapes, key=_order):
            if is_quantised(name, shapes[name]):
                result[name] = self._chosen(name, shapes[name], state)
        return result

    def _chosen(self, name: str, shape: tuple[int, ...], state: _Counters) -> ChosenFormat:
        override = next((scheme for pattern, scheme in self.overrides if pattern.search(name)), None)
        wanted = self.file_type.base
        if override is not None:
            wanted = override
        elif self.file_type.is_mixed and not self.is_pure:
            wanted = state.mixed(name, shape)
        columns = shape[-1]
        if columns % wanted.block == 0:
            return ChosenFormat(wanted)
        fallback = SCHEMES[_FALLBACKS.get(wanted.name, wanted.name)]
        return ChosenFormat(PLAIN["f16"] if columns % fallback.block else fallback, wanted)

    def needs_importance(self, name: str, target: Scheme) -> bool:
        """Return whether a tensor is useless in a format without an importance matrix."""
        if name in EMBEDDINGS or name == OUTPUT:
            return False
        return target.name in _NEED_IMPORTANCE or (target.name == "q2_k" and self.file_type.name == "Q2_K_S")


def is_quantised(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor gets another format: a matrix, or a stack of them, except small ones."""
    rank = len(shape)
    while rank and shape[len(shape) - rank] == 1:  # ggml has no leading axes of size 1
        rank -= 1
    if rank < 2 or not name.endswith("weight") or name in _KEPT_NAMES:
        return False
    return not any(part in name for part in _KEPT)


def _order(name: str) -> tuple[int, bytes]:
    match = _BLOCK.match(name)
    return (int(match[1]) if match else -1, name.encode())


def _kind(name: str) -> str:
    if name == OUTPUT:
        return "output"
    if name in EMBEDDINGS:
        return "embedding"
    return next((kind for part, kind in _KINDS.items() if part in name), "")


@dataclass
class _Counters:
    """The state of a choice: how many tensors of each kind there were.

    Attributes:
        mixture: The mixture.
        is_tied: Whether the embeddings are also the output matrix.
        total: The number of matrices of values.
        seen: The number of tensors by kind so far.
    """

    mixture: Mixture
    is_tied: bool
    total: int = 0
    seen: Counter[str] = field(default_factory=Counter[str])

    def mixed(self, name: str, shape: tuple[int, ...]) -> Scheme:
        """Return the format of the next tensor by the rules of the file type."""
        file_type, kind = self.mixture.file_type, _kind(name)
        if kind == "output" or (kind == "embedding" and self.is_tied):
            return SCHEMES[self._output(shape[-1])]
        if file_type.name == "MXFP4_MOE":
            return SCHEMES["mxfp4" if len(shape) > 2 and shape[-3] > 1 else "q8_0"]
        if kind == "embedding":
            chosen = self._embedding()
        elif file_type.name in _LOW_BITS:
            chosen = self._low_bits(kind)
        elif kind == "v":
            chosen = self._value()
        elif kind == "down":
            chosen = _down(file_type.name, self._layer(name), self.mixture)
        else:
            chosen = self._other(kind, self._layer(name))
        self.seen[kind] += 1
        return SCHEMES[chosen] if chosen else file_type.base

    def _layer(self, name: str) -> int:
        """Return the layer of a tensor. In models with experts, its name decides, because layers have several tensors."""
        match = _BLOCK.match(name)
        return int(match[1]) if self.mixture.facts.num_experts > 1 and match else self.seen[_kind(name)]

    def _output(self, columns: int) -> str:
        file_type = self.mixture.file_type
        falls_back = self.mixture.facts.architecture == "falcon" or columns % file_type.base.block
        if file_type.name == "MXFP4_MOE" or falls_back or file_type.base.name == "q8_0":
            return "q8_0"
        return "q5_k" if file_type.name in _ROUND_THE_OUTPUT else "q6_k"

    def _embedding(self) -> str:
        names = {
            **dict.fromkeys(("IQ2_XXS", "IQ2_XS"), "q2_k"),
            **dict.fromkeys(("IQ2_S", "IQ2_M", "IQ3_XXS"), "iq3_s"),
            **dict.fromkeys(("TQ1_0", "TQ2_0", "Q2_0"), "q4_k"),
        }
        return names.get(self.mixture.file_type.name, "")

    def _low_bits(self, kind: str) -> str:
        facts, name = self.mixture.facts, self.mixture.file_type.name
        has_more = name in ("IQ2_S", "IQ2_M")
        if kind == "v":
            return "q4_k" if facts.heads_per_group >= 4 or facts.num_experts >= 4 else "iq3_s" if has_more else "q2_k"
        if kind == "k" and facts.num_experts == 8:
            return "q4_k"
        if kind == "down" and self.seen["down"] < facts.num_layers // 8:
            return "iq3_s" if has_more else "q2_k"
        if kind == "o":
            return "q5_k" if facts.num_experts == 8 else "iq3_s" if has_more else ""
        return ""

    def _value(self) -> str:
        """Return the format of a matrix of values, which is small and sensitive. Fused ones have the same rules."""
        facts, number = self.mixture.facts, self.seen["v"]
        if facts.num_experts == 8:
            return "q8_0"
        is_grouped = facts.heads_per_group >= 4
        more_bits = "q6_k" if _has_more_bits(number, self.total) else ""
        rules: dict[str, str] = {
            "Q2_K": "q4_k" if is_grouped else "q3_k",
            "IQ3_XXS": "q4_k" if is_grouped else "iq3_xxs" if self.mixture.has_importance else "iq3_s",
            "IQ3_M": "q4_k",
            "Q3_K_M": "q5_k" if number < 2 else "q4_k",
            "Q3_K_L": "q5_k",
            "Q4_K_M": more_bits,
            "Q5_K_M": more_bits,
            "Q4_K_S": "q5_k" if number < 4 else "",
        }
        if is_grouped:
            rules |= dict.fromkeys(("Q2_K_S", "IQ3_XS", "IQ3_S"), "q4_k") | dict.fromkeys(("IQ4_NL", "IQ4_XS"), "q5_k")
        chosen = rules.get(self.mixture.file_type.name, "") or self.mixture.file_type.base.name
        return "q5_k" if facts.is_70b and chosen in ("q3_k", "q4_k") else chosen

    def _other(self, kind: str, layer: int) -> str:
        facts, name = self.mixture.facts, self.mixture.file_type.name
        if kind == "k" and facts.num_experts == 8:
            return "q8_0"
        if kind in ("q", "k"):
            return {"IQ3_XS": "iq3_xxs", "IQ3_XXS": "iq2_s"}.get(name, "")
        if kind in ("gate", "up") and name == "IQ3_XS":
            return "iq3_xxs" if facts.num_layers // 8 <= layer < 7 * facts.num_layers // 8 else ""
        if kind != "o":
            return ""
        if facts.architecture == "falcon":
            return "q4_k" if name == "Q3_K_L" else ""
        if facts.num_experts == 8:
            return "q5_k" if name in _EIGHT_EXPERTS else ""
        rules = {"Q2_K": "q3_k", "IQ3_XXS": "iq3_s", "Q3_K_M": "q4_k", "Q3_K_L": "q5_k", "IQ3_M": "q4_k"}
        return rules.get(name, "")


_EIGHT_EXPERTS = (
    *("Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"),
)


def _has_more_bits(layer: int, count: int) -> bool:
    return layer < count // 8 or layer >= 7 * count // 8 or (layer - count // 8) % 3 == 2


def _down(name: str, layer: int, mixture: Mixture) -> str:
    """Return the format of the last matrix of a feed-forward network, or "" for the format of the file type."""
    facts, has_importance = mixture.facts, mixture.has_importance
    count, is_falcon = facts.num_layers, facts.architecture == "falcon"
    is_first, more_bits = layer < count // 8, _has_more_bits(layer, count)
    rules: dict[str, Callable[[], str]] = {
        "Q2_K": lambda: "q3_k",
        "Q2_K_S": lambda: "q4_k" if is_first else "",
        "IQ3_XXS": lambda: "" if has_importance else "q4_k" if is_first else "q3_k",
        "Q3_K_M": lambda: "q5_k" if layer < count // 16 else "" if is_falcon and not more_bits else "q4_k",
        "IQ3_M": lambda: "q4_k" if is_first or (facts.num_experts == 8 and more_bits) else "",
        "Q3_K_L": lambda: "q4_k" if is_falcon else "q5_k",
        "Q4_K_M": lambda: _falcon_down(layer, count) if is_falcon else "q6_k" if more_bits else "",
        "IQ4_NL": lambda: "q5_k" if is_first and not has_importance else "",
        "IQ4_XS": lambda: "q5_k" if is_first and not has_importance else "",
        "Q5_K_M": lambda: "q6_k" if more_bits else "",
        "Q4_K_S": lambda: "q5_k" if is_first and not is_falcon else "",
        "Q4_0": lambda: "q4_1" if is_first and has_importance else "",
        "Q5_0": lambda: "q5_1" if is_first and has_importance else "",
    }
    return rules[name]() if name in rules else ""


def _falcon_down(layer: int, count: int) -> str:
    if layer < count // 16:
        return "q6_k"
    return "q5_k" if _has_more_bits(layer, count) else "q4_k"
