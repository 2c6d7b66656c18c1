"""`load`: opens a GGUF file or a folder as an `LLM`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.llm.draft import DRAFTED, Draft, DraftModel, HeadDraft, PredictionHead, PromptLookup
from rlx.llm.engine import LARGEST_CACHE, Engine
from rlx.llm.language_model import LLM
from rlx.llm.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from rlx.models.adapters import with_adapters
from rlx.models.decoder_config import PACKED_CACHES, DecoderConfig
from rlx.models.mamba import MambaConfig
from rlx.models.model import PretrainedModel, model_of_gguf
from rlx.models.model import load as load_model
from rlx.models.quantized import open_folder
from rlx.runtime.session import Session
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import file_name
from rlx.support.short import short_repr
from rlx.weights import Weights
from rlx.weights import open as open_weights
from rlx.weights.mapped import check_regular

_CACHE_DTYPES = ("f16", "f32", *PACKED_CACHES)
_ACTIVATIONS = ("f32", "i16", "i8")
_CONTEXT_STEP = 256
_MOST_PARALLEL = 256


def load(
    path: str | os.PathLike[str],
    *,
    context: int | None = None,
    cache: str = "f16",
    activations: str = "i8",
    threads: int | None = None,
    device: Any = None,
    chat_template: str | None = None,
    lora: Any = None,
    draft: Any = None,
    parallel: int = 1,
) -> LLM:
    """Return a language model from a file. Its programs are compiled when it first generates, and cached on the disk.

    Args:
        path: A GGUF file, the first part of a split one, or a folder with `config.json`, safetensors and a tokenizer.
        context: The largest number of tokens of a text. By default that of the model or, if it is less, the number whose
            keys and values take 1 GiB.
        cache: The dtype of keys and values: `"f16"` or `"f32"`; or `"q8_0"`, blocks of 32 integers with a scale, which take
            about half of the memory of f16. Heads are multiples of 32 then.
        activations: The precision of activations in products with packed weights: `"f32"`, `"i16"` or `"i8"`.
        threads: The number of threads; None is one for each core.
        device: A device of `rlx.Session`; None is the CPU.
        chat_template: A Jinja template that replaces the one of the file.
        lora: LoRA adapters: a path of a GGUF file or of a folder of PEFT, a pair of a path and a factor, a list of these, or
            a mapping of paths to factors.
        draft: The origin of tokens that the model verifies several at a time: the path of a smaller model with the same
            tokens, a `PromptLookup`, or a `PredictionHead`: the head of the model that predicts further tokens. Texts are the
            same as without it.
        parallel: The number of texts that threads generate at the same time. Up to 8 of them are computed in one run, and the
            cache has room for all, or for 1 GiB.

    Raises:
        Error: The file is missing or damaged, or a value is not valid.
        UnsupportedError: The architecture or the tokenizer is not known, the model has no `PredictionHead`, or heads do not
            divide into the blocks of the cache.
    """
    _check_choice("cache", cache, _CACHE_DTYPES)
    _check_choice("activations", activations, _ACTIVATIONS)
    _check_parallel(parallel)
    model, tokenizer, weights = _opened(path)
    if lora is not None:
        model = with_adapters(model, lora)
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    model.config.cache_bytes(cache)  # an error if heads do not divide into blocks
    session = Session("cpu" if device is None else device, threads=threads)
    length = _context(context, model, cache)
    options: dict[str, Any] = {"cache_dtype": cache, "activations": activations, "parallel": parallel}
    has_head = isinstance(draft, PredictionHead)
    if has_head:
        model.prediction_graph(sequence=1)  # an error, if there is none
    proposals = None if draft is None or has_head else _draft(draft, model, tokenizer, session, length, options)
    drafted = 0 if draft is None else DRAFTED
    engine = Engine(model, session, context=length, drafted=drafted, predicts=has_head, **options)
    if has_head:
        proposals = HeadDraft(engine)
    architecture = weights.metadata.get("general.architecture", model.model_type)
    return LLM(model, engine, tokenizer, weights, architecture, proposals)


def _opened(path: str | os.PathLike[str]) -> tuple[PretrainedModel, Tokenizer, Weights]:
    """Return a model that generates text, its tokenizer and its tensors."""
    name = file_name(path, "a model")
    is_folder = Path(name).is_dir()
    _check_model_path(name, is_folder)
    weights = open_folder(name) if is_folder else open_weights(name)
    model = load_model(name) if is_folder else model_of_gguf(weights)
    if not isinstance(model.config, (DecoderConfig, MambaConfig)) or not model.config.head:
        head = "" if model.head is None else f" with the head '{model.head}'"
        raise UnsupportedError(
            f"{name} has a model of type {model.model_type}{head}, and is not a decoder that generates text",
            hint="rlx.models.load(path).graph(…) returns its graph",
        )
    tokenizer = tokenizer_from_folder(name) if is_folder else tokenizer_from_gguf(weights.metadata, name)
    if tokenizer.vocab_size > model.config.vocab_size:
        sizes = f"{tokenizer.vocab_size} tokens, and the embedding of the model {model.config.vocab_size}"
        raise Error(f"{name}: the tokenizer has {sizes}")
    return model, tokenizer, weights


def _draft(
    draft: Any,
    model: PretrainedModel,
    tokenizer: Tokenizer,
    session: Session,
    context: int,
    options: Mapping[str, Any],
) -> Draft:
    """Return the origin of proposals for a model.

    Raises:
        Error: The models have different tokens.
    """
    if isinstance(draft, PromptLookup):
        return draft
    if draft == "mtp" and not Path(draft).exists():
        raise Error("no such file: mtp", hint="the head of the model is draft=rlx.llm.PredictionHead()")
    proposing, own, _ = _opened(draft)
    _check_same_tokens(own, tokenizer)
    length = min(context, proposing.config.max_position_embeddings)
    proposing.config.cache_bytes(options["cache_dtype"])  # as for the model
    return DraftModel(Engine(proposing, session, context=length, rewind=DRAFTED, **options))


def _check_same_tokens(own: Tokenizer, expected: Tokenizer) -> None:
    """Check that the tokenizer of a model that proposes tokens has those of the model that verifies them."""
    pairs = zip(own.vocabulary.tokens, expected.vocabulary.tokens, strict=False)
    different = next((i for i, (first, second) in enumerate(pairs) if first != second), None)
    if different is None and own.vocab_size != expected.vocab_size:
        different = min(own.vocab_size, expected.vocab_size)
    if different is not None:
        raise Error(f"draft: {own!r} has other tokens than {expected!r}: the first that differs has the id {different}")


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Return the tokenizer of a GGUF file or a folder. Weights are not needed.

    Raises:
        Error: The file is missing or damaged.
        UnsupportedError: The kind of tokenizer is not known.
    """
    name = file_name(path, "a model")
    if Path(name).is_dir():
        return tokenizer_from_folder(name)
    return tokenizer_from_gguf(open_weights(name).metadata, name)


