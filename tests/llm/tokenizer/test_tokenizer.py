"""The members of `Tokenizer` and `StreamDecoder`."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from rlx.llm.tokenizer import Tokenizer, tokenizer_from_gguf
from rlx.support.errors import Error
from tests.llm.tokenizer import samples

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"


@pytest.fixture
def tokenizer() -> Tokenizer:
    metadata = samples.byte_level_metadata("gpt-2") | {"tokenizer.chat_template": TEMPLATE}
    return tokenizer_from_gguf(metadata | {"tokenizer.ggml.add_bos_token": True}, "a.gguf")


def test_tokens_and_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == samples.byte_level("gpt-2").get_vocab_size()
    for token_id in range(tokenizer.vocab_size):
        assert tokenizer.id(tokenizer.token(token_id)) == token_id
    assert tokenizer.token(np.int64(3)) == tokenizer.token(3)
    assert tokenizer.token(tokenizer.bos_token_id or 0) == "<s>"
    assert tokenizer.eos_token_ids == {tokenizer.id("</s>"), tokenizer.id("<|im_end|>")}
    assert [tokenizer.is_control(tokenizer.id(token)) for token in ("<|im_start|>", "<tool>", "a")] == [
        True,
        False,
        False,
    ]
    assert "a.gguf" in repr(tokenizer)


@pytest.mark.parametrize("token_id", [-1, 10**9, 1.0, "a", None, True])
def test_ids_outside_the_vocabulary(tokenizer: Tokenizer, token_id: Any) -> None:
    for call in (tokenizer.token, tokenizer.is_control, tokenizer.kind, lambda i: tokenizer.decode([i])):
        with pytest.raises(Error, match="expected a token id from 0 to"):
            call(token_id)


def test_an_unknown_token_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(Error, match="has no token '<nothing>'"):
        tokenizer.id("<nothing>")


def test_special_tokens_are_added_once(tokenizer: Tokenizer) -> None:
    bos = tokenizer.bos_token_id
    assert tokenizer.encode("hello") == [bos, *tokenizer.encode("hello", add_special_tokens=False)]
    assert tokenizer.encode("") == [bos]
    assert tokenizer.encode("", add_special_tokens=False) == []


def test_control_tokens_are_skipped(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>a<tool>b<|im_end|>")
    assert tokenizer.decode(ids) == "<s><|im_start|>a<tool>b<|im_end|>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a<tool>b"
    assert tokenizer.decode_bytes(ids) == b"<s><|im_start|>a<tool>b<|im_end|>"
    decoder = tokenizer.stream_decoder()
    assert "".join(map(decoder.push, ids)) + decoder.flush() == "a<tool>b"


def test_text_that_is_not_unicode(tokenizer: Tokenizer) -> None:
    with pytest.raises(Error, match="not valid Unicode"):
        tokenizer.encode("a\ud800")
    for text in (b"a", None, ["a"]):
        with pytest.raises(Error, match="expected a text to encode"):
            tokenizer.encode(text)  # type: ignore[arg-type]


def test_a_stream_has_whole_characters_only(tokenizer: Tokenizer) -> None:
    smile = [tokenizer.id(character) for character in "ðŁĻĤ"]
    assert tokenizer.decode_bytes(smile).decode() == "🙂"
    decoder = tokenizer.stream_decoder()
    assert [decoder.push(i) for i in smile] == ["", "", "", "🙂"]
    assert [decoder.push(i) for i in (*smile[:2], tokenizer.id("a"))] == ["", "", "\ufffda"]
    assert (decoder.push(smile[0]), decoder.flush(), decoder.flush()) == ("", "\ufffd", "")
    assert tokenizer.decode([*smile[:2], tokenizer.id("a"), smile[0]]) == "\ufffda\ufffd"


def test_the_space_of_a_continuation_is_kept() -> None:
    metadata = samples.score_metadata(["▁Paris", "▁in", "▁"], [1.0, 1.0, 0.0])
    tokenizer = tokenizer_from_gguf(metadata, "a.gguf")
    ids = [tokenizer.id("▁Paris"), tokenizer.id("▁in")]
    assert tokenizer.decode(ids) == "Paris in"
    assert tokenizer.decode([1, *ids]) == "<s> Paris in"
    assert tokenizer.decode([1, *ids], skip_special_tokens=True) == "Paris in"
    for keeps, first in ((False, "Paris"), (True, " Paris")):
        decoder = tokenizer.stream_decoder(keeps_space=keeps)
        assert [decoder.push(i) for i in (1, *ids)] == ["", first, " in"]


def test_chat_templates(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "a"}]
    assert tokenizer.chat_template == TEMPLATE
    text = tokenizer.apply_chat_template(messages)
    assert text == "<|im_start|>user\na<|im_end|>"
    assert tokenizer.apply_chat_template(messages, tokenize=True) == tokenizer.encode(text, add_special_tokens=False)
    other = "{{ bos_token }}{{ eos_token }}{{ thinks }}{{ add_generation_prompt }}"
    assert tokenizer.apply_chat_template(messages, chat_template=other, thinks=1) == "<s></s>1True"
    tokenizer.chat_template = "new"
    assert tokenizer.apply_chat_template(messages) == "new"
    tokenizer.chat_template = None
    with pytest.raises(Error, match=r"a\.gguf has no chat template"):
        tokenizer.apply_chat_template(messages)
    with pytest.raises(Error, match="must be the text of a template"):
        tokenizer.chat_template = 1  # type: ignore[assignment]


def test_templates_by_name() -> None:
    metadata = samples.byte_level_metadata("gpt-2") | {
        "tokenizer.chat_template": "plain",
        "tokenizer.chat_template.tool_use": "{{ tools | length }} tools",
        "tokenizer.chat_template.rag": "rag",
    }
    tokenizer = tokenizer_from_gguf(metadata, "a.gguf")
    assert tokenizer.apply_chat_template([]) == "plain"
    assert tokenizer.apply_chat_template([], tools=[{}]) == "1 tools"
    assert tokenizer.apply_chat_template([], chat_template="rag") == "rag"


def test_threads_share_a_tokenizer(seed: int) -> None:
    tokenizer = tokenizer_from_gguf(samples.score_metadata(["▁", "a", "▁a", "aa"], [0.0, 0.0, 1.0, 2.0]), "a.gguf")
    texts = samples.texts(seed, 50)
    expected = [tokenizer.encode(text) for text in texts]
    results: list[list[list[int]]] = []

    def run() -> None:
        results.append([tokenizer.encode(text) for text in texts])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
