"""`TorchModel`: a model of the transformers package as graphs, for families that RLX does not build by itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlx.importers.torch.model import from_torch
from rlx.ir.graph.graph import Graph
from rlx.models.family import checked_sizes
from rlx.models.fields import Fields
from rlx.models.heads import AUTO, class_of, head_of_class
from rlx.support.errors import Error, UnsupportedError
from rlx.support.packages import import_package

_WHAT = 'rlx.models.load(…, fallback="torch")'
_LENGTH = 128  # the default number of tokens, for models with this number of positions
_SAMPLES = 16_000
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions")


@dataclass(frozen=True)
class TorchModel:
    """A model that the transformers package loads from a folder. Its graphs are those of `rlx.from_torch`.

    The weights are those of the module, which maps the files: they are read when they are used. Weights and computations
    have the dtype of the files.

    Attributes:
        model_type: The name of the family in `config.json`: `"t5"`, `"clip"`.
        config: The configuration of transformers.
        head: The end of the name of the class, for example `"ForConditionalGeneration"`; None for a base model.
        id2label: The names of the labels by number, if the head has labels.
        unused: The names of tensors in the files that the module does not use.
        sizes: The arguments of `graph`, with defaults.
        module: The module, in evaluation mode.
    """

    model_type: str
    config: Any = field(repr=False)
    head: str | None
    id2label: Mapping[int, str] = field(repr=False)
    unused: tuple[str, ...] = field(repr=False)
    sizes: Mapping[str, int | str]
    module: Any = field(repr=False)

    def graph(self, **sizes: Any) -> Graph:
        """Return a graph of the model, with its weights.

        Args:
            **sizes: Sizes by name, each an integer or the name of a symbol. The attribute `sizes` lists the names.

        Returns:
            A graph at MIR. Inputs and outputs have the names of the transformers package; token ids and masks are i32. Keys and
            values of earlier tokens are neither inputs nor outputs.

        Raises:
            Error: A size is unknown or not valid, or PyTorch cannot export the module for it.
            UnsupportedError: Operators of the module cannot be imported.
        """
        values = checked_sizes(self.model_type, self.sizes, sizes)
        torch, inputs = import_package("torch", _WHAT), input_dims(self.module)
        arguments = {n: _example(torch, n, dims, values) for n, dims in inputs.items()}
        symbols = {n: self._symbol(torch, n, v) for n, v in values.items() if isinstance(v, str)}
        shapes: Any = None
        if symbols:
            shapes = {n: {i: symbols[d] for i, d in enumerate(dims) if d in symbols} for n, dims in inputs.items()}
        if "use_cache" in _parameters(self.module):
            arguments["use_cache"] = False
            shapes = None if shapes is None else shapes | {"use_cache": None}
        try:
            return from_torch(self.module, (), arguments, dynamic_shapes=shapes)
        except UnsupportedError:
            raise
        except Error as problem:
            if shapes is None:
                raise
            hint = f"give an integer for {', '.join(symbols)}"
            raise Error(problem.message, hint=hint, location=problem.location) from problem

    def _symbol(self, torch: Any, name: str, symbol: str) -> Any:
        """Return the open size. PyTorch requires the largest number of positions, if the model has such a number."""
        positions = _positions(self.config)
        if name.endswith("sequence") and positions is not None:
            return torch.export.Dim(symbol, max=positions)
        return torch.export.Dim(symbol)


def load_torch_model(folder: Path, fields: Fields, head: str | None) -> TorchModel:
    """Return the model that the transformers package loads from a folder. No code of the folder is executed.

    Args:
        folder: The folder.
        fields: `config.json`.
        head: As for `rlx.models.load`. `"auto"` is the class that `config.json` names.

    Raises:
        Error: transformers or PyTorch is not installed, transformers cannot load the folder, or tensors of the class are
            missing in the files.
        UnsupportedError: transformers does not have the class.
    """
    import_package("torch", _WHAT)
    transformers = import_package("transformers", _WHAT)
    loader = _loader(transformers, fields, head)
    with _quiet(transformers):
        try:
            module, report = loader.from_pretrained(
                str(folder),
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                trust_remote_code=False,
            )
        except Exception as problem:
            kind, message = type(problem).__name__, " ".join(str(problem).split())
            raise Error(f"transformers cannot load {folder}: {kind}: {message:.600}") from problem
    missing, unused = (sorted(map(str, report[name])) for name in ("missing_keys", "unexpected_keys"))
    if missing:
        listed = ", ".join(f"'{name}'" for name in missing[:5])
        raise Error(
            f"{folder} does not have all weights of {type(module).__name__}: {listed} are missing ({len(missing)})"
        )
    module.eval()
    kind = head_of_class(type(module).__name__)
    labels = module.config.id2label if kind is not None and "Classification" in kind else {}
    return TorchModel(
        str(fields.data.get("model_type")),
        module.config,
        kind,
        MappingProxyType(dict(labels)),
        tuple(unused),
        MappingProxyType(_default_sizes(module)),
        module,
    )


def _loader(transformers: Any, fields: Fields, head: str | None) -> Any:
    """Return the class of transformers that loads the folder."""
    name = class_of(fields)
    if head is None:
        return transformers.AutoModel
    if head != AUTO:
        stem = "" if name is None else name.removesuffix(head_of_class(name) or "Model")
        name = head if hasattr(transformers, head) else f"{stem}{head}"
    elif name is None:
        raise Error(
            f"{fields.file} names no class in 'architectures'",
            hint='rlx.models.load(path, fallback="torch", head="BertForMaskedLM") names it; head=None is the base model',
        )
    found = getattr(transformers, name, None)
    if not hasattr(found, "from_pretrained"):
        raise UnsupportedError(f"transformers {transformers.__version__} has no class '{name:.80}' for {fields.file}")
    return found


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Suppress messages and progress bars of transformers. Its report of missing weights becomes an error."""
    logging = transformers.logging
    level, shows_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shows_progress:
            logging.enable_progress_bar()


