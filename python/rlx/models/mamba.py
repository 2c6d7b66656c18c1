"""Mamba (Gu and Dao, 2023) and Mamba-2 (Dao and Gu, 2024): layers with a selective state instead of attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.decoder_heads import LANGUAGE_HEAD
from rlx.models.family import ModelFamily
from rlx.models.fields import ACTIVATIONS, Fields
from rlx.models.recurrent import RecurrentStates, start_input, time_first
from rlx.models.tensor_names import TensorNames
from rlx.models.weight_views import reshaped
from rlx.weights import Weight

SIZES: Mapping[str, int | bool | str] = {
    "batch": 1,
    "sequence": 128,
    "context": 0,
    "slots": 0,
    "consecutive": False,
    "cache_dtype": "f32",
    "last": False,
    "activations": "f32",
}
_PARTS = ("in_proj", "conv1d", "x_proj", "dt_proj", "out_proj", "norm", "A_log", "D", "dt_bias")
_NAMES = TensorNames(
    {"embeddings": "embed_tokens", "norm_f": "norm"},
    {"norm": "norm", **{f"mixer.{part}": f"mixer.{part}" for part in _PARTS}},
)
_NO_LIMIT = [0.0, math.inf]
_VECTORS = ("mixer.A_log", "mixer.A", "mixer.D", "mixer.norm")


@dataclass(frozen=True)
class MambaConfig:
    """Sizes, with the names of `config.json`.

    Attributes:
        intermediate_size: The number of channels of the state.
        time_step_rank: For Mamba, the width of the vector for time steps.
        num_heads: For Mamba-2, the number of heads, which share their time steps; 0 for Mamba.
        n_groups: For Mamba-2, the number of groups of heads that share the vectors for reading and writing.
        biases: The parts with biases: `"proj"`, `"conv"`.
        head: Whether the graph computes logits.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int = 0
    num_heads: int = 0
    n_groups: int = 1
    hidden_act: str = "silu"
    norm_eps: float = 1e-5
    biases: frozenset[str] = frozenset({"conv"})
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 1 << 20
    head: bool = True

    @property
    def max_length(self) -> None:
        """None: states have no positions."""

    @property
    def channels(self) -> int:
        """The number of channels of the convolution."""
        return self.intermediate_size + (2 * self.n_groups * self.state_size if self.num_heads else 0)

    @property
    def recurrent_elements(self) -> int:
        """The number of elements of the recurrent states of a text."""
        return self.num_hidden_layers * (
            self.intermediate_size * self.state_size + (self.conv_kernel - 1) * self.channels
        )

    def cache_bytes(self, cache_dtype: str) -> int:
        """Return the bytes of the keys and values of a token: there are none."""
        del cache_dtype
        return 0


def _read(fields: Fields, model_type: str, **more: Any) -> MambaConfig:
    width = fields.size("hidden_size")
    names = {"proj": ("use_bias", False), "conv": ("use_conv_bias", True)}
    inner = fields.size("intermediate_size") if fields.has("intermediate_size") else width * fields.size("expand", 2)
    return MambaConfig(
        model_type,
        fields.size("vocab_size"),
        width,
        fields.size("num_hidden_layers"),
        inner,
        fields.size("state_size", 16),
        fields.size("conv_kernel", 4, least=2, most=64),
        hidden_act=fields.activation("hidden_act", "silu"),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        biases=frozenset(part for part, (name, default) in names.items() if fields.flag(name, default)),
        **more,
    )


