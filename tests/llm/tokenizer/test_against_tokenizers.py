"""Ids and texts against the package `tokenizers`, on tokenizers that it trains, as GGUF metadata and as folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlx.llm.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from tests.llm.tokenizer import samples

PRE = ("gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o")
SPECIAL = (*samples.CONTROLS, *samples.USER_DEFINED)


def saved(reference: Any, folder: Path, **config: object) -> Tokenizer:
    reference.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer_from_folder(folder)


@pytest.mark.parametrize("pre", PRE)
def test_byte_level_bpe(pre: str, seed: int, tmp_path: Path) -> None:
    reference = samples.byte_level(pre)
    from_gguf = tokenizer_from_gguf(samples.byte_level_metadata(pre), "a.gguf")
    from_folder = saved(reference, tmp_path, bos_token="<s>", eos_token="</s>")
    assert from_gguf.vocab_size == from_folder.vocab_size == reference.get_vocab_size()
    assert from_gguf.bos_token_id == from_folder.bos_token_id == reference.token_to_id("<s>")
    for text in samples.texts(seed, 300, SPECIAL):
        ids = reference.encode(text).ids
        assert from_gguf.encode(text) == from_folder.encode(text) == ids, repr(text)
        assert from_gguf.decode(ids) == from_folder.decode(ids) == text


@pytest.mark.parametrize("pre", PRE[:2])
def test_control_tokens_are_plain_text_unless_asked_for(pre: str, seed: int, tmp_path: Path) -> None:
    from_gguf = tokenizer_from_gguf(samples.byte_level_metadata(pre), "a.gguf")
    from_folder = saved(samples.byte_level(pre), tmp_path)
    controls = {from_gguf.id(token) for token in samples.CONTROLS}
    for text in samples.texts(seed + 1, 200, SPECIAL):
        ids = from_gguf.encode(text, parse_special=False)
        assert ids == from_folder.encode(text, parse_special=False)
        assert not controls.intersection(ids)
        assert from_gguf.decode(ids) == text
    assert from_gguf.id("<tool>") in from_gguf.encode("a<tool>b", parse_special=False)


def test_word_piece(seed: int, tmp_path: Path) -> None:
    reference = samples.word_piece()
    from_gguf = tokenizer_from_gguf(samples.word_piece_metadata(), "a.gguf")
    from_folder = saved(reference, tmp_path)
    for text in samples.texts(seed, 300):
        text = text.replace("▁", "")  # in GGUF files, it marks the start of a word
        ids = reference.encode(text).ids
        assert from_gguf.encode(text) == from_folder.encode(text) == ids, repr(text)
        expected = reference.decode(ids, skip_special_tokens=True)
        assert from_gguf.decode(ids, True) == from_folder.decode(ids, True) == expected


def test_unigram(seed: int, tmp_path: Path) -> None:
    reference = samples.unigram()
    metadata = samples.unigram_metadata()
    from_gguf = tokenizer_from_gguf(metadata, "a.gguf")
    from_folder = saved(reference, tmp_path)
    scores = metadata["tokenizer.ggml.scores"]

    def check(ids: list[int], expected: list[int], text: str) -> None:
        # Of splits with the same sum of scores, either may be chosen: files round the scores.
        assert ids == expected or sum(scores[ids]) == pytest.approx(sum(scores[expected]), rel=1e-12), repr(text)

    for text in samples.texts(seed, 300):
        check(from_folder.encode(text), reference.encode(text).ids, text)
        text = samples.plain(text).lstrip(" ")  # the reference adds no space to a text that starts with one
        ids = reference.encode(text).ids
        check(from_gguf.encode(text, add_special_tokens=False), ids, text)
        if reference.token_to_id("<unk>") not in ids:  # the reference loses all spaces of the first token
            assert from_gguf.decode(ids) == from_folder.decode(ids) == text


def test_bytes_that_are_not_utf_8(seed: int) -> None:
    tokenizer = tokenizer_from_gguf(samples.byte_level_metadata("gpt-2"), "a.gguf")
    reference = samples.byte_level("gpt-2")
    for i, text in enumerate(samples.texts(seed, 200)):
        ids = tokenizer.encode(text)
        cut = ids[i % 3 : len(ids) - i % 2]
        assert tokenizer.decode(cut, True) == reference.decode(cut, True)
        assert tokenizer.decode_bytes(cut).decode("utf-8", "replace") == tokenizer.decode(cut)
        decoder = tokenizer.stream_decoder()
        pushed = [decoder.push(token_id) for token_id in cut]
        assert "".join(pushed) + decoder.flush() == tokenizer.decode(cut, True)
        assert not any("\ufffd" in part for part in pushed[1:]) or "\ufffd" in tokenizer.decode(cut, True)


@pytest.mark.parametrize("add_bos", [True, False, None])
@pytest.mark.parametrize("has_template", [True, False])
def test_bos_in_a_folder(add_bos: bool | None, has_template: bool, tmp_path: Path) -> None:
    """The post-processor decides, unless the configuration does."""
    from tokenizers import Tokenizer as Reference
    from tokenizers import processors

    reference = Reference.from_str(samples.byte_level("gpt-2").to_str())
    if has_template:
        ids = [("<s>", reference.token_to_id("<s>"))]
        reference.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=ids)
    config = {} if add_bos is None else {"add_bos_token": add_bos}
    tokenizer = saved(reference, tmp_path, bos_token={"content": "<s>"}, **config)
    expected = has_template if add_bos is None else add_bos
    assert (tokenizer.encode("hello")[0] == tokenizer.bos_token_id) is expected


def test_transformers_agrees(seed: int, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = saved(samples.byte_level("qwen2"), tmp_path, eos_token="</s>", tokenizer_class="PreTrainedTokenizerFast")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    for text in samples.texts(seed + 2, 100, SPECIAL):
        ids = theirs.encode(text)
        assert ours.encode(text) == ids
        assert ours.decode(ids, True) == theirs.decode(ids, True, clean_up_tokenization_spaces=False)
