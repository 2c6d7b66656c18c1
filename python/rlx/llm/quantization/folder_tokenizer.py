"""The tokenizer of a folder as metadata of a GGUF file.

Source: llama.cpp, conversion/base.py and gguf-py/gguf/vocab.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlx.llm.quantization.pre_tokenizer_names import pre_tokenizer_name
from rlx.llm.tokenizer.folder_settings import FolderSettings, folder_settings
from rlx.llm.tokenizer.sentencepiece_model import BPE, SentencePieceModel, parsed_sentencepiece
from rlx.llm.tokenizer.vocabulary import END_TEXTS, METASPACE, TokenKind
from rlx.support.errors import Error, UnsupportedError
from rlx.support.files import read_bytes, read_json
from rlx.support.short import join_names, short_repr

_LARGEST = 64 << 20
_ADDED_SCORE, _PADDING_SCORE = -1000.0, -10000.0
_BYTE_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256))
# Names of special tokens in `tokenizer_config.json`, and in the keys of GGUF.
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "mask": "mask"}
_END_KEYS = ("eot_token_id", "eom_token_id")
_LOOK_SPECIAL = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")


@dataclass
class TokenList:
    """The tokens of a GGUF file.

    Attributes:
        model: `tokenizer.ggml.model`.
        pre: `tokenizer.ggml.pre`.
        texts: The text of each token; None for ids without one.
        kinds: The kind of each token, a number of `TokenKind`.
        scores: The score of each token, for models that use scores.
        merges: The merges, for models that use them.
        starts_with_space: A space is put in front of texts; None if the file does not say so.
        prefix: The tokens that are put in front of texts.
        suffix: The tokens that are put after texts.
        named: The tokens `"bos"` and `"eos"` that a model of SentencePiece names.
    """

    model: str
    pre: str
    texts: list[str | None]
    kinds: list[int]
    scores: list[float] | None = None
    merges: list[str] | None = None
    starts_with_space: bool | None = None
    prefix: list[str] = field(default_factory=list[str])
    suffix: list[str] = field(default_factory=list[str])
    named: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, token_id: int, text: str, is_control: bool) -> None:
        """Add a token, or change the kind of one."""
        while len(self.texts) <= token_id:
            self.texts.append(None)
            self.kinds.append(TokenKind.UNUSED)
            if self.scores is not None:
                self.scores.append(_PADDING_SCORE)
        control = is_control or _looks_special(text)
        self.kinds[token_id] = TokenKind.CONTROL if control else TokenKind.USER_DEFINED
        self.texts[token_id] = text if control else text.replace(METASPACE, " ")
        if self.scores is not None:
            self.scores[token_id] = _ADDED_SCORE


def tokenizer_pairs(folder: Path, rows: int, remarks: list[str]) -> dict[str, Any]:
    """Return the metadata of the tokenizer of a folder.

    Args:
        folder: The folder.
        rows: The number of rows of the embedding. Ids without a token get unused ones.
        remarks: Gets lines about properties that GGUF files cannot represent.

    Raises:
        Error: There is no tokenizer, a file is damaged, or there are more tokens than rows.
        UnsupportedError: The kind of tokenizer is not known.
    """
    settings = folder_settings(folder)
    tokens = _tokens(folder, remarks)
    for token_id, added in sorted(settings.added.items()):
        if token_id < rows:
            tokens.add(token_id, added.text, added.is_control)
    if len(tokens.texts) > rows:
        raise Error(
            f"{folder}: the tokenizer has {len(tokens.texts)} tokens, and the embedding of the model {rows} rows"
        )
    texts = [f"[PAD{i}]" if text is None else text for i, text in enumerate(tokens.texts)]
    missing = range(len(texts), rows)
    kinds = [*tokens.kinds, *(TokenKind.UNUSED for _ in missing)]
    pairs: dict[str, Any] = {
        "model": tokens.model,
        "pre": tokens.pre,
        "tokens": [*texts, *(f"[PAD{i}]" for i in missing)],
        "token_type": np.array(kinds, np.int32),
        "merges": tokens.merges,
    }
    if tokens.scores is not None:
        pairs["scores"] = np.array([*tokens.scores, *(_PADDING_SCORE for _ in missing)], np.float32)
    pairs |= _special(folder, settings, texts, tokens, remarks)
    if tokens.starts_with_space is not None:
        pairs["add_space_prefix"] = tokens.starts_with_space
    result = {f"tokenizer.ggml.{key}": value for key, value in pairs.items() if value is not None}
    return result | _templates(settings)


def _looks_special(text: str) -> bool:
    """Return whether a token is a control token by its form. Some models do not mark them."""
    brackets = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
    return text in _LOOK_SPECIAL or any(text.startswith(left) and text.endswith(right) for left, right in brackets)


def _tokens(folder: Path, remarks: list[str]) -> TokenList:
    binary, text = folder / "tokenizer.model", folder / "tokenizer.json"
    if binary.is_file():
        try:
            model = parsed_sentencepiece(read_bytes(binary, _LARGEST), str(binary))
        except Error:  # some families have a file of another format with this name
            if not text.is_file():
                raise
        else:
            return _of_sentencepiece(model, str(binary), text)
    if not text.is_file():
        raise Error(f"{folder} has no tokenizer: expected tokenizer.json or tokenizer.model")
    data = read_json(text)
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(model, dict) or not isinstance(data, dict):
        raise Error(f"cannot read {text}: expected an object with an entry 'model'")
    if model.get("type", "BPE") != "BPE":
        raise UnsupportedError(f"{text} has a tokenizer of the type {short_repr(model.get('type'))}; expected 'BPE'")
    tokens = _of_json(data, model, str(text), remarks)
    for added in _objects(data.get("added_tokens"), str(text), "added_tokens"):
        token_id, content = added.get("id"), added.get("content")
        if (
            type(token_id) is not int
            or not isinstance(content, str)
            or not 0 <= token_id <= len(tokens.texts) + _LARGEST
        ):
            raise Error(f"{text}: 'added_tokens' must have objects with 'id' and 'content', got {short_repr(added)}")
        tokens.add(token_id, content, added.get("special") is True)
    tokens.prefix, tokens.suffix = _affixes(data.get("post_processor"))
    return tokens


def _of_sentencepiece(model: SentencePieceModel, origin: str, text: Path) -> TokenList:
    """Return the tokens of a model. Where a folder has `tokenizer.json` too, the tokens around texts are those of that file."""
    if model.model_type != BPE:
        raise UnsupportedError(f"{origin} is a unigram model of SentencePiece, and BPE models are known")
    special = {"bos": model.bos, "eos": model.eos}
    named = {name: model.tokens[i] for name, i in special.items() if 0 <= i < len(model.tokens)}
    prefix, suffix = [named["bos"]] if "bos" in named else list[str](), list[str]()
    if text.is_file() and isinstance(data := read_json(text), dict):
        named = {}
        prefix, suffix = _affixes(data.get("post_processor"))
    return TokenList(
        "llama",
        "default",
        list[str | None](model.tokens),
        list(model.kinds),
        scores=list(model.scores),
        starts_with_space=None if model.adds_space else False,
        prefix=prefix,
        suffix=suffix,
        named=named,
    )


def _of_json(data: Mapping[str, Any], model: Mapping[str, Any], origin: str, remarks: list[str]) -> TokenList:
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or any(type(i) is not int for i in vocabulary.values()):
        raise Error(f"{origin}: 'vocab' must be an object with the id of each token")
    count = max(vocabulary.values(), default=-1) + 1
    if min(vocabulary.values(), default=0) < 0 or count > 2 * len(vocabulary) + _LARGEST // 64:
        raise Error(f"{origin}: the ids of 'vocab' must be from 0 to {len(vocabulary) - 1}")
    texts: list[str | None] = [None] * count
    for text, token_id in vocabulary.items():
        texts[token_id] = text
    kinds = [int(TokenKind.UNUSED if text is None else TokenKind.NORMAL) for text in texts]
    merges = [*_merges(model.get("merges"), origin)]
    if model.get("byte_fallback") is True:
        return _of_scores(data, model, texts, kinds, merges)
    pre = pre_tokenizer_name(data, model.get("ignore_merges") is True, origin, remarks)
    joined = [" ".join(part.replace(" ", chr(ord(" ") + 256)) for part in merge) for merge in merges]
    return TokenList("gpt2", pre, texts, kinds, merges=joined)


def _of_scores(
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    texts: list[str | None],
    kinds: list[int],
    merges: list[tuple[str, str]],
) -> TokenList:
    """Return the tokens of a model of SentencePiece that was converted to merges. A score is the rank of a merge."""
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    unknown = model.get("unk_token")
    for i, text in enumerate(texts):
        if text in _BYTE_TOKENS:
            kinds[i] = TokenKind.BYTE
        elif text is not None and text == unknown:
            kinds[i] = TokenKind.UNKNOWN
    scores = [-float(ranks.get(text or "", len(merges))) for text in texts]
    steps = [*_steps(data.get("normalizer"), "normalizers"), *_steps(data.get("pre_tokenizer"), "pretokenizers")]
    adds_space = any(
        step.get("type") == "Prepend" or (step.get("type") == "Metaspace" and step.get("prepend_scheme") != "never")
        for step in steps
    )
    return TokenList("llama", "default", texts, kinds, scores=scores, starts_with_space=adds_space)


def _merges(values: object, origin: str) -> Iterator[tuple[str, str]]:
    """Yield the merges, which are pairs or, in older files, texts."""
    for value in values if isinstance(values, list) else []:
        pair = value.split(" ", 1) if isinstance(value, str) else value
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
            raise Error(f"{origin}: expected pairs of tokens in 'merges', got {short_repr(value)}")
        yield pair[0], pair[1]


def _objects(values: object, origin: str, name: str) -> list[dict[str, Any]]:
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise Error(f"{origin}: '{name}' must be a list of objects, got {short_repr(values)}")
    return values


def _steps(step: object, key: str) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normalizer or another part, those of a sequence one by one."""
    if isinstance(step, dict):
        parts = step.get(key) if step.get("type") == "Sequence" else [step]
        yield from (part for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ()


def _affixes(processor: object) -> tuple[list[str], list[str]]:
    """Return the tokens that a post-processor puts in front of a text and after it."""
    prefix: list[str] = []
    suffix: list[str] = []
    for step in _steps(processor, "processors"):
        kind, single = step.get("type"), step.get("single")
        if kind == "TemplateProcessing" and isinstance(single, list):
            has_text = False
            for piece in single:
                token = piece.get("SpecialToken") if isinstance(piece, dict) else None
                if isinstance(token, dict) and isinstance(token.get("id"), str):
                    (suffix if has_text else prefix).append(token["id"])
                has_text = has_text or (isinstance(piece, dict) and "Sequence" in piece)
        elif kind in ("BertProcessing", "RobertaProcessing"):
            for name, tokens in (("cls", prefix), ("sep", suffix)):
                pair = step.get(name)
                if isinstance(pair, list) and pair and isinstance(pair[0], str):
                    tokens.append(pair[0])
    return prefix, suffix


def _special(
    folder: Path, settings: FolderSettings, texts: list[str], tokens: TokenList, remarks: list[str]
) -> dict[str, Any]:
    """Return the ids of special tokens, and whether they are added. Those in no file of the tokenizer are in `config.json`.

    Whether the tokens are added is decided as for the folder itself: by the flag in `tokenizer_config.json`, and without one
    by the post-processor in `tokenizer.json`. `config.json` does not decide.
    """
    config, files = read_json(folder / "config.json"), folder / "tokenizer_config.json"
    named = read_json(files) if files.is_file() else {}
    ids = {text: i for i, text in enumerate(texts)}
    pairs: dict[str, Any] = {}
    for name, key in _SPECIAL.items():
        value = named.get(f"{name}_token") if isinstance(named, dict) else None
        text = value.get("content") if isinstance(value, dict) else value
        if text is None and name in ("bos", "eos"):
            text = settings.bos if name == "bos" else settings.eos
        token_id = ids.get(text) if isinstance(text, str) else None
        if token_id is None:
            stored = config.get(f"{name}_token_id")
            token_id = stored[0] if isinstance(stored, list) and stored else stored
        if type(token_id) is int and 0 <= token_id < len(texts):
            pairs[f"{key}_token_id"] = token_id
    around = (
        ("bos", tokens.prefix, settings.bos, settings.adds_bos),
        ("eos", tokens.suffix, settings.eos, settings.adds_eos),
    )
    for name, added, text, flag in around:
        own = tokens.named.get(name) if text is None else text
        adds = bool(added) if flag is None or own is None or added not in ([], [own]) else flag
        if text is None and (used := own or next(iter(added), None)) in ids:
            pairs[f"{name}_token_id"] = ids[used]
        if len(added) > 1 or (added and own is not None and added != [own]):
            remarks.append(f"GGUF files have one {name}_token for texts, and the tokenizer adds {join_names(added)}")
        pairs[f"add_{name}_token"] = adds and f"{name}_token_id" in pairs
    return pairs | _ends(settings, texts, pairs.get("eos_token_id"), remarks)


def _ends(settings: FolderSettings, texts: list[str], eos: int | None, remarks: list[str]) -> dict[str, int]:
    """Return the keys of further tokens that end a generation. Readers know some of them by their texts."""
    inside = [i for i in sorted(settings.ends) if i != eos and i < len(texts)]
    others = [i for i in inside if texts[i] not in END_TEXTS]
    if len(others) > len(_END_KEYS):
        ignored = join_names([repr(texts[i]) for i in others[len(_END_KEYS) :]])
        remarks.append(f"GGUF files have no keys for more than three tokens that end a generation: {ignored} do not")
    return dict(zip(_END_KEYS, others, strict=False))


def _templates(settings: FolderSettings) -> dict[str, Any]:
    result: dict[str, Any] = {}
    others = [name for name in settings.templates if name != "default"]
    for name, text in settings.templates.items():
        result["tokenizer.chat_template" if name == "default" else f"tokenizer.chat_template.{name}"] = text
    return result | ({"tokenizer.chat_templates": others} if others else {})
