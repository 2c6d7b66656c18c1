"""Speculative decoding: texts are those of the model alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.llm import engine
from rlx.llm.draft import PromptLookup
from rlx.llm.pages import CachedText
from tests.llm.tiny_model import CONTEXT, write_model

_PROMPTS = ["the man in the inn and the", "the the the the the the the the", "a"]
_CALLS: list[dict[str, Any]] = [
    {"max_tokens": 40, "ignore_eos": True, "logprobs": 2},
    {"max_tokens": 40, "temperature": 0.7, "seed": 3, "logprobs": 2, "repetition_penalty": 1.1},
    {"max_tokens": 2, "ignore_eos": True},
    {"max_tokens": 1},
    {"max_tokens": 40, "temperature": 2.0, "seed": 1, "stop": ["e"]},
    {"ignore_eos": True},
]


def test_packed_weights_give_the_same_bits(tmp_path: Path) -> None:
    path, options = write_model(tmp_path / "packed.gguf", scheme="q8_0"), _CALLS[0]
    with rlx.llm.load(path, threads=1) as model, rlx.llm.load(path, threads=1, draft=PromptLookup()) as drafted:
        for prompt in _PROMPTS:
            expected, found = model.generate(prompt, **options), drafted.generate(prompt, **options)
            assert (found.tokens, found.logprobs) == (expected.tokens, expected.logprobs)


@pytest.fixture(scope="module", params=["itself", "another", "lookup"])
def drafted(request: pytest.FixtureRequest, model_path: Path, tmp_path_factory: Any) -> Iterator[rlx.llm.LLM]:
    other = tmp_path_factory.mktemp("draft") / "other.gguf"
    draft = {"itself": model_path, "another": write_model(other, seed=1), "lookup": PromptLookup()}[request.param]
    with rlx.llm.load(model_path, cache="f32", threads=1, draft=draft) as model:
        yield model


@pytest.mark.parametrize("call", range(len(_CALLS)))
def test_texts_are_those_of_the_model_alone(model: rlx.llm.LLM, drafted: rlx.llm.LLM, call: int) -> None:
    for prompt in _PROMPTS:
        expected, found = model.generate(prompt, **_CALLS[call]), drafted.generate(prompt, **_CALLS[call])
        assert (found.tokens, found.text) == (expected.tokens, expected.text)
        assert found.finish_reason == expected.finish_reason
        for a, b in zip(found.logprobs or [], expected.logprobs or [], strict=True):
            assert a == pytest.approx(b, abs=1e-4)  # a program with several rows rounds products of f32 differently
        streamed = list(drafted.stream(prompt, **_CALLS[call]))
        assert "".join(chunk.text for chunk in streamed) == expected.text
        assert [token for chunk in streamed for token in chunk.tokens] == expected.tokens


def test_acceptance(model: rlx.llm.LLM, model_path: Path) -> None:
    """The draft is the model itself: it is right, except where the roundings of several rows change a token."""
    options: dict[str, Any] = {"max_tokens": 21, "ignore_eos": True}
    assert model.generate("a", **options).proposed_tokens == 0
    with rlx.llm.load(model_path, cache="f32", threads=1, draft=model_path) as drafted:
        found = drafted.generate("a", **options)
        assert (found.proposed_tokens, found.accepted_tokens) == (15, 15)  # 20 tokens after the first, 3 of each 4
        last = [*drafted.stream("a", **options)][-1]
        assert (last.proposed_tokens, last.accepted_tokens) == (15, 15)
        sampled = drafted.generate("a", temperature=3.0, seed=1, **options)
        assert 0 <= sampled.accepted_tokens < sampled.proposed_tokens
        # Each run has the tokens of one proposal, the right ones and one more.
        assert sampled.accepted_tokens <= 20


def test_a_list_of_prompts_and_texts_interleaved(model: rlx.llm.LLM, drafted: rlx.llm.LLM) -> None:
    options: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True}
    expected = [c.text for c in model.generate(_PROMPTS, **options)]
    assert [c.text for c in drafted.generate(_PROMPTS, **options)] == expected
    streams, texts = [drafted.stream(prompt, **options) for prompt in _PROMPTS], [""] * len(_PROMPTS)
    for _ in range(25):
        for i, stream in enumerate(streams):
            chunk = next(stream, None)
            texts[i] += "" if chunk is None else chunk.text
    assert texts == expected


def test_right_proposals_save_runs(monkeypatch: pytest.MonkeyPatch, model_path: Path) -> None:
    """A model as its own draft is always right: a run for every four tokens."""
    counts: dict[str, int] = {}
    run = engine.Engine._run

    def counted(self: Any, entry: str, rows: Any) -> Any:
        if self.run_rows > 1:  # not the draft
            counts[entry] = counts.get(entry, 0) + 1
        return run(self, entry, rows)

    monkeypatch.setattr(engine.Engine, "_run", counted)
    with rlx.llm.load(model_path, cache="f32", threads=1, draft=model_path) as drafted:
        completion = drafted.generate(_PROMPTS[0], max_tokens=41, ignore_eos=True)
    assert len(completion.tokens) == 41 and counts == {"prefill": 1, "batch": 10}


def test_lookup_proposes_what_followed() -> None:
    proposer = PromptLookup(2).proposer(CachedText())
    assert proposer.propose([1, 2, 3], 3) == []
    assert proposer.propose([1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]
    assert proposer.propose([1, 2, 3, 4, 1, 2, 9, 2], 2) == [9, 2]  # the latest occurrence, of one token
    assert PromptLookup().proposer(CachedText()).propose([5, 5, 5], 2) == [5]


def test_drafts_are_checked(model_path: Path, tmp_path: Path) -> None:
    other: Any = {"tokenizer.ggml.tokens": [f"t{i}" for i in range(300)], "tokenizer.ggml.token_type": None}
    other["tokenizer.ggml.merges"] = []
    path = write_model(tmp_path / "other.gguf", rows=300, **other)
    with pytest.raises(rlx.Error, match="has other tokens than"):
        rlx.llm.load(model_path, draft=path)
    with pytest.raises(rlx.Error, match=r"no such|does not exist|cannot"):
        rlx.llm.load(model_path, draft=tmp_path / "absent.gguf")
    for length in (0, -1, 1.5, True):
        with pytest.raises(rlx.Error, match="length must be a positive integer"):
            PromptLookup(length)  # type: ignore[arg-type]
    assert rlx.llm.load(model_path, draft=PromptLookup()).context == CONTEXT
