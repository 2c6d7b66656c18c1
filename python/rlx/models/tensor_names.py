"""The tensors of decoders under the names of graphs: renamed, and fused tensors split.

Graphs have the names of Llama for all decoders. Other families, and GGUF files, have tables of their own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rlx.models.decoder_config import DecoderConfig
from rlx.models.weight_views import reshaped, split_groups, split_rows, stacked
from rlx.weights import Weight

_EXPERT = re.compile(r"(?P<layer>layers\.\d{1,6}\.mlp\.)experts\.(?P<number>\d{1,6})\.(?P<part>\w+)\.weight")
_HEAD_NORM = re.compile(r"(?P<name>layers\.\d{1,6}\.self_attn\.[qk]_norm)\.norms\.(?P<number>\d{1,6})\.weight")


@dataclass(frozen=True)
class TensorNames:
    """The names of a family's tensors.

    Attributes:
        model: The names of tensors outside of layers, without `.weight`, and those of graphs.
        layer: The same for the tensors of a layer.
        layers: The prefix of layers, before the number.
        changed: A change of tensors after renaming, by the name of the graph without `.weight`.
    """

    model: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    layer: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    layers: str = "layers."
    changed: Callable[[str, Weight], Weight] = lambda name, weight: weight

    def renamed(self, tensors: Mapping[str, Weight], prefixes: tuple[str, ...] = ()) -> dict[str, Weight]:
        """Return the tensors under the names of graphs. Tensors without one keep their name."""
        prefix = next((p for p in prefixes if any(name.startswith(p) for name in tensors)), "")
        result: dict[str, Weight] = {}
        for full_name, weight in tensors.items():
            name = self._name(full_name.removeprefix(prefix))
            result[name] = self.changed(name.rpartition(".")[0], weight)
        return result

    def _name(self, name: str) -> str:
        stem, dot, suffix = name.rpartition(".")
        if suffix not in ("weight", "bias"):  # tensors of fused experts have no suffix in some checkpoints
            stem, dot, suffix = name, ".", "weight"
        if not name.startswith(self.layers):
            return f"{self.model[stem]}{dot}{suffix}" if stem in self.model else name
        number, _, part = stem.removeprefix(self.layers).partition(".")
        own = self._part(part)
        if own is None and not part.startswith("mlp.experts."):
            return f"layers.{name.removeprefix(self.layers)}"
        own = part if own is None else own
        return f"layers.{number}.{own}{dot}{suffix}"

    def _part(self, part: str) -> str | None:
        """Return the name of a part of a layer. The number of an expert is `N` in tables."""
        if part in self.layer:
            return self.layer[part]
        number = re.search(r"(?<=\.)\d{1,6}(?=\.|$)", part)
        if number is None:
            return None
        name = self.layer.get(f"{part[: number.start()]}N{part[number.end() :]}")
        return None if name is None else name.replace("N", number[0])


def split_fused(tensors: Mapping[str, Weight], config: DecoderConfig, by_group: bool = False) -> dict[str, Weight]:
    """Return the tensors with fused ones split, and with the tensors of single experts stacked.

    Args:
        tensors: The tensors by the names of graphs.
        config: The sizes.
        by_group: Whether queries, keys and values alternate by group of heads. Otherwise they follow each other.

    Raises:
        Error: A fused tensor does not have the size of its parts.
    """
    result: dict[str, Weight] = {}
    lists: dict[str, dict[int, Weight]] = {}
    for name, weight in tensors.items():
        single = _EXPERT.fullmatch(name) or _HEAD_NORM.fullmatch(name)
        if single is not None:
            joined = f"{single['layer']}experts.{single['part']}" if "layer" in single.groupdict() else single["name"]
            lists.setdefault(f"{joined}.weight", {})[int(single["number"])] = weight
        else:
            result |= _parts(name, weight, config, by_group)
    for name, single_weights in lists.items():
        if sorted(single_weights) == list(range(len(single_weights))):
            result[name] = stacked([single_weights[i] for i in range(len(single_weights))])
        else:
            result |= {f"{name.removesuffix('.weight')}.{i}.weight": w for i, w in single_weights.items()}
    return result


def _parts(name: str, weight: Weight, config: DecoderConfig, by_group: bool) -> dict[str, Weight]:
    """Return the tensor, or its parts by name."""
    stem, _, suffix = name.rpartition(".")
    base, _, last = stem.rpartition(".")
    if last == "qkv_proj":
        heads, kv_heads, lanes = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        if by_group:
            parts = split_groups(weight, kv_heads, [heads // kv_heads * lanes, lanes, lanes])
        else:
            parts = split_rows(weight, [heads * lanes, kv_heads * lanes, kv_heads * lanes])
        return {f"{base}.{n}_proj.{suffix}": part for n, part in zip("qkv", parts, strict=True)}
    if last == "gate_up_proj":
        axis = 1 if base.endswith("experts") else 0
        half = weight.shape[axis] // 2 if len(weight.shape) > axis else 0
        gate, up = split_rows(weight, [half, half], axis)
        return {f"{base}.gate_proj.{suffix}": gate, f"{base}.up_proj.{suffix}": up}
    if last == "shared_expert_gate" and len(weight.shape) == 1:
        return {name: reshaped(weight, (1, *weight.shape))}
    return {name: weight}
