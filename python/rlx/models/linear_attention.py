"""Layers with a state instead of keys and values: the gated delta rule (Yang et al., Gated delta networks, 2024)."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.decoder_config import DecoderConfig, LinearAttentionConfig
from rlx.models.fields import ACTIVATIONS
from rlx.models.recurrent import RecurrentStates
from rlx.models.weight_views import reshaped, split_groups, split_rows
from rlx.weights import Weight

_LEAST_NORM = 1e-6


def linear_attention(
    part: ParameterPrefix,
    config: DecoderConfig,
    linear: LinearAttentionConfig,
    states: RecurrentStates,
    x: Tensor,
    layer: int,
) -> Tensor:
    """Return the result of a layer for tokens `x [B, S, E]`."""
    g, lanes, heads = part.g, linear.lanes, linear.value_heads
    x = states.in_sequence(x)
    batch, length, _ = x.shape.dims
    widths = {"q": linear.key_heads * lanes, "k": linear.key_heads * lanes, "v": heads * lanes}
    joined = g.concat([part.linear(x, f"{n}_proj", width, bias=False) for n, width in widths.items()], 2)
    weight = part.param("conv1d.weight", (sum(widths.values()), linear.kernel))
    joined = g.activation(ACTIVATIONS[config.hidden_act], states.convolved(f"conv_{layer}", joined, weight))
    q, k = (_of_heads(g.narrow(joined, 2, i * widths["q"], widths["q"]), linear, part) for i in range(2))
    v = g.reshape(g.narrow(joined, 2, 2 * widths["q"], widths["v"]), (batch, length, heads, lanes))
    steps = g.softplus(part.linear(x, "a_proj", heads, bias=False) + part.param("dt_bias.weight", (heads,)))
    if part.has("A.weight"):  # GGUF files have the factors, folders their logarithms
        decay = steps * part.param("A.weight", (heads,))
    else:
        decay = -steps * g.exp(part.param("A_log.weight", (heads,)))
    beta = g.sigmoid(part.linear(x, "b_proj", heads, bias=False))

    def scan(state: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        attended, state = g.gated_delta_net_carry(*inputs, state)
        return attended, state

    attended = states.scanned(f"state_{layer}", (heads, lanes, lanes), scan, q, k, v, decay, beta)
    gate = g.reshape(part.linear(x, "z_proj", heads * lanes, bias=False), (batch, length, heads, lanes))
    normal = g.rms_norm(attended, part.param("norm.weight", (lanes,)), eps=config.norm_eps)
    result = g.reshape(normal * g.activation("silu", gate), (batch, length, heads * lanes))
    return states.in_rows(part.linear(result, "out_proj", config.hidden_size, bias=False))


def _of_heads(x: Tensor, linear: LinearAttentionConfig, part: ParameterPrefix) -> Tensor:
    """Return queries or keys of length 1, `[B, S, value_heads, lanes]`: each head is that of several heads of values."""
    g, lanes, heads = part.g, linear.lanes, linear.key_heads
    copies = linear.value_heads // heads
    batch, length, _ = x.shape.dims
    split = g.reshape(x, (batch, length, heads, 1, lanes))
    unit = split * g.rsqrt(g.sum(split * split, -1, keep_dims=True) + _LEAST_NORM)
    wide = g.expand(unit, (batch, length, heads, copies, lanes))
    return g.reshape(wide, (batch, length, linear.value_heads, lanes))


def split_linear(tensors: Mapping[str, Weight], config: DecoderConfig) -> dict[str, Weight]:
    """Return the tensors with fused projections split."""
    linear = config.linear_attention
    assert linear is not None
    own = linear.value_heads // linear.key_heads
    values, width = own * linear.lanes, linear.key_heads * linear.lanes
    result: dict[str, Weight] = {}
    for name, weight in tensors.items():
        stem, _, last = name.removesuffix(".weight").rpartition(".")
        parts: dict[str, Weight] = {}
        if last == "in_proj_qkvz":
            sizes = [linear.lanes, linear.lanes, values, values]
            parts = dict(zip("qkvz", split_groups(weight, linear.key_heads, sizes), strict=True))
        elif last == "in_proj_ba":
            parts = dict(zip("ba", split_groups(weight, linear.key_heads, [own, own]), strict=True))
        elif last == "in_proj_qkv":
            parts = dict(zip("qkv", split_rows(weight, [width, width, linear.value_heads * linear.lanes]), strict=True))
        elif last == "conv1d" and len(weight.shape) == 3 and weight.shape[1] == 1:
            weight = reshaped(weight, (weight.shape[0], weight.shape[2]))
        elif name.endswith("linear_attn.dt_proj.bias"):
            name = f"{name.removesuffix('dt_proj.bias')}dt_bias.weight"
        result |= {f"{stem}.{n}_proj.weight": part for n, part in parts.items()} or {name: weight}
    return result
