"""`load`: reads a folder from the Hugging Face hub as a `PretrainedModel`, which builds graphs with weights."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, overload

from rlx.ir.graph.graph import Graph
from rlx.models import (
    bart,
    bert,
    deepseek,
    distilbert,
    falcon,
    gemma,
    gpt2,
    gpt_neox,
    llama,
    llama4,
    mamba,
    mixtral,
    modernbert,
    mpnet,
    phi,
    qwen,
    roberta,
    stablelm,
    t5,
    vit,
)
from rlx.models.checkpoint import ModelTensors, ParameterPrefix
from rlx.models.family import ModelFamily, checked_sizes
from rlx.models.fields import Fields
from rlx.models.gguf import GgufNames, read_gguf
from rlx.models.heads import AUTO, FALLBACK, choose_head, class_of, family_with_head, read_labels
from rlx.models.low_rank import LowRankUpdate
from rlx.models.prediction_head import PREFIX
from rlx.models.quantized import open_folder
from rlx.models.torch_model import TorchModel, load_torch_model
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import file_name
from rlx.weights import Weight, Weights, safetensors
from rlx.weights import open as open_weights

_OTHER_FORMATS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")
_ENCODERS = (bert, roberta, distilbert, mpnet, modernbert, vit)
_DECODERS = (llama, llama4, mixtral, qwen, gemma, phi, stablelm, falcon, gpt2, gpt_neox, deepseek, mamba)
_MODULES = (*_ENCODERS, *_DECODERS, t5, bart)
FAMILIES: Mapping[str, ModelFamily] = {family.model_type: family for module in _MODULES for family in module.FAMILIES}


@dataclass(frozen=True)
class PretrainedModel:
    """A model from a folder: its configuration, and graphs of it for any sizes.

    Attributes:
        model_type: The name of the family in `config.json`: `"bert"`, `"llama"`.
        config: Sizes and options, as attributes with the names of `config.json`.
        head: The head of the graphs, by the end of the name of its class, for example `"ForSequenceClassification"`; None for
            the base model. `"ForCausalLM"` for every decoder that computes logits of tokens.
        id2label: The names of the labels by number, if the head has labels.
        weights: The tensors, by the names of the graphs' parameters. They are read when they are used.
        unused: The names of tensors that no graph uses, for example those of an image encoder.
        sizes: The arguments of `graph`, with defaults.
        family: The family.
        gguf_names: The names of the tensors in the GGUF file that the model is from; None for a folder.
    """

    model_type: str
    config: Any
    head: str | None
    id2label: Mapping[int, str] = field(repr=False)
    weights: Mapping[str, Weight] = field(repr=False)
    unused: tuple[str, ...] = field(repr=False)
    sizes: Mapping[str, int | bool | str]
    family: ModelFamily = field(repr=False)
    gguf_names: GgufNames | None = field(repr=False)
    _checkpoint: ModelTensors = field(repr=False)

    def graph(self, **sizes: Any) -> Graph:
        """Return a graph of the model, with its weights.

        Args:
            **sizes: Sizes by name, each an integer or the name of a symbol: `batch=2, sequence="sequence"`. The
                attribute `sizes` lists the names and the options of the family.

        Returns:
            A graph at HIR. Its inputs and outputs have the names of the transformers package.

        Raises:
            Error: A size is unknown, is not a valid size, or is larger than the number of the model's positions.
        """
        checked = checked_sizes(self.model_type, self.family.sizes, sizes)
        return _build(self.family, self.family.build, self.config, self._checkpoint, checked)

    def encoder_graph(self, **sizes: Any) -> Graph:
        """Return a graph of the encoder of an encoder–decoder model, with its weights. `graph` is the decoder.

        Args:
            **sizes: `batch` and `sequence`, as for `graph`.

        Returns:
            A graph at HIR. Its outputs `cross_key_<layer>` and `cross_value_<layer>` are inputs of `graph`.

        Raises:
            UnsupportedError: The model has no separate encoder.
            Error: A size is unknown, is not valid, or is larger than the number of the model's positions.
        """
        build = self.family.encoder
        if build is None:
            raise UnsupportedError(f"a {self.model_type} has no separate encoder", hint="graph() is the whole model")
        checked = checked_sizes(self.model_type, self.family.encoder_sizes, sizes)
        return _build(self.family, build, self.config, self._checkpoint, checked)

    def prediction_graph(self, **sizes: Any) -> Graph:
        """Return a graph of the head that predicts further tokens, with its weights: see `build_prediction_head`.

        Args:
            **sizes: As for `graph`.

        Raises:
            UnsupportedError: The model has no such head, or one of another kind.
            Error: Weights of the head are missing or have the wrong shape, or a size is not valid.
        """
        build, own = self.family.prediction_head, self._checkpoint
        if build is None or not any(name.startswith(PREFIX) for name in own.tensors):
            raise UnsupportedError(
                f"{own.name} has no head that predicts further tokens: tensors '{PREFIX}*', or 'blk.N.nextn.*' in a GGUF file"
            )
        checkpoint = own.with_updates(own.updates)
        graph = _build(
            self.family, build, self.config, checkpoint, checked_sizes(self.model_type, self.family.sizes, sizes)
        )
        checkpoint.check_taken()
        return graph

    def with_updates(self, updates: Mapping[str, Sequence[LowRankUpdate]]) -> PretrainedModel:
        """Return the model with low-rank updates of matrices. Its graphs compute them next to the stored weights.

        Args:
            updates: The updates by the name of the layer in graphs, for example `layers.0.self_attn.q_proj`.

        Raises:
            Error: An update does not fit its matrix, or there is no such layer.
        """
        checkpoint = self._checkpoint.with_updates(updates)
        _build(self.family, self.family.build, self.config, checkpoint, _smallest(self.family))
        for name in updates:
            if name not in checkpoint.updated:
                own = updates[name][0].up
                raise Error(
                    f"{own.origin}: '{own.name}' changes no matrix of a {self.model_type} that adapters can change"
                )
        return replace(self, _checkpoint=checkpoint)

    def merged_weights(self) -> dict[str, Weight]:
        """Return the matrices that low-rank updates change, with the updates added, by the names of graphs. They are f32.

        Raises:
            UnsupportedError: A matrix has two uses, and the update belongs to one of them.
        """
        result: dict[str, Weight] = {}
        is_tied = getattr(self.config, "tie_word_embeddings", False)
        for layer, updates in self._checkpoint.updates.items():
            weight = self.weights.get(f"{layer}.weight")
            if weight is None or (is_tied and any(update.is_table for update in updates)):
                raise UnsupportedError(
                    f"{updates[0].up.origin}: '{layer}' cannot be merged, because embedding and logits share a table",
                    hint="load the adapter with the model: rlx.llm.load(model, lora=…)",
                )
            for update in updates:
                weight = update.added_to(weight)
            result[f"{layer}.weight"] = weight
        return result


@overload
def load(folder: str | os.PathLike[str], *, head: str | None = AUTO, fallback: None = None) -> PretrainedModel: ...


@overload
def load(
    folder: str | os.PathLike[str], *, head: str | None = AUTO, fallback: Literal["torch"]
) -> PretrainedModel | TorchModel: ...


def load(
    folder: str | os.PathLike[str], *, head: str | None = AUTO, fallback: Literal["torch"] | None = None
) -> PretrainedModel | TorchModel:
    """Return a model from a folder with `config.json` and `model.safetensors` (or the index of several files), or a GGUF file.

    Only the headers of the weight files are read. The files are mapped: see `rlx.weights`.

    Args:
        folder: The folder, or the file.
        head: The head of the graphs. `"auto"` is that of the class which `config.json` names. The end of the name of a class,
            such as `"ForTokenClassification"`, is for files that do not name it. None is the base model without a head.
        fallback: `"torch"` loads folders of an unknown family, with an unknown head or with unsupported values by the
            transformers package, and returns a `TorchModel`. By default they are errors.

    Raises:
        Error: A file is missing or damaged, `config.json` has an unsupported value, weights do not fit it, or there is no such
            head.
        UnsupportedError: The family of the model or its head is not known, or its weights are quantised in a way that is not
            supported. The message lists the known families, heads or methods.
    """
    path = Path(file_name(folder, "a folder"))
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError:  # the name is too long
        is_folder = is_file = False
    if is_file:
        if head != AUTO:
            raise Error(f"head is an option for folders, and {path!s:.200} is a file; got {head!r:.80}")
        return model_of_gguf(open_weights(path))
    if not is_folder:
        hint = "give a folder of this machine with config.json and model.safetensors; names on a hub are not looked up"
        raise Error(f"no such directory: {path!s:.200}", hint=hint)
    fields = Fields.load(path / "config.json")
    if fallback not in (None, "torch"):
        raise Error(f"fallback must be None or 'torch', got {fallback!r:.80}")
    try:
        return _load_folder(path, fields, head)
    except Error as problem:
        if fallback is None:
            raise
        try:
            return load_torch_model(path, fields, head)
        except Error as other:
            raise other from problem


def _load_folder(path: Path, fields: Fields, head: str | None) -> PretrainedModel:
    """Return the model of a folder, from a family that is known."""
    family, config = _read_config(fields)
    _check_formats(path, fields)
    opened = open_folder(path)
    if family.adapted is None:
        tensors = ModelTensors(opened, opened.origin, family.prefixes)
    else:
        tensors = ModelTensors(family.adapted(opened, config), opened.origin, ())
    kind = choose_head(fields, family, tensors, head)
    if family.default_head:
        config = replace(config, head=kind == family.default_head)
    labels = read_labels(fields, tensors, family.heads.get(kind or ""))
    if kind is not None and kind in family.heads:
        family = family_with_head(family, kind)
    return _checked(family, config, tensors, head=kind, id2label=labels)


def _check_formats(path: Path, fields: Fields) -> None:
    """Check that a folder does not have weights in other formats alone.

    Raises:
        UnsupportedError: It has. The hint is the line that writes them in safetensors files.
    """
    if any((path / name).exists() for name in (safetensors.NAME, safetensors.INDEX)):
        return
    found = next((name for name in _OTHER_FORMATS if (path / name).exists()), None)
    if found is not None:
        kind = class_of(fields) or "AutoModel"
        option = (
            ", from_tf=True" if found.startswith("tf_") else ", from_flax=True" if found.startswith("flax_") else ""
        )
        raise UnsupportedError(
            f"{path} has its weights in '{found}'; expected '{safetensors.NAME}' or '{safetensors.INDEX}'",
            hint=f"transformers.{kind}.from_pretrained(path{option}).save_pretrained(path) writes the latter"
            + (", with version 4 of transformers" if option else ""),
        )


def model_of_gguf(weights: Weights) -> PretrainedModel:
    """Return the model of a GGUF file that is open.

    Raises:
        Error: As `load` raises it.
    """
    if "general.architecture" not in weights.metadata:
        hint = "give a folder with config.json, or a GGUF file"
        raise Error(f"{weights.origin} is a file without a model", hint=hint)
    model = read_gguf(weights)
    result = _checked(model.family, model.config, model.tensors, head=model.family.default_head, gguf_names=model.names)
    classifier = [name for name in result.unused if name.startswith("cls.")]
    if classifier:
        names = ", ".join(f"'{name}'" for name in classifier)
        warnings.warn(
            f"{weights.origin} has a head that classifies, {names}, which is not supported in GGUF files; "
            "the graph computes logits of tokens. rlx.models.load of the folder loads the head",
            stacklevel=3,
        )
    return result


def _checked(
    family: ModelFamily,
    config: Any,
    checkpoint: ModelTensors,
    *,
    head: str | None,
    id2label: Mapping[int, str] = MappingProxyType({}),
    gguf_names: GgufNames | None = None,
) -> PretrainedModel:
    """Return the model, after building a small graph and comparing its parameters with the tensors."""
    checkpoint.check_layers(config.num_hidden_layers)
    family = _with_possible_lengths(family, config.max_length)
    _build(family, family.build, config, checkpoint, _smallest(family))
    if family.encoder is not None:
        _build(family, family.encoder, config, checkpoint, {**family.encoder_sizes, "sequence": 1})
    unused = checkpoint.check(family.layers, config.num_hidden_layers)
    weights = MappingProxyType(checkpoint.taken)
    return PretrainedModel(
        family.model_type,
        config,
        head,
        MappingProxyType(dict(id2label)),
        weights,
        unused,
        family.sizes,
        family,
        gguf_names,
        checkpoint,
    )


def _with_possible_lengths(family: ModelFamily, longest: int | None) -> ModelFamily:
    """Return a family whose default numbers of tokens do not exceed the number of a model's positions."""
    if longest is None:
        return family
    sizes, encoder_sizes = (
        MappingProxyType(
            {n: min(v, longest) if n.endswith("sequence") and type(v) is int else v for n, v in given.items()}
        )
        for given in (family.sizes, family.encoder_sizes)
    )
    return replace(family, sizes=sizes, encoder_sizes=encoder_sizes)


