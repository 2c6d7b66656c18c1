"""Speculative decoding with models that have recurrent layers: texts are those of the model alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.llm import engine
from rlx.llm.draft import PromptLookup
from tests.llm.recurrent_models import write_recurrent_model

_NAMES = ("mamba2", "qwen3_next")
_PROMPTS = ["the man in the inn and the", "the the the the the the the the", "a", [7 + i % 9 for i in range(254)]]
_CALLS: list[dict[str, Any]] = [
    {"max_tokens": 20, "ignore_eos": True, "logprobs": 2},
    {"max_tokens": 20, "temperature": 0.7, "seed": 3, "logprobs": 2, "repetition_penalty": 1.1},
    {"max_tokens": 2, "ignore_eos": True},
    {"max_tokens": 20, "temperature": 2.0, "seed": 1, "stop": ["e"]},
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("recurrent_draft")
    return {name: write_recurrent_model(folder / f"{name}.gguf", name, scheme="q8_0", context=320) for name in _NAMES}


@pytest.fixture(scope="module", params=_NAMES)
def alone(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Iterator[rlx.llm.LLM]:
    with rlx.llm.load(paths[request.param], threads=1) as model:
        yield model


@pytest.mark.parametrize("draft", ["lookup", "mamba2"])
def test_texts_are_those_of_the_model_alone(alone: rlx.llm.LLM, paths: dict[str, Path], draft: str) -> None:
    """Mamba-2 proposes for itself, and is always right, and for Qwen3-Next, and is mostly wrong."""
    path = paths["mamba2" if alone.architecture == "mamba2" else "qwen3_next"]
    proposals = PromptLookup() if draft == "lookup" else paths[draft]
    with rlx.llm.load(path, threads=1, draft=proposals) as drafted:
        for options in _CALLS:
            for prompt in _PROMPTS:
                expected, found = alone.generate(prompt, **options), drafted.generate(prompt, **options)
                assert (found.tokens, found.finish_reason) == (expected.tokens, expected.finish_reason)
                for a, b in zip(found.logprobs or [], expected.logprobs or [], strict=True):
                    # Products with weights in floats are rounded otherwise in a program with several rows.
                    assert a == (b if alone.architecture == "mamba2" else pytest.approx(b, abs=1e-4))
        _check_interleaved(alone, drafted)


def _check_interleaved(alone: rlx.llm.LLM, drafted: rlx.llm.LLM) -> None:
    options: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True}
    expected = [c.text for c in alone.generate(_PROMPTS, **options)]
    streams, texts = [drafted.stream(prompt, **options) for prompt in _PROMPTS], [""] * len(_PROMPTS)
    for _ in range(25):
        for i, stream in enumerate(streams):
            chunk = next(stream, None)
            texts[i] += "" if chunk is None else chunk.text
    assert texts == expected


def test_right_proposals_save_runs(monkeypatch: pytest.MonkeyPatch, paths: dict[str, Path]) -> None:
    """A model as its own draft is always right: a run for every four tokens, and no prompt is computed twice."""
    counts: dict[str, int] = {}
    run = engine.Engine._run

    def counted(self: Any, entry: str, rows: Any) -> Any:
        own = entry if self.run_rows > 1 else f"{entry} of the draft"
        counts[own] = counts.get(own, 0) + 1
        return run(self, entry, rows)

    monkeypatch.setattr(engine.Engine, "_run", counted)
    with rlx.llm.load(paths["mamba2"], threads=1, draft=paths["mamba2"]) as drafted:
        completion = drafted.generate(_PROMPTS[0], max_tokens=41, ignore_eos=True)
    assert len(completion.tokens) == 41
    assert counts.pop("batch") == counts.pop("prefill") * 10 == 10
    assert counts == {"prefill of the draft": 1, "decode of the draft": 2 + 9 * 4}


def test_texts_without_room_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, alone: rlx.llm.LLM, paths: dict[str, Path]
) -> None:
    """The states after proposed tokens are kept outside, too."""
    monkeypatch.setattr(engine, "LARGEST_CACHE", 0)
    monkeypatch.setattr(engine, "LARGEST_CHECKPOINTS", 0)
    path = paths["mamba2" if alone.architecture == "mamba2" else "qwen3_next"]
    with rlx.llm.load(path, threads=1, draft=paths["mamba2"], parallel=2) as drafted:
        _check_interleaved(alone, drafted)
