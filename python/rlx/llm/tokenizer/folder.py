"""Tokenizers from folders in the format of the Hugging Face hub."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from rlx.llm.tokenizer.charsmap import CharacterMap, TextNormaliser
from rlx.llm.tokenizer.folder_settings import FolderSettings, folder_settings
from rlx.llm.tokenizer.fragments import FragmentEncoder, FragmentModel
from rlx.llm.tokenizer.hub import hub_tokenizer, with_settings
from rlx.llm.tokenizer.score_merges import ScoreMergeModel
from rlx.llm.tokenizer.sentencepiece_model import BPE, SentencePieceModel, parsed_sentencepiece
from rlx.llm.tokenizer.tokenizer import Tokenizer
from rlx.llm.tokenizer.unigram import UnigramModel
from rlx.llm.tokenizer.vocabulary import TokenKind, Vocabulary, check_byte_tokens, metaspace_piece
from rlx.support.errors import Error
from rlx.support.files import file_name, read_bytes
from rlx.support.short import short_repr

_LARGEST = 64 << 20
_SENTENCEPIECE = ("tokenizer.model", "spiece.model")


def tokenizer_from_folder(path: str | os.PathLike[str]) -> Tokenizer:
    """Return the tokenizer of a folder.

    It is in `tokenizer.json`, or else in `tokenizer.model`, a model of SentencePiece. Its settings are in
    `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`, `generation_config.json` and
    `chat_template.jinja`, as far as these exist.

    Raises:
        Error: There is no tokenizer, a file is damaged, or files do not fit together.
    """
    folder = Path(file_name(path, "a folder"))
    if not folder.is_dir():
        raise Error(f"no such directory: {folder}")
    settings = folder_settings(folder)
    if (folder / "tokenizer.json").is_file():
        return hub_tokenizer(folder / "tokenizer.json", settings)
    for name in _SENTENCEPIECE:
        if (folder / name).is_file():
            return _sentencepiece_tokenizer(folder / name, settings)
    raise Error(f"{folder} has no tokenizer: expected tokenizer.json or tokenizer.model")


def _sentencepiece_tokenizer(path: Path, settings: FolderSettings) -> Tokenizer:
    origin = str(path)
    model = parsed_sentencepiece(read_bytes(path, _LARGEST), origin)
    _add_tokens(model, settings)
    vocabulary = _vocabulary(model, origin)
    if model.model_type == BPE:
        settings = replace(settings, adds_bos=settings.adds_bos is not False)
    else:
        settings = replace(settings, adds_eos=settings.adds_eos is not False)
    vocabulary = with_settings(vocabulary, settings)
    # For SentencePiece, user-defined tokens are a part of the text.
    inner = vocabulary.of_kind(TokenKind.USER_DEFINED)
    encoder = FragmentEncoder(vocabulary, _fragment_model(model, vocabulary, origin), inner=inner)
    return Tokenizer(vocabulary, encoder, templates=settings.templates, origin=str(settings.folder))


def _add_tokens(model: SentencePieceModel, settings: FolderSettings) -> None:
    """Add the tokens of the folder to those of the model, and correct the kinds of those that it has."""
    for token_id, added in sorted(settings.added.items()):
        kind = TokenKind.CONTROL if added.is_control else TokenKind.USER_DEFINED
        if token_id < len(model.tokens):
            if model.tokens[token_id] != added.text:
                raise Error(
                    f"{settings.folder}: token {token_id} is {short_repr(added.text)} in tokenizer_config.json,"
                    f" but {short_repr(model.tokens[token_id])} in the model of SentencePiece"
                )
            if model.kinds[token_id] in (TokenKind.NORMAL, TokenKind.UNUSED):
                model.kinds[token_id] = kind
            continue
        if token_id > len(model.tokens):
            raise Error(
                f"{settings.folder}: there is a token with the id {token_id}, but none with {len(model.tokens)}"
            )
        model.tokens.append(added.text)
        model.scores.append(0.0)
        model.kinds.append(kind)


def _vocabulary(model: SentencePieceModel, origin: str) -> Vocabulary:
    tokens, kinds = tuple(model.tokens), bytes(model.kinds)
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        i = next(i for i, token in enumerate(tokens) if ids[token] != i)
        raise Error(f"{origin} has the token {short_repr(tokens[i])} twice, as {i} and {ids[tokens[i]]}")
    check_byte_tokens(tokens, kinds, origin)

    def inside(token_id: int) -> int | None:
        return token_id if 0 <= token_id < len(tokens) else None

    return Vocabulary(
        tokens,
        kinds,
        metaspace_piece,
        bos=inside(model.bos),
        eos=inside(model.eos),
        starts_with_space=model.adds_space,
        ids=ids,
    )


def _fragment_model(model: SentencePieceModel, vocabulary: Vocabulary, origin: str) -> FragmentModel:
    characters = CharacterMap(model.charsmap, f"{origin}: the character map") if model.charsmap else None
    normaliser = TextNormaliser(characters, merges_spaces=model.merges_spaces, adds_space=model.adds_space)
    unknown = model.unknown if 0 <= model.unknown < len(vocabulary.tokens) else None
    kind = ScoreMergeModel if model.model_type == BPE else UnigramModel
    return kind(vocabulary, model.scores, normaliser=normaliser, unknown=unknown, origin=origin)