def _smallest(family: ModelFamily) -> dict[str, int | bool | str]:
    """Return the sizes of the smallest graph, and the default options."""
    return {name: min(value, 1) if type(value) is int else value for name, value in family.sizes.items()}


def load_config(path: str | os.PathLike[str]) -> tuple[ModelFamily, Any]:
    """Return the family and the configuration that a `config.json` describes.

    Raises:
        Error: The file is missing, is not JSON, lacks a size, or has an unsupported value.
        UnsupportedError: The family is not known.
    """
    return _read_config(Fields.load(path))


def _read_config(fields: Fields) -> tuple[ModelFamily, Any]:
    model_type = fields.data.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedError(
            f"{fields.file} describes a model of type {model_type!r:.80}; known are {known}",
            hint=f"{FALLBACK}, if that package knows the type: pip install transformers torch",
        )
    family = FAMILIES[model_type]
    return family, family.config(fields)


def _build(family: ModelFamily, build: Any, config: Any, checkpoint: ModelTensors, sizes: Mapping[str, Any]) -> Graph:
    graph = Graph(family.model_type.replace("-", "_"), stage="hir")
    activations = sizes.get("activations")
    scope = ParameterPrefix(graph, checkpoint, activations=activations or "f32", reads_in_place=activations is not None)
    graph.set_outputs(build(scope, config, sizes))
    return graph