def _parameters(module: Any) -> Mapping[str, Any]:
    return inspect.signature(module.forward).parameters


def _field(config: Any, *names: str) -> Any:
    """Return the first of several fields that a configuration, or that of its images or its text, has."""
    parts = [config, getattr(config, "vision_config", None), getattr(config, "text_config", None)]
    return next((v for part in parts for name in names if (v := getattr(part, name, None)) is not None), None)


def _positions(config: Any) -> int | None:
    """Return the number of positions of the tokens of a model; None if it has none."""
    texts = [config, getattr(config, "text_config", None)]
    return next((v for c in texts for n in _POSITIONS if type(v := getattr(c, n, None)) is int and v > 0), None)


def input_dims(module: Any) -> dict[str, tuple[str | int, ...]]:
    """Return the inputs of a module, each with its axes: names of sizes, or integers.

    Raises:
        UnsupportedError: The module has inputs of another kind.
    """
    config, own = module.config, _parameters(module)
    first, result = module.main_input_name, dict[str, tuple[str | int, ...]]()
    if first == "input_ids":
        text = (
            ("batch", "choices", "sequence") if "ForMultipleChoice" in type(module).__name__ else ("batch", "sequence")
        )
        result["input_ids"] = text
        if "attention_mask" in own:
            result["attention_mask"] = text
        if "token_type_ids" in own and (getattr(config, "type_vocab_size", 0) or 0) > 1:
            result["token_type_ids"] = text
    is_pair = "pixel_values" in own and hasattr(config, "vision_config") and type(module).__name__.endswith("Model")
    if first == "pixel_values" or is_pair:
        result["pixel_values"] = ("batch", _field(config, "num_channels") or 3, "height", "width")
    if first == "input_features" and hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):
        result[first] = ("batch", config.num_mel_bins, 2 * config.max_source_positions)
    if first == "input_values":
        result[first] = ("batch", "samples")
    if not result:
        raise UnsupportedError(
            f"{type(module).__name__} has the input '{first}', whose shape is not known here",
            hint=f"rlx.from_torch(model.module, (), {{{first!r}: tensor}}) takes any inputs",
        )
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in own:
        result["decoder_input_ids"] = ("batch", "decoder_sequence")
    return result


def _default_sizes(module: Any) -> dict[str, int | str]:
    length = min(_LENGTH, _positions(module.config) or _LENGTH)
    image = _field(module.config, "image_size") or 224
    height, width = image if isinstance(image, (list, tuple)) else (image, image)
    defaults = {"batch": 1, "choices": 2, "sequence": length, "decoder_sequence": length, "samples": _SAMPLES}
    defaults |= {"height": height, "width": width}
    used = {dim for dims in input_dims(module).values() for dim in dims}
    return {name: value for name, value in defaults.items() if name in used}


def _example(torch: Any, name: str, dims: tuple[str | int, ...], sizes: Mapping[str, Any]) -> Any:
    """Return an input for the export. Only its shape matters; open sizes are larger than 1."""
    shape = [sizes[d] if isinstance(d, str) else d for d in dims]
    shape = [3 if isinstance(size, str) else size for size in shape]
    if name.endswith(("_ids", "mask")):
        return (
            torch.ones(shape, dtype=torch.int32) if name != "token_type_ids" else torch.zeros(shape, dtype=torch.int32)
        )
    return torch.zeros(shape)
