"""Speculative decoding with the head of Qwen3-Next that predicts further tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.llm import engine
from rlx.llm.pages import CachedText
from tests.llm.recurrent_models import table_of_tokens, write_recurrent_model
from tests.llm.tiny_model import write_model
from tests.models.numpy_prediction_head import CONTENT, predicted, tensors_with_head

_CONTEXT = 288
_PROMPTS: list[Any] = [
    "the man in the inn and the",
    "a",
    [7 + i % 9 for i in range(254)],
    [7 + i % 9 for i in range(256)],
]
_CALLS: list[dict[str, Any]] = [
    {"max_tokens": 16, "ignore_eos": True, "logprobs": 2},
    {"max_tokens": 16, "temperature": 0.7, "seed": 3, "repetition_penalty": 1.1},
    {"max_tokens": 1, "ignore_eos": True},
    {"max_tokens": 16, "temperature": 2.0, "seed": 1, "stop": ["e"]},
    {"ignore_eos": True, "temperature": 1.0, "seed": 7},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("mtp") / "model.gguf"
    return write_recurrent_model(file, "qwen3_next", context=_CONTEXT, has_head=True)


@pytest.fixture(scope="module")
def drafted(path: Path) -> Iterator[rlx.llm.LLM]:
    with rlx.llm.load(path, threads=1, cache="f32", draft=rlx.llm.PredictionHead()) as model:
        yield model


def test_texts_are_those_of_the_model_alone(path: Path, drafted: rlx.llm.LLM) -> None:
    with rlx.llm.load(path, threads=1, cache="f32") as alone:
        for options in _CALLS:
            for prompt in _PROMPTS if "max_tokens" in options else _PROMPTS[2:]:  # to the end of the context
                expected, found = alone.generate(prompt, **options), drafted.generate(prompt, **options)
                assert (found.tokens, found.finish_reason) == (expected.tokens, expected.finish_reason)
                for a, b in zip(found.logprobs or [], expected.logprobs or [], strict=True):
                    assert a == pytest.approx(b, abs=1e-4)
        options = {"max_tokens": 20, "ignore_eos": True}
        expected = [c.tokens for c in alone.generate(_PROMPTS, **options)]
        streams = [drafted.stream(prompt, **options) for prompt in _PROMPTS]
        parts: list[list[int]] = [[] for _ in streams]
        for _ in range(25):
            for own, stream in zip(parts, streams, strict=True):
                own += [token for chunk in [next(stream, None)] if chunk is not None for token in chunk.tokens]
        assert parts == expected


class _Reference:
    """The head in NumPy, with the states of a model."""

    def __init__(self, model: rlx.llm.LLM):
        self.model = model
        width = CONTENT["config"]["hidden_size"]
        tables = {"model.embed_tokens.weight": table_of_tokens(0, width), "lm_head.weight": table_of_tokens(1, width)}
        self.tensors = tensors_with_head() | tables

    def predictions(self, tokens: list[int], count: int) -> list[int]:
        """Return the tokens that follow, predicted from the states of all but the last one."""
        hidden = self.model.engine.hidden_states(tokens[:-1]).astype(np.float64)
        following, results = tokens[1:], list[int]()
        for _ in range(count):
            logits, states = predicted(self.tensors, CONTENT["config"], np.array(following), hidden)
            results.append(int(logits[-1].argmax()))
            hidden, following = np.concatenate([hidden, states[-1:]]), [*following, results[-1]]
        return results


@pytest.mark.parametrize("length", [1, 2, 251, 255, 256])
def test_predictions_are_those_of_the_head(drafted: rlx.llm.LLM, length: int) -> None:
    """After a prompt, and after right and wrong proposals; tokens are around the end of a page."""
    reference, own = _Reference(drafted), drafted.engine
    rng = np.random.default_rng(length)
    text, prompt = CachedText(), rng.integers(6, 200, length).tolist()
    own.start(text, prompt)
    for accepted in (1, 3, 4, 2):
        fed = rng.integers(6, 200, 4).tolist()
        tokens = [*text.tokens, *text.proposed[: text.length - len(text.tokens)], fed[0]]
        assert own.predict(text, fed[0], 3) == reference.predictions(tokens, 3)
        own.verify(text, fed)
        text.continue_at(len(text.tokens) + accepted)
    own.step(text, 9)
    assert own.predict(text, 8, 1) == reference.predictions([*text.tokens, 8], 1)
    text.is_done = True


def test_a_prompt_in_the_cache_has_no_state(drafted: rlx.llm.LLM) -> None:
    """There are proposals after the first further token."""
    prompt, texts = [11 + i % 50 for i in range(30)], [CachedText(), CachedText()]
    for text in texts:
        drafted.engine.start(text, prompt)
    assert texts[1].cached_tokens == len(prompt)
    assert len(drafted.engine.predict(texts[0], 7, 3)) == 3 and drafted.engine.predict(texts[1], 7, 3) == []
    drafted.engine.step(texts[1], 7)
    assert len(drafted.engine.predict(texts[1], 8, 3)) == 3
    for text in texts:
        text.is_done = True


def test_right_predictions_save_runs(monkeypatch: pytest.MonkeyPatch, drafted: rlx.llm.LLM) -> None:
    expected = drafted.generate(_PROMPTS[0], max_tokens=24, ignore_eos=True).tokens
    counts: dict[str, int] = {}
    run = engine.Engine._run

    def counted(self: Any, entry: str, rows: Any) -> Any:
        counts[entry] = counts.get(entry, 0) + 1
        return run(self, entry, rows)

    def right(self: Any, text: CachedText, token: int, count: int) -> list[int]:
        done = text.length + 1 - prompt_length
        return expected[done : done + count]

    prompt_length = len(drafted.tokenizer.encode(_PROMPTS[0]))
    monkeypatch.setattr(engine.Engine, "_run", counted)
    monkeypatch.setattr(engine.Engine, "_predict", right)
    assert drafted.generate(_PROMPTS[0], max_tokens=24, ignore_eos=True).tokens == expected
    assert counts == {"batch": 6}  # one for four tokens: the first token is that of the cached prompt


def test_the_word_of_the_command_line_is_a_path_here(path: Path) -> None:
    with pytest.raises(rlx.Error, match=r"no such file: mtp(.|\n)*PredictionHead"):
        rlx.llm.load(path, draft="mtp")


def test_models_without_a_head_are_refused(tmp_path: Path) -> None:
    paths = [write_model(tmp_path / "other.gguf"), write_recurrent_model(tmp_path / "model.gguf", "qwen3_next")]
    for other in paths:
        with pytest.raises(rlx.UnsupportedError, match="has no head that predicts further tokens"):
            rlx.llm.load(other, draft=rlx.llm.PredictionHead())