def _mamba(fields: Fields) -> MambaConfig:
    rank = fields.data.get("time_step_rank", "auto")
    size = -(-fields.size("hidden_size") // 16) if rank == "auto" else fields.size("time_step_rank")
    tied = fields.flag("tie_word_embeddings", True)
    return _read(fields, "mamba", time_step_rank=size, tie_word_embeddings=tied)


def _mamba2(fields: Fields) -> MambaConfig:
    limit: Any = fields.data.get("time_step_limit", _NO_LIMIT)
    if limit not in (_NO_LIMIT, [0.0, {"__float__": "Infinity"}]):
        raise fields.refusal("time_step_limit", f"{_NO_LIMIT}")
    heads, groups = fields.size("num_heads", 128), fields.size("n_groups", 8)
    tied = fields.flag("tie_word_embeddings", False)
    config = _read(fields, "mamba2", num_heads=heads, n_groups=groups, tie_word_embeddings=tied)
    fields.divided("num_heads", config.intermediate_size, heads)
    if heads % groups:
        raise fields.refusal("n_groups", f"a divisor of the {heads} heads")
    if fields.has("head_dim") and heads * fields.size("head_dim") != config.intermediate_size:
        raise fields.refusal("head_dim", f"{config.intermediate_size // heads}: 'expand' times the width, by heads")
    return config


def shaped(tensors: Mapping[str, Weight], config: MambaConfig) -> dict[str, Weight]:
    """Return the tensors with the shapes of graphs: files also have axes of size 1, and norms by group."""
    result: dict[str, Weight] = {}
    for name, weight in tensors.items():
        own = name.partition(".")[2].partition(".")[2].removesuffix(".weight")
        if name.endswith(".mixer.dt_proj.bias") and config.num_heads:
            name = f"{name.removesuffix('dt_proj.bias')}dt_bias.weight"
        size = 1
        for dim in weight.shape:
            size *= dim
        if own == "mixer.conv1d" and len(weight.shape) == 3 and weight.shape[1] == 1:
            weight = reshaped(weight, (weight.shape[0], weight.shape[2]))
        elif own in _VECTORS and len(weight.shape) == 2 and config.num_heads:
            weight = reshaped(weight, (size,))
        result[name] = weight
    return result


def _adapted(tensors: Mapping[str, Weight], config: MambaConfig) -> dict[str, Weight]:
    return shaped(_NAMES.renamed(tensors, ("backbone.",)), config)


def _build(scope: ParameterPrefix, config: MambaConfig, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    """Build the graph. Inputs and options are those of decoders, without those for keys and values of earlier tokens."""
    g, e = scope.g, config.hidden_size
    ids = g.input("input_ids", (sizes["batch"], sizes["sequence"]), "i32")
    batch, length = ids.shape.dims
    states = RecurrentStates(g, batch, sizes, start_input(g, sizes) if sizes["context"] else None)
    tokens = scope.tokens("embed_tokens", config.vocab_size, e)
    x = tokens.rows(ids)
    for i in range(config.num_hidden_layers):
        with g.named(f"layer{i}"):
            layer = scope.at(f"layers.{i}")
            mixer = _Mixer(layer.at("mixer"), config, states, i)
            normal = states.in_sequence(_norm(layer, "norm", x, config.norm_eps))
            x = x + states.in_rows(mixer.second(normal) if config.num_heads else mixer.first(normal))
    if sizes["last"]:
        x = g.narrow(x, 1, length - 1, 1)
    x = _norm(scope, "norm", x, config.norm_eps)
    if not config.head:
        return {"last_hidden_state": x}
    with g.named("head"):
        tied = config.tie_word_embeddings
        return {"logits": tokens.products(x) if tied else scope.linear(x, "lm_head", config.vocab_size, bias=False)}


def _norm(scope: ParameterPrefix, name: str, x: Tensor, eps: float) -> Tensor:
    size = x.shape.dims[-1]
    assert type(size) is int
    return scope.g.rms_norm(x, scope.param(f"{name}.weight", (size,)), eps=eps)


class _Mixer:
    """The recurrent part of a layer."""

    def __init__(self, part: ParameterPrefix, config: MambaConfig, states: RecurrentStates, layer: int):
        self.part, self.config, self.states, self.g = part, config, states, part.g
        self.conv_name, self.state_name = f"conv_{layer}", f"state_{layer}"

    def _convolved(self, x: Tensor, channels: int) -> Tensor:
        config, part = self.config, self.part
        weight = part.param("conv1d.weight", (channels, config.conv_kernel))
        result = self.states.convolved(self.conv_name, x, weight)
        if "conv" in config.biases:
            result = result + part.param("conv1d.bias", (channels,))
        return self.g.activation(ACTIVATIONS[config.hidden_act], result)

    def _decay(self, shape: tuple[int, ...]) -> Tensor:
        """Return the factors of time steps. GGUF files have them, folders their logarithms."""
        if self.part.has("A.weight"):
            return self.part.param("A.weight", shape)
        return -self.g.exp(self.part.param("A_log.weight", shape))

    def _projected(self, x: Tensor, name: str, size: int) -> Tensor:
        return self.part.linear(x, name, size, "proj" in self.config.biases)

    def _scanned(self, shape: tuple[int, ...], step: Any, *sequences: Tensor) -> Tensor:
        """Return the results of the steps of a recurrence, `[B, S, …]`."""
        g = self.g

        def scan(state: Tensor, *own: Tensor) -> tuple[Tensor, Tensor]:
            state, y = g.scan(step, state, tuple(time_first(g, t) for t in own))
            return time_first(g, y), state

        return self.states.scanned(self.state_name, shape, scan, *sequences)

    def first(self, x: Tensor) -> Tensor:
        """Return the result of Mamba."""
        g, config, part = self.g, self.config, self.part
        inner, n, rank = config.intermediate_size, config.state_size, config.time_step_rank
        joined = self._projected(x, "in_proj", 2 * inner)
        u, gate = self._convolved(g.narrow(joined, 2, 0, inner), inner), g.narrow(joined, 2, inner, inner)
        selected = part.linear(u, "x_proj", rank + 2 * n, bias=False)
        steps = g.softplus(part.linear(g.narrow(selected, 2, 0, rank), "dt_proj", inner))
        writes, reads = g.narrow(selected, 2, rank, n), g.narrow(selected, 2, rank + n, n)
        decay, batch = self._decay((inner, n)), x.shape.dims[0]

        def step(state: Tensor, slices: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            dt, value, write, read = slices
            wide = g.reshape(dt, (batch, inner, 1))
            added = g.reshape(dt * value, (batch, inner, 1)) * g.reshape(write, (batch, 1, n))
            state = g.exp(wide * decay) * state + added
            return state, g.sum(state * g.reshape(read, (batch, 1, n)), -1)

        y = self._scanned((inner, n), step, steps, u, writes, reads)
        y = y + u * part.param("D.weight", (inner,))
        return self._projected(y * g.activation(ACTIVATIONS[config.hidden_act], gate), "out_proj", config.hidden_size)

    def second(self, x: Tensor) -> Tensor:
        """Return the result of Mamba-2."""
        g, config, part = self.g, self.config, self.part
        inner, n, heads, groups = config.intermediate_size, config.state_size, config.num_heads, config.n_groups
        lanes, own = inner // heads, heads // groups
        batch, length, _ = x.shape.dims
        mixed = config.channels
        joined = self._projected(x, "in_proj", inner + mixed + heads)
        u = self._convolved(g.narrow(joined, 2, inner, mixed), mixed)
        steps = g.softplus(g.narrow(joined, 2, inner + mixed, heads) + part.param("dt_bias.weight", (heads,)))
        values = g.reshape(g.narrow(u, 2, 0, inner), (batch, length, heads, lanes))
        decay = g.exp(steps * self._decay((heads,)))
        added = values * g.reshape(steps, (batch, length, heads, 1))
        writes, reads = (g.narrow(u, 2, inner + i * groups * n, groups * n) for i in range(2))

        def step(state: Tensor, slices: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            kept, value, write, read = slices
            state = state * g.reshape(kept, (batch, groups, own, 1, 1))
            value = g.reshape(value, (batch, groups, own, lanes, 1))
            state = state + value * g.reshape(write, (batch, groups, 1, 1, n))
            return state, g.sum(state * g.reshape(read, (batch, groups, 1, 1, n)), -1)

        y = self._scanned((groups, own, lanes, n), step, decay, added, writes, reads)
        y = g.reshape(y, (batch, length, heads, lanes))
        y = y + values * g.reshape(part.param("D.weight", (heads,)), (heads, 1))
        gate = g.activation(ACTIVATIONS[config.hidden_act], g.narrow(joined, 2, 0, inner))
        return self._projected(
            self._grouped_norm(g.reshape(y, (batch, length, inner)) * gate), "out_proj", config.hidden_size
        )

    def _grouped_norm(self, x: Tensor) -> Tensor:
        """Return the RMS norm of each group of channels."""
        g, config = self.g, self.config
        batch, length, inner = x.shape.dims
        size = config.intermediate_size // config.n_groups
        split = g.reshape(x, (batch, length, config.n_groups, size))
        ones = g.expand(g.constant(1.0, dtype="f32"), (size,))
        normal = g.reshape(g.rms_norm(split, ones, eps=config.norm_eps), (batch, length, inner))
        return normal * self.part.param("norm.weight", (config.intermediate_size,))


def _family(model_type: str, config: Any) -> ModelFamily:
    return ModelFamily(
        model_type, config, _build, SIZES, "layers.", ("backbone.",), adapted=_adapted, default_head=LANGUAGE_HEAD
    )


FAMILIES = (_family("mamba", _mamba), _family("mamba2", _mamba2))
