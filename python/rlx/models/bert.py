"""BERT encoders: the graph of a sentence encoder, under the tensor names of the published checkpoints."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from rlx.ir.builder import Tensor
from rlx.ir.errors import Error
from rlx.ir.files import read_json
from rlx.ir.graph import Graph
from rlx.ir.shape import DimLike, Shape
from rlx.weights import Weight

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approx",
    "gelu_pytorch_tanh": "gelu_approx",
    "relu": "relu",
    "silu": "silu",
}


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT encoder; names as in `config.json`."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BertConfig:
        """Read `config.json`.

        Raises:
            Error: The file is missing, is not JSON, lacks a size, or describes another kind of model.
        """
        name = os.fspath(path)
        data = read_json(path)
        if not isinstance(data, dict) or data.get("model_type") != "bert":
            kind = data.get("model_type") if isinstance(data, dict) else type(data).__name__
            raise Error(f"{name} describes a model of type {kind!r}; expected 'bert'")
        positions = data.get("position_embedding_type", "absolute")
        if positions != "absolute":
            raise Error(f"{name}: position_embedding_type {positions!r} is not supported; expected 'absolute'")
        values = {}
        for entry in fields(cls):
            if entry.name in data:
                values[entry.name] = _checked(name, entry.name, str(entry.type), data[entry.name])
            elif entry.default is MISSING:
                raise Error(f"{name} has no '{entry.name}'")
        config = cls(**values)
        if config.hidden_size % config.num_attention_heads:
            heads = config.num_attention_heads
            raise Error(f"{name}: {config.hidden_size} lanes do not divide into {heads} heads")
        return config


def _checked(file: str, name: str, kind: str, value: Any) -> Any:
    if kind == "int":
        if type(value) is not int or value < 1:
            raise Error(f"{file}: '{name}' must be a positive integer, got {value!r}")
    elif kind == "float":
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise Error(f"{file}: '{name}' must be a number that is not negative, got {value!r}")
    elif not isinstance(value, str) or value not in _ACTIVATIONS:
        raise Error(f"{file}: '{name}' must be one of {', '.join(_ACTIVATIONS)}, got {value!r}")
    return value


class _Weights:
    """Parameters of a graph under a prefix; dense weights are stored `[out, in]` and used `[in, out]`."""

    def __init__(self, g: Any, prefix: str):
        self.g, self.prefix = g, prefix

    def at(self, name: str) -> _Weights:
        return _Weights(self.g, f"{self.prefix}{name}.")

    def vector(self, name: str, size: int) -> Tensor:
        return self.g.param(f"{self.prefix}{name}", (size,))

    def table(self, name: str, rows: int, size: int) -> Tensor:
        return self.g.param(f"{self.prefix}{name}.weight", (rows, size))

    def dense(self, name: str, size_in: int, size_out: int) -> tuple[Tensor, Tensor]:
        weight = self.g.param(f"{self.prefix}{name}.weight", (size_out, size_in))
        return self.g.transpose(weight), self.vector(f"{name}.bias", size_out)

    def norm(self, name: str, size: int) -> tuple[Tensor, Tensor]:
        return self.vector(f"{name}.weight", size), self.vector(f"{name}.bias", size)


def _layer(g: Any, config: BertConfig, weights: _Weights, x: Tensor, mask: Tensor) -> Tensor:
    e, f = config.hidden_size, config.intermediate_size
    attention = weights.at("attention")
    operands = [
        *attention.dense("self.query", e, e),
        *attention.dense("self.key", e, e),
        *attention.dense("self.value", e, e),
        *attention.dense("output.dense", e, e),
        *attention.norm("output.LayerNorm", e),
        *weights.dense("intermediate.dense", e, f),
        *weights.dense("output.dense", f, e),
        *weights.norm("output.LayerNorm", e),
    ]
    return g.transformer_encoder_block(
        x,
        *operands,
        mask,
        num_heads=config.num_attention_heads,
        activation=_ACTIVATIONS[config.hidden_act],
        eps=config.layer_norm_eps,
        mask_kind="custom",
    )


def encoder(g: Any, config: BertConfig, ids: Tensor, mask: Tensor) -> Tensor:
    """Token representations.

    Args:
        g: The graph, which gets one parameter for each tensor of the checkpoint.
        config: Sizes.
        ids: Token ids `[B, S]`, i32.
        mask: `[B, S]`, i32; 1 for tokens, 0 for padding.

    Returns:
        `[B, S, E]`, f32.
    """
    embeddings = _Weights(g, "embeddings.")
    e = config.hidden_size
    _, length = ids.shape.dims
    with g.named("embeddings"):
        words = g.embedding(embeddings.table("word_embeddings", config.vocab_size, e), ids)
        positions = embeddings.table("position_embeddings", config.max_position_embeddings, e)
        types = embeddings.table("token_type_embeddings", config.type_vocab_size, e)
        x = words + g.narrow(positions, 0, 0, length) + types[0]
        x = g.layer_norm(x, *embeddings.norm("LayerNorm", e), eps=config.layer_norm_eps)
    for i in range(config.num_hidden_layers):
        with g.named(f"layer{i}"):
            x = _layer(g, config, _Weights(g, f"encoder.layer.{i}."), x, mask)
    return x


def sentence_encoder(config: BertConfig, batch: DimLike, length: DimLike, name: str = "sentence_encoder") -> Graph:
    """A graph from token ids to unit vectors: encoder, mean over the tokens, L2 normalisation.

    Args:
        config: Sizes.
        batch: Number of sentences.
        length: Tokens of a (padded) sentence.
        name: Name of the function.

    Returns:
        Inputs `ids` and `mask` `[batch, length]` i32, output `embedding` `[batch, hidden_size]` f32. (Reimers
        and Gurevych, Sentence-BERT, §3: mean pooling.)
    """
    g: Any = Graph(name, stage="hir")
    ids = g.input("ids", (batch, length), "i32")
    mask = g.input("mask", (batch, length), "i32")
    tokens = encoder(g, config, ids, mask)
    with g.named("pooling"):
        keep = g.cast(mask, "f32")
        total = g.dot_general(keep, tokens, [1], [1], [0], [0])
        mean = total / g.maximum(g.sum(keep, 1, keep_dims=True), 1e-9)
        norm = g.sqrt(g.sum(mean * mean, -1, keep_dims=True))
        g.set_outputs({"embedding": mean / g.maximum(norm, 1e-12)})
    return g


def check_weights(config: BertConfig, weights: Mapping[str, Weight], name: str) -> list[str]:
    """Check that a checkpoint has a tensor for each parameter of `sentence_encoder`, in f32, f16 or bf16.

    Args:
        config: Sizes.
        weights: Tensors by name; the encoder does not use all tensors of checkpoints, for instance not the pooler's.
        name: The name of the checkpoint in messages.

    Returns:
        The names of the parameters.

    Raises:
        Error: A tensor is missing, has another shape or dtype, or belongs to a layer that the configuration
            lacks.
    """
    if config.num_hidden_layers > len(weights):  # a huge number of layers would take too long to compare
        layers = f"num_hidden_layers is {config.num_hidden_layers}"
        raise Error(f"{name} does not fit config.json: {layers}, and it has {len(weights)} tensors")
    problems = []
    parameters = sentence_encoder(config, 1, 1).params
    for parameter in parameters:
        weight = weights.get(parameter.name)
        if weight is None:
            problems.append(f"'{parameter.name}' ({parameter.shape}) is missing")
        elif not _matches(weight, parameter.shape):
            problems.append(f"'{parameter.name}' is {weight.dtype}{list(weight.shape)}, expected {parameter.shape}")
    beyond = f"encoder.layer.{config.num_hidden_layers}."
    if any(tensor.startswith(beyond) for tensor in weights):
        problems.append(f"there is a layer '{beyond[:-1]}', but num_hidden_layers is {config.num_hidden_layers}")
    if problems:
        more_problems = f"\n  and {len(problems) - 10} more" if len(problems) > 10 else ""
        listed = "\n  ".join(problems[:10])
        raise Error(f"{name} does not fit config.json:\n  {listed}{more_problems}")
    return [parameter.name for parameter in parameters]


def _matches(weight: Weight, expected: Shape) -> bool:
    kinds = (expected.dtype.numpy.name, "float16", "bfloat16")
    return weight.shape == expected.static and weight.dtype.name in kinds
