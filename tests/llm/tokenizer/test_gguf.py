"""Defaults, end-of-generation tokens and damaged metadata of GGUF files."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from rlx.llm.tokenizer import tokenizer_from_gguf
from rlx.llm.tokenizer.byte_level import CHARACTER_OF
from rlx.llm.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from rlx.support.errors import Error
from tests.llm.tokenizer import samples

G = "tokenizer.ggml."
ALPHABET = tuple(CHARACTER_OF.values())


def bpe(*tokens: str, kinds: dict[str, int] | None = None, **entries: Any) -> dict[str, Any]:
    """Return metadata of a byte-level BPE with these tokens after the bytes."""
    every = (*ALPHABET, *tokens)
    return {
        f"{G}model": "gpt2",
        f"{G}pre": "gpt-2",
        f"{G}tokens": every,
        f"{G}token_type": np.array([(kinds or {}).get(token, 1) for token in every], np.int32),
        f"{G}merges": (),
        **{f"{G}{key}": value for key, value in entries.items()},
    }


def ends(metadata: dict[str, Any]) -> set[str]:
    tokenizer = tokenizer_from_gguf(metadata, "a.gguf")
    return {tokenizer.token(i) for i in tokenizer.eos_token_ids}


def test_ends_of_generation() -> None:
    names = ("<|im_end|>", "<|endoftext|>", "xx", "<|file_sep|>", "<|fim_pad|>", "<|fim_prefix|>")
    found = ends(bpe(*names, eos_token_id=256, eot_token_id=258))
    assert found == {"<|im_end|>", "<|endoftext|>", "xx", "<|file_sep|>", "<|fim_pad|>"}


def test_end_is_not_an_end_in_gpt_oss() -> None:
    metadata = bpe("<|end|>", "<|return|>", "<|call|>", "<|channel|>", eos_token_id=257, kinds={"<|channel|>": 3})
    assert ends(metadata) == {"<|return|>", "<|call|>"}
    tokenizer = tokenizer_from_gguf(metadata, "a.gguf")
    shown = [tokenizer.is_control(tokenizer.id(token)) for token in ("<|end|>", "<|channel|>", "<|call|>")]
    assert shown == [False, False, True]
    assert ends(bpe("<|end|>", eos_token_id=0)) == {"<|end|>", ALPHABET[0]}


def test_markers_of_other_kinds_become_control_tokens() -> None:
    tokenizer = tokenizer_from_gguf(bpe("<|im_end|>", "<PRE>", kinds={"<PRE>": 4}), "a.gguf")
    assert tokenizer.is_control(256)
    assert tokenizer.is_control(257)
    assert tokenizer.encode("<|im_end|>", parse_special=False) != [256]


@pytest.mark.parametrize(
    ("metadata", "bos", "eos", "prefix", "suffix"),
    [
        (bpe(), None, 11, (), ()),
        (bpe(pre="llama-bpe", bos_token_id=1), 1, 11, (1,), ()),
        (bpe(pre="tekken", bos_token_id=1, add_bos_token=False, add_eos_token=True), 1, 11, (), (11,)),
        (bpe(pre="glm4"), None, 11, (), ()),
        (samples.score_metadata(["▁"], [0.0]), 1, 2, (1,), ()),
        (samples.unigram_metadata(), None, 1, (), (1,)),
        (samples.word_piece_metadata(), 2, None, (2,), (3,)),
    ],
    ids=["gpt2", "llama-bpe", "tekken", "glm4", "llama", "t5", "bert"],
)
def test_defaults(
    metadata: dict[str, Any], bos: int | None, eos: int | None, prefix: tuple[int, ...], suffix: tuple[int, ...]
) -> None:
    tokenizer = tokenizer_from_gguf(metadata, "a.gguf")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (bos, eos)
    assert tokenizer.encode("") == [*prefix, *suffix]


def test_control_tokens_of_phi_3_absorb_white_space() -> None:
    metadata = bpe("<|user|>", "<|endoftext|>", kinds={"<|user|>": 3, "<|endoftext|>": 3})
    text = "<|user|>\n a<|endoftext|> a"
    assert tokenizer_from_gguf(metadata, "a.gguf").decode([256]) == "<|user|>"
    for name, expected in (("Phi-3-mini", "<|user|>a<|endoftext|> a"), ("other", text)):
        tokenizer = tokenizer_from_gguf(metadata | {"general.name": name}, "a.gguf")
        assert tokenizer.decode(tokenizer.encode(text)) == expected


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS.keys() - {""}))
def test_each_pre_tokenizer_keeps_the_text(name: str, seed: int) -> None:
    metadata = bpe(pre=name)
    if PRE_TOKENIZERS[name].is_raw:
        metadata = samples.score_metadata(["▁", "\n", "a"], [0.0, 0.0, 0.0])
        metadata |= {f"{G}model": "gpt2", f"{G}merges": (), f"{G}pre": name, f"{G}bos_token_id": 1}
    tokenizer = tokenizer_from_gguf(metadata, "a.gguf")
    for text in [*samples.texts(seed, 20), "1" * 20_000, "A" * 20_000, " " * 20_000 + "a", "\r\n" * 5000, "'" * 9000]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text.replace("▁", " " if PRE_TOKENIZERS[name].is_raw else "▁")


def test_an_unknown_pre_tokenizer_names_known_ones() -> None:
    with pytest.raises(Error, match=r"unknown pre-tokenizer 'new' .* chatglm-bpe, .* qwen2, .* youtu"):
        tokenizer_from_gguf(bpe(pre="new"), "a.gguf")


@pytest.mark.parametrize("model", ["rwkv", "none", "no_vocab", "plamo2", ""])
def test_other_kinds_of_tokenizers(model: str) -> None:
    with pytest.raises(Error, match="expected a tokenizer of one of the types gpt2, llama, bert, t5, gemma4"):
        tokenizer_from_gguf({f"{G}model": model}, "a.gguf")


def without(metadata: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != f"{G}{key}"}


SCORES = samples.score_metadata(["▁", "a"], [0.0, 0.0])
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({}, r"there is no tokenizer\.ggml\.model"),
    (bpe() | {f"{G}model": 1}, r"tokenizer\.ggml\.model to be a string, got 1"),
    (without(bpe(), "tokens"), r"tokenizer\.ggml\.tokens is missing"),
    (bpe() | {f"{G}tokens": ()}, "at least one token"),
    (bpe() | {f"{G}tokens": np.zeros(3)}, r"tokenizer\.ggml\.tokens to be an array of strings"),
    (bpe() | {f"{G}tokens": ("a", 1)}, r"tokenizer\.ggml\.tokens to be an array of strings"),
    (bpe() | {f"{G}tokens": ("a", "\udcff")}, r"tokenizer\.ggml\.tokens\[1\] is not valid UTF-8"),
    (bpe("a"), r"tokens has the text 'a' twice, as 97 and 256"),
    (bpe() | {f"{G}token_type": np.ones(3, np.int32)}, r"token_type has 3 entries for 256 tokens"),
    (bpe() | {f"{G}token_type": (1, 2)}, r"token_type to be an array of numbers"),
    (bpe() | {f"{G}token_type": np.ones(256, np.float32)}, r"token_type to be an array of numbers"),
    (without(bpe(), "merges"), r"tokenizer\.ggml\.merges is missing"),
    (bpe(merges=("ab",)), r"merges\[0\]: expected two tokens with a space between them, got 'ab'"),
    (bpe("ab", merges=("a b", "a ")), r"merges\[1\]: expected two tokens"),
    (bpe(merges=("a b",)), r"merges\[0\] is 'a b', but 'ab' is not in the vocabulary"),
    (bpe("xyz", merges=("xy z",)), r"but 'xy' is not in the vocabulary"),
    (bpe(bos_token_id=256), r"bos_token_id to be an id from 0 to 255, got 256"),
    (bpe(eos_token_id=-1), r"eos_token_id to be an id"),
    (bpe(eot_token_id="1"), r"eot_token_id to be an id"),
    (bpe(fim_pad_token_id=1.5), r"fim_pad_token_id to be an id"),
    (bpe(add_bos_token=1), r"add_bos_token to be a boolean, got 1"),
    (bpe(pre="glm4", add_bos_token=True), r"add_bos_token is true, but there is no bos_token_id"),
    (bpe() | {"tokenizer.chat_template": 3}, r"tokenizer\.chat_template to be a string"),
    (without(SCORES, "scores"), r"scores is missing"),
    (SCORES | {f"{G}scores": np.zeros(3, np.float32)}, r"scores has 3 entries for 261 tokens"),
    (SCORES | {f"{G}scores": np.full(261, np.nan)}, r"scores has NaN for token 0"),
    (SCORES | {f"{G}tokens": ("<0x-1>", *SCORES[f"{G}tokens"][1:]), f"{G}token_type": np.full(261, 6)}, "byte token"),
    (samples.word_piece_metadata() | {f"{G}unknown_token_id": 10**6}, r"unknown_token_id to be an id"),
    (
        samples.unigram_metadata() | {f"{G}precompiled_charsmap": np.zeros(3, np.uint8)},
        "precompiled_charsmap is damaged",
    ),
    (samples.unigram_metadata() | {f"{G}precompiled_charsmap": "abc"}, "precompiled_charsmap to be an array of bytes"),
]


@pytest.mark.parametrize(("metadata", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_damaged_metadata_is_an_error(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(Error, match=message) as problem:
        tokenizer_from_gguf(metadata, "a.gguf")
    assert "a.gguf" in str(problem.value)


def test_missing_bytes_are_an_error_where_a_text_needs_them() -> None:
    metadata = bpe()
    kept = [i for i in range(256) if ALPHABET[i] != "Ã"]
    metadata[f"{G}tokens"] = tuple(ALPHABET[i] for i in kept)
    tokenizer = tokenizer_from_gguf(metadata, "a.gguf")
    assert tokenizer.encode("hello") == [*b"hello"]
    with pytest.raises(Error, match="no tokens for the bytes 0xC3 of the text"):
        tokenizer.encode("é")


def test_an_empty_token_and_unknown_types_are_no_problem() -> None:
    metadata = bpe("")
    metadata[f"{G}token_type"][3] = 77
    tokenizer = tokenizer_from_gguf(metadata, "a.gguf")
    assert tokenizer.token(256) == "[EMPTY_256]"
    assert tokenizer.encode("abc") == [*b"abc"]


VALUES: tuple[Any, ...] = (
    *(None, 0, -1, 2**40, 1.5, True, "", "x", (), ("a",), ("a b",), ("", ""), np.zeros(0), np.zeros(4, np.int32)),
    *(np.full(2000, 9, np.int64), np.full(5000, np.inf), np.zeros((2, 2)), np.zeros(8, np.uint8), ("\ud800",)),
)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "t5"])
def test_random_damage_is_an_error_or_harmless(kind: str, seed: int) -> None:
    whole = {
        "gpt2": samples.byte_level_metadata("gpt-2"),
        "llama": SCORES,
        "bert": samples.word_piece_metadata(),
        "t5": samples.unigram_metadata(),
    }[kind]
    keys = [*whole, *(f"{G}{name}" for name in ("precompiled_charsmap", "add_bos_token", "unknown_token_id", "pre"))]
    r = random.Random(seed)
    for _ in range(60):
        damaged = dict(whole)
        for key in r.sample(keys, r.randrange(1, 3)):
            if r.random() < 0.2:
                damaged.pop(key, None)
            else:
                damaged[key] = r.choice(VALUES)
        try:
            tokenizer = tokenizer_from_gguf(damaged, "a.gguf")
            ids = tokenizer.encode("Hello wörld <s> 123\n  x")
            assert all(0 <= i < tokenizer.vocab_size for i in ids)
            tokenizer.decode(ids)
        except Error:
            continue
