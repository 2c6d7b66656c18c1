"""The vision transformer (Dosovitskiy et al., 2020): patches of an image as tokens, and norms before each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.models.checkpoint import ParameterPrefix
from rlx.models.encoder import first_token, pooler_output
from rlx.models.encoder_heads import labelled
from rlx.models.family import ModelFamily, TaskHead
from rlx.models.fields import ACTIVATIONS, Fields
from rlx.support.errors import Error

_LARGEST_SIDE = 1 << 14


@dataclass(frozen=True)
class ViTConfig:
    """Sizes, with the names of `config.json`.

    Attributes:
        image_size: Height and width of images, in pixels.
        patch_size: Height and width of patches, in pixels.
    """

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    image_size: tuple[int, int]
    patch_size: tuple[int, int]
    num_channels: int = 3
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    qkv_bias: bool = True

    @property
    def max_length(self) -> None:
        """None: images have no number of tokens."""


def _sides(fields: Fields, name: str, default: int) -> tuple[int, int]:
    """Return height and width, from two numbers or one number for both."""
    value: Any = fields.data.get(name, default)
    sides: list[Any] = value if isinstance(value, list) and len(value) == 2 else [value, value]
    if any(type(side) is not int or not 1 <= side <= _LARGEST_SIDE for side in sides):
        raise fields.refusal(name, f"a number of pixels up to {_LARGEST_SIDE}, or two of them")
    return sides[0], sides[1]


def _read(fields: Fields) -> ViTConfig:
    fields.only(pooler_act="tanh")
    image, patch = _sides(fields, "image_size", 224), _sides(fields, "patch_size", 16)
    if any(size % part for size, part in zip(image, patch, strict=True)):
        raise Error(f"{fields.file}: images of {image} pixels do not divide into patches of {patch}")
    heads, width = fields.size("num_attention_heads"), fields.size("hidden_size")
    fields.divided("num_attention_heads", width, heads)
    return ViTConfig(
        "vit",
        width,
        fields.size("num_hidden_layers"),
        heads,
        fields.size("intermediate_size"),
        image,
        patch,
        num_channels=fields.size("num_channels", 3),
        hidden_act=fields.activation("hidden_act", "gelu"),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
        qkv_bias=fields.flag("qkv_bias", True),
    )


def _embeddings(scope: ParameterPrefix, config: ViTConfig, pixels: Tensor) -> Tensor:
    """Return the class token and a token for each patch, `[B, 1 + patches, E]`."""
    g, e, batch = scope.g, config.hidden_size, pixels.shape.dims[0]
    patches = scope.at("patch_embeddings.projection")
    weight = patches.param("weight", (e, config.num_channels, *config.patch_size))
    x = g.conv(pixels, weight, stride=config.patch_size, bias=patches.param("bias", (e,)))
    count = config.image_size[0] // config.patch_size[0] * (config.image_size[1] // config.patch_size[1])
    x = g.transpose(g.reshape(x, (batch, e, count)), (0, 2, 1))
    first = g.expand(scope.param("cls_token", (1, 1, e)), (batch, 1, e))
    return g.concat([first, x], 1) + scope.param("position_embeddings", (1, count + 1, e))


def _layer(scope: ParameterPrefix, config: ViTConfig, x: Tensor) -> Tensor:
    g, e, heads = scope.g, config.hidden_size, config.num_attention_heads
    normal = g.layer_norm(x, *scope.norm("layernorm_before", e), eps=config.layer_norm_eps)
    part = scope.at("attention.attention")
    q, k, v = (part.linear(normal, name, e, config.qkv_bias) for name in ("query", "key", "value"))
    attended = g.attention(q, k, v, num_heads=heads, head_dim=e // heads)
    x = x + scope.linear(attended, "attention.output.dense", e)
    normal = g.layer_norm(x, *scope.norm("layernorm_after", e), eps=config.layer_norm_eps)
    wide = scope.linear(normal, "intermediate.dense", config.intermediate_size)
    return x + scope.linear(g.activation(ACTIVATIONS[config.hidden_act], wide), "output.dense", e)


def _states(scope: ParameterPrefix, config: ViTConfig, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    """Build the graph without the pooler. The output is `last_hidden_state` `[batch, 1 + patches, hidden_size]`.

    The input is `pixel_values` `[batch, channels, height, width]`, normalised as by the model's own preprocessor.
    """
    g, e = scope.g, config.hidden_size
    pixels = g.input("pixel_values", (sizes["batch"], config.num_channels, *config.image_size))
    with g.named("embeddings"):
        x = _embeddings(scope.at("embeddings"), config, pixels)
    for i in range(config.num_hidden_layers):
        with g.named(f"layer{i}"):
            x = _layer(scope.at(f"encoder.layer.{i}"), config, x)
    return {"last_hidden_state": g.layer_norm(x, *scope.norm("layernorm", e), eps=config.layer_norm_eps)}


def _build(scope: ParameterPrefix, config: ViTConfig, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    """Build the graph. The outputs are those of text encoders."""
    outputs = _states(scope, config, sizes)
    return outputs | pooler_output(scope, outputs["last_hidden_state"])


def _classify(scope: ParameterPrefix, config: ViTConfig, states: Tensor) -> dict[str, Tensor]:
    return labelled(scope, "classifier", first_token(scope, states))


_HEADS = {"ForImageClassification": TaskHead(_classify, ("classifier",), "classifier")}
FAMILIES = (ModelFamily("vit", _read, _build, {"batch": 1}, "encoder.layer.", ("vit.",), states=_states, heads=_HEADS),)
