"""Tokenizers in folders: settings, templates, and damaged files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rlx.llm.tokenizer import Tokenizer, tokenizer_from_folder
from rlx.support.errors import Error
from tests.llm.tokenizer import samples


def written(folder: Path, **files: Any) -> Tokenizer:
    """Return the tokenizer of a folder with a byte-level BPE and JSON files."""
    samples.byte_level("gpt-2").save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return tokenizer_from_folder(folder)


def test_settings(tmp_path: Path) -> None:
    tokenizer = written(
        tmp_path,
        tokenizer_config={"bos_token": {"content": "<s>"}, "eos_token": None},
        special_tokens_map={"eos_token": "</s>"},
        generation_config={"eos_token_id": [5, 6]},
    )
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (tokenizer.id("<s>"), tokenizer.id("</s>"))
    assert tokenizer.eos_token_ids == {5, 6, tokenizer.id("</s>"), tokenizer.id("<|im_end|>")}


def test_ends_of_config_json(tmp_path: Path) -> None:
    tokenizer = written(tmp_path, config={"eos_token_id": 7})
    assert 7 in tokenizer.eos_token_ids
    assert tokenizer.eos_token_id is None
    assert 7 not in written(tmp_path, generation_config={"eos_token_id": 8}).eos_token_ids


def test_chat_templates(tmp_path: Path) -> None:
    assert written(tmp_path).chat_template is None
    assert written(tmp_path, tokenizer_config={"chat_template": "a"}).chat_template == "a"
    named = [{"name": "default", "template": "b"}, {"name": "tool_use", "template": "c"}]
    tokenizer = written(tmp_path, tokenizer_config={"chat_template": named})
    assert tokenizer.chat_template == "b"
    assert tokenizer.apply_chat_template([], tools=[{}]) == "c"
    (tmp_path / "chat_template.jinja").write_text("é", encoding="utf-8")
    assert tokenizer_from_folder(tmp_path).chat_template == "é"


def test_byte_fallback_and_decoders(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Reference
    from tokenizers import decoders, models, normalizers

    vocabulary = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}, "▁": 257, "a": 258, "▁a": 259}
    reference = Reference(models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>", byte_fallback=True))
    reference.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    reference.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_folder(tmp_path)
    for text in ("a é 🙂", "a", "  a", "é"):
        ids = tokenizer.encode(text)
        assert ids == reference.encode(text).ids
        assert tokenizer.decode(ids) == reference.decode(ids) == text
        decoder = tokenizer.stream_decoder()
        assert "".join(map(decoder.push, ids)) + decoder.flush() == text


def test_added_tokens_of_sentencepiece(tmp_path: Path) -> None:
    from tests.llm.tokenizer.test_score_merges import model

    (tmp_path / "tokenizer.model").write_bytes(model("bpe", "identity", True, False))
    size = tokenizer_from_folder(tmp_path).vocab_size
    config = {"added_tokens_decoder": {str(size): {"content": "<|im_end|>", "special": True}}, "add_bos_token": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.encode("a<|im_end|>")[-1] == size
    assert tokenizer.bos_token_id not in tokenizer.encode("a")
    assert size in tokenizer.eos_token_ids
    config["added_tokens_decoder"] = {str(size + 5): {"content": "<|im_end|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(Error, match=f"a token with the id {size + 5}, but none with {size}"):
        tokenizer_from_folder(tmp_path)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"has no tokenizer: expected tokenizer\.json or tokenizer\.model"):
        tokenizer_from_folder(tmp_path)
    with pytest.raises(Error, match="no such directory"):
        tokenizer_from_folder(tmp_path / "nothing")


MISTAKES: list[tuple[str, Any, str]] = [
    ("tokenizer_config", [], "expected an object"),
    ("tokenizer_config", {"bos_token": 1}, "expected 'bos_token' to be a token"),
    ("tokenizer_config", {"bos_token": "<nothing>"}, "does not have the bos_token '<nothing>'"),
    ("tokenizer_config", {"add_bos_token": "yes"}, "expected 'add_bos_token' to be a boolean"),
    ("tokenizer_config", {"chat_template": 1}, "expected 'chat_template' to be a text or a list"),
    ("tokenizer_config", {"chat_template": [{"name": "a"}]}, "expected 'chat_template' to be a text or a list"),
    ("tokenizer_config", {"added_tokens_decoder": {"a": {}}}, "tokens by id"),
    ("generation_config", {"eos_token_id": "a"}, "expected 'eos_token_id' to be an id or a list of ids"),
    ("generation_config", {"eos_token_id": [10**9]}, "eos_token_id to be an id from 0 to"),
    ("added_tokens", {"a": -1}, "expected 'a' to be an id"),
]


@pytest.mark.parametrize(("name", "content", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_damaged_settings_are_errors(name: str, content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(Error, match=message):
        written(tmp_path, **{name: content})


def test_a_damaged_tokenizer_is_an_error(tmp_path: Path, seed: int) -> None:
    whole = samples.byte_level("gpt-2").to_str()
    r = random.Random(seed)
    for content in ("", "[]", "{}", '{"model": {}}', whole[:1000], whole.replace('"<s>":0', '"<s>":4000000000')):
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
        with pytest.raises(Error, match=r"tokenizer\.json"):
            tokenizer_from_folder(tmp_path)
    for _ in range(30):
        at = r.randrange(len(whole))
        damaged = whole[:at] + r.choice(('"', "{", "}", "1", "a", ",", "null")) + whole[at + r.randrange(4) :]
        (tmp_path / "tokenizer.json").write_text(damaged, encoding="utf-8")
        try:
            tokenizer = tokenizer_from_folder(tmp_path)
            tokenizer.decode(tokenizer.encode("Hello wörld"))
        except Error:
            continue


def test_a_template_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(Error, match="is not valid UTF-8"):
        written(tmp_path)
