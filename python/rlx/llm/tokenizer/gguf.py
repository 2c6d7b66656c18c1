"""Tokenizers from the metadata of GGUF files.

Source of keys and defaults: llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.llm.tokenizer.byte_pair import BytePairModel
from rlx.llm.tokenizer.charsmap import CharacterMap, TextNormaliser
from rlx.llm.tokenizer.fragments import FragmentEncoder, FragmentModel
from rlx.llm.tokenizer.metadata import TokenizerMetadata
from rlx.llm.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from rlx.llm.tokenizer.score_merges import ScoreMergeModel
from rlx.llm.tokenizer.tokenizer import Tokenizer
from rlx.llm.tokenizer.unigram import UnigramModel
from rlx.llm.tokenizer.vocabulary import (
    FILL_TEXTS,
    HIDDEN,
    TokenKind,
    Vocabulary,
    byte_level_piece,
    check_byte_tokens,
    is_byte_token,
    metaspace_piece,
    phantom_piece,
)
from rlx.llm.tokenizer.word_piece import WordPieceModel
from rlx.support.errors import Error
from rlx.support.short import short_repr

_TEMPLATE = "tokenizer.chat_template"
# Entries of the older names that GGUF files had for infilling markers.
_FILL_KEYS = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}

# A vocabulary with its model.
Built = tuple[Vocabulary, FragmentModel]


def tokenizer_from_gguf(metadata: Mapping[str, Any], origin: str) -> Tokenizer:
    """Return the tokenizer that the metadata of a GGUF file describes.

    Args:
        metadata: Values by key: strings, numbers, arrays of numbers as NumPy arrays, arrays of strings as tuples.
        origin: The file, for messages.

    Raises:
        Error: A value is missing, has another type or is outside its range, or the kind of tokenizer is not supported.
    """
    data = TokenizerMetadata(metadata, origin)
    model = data.text("model", "")
    if model not in _BUILDERS:
        known = ", ".join(_BUILDERS)
        got = f"got '{model}'" if model else "but there is no tokenizer.ggml.model"
        raise Error(f"{origin}: expected a tokenizer of one of the types {known}, {got}")
    vocabulary, fragment_model = _BUILDERS[model](data, _vocabulary(data, model))
    left, right = _stripping(metadata, vocabulary)
    encoder = FragmentEncoder(vocabulary, fragment_model, left=left, right=right)
    return Tokenizer(vocabulary, encoder, templates=_templates(metadata, origin), origin=origin)


def _vocabulary(data: TokenizerMetadata, model: str) -> Vocabulary:
    tokens = data.texts("tokens")
    if not tokens:
        raise Error(f"{data.origin}: expected tokenizer.ggml.tokens to have at least one token, got none")
    if "" in tokens:
        tokens = tuple(token or f"[EMPTY_{i}]" for i, token in enumerate(tokens))
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) < len(tokens):
        i = next(i for i, token in enumerate(tokens) if ids[token] != i)
        raise Error(
            f"{data.origin}: tokenizer.ggml.tokens has the text {short_repr(tokens[i])} twice, as {i} and {ids[tokens[i]]}"
        )
    types = data.numbers("token_type", len(tokens), "iu")
    if types is None:
        kinds = bytes([TokenKind.NORMAL]) * len(tokens)
    else:  # llama.cpp treats other numbers as tokens without properties
        kinds = np.where((types >= 1) & (types <= 6), types, int(TokenKind.UNUSED)).astype(np.uint8).tobytes()
    if model in ("llama", "t5", "gemma4"):
        check_byte_tokens(tokens, kinds, data.origin)
    elif TokenKind.BYTE in kinds:  # only some pre-tokenizers have byte tokens
        kinds = bytes(
            TokenKind.NORMAL if kind == TokenKind.BYTE and not is_byte_token(token) else kind
            for token, kind in zip(tokens, kinds, strict=True)
        )
    return Vocabulary(tokens, kinds, metaspace_piece, ids=ids)


def _with_special(
    data: TokenizerMetadata,
    vocabulary: Vocabulary,
    *,
    bos: int | None,
    eos: int | None,
    adds_bos: bool = False,
    adds_eos: bool = False,
) -> Vocabulary:
    """Return the vocabulary with its special tokens. The arguments are the defaults of the kind of tokenizer."""
    count = len(vocabulary.tokens)
    bos = data.token_id("bos_token_id", count, bos)
    eos = data.token_id("eos_token_id", count, eos)
    ends = {eos, data.token_id("eot_token_id", count), data.token_id("eom_token_id", count)} - {None}
    fills = {
        name: data.token_id(f"{name}_token_id", count, data.token_id(f"{_FILL_KEYS.get(name, name)}_token_id", count))
        for name in FILL_TEXTS
    }
    affixes: list[tuple[int, ...]] = []
    for name, default, token_id in (("bos", adds_bos, bos), ("eos", adds_eos, eos)):
        adds = data.flag(f"add_{name}_token", default)
        if adds and token_id is None and f"tokenizer.ggml.add_{name}_token" in data.values:
            raise Error(f"{data.origin}: tokenizer.ggml.add_{name}_token is true, but there is no {name}_token_id")
        affixes.append((token_id,) if adds and token_id is not None else ())
    vocabulary = vocabulary.with_ends({i for i in ends if i is not None}, fills)
    return replace(vocabulary, bos=bos, eos=eos, prefix=affixes[0], suffix=affixes[1])


def _byte_pair(data: TokenizerMetadata, vocabulary: Vocabulary) -> Built:
    name = "gemma4" if data.text("model", "") == "gemma4" else data.text("pre", "")
    pre = PRE_TOKENIZERS.get(name)
    if pre is None:
        known = ", ".join(sorted(PRE_TOKENIZERS.keys() - {""}))
        raise Error(f"{data.origin}: unknown pre-tokenizer {short_repr(name)} in tokenizer.ggml.pre; known are {known}")
    default = None if name == "gemma4" else 11
    # llama.cpp's number, where a text starts with the token. Elsewhere it would only mislead templates.
    starts = pre.has_bos and data.flag("add_bos_token", pre.adds_bos)
    vocabulary = _with_special(data, vocabulary, bos=default if starts else None, eos=default, adds_bos=pre.adds_bos)
    vocabulary = replace(vocabulary, piece_of=metaspace_piece if pre.is_raw else byte_level_piece)
    if name == "gemma4" and vocabulary.bos is not None:  # llama.cpp overrides the flag of files for Gemma 4
        vocabulary = replace(vocabulary, prefix=(vocabulary.bos,))
    return vocabulary, BytePairModel(vocabulary, data.texts("merges"), pre, data.origin)


def _score_merges(data: TokenizerMetadata, vocabulary: Vocabulary) -> Built:
    scores = data.scores(len(vocabulary.tokens))
    vocabulary = _with_special(data, vocabulary, bos=1, eos=2, adds_bos=True)
    unknown = data.token_id("unknown_token_id", len(vocabulary.tokens), 0)
    adds_space = data.flag("add_space_prefix", True)
    vocabulary = replace(vocabulary, starts_with_space=adds_space)
    return vocabulary, ScoreMergeModel(
        vocabulary, scores, normaliser=TextNormaliser(adds_space=adds_space), unknown=unknown, origin=data.origin
    )


def _unigram(data: TokenizerMetadata, vocabulary: Vocabulary) -> Built:
    scores = data.scores(len(vocabulary.tokens))
    vocabulary = _with_special(data, vocabulary, bos=None, eos=1, adds_eos=True)
    unknown = data.token_id("unknown_token_id", len(vocabulary.tokens), 2)
    adds_space = data.flag("add_space_prefix", False)
    key = "precompiled_charsmap"
    has_map = f"tokenizer.ggml.{key}" in data.values
    characters = CharacterMap(data.bytes(key), f"{data.origin}: tokenizer.ggml.{key}") if has_map else None
    normaliser = TextNormaliser(
        characters, merges_spaces=data.flag("remove_extra_whitespaces", False), adds_space=adds_space
    )
    return replace(vocabulary, starts_with_space=adds_space), UnigramModel(
        vocabulary, scores, normaliser=normaliser, unknown=unknown, origin=data.origin
    )


def _word_piece(data: TokenizerMetadata, vocabulary: Vocabulary) -> Built:
    count = len(vocabulary.tokens)
    cls = data.token_id("cls_token_id", count, 101)
    vocabulary = _with_special(data, vocabulary, bos=cls, eos=None)
    sep = data.token_id("seperator_token_id", count, data.token_id("separator_token_id", count, 102))
    unknown = data.token_id("unknown_token_id", count, 100)
    if unknown is None:
        raise Error(f"{data.origin}: expected tokenizer.ggml.unknown_token_id, which WordPiece needs")
    vocabulary = replace(
        vocabulary,
        prefix=() if vocabulary.bos is None else (vocabulary.bos,),
        suffix=() if sep is None else (sep,),
        piece_of=phantom_piece,
        starts_with_space=True,
    )
    lowers = data.flag("normalizer.lowercase", True)
    accents = data.flag("normalizer.strip_accents", lowers)
    return vocabulary, WordPieceModel(vocabulary, unknown, lowers, accents, data.origin)


_BUILDERS: dict[str, Callable[[TokenizerMetadata, Vocabulary], Built]] = {
    "gpt2": _byte_pair,
    "llama": _score_merges,
    "bert": _word_piece,
    "t5": _unigram,
    "gemma4": _byte_pair,
}


def _stripping(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[list[int], list[int]]:
    """Return the tokens that absorb the white space in front of them, and those that absorb it after them.

    GGUF has no field for it. llama.cpp recognises models by name.
    """
    pre, name, architecture = (
        str(metadata.get(key, "")) for key in ("tokenizer.ggml.pre", "general.name", "general.architecture")
    )
    masks: list[str] = []
    if any(known in pre for known in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or architecture in (
        "nomic-bert-moe",
        "jina-bert-v3",
    ):
        masks = ["<mask>"]
    elif any(known in name.lower() for known in ("phi-3", "phi3")):
        special = [vocabulary.tokens[i] for i in vocabulary.of_kind(TokenKind.USER_DEFINED, *HIDDEN)]
        kept = {"<unk>", "<s>", "<|endoftext|>"}
        return [], [vocabulary.ids[token] for token in special if token not in kept]
    elif "modern-bert" in name.lower():
        masks = ["[MASK]"]
    return [vocabulary.ids[token] for token in masks if token in vocabulary.ids], []


def _templates(metadata: Mapping[str, Any], origin: str) -> dict[str, str]:
    """Return the chat templates by name. The one without a name is "default"."""
    result: dict[str, str] = {}
    for key, value in metadata.items():
        if key != _TEMPLATE and not key.startswith(f"{_TEMPLATE}."):
            continue
        if not isinstance(value, str):
            raise Error(f"{origin}: expected {key} to be a string, got {short_repr(value)}")
        result[key.removeprefix(_TEMPLATE).removeprefix(".") or "default"] = value
    return result
