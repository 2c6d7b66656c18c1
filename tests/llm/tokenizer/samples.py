"""Texts, and small tokenizers that the package `tokenizers` trains, in the forms of GGUF metadata and folders."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

_WORDS = (
    "the of hello World I'm can't DON'T we'll It's 3.14 1234567 foo_bar camelCase HTTPServer naïve café Straße ПРИВЕТ мир"
    " Ελλάδα שלום مرحبا नमस्ते สวัสดี 你好世界 日本語テスト 한국어 ½ ² ① ５ Ⅷ ٣٤ 🦙 👨‍👩‍👧 🇩🇪 ﬁ Ω e\u0301 n\u0303o ǅ ʰ ªº \u0130"
    " ß ſ 'S 'T x² <s> </s> <unk> <|im_start|> <0x41> [CLS] #hash ## !!! ??? ... ---- {}()[] \"quoted\" `code` a/b\\c"
    " @user $5.00 €10 100% ^ ~ | & * + < > <= => ▁ ▁▁x \u200b \u200d \ufeff \u00a0 \u3000 \u00ad"
)
WORDS = _WORDS.split(" ")
SPACES = (" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t", " \n", "\n ", "     ", "\u3000", "")
RANGES = (
    *((0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F)),
    *((0x1E00, 0x1FFF), (0x2000, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFDC)),
    *((0x10000, 0x1044F), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF)),
)


def texts(seed: int, count: int, special: Sequence[str] = ()) -> list[str]:
    """Return texts of words, numbers, characters of many scripts and white space, with special tokens among them."""
    r = random.Random(seed)
    result: list[str] = []
    for _ in range(count):
        parts: list[str] = []
        for _ in range(r.randrange(1, 12)):
            kind = r.random()
            if kind < 0.5:
                parts.append(r.choice(WORDS))
            elif kind < 0.6:
                parts.append("".join(r.choices("0123456789", k=r.randrange(1, 9))))
            elif kind < 0.7 and special:
                parts.append(r.choice(special))
            elif kind < 0.85:
                low, high = r.choice(RANGES)
                parts.append("".join(chr(r.randrange(low, high + 1)) for _ in range(r.randrange(1, 5))))
            else:
                parts.append(r.choice("abcxyzABC.,'") * r.randrange(1, 9))
            parts.append(r.choice(SPACES))
        result.append("".join(parts))
    return result


def plain(text: str) -> str:
    """Return a text without the special tokens of `unigram`, and without ▁."""
    return text.replace("▁", "").replace("</s>", "").replace("<unk>", "")


# The regexes that the `tokenizer.json` of published models have.
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROLS, USER_DEFINED = ("<s>", "</s>", "<|im_start|>", "<|im_end|>"), ("<tool>", "  ", "    ")


@cache
def byte_level(pre: str) -> Any:
    """Return a byte-level BPE of `tokenizers` with the pre-tokenizer of a model."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    regexes = {"llama-bpe": LLAMA3, "qwen2": QWEN2, "gpt-4o": GPT4O}
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    steps = {
        "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
        **{name: [pre_tokenizers.Split(Regex(regex), "isolated"), bytes_only] for name, regex in regexes.items()},
    }[pre]
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, special_tokens=[*CONTROLS], show_progress=False
    )
    tokenizer.train_from_iterator(texts(1, 400), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in USER_DEFINED])
    return tokenizer


def byte_level_metadata(pre: str) -> dict[str, Any]:
    """Return the metadata that a GGUF file has for `byte_level(pre)`."""
    tokenizer = byte_level(pre)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    kinds = [3 if token in CONTROLS else 4 if token in USER_DEFINED else 1 for token in tokens]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tuple(tokens),
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": tuple(" ".join(merge) for merge in model["merges"]),
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("</s>"),
        "tokenizer.ggml.add_bos_token": False,
    }


@cache
def word_piece() -> Any:
    """Return a WordPiece of `tokenizers` as BERT has it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=1200, special_tokens=special, show_progress=False, limit_alphabet=400
    )
    tokenizer.train_from_iterator(texts(2, 400), trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    return tokenizer


def word_piece_metadata() -> dict[str, Any]:
    """Return the metadata that a GGUF file has for `word_piece()`: words start with ▁, and ## is left out."""
    tokenizer = word_piece()
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}

    def renamed(token: str) -> str:
        return token if token in special else token[2:] if token.startswith("##") else f"▁{token}"

    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": tuple(map(renamed, tokens)),
        "tokenizer.ggml.token_type": np.array([3 if token in special else 1 for token in tokens], np.int32),
        "tokenizer.ggml.cls_token_id": tokens.index("[CLS]"),
        "tokenizer.ggml.seperator_token_id": tokens.index("[SEP]"),
        "tokenizer.ggml.unknown_token_id": tokens.index("[UNK]"),
    }


@cache
def unigram() -> Any:
    """Return a unigram model of `tokenizers`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.decoder = decoders.Metaspace(split=False)
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=4000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([plain(text) for text in texts(3, 300)], trainer)
    return tokenizer


def unigram_metadata() -> dict[str, Any]:
    """Return the metadata that a GGUF file has for `unigram()`."""
    vocabulary = json.loads(unigram().to_str())["model"]["vocab"]
    kinds = {"<pad>": 3, "</s>": 3, "<unk>": 2}
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": tuple(token for token, _ in vocabulary),
        "tokenizer.ggml.scores": np.array([score for _, score in vocabulary], np.float64),
        "tokenizer.ggml.token_type": np.array([kinds.get(token, 1) for token, _ in vocabulary], np.int32),
        "tokenizer.ggml.add_space_prefix": True,
    }


def score_metadata(tokens: Sequence[str], scores: Sequence[float]) -> dict[str, Any]:
    """Return metadata of SentencePiece's BPE with these normal tokens, after `<unk>`, `<s>`, `</s>` and byte tokens."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    count = len(tokens)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ("<unk>", "<s>", "</s>", *bytes_, *tokens),
        "tokenizer.ggml.scores": np.array([*[0.0] * 259, *scores], np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3, *[6] * 256, *[1] * count], np.int32),
    }