def _check_model_path(name: str, is_folder: bool) -> None:
    """Check that a path may be a model: a regular file, or a folder with a configuration."""
    if not is_folder:
        if not Path(name).exists():
            hint = "a model is a GGUF file or a folder of this machine; names on a hub are not looked up"
            raise Error(f"no such file: {name}", hint=hint)
        check_regular(name)
    elif not (Path(name) / "config.json").exists():
        files = sorted(path.name for path in Path(name).glob("*.gguf"))
        hint = f"open the file: {Path(name) / files[0]}" if files else "give a folder with config.json, or a GGUF file"
        raise Error(f"{name} has no config.json", hint=hint)


def _check_choice(name: str, value: str, among: tuple[str, ...]) -> None:
    if value not in among:
        raise Error(f"{name} must be one of {', '.join(among)}, got {short_repr(value)}")


def _check_parallel(value: int) -> None:
    if type(value) is not int or not 1 <= value <= _MOST_PARALLEL:
        raise Error(f"parallel must be an integer from 1 to {_MOST_PARALLEL}, got {short_repr(value)}")


def _context(context: int | None, model: PretrainedModel, cache: str) -> int:
    config = model.config
    most = config.max_position_embeddings
    if context is None:
        own = config.cache_bytes(cache)
        return min(most, max(LARGEST_CACHE // own // _CONTEXT_STEP, 1) * _CONTEXT_STEP if own else most)
    if isinstance(context, bool) or not isinstance(context, (int, np.integer)) or not 1 <= context <= most:
        raise Error(f"context must be an integer from 1 to {most}, got {short_repr(context)}")
    return int(context)
