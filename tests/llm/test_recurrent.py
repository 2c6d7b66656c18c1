"""Models with recurrent layers: several texts at once, checkpoints of prompts, and proposed tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.llm import engine
from rlx.models import load
from tests.llm.recurrent_models import write_recurrent_model
from tests.llm.tiny_model import write_model

# Lengths below the window of the convolution, and around the ends of pages.
_PROMPTS = [[7 + (i * (3 + n)) % 200 for i in range(n)] for n in (1, 2, 3, 4, 255, 256, 257, 300)]
_OPTIONS: dict[str, Any] = {"max_tokens": 10, "temperature": 1.0, "logprobs": 2, "ignore_eos": True}


@dataclass
class _Models:
    """A model that computes one text at a time, and the same model for several."""

    name: str
    path: Path
    alone: rlx.llm.LLM
    several: rlx.llm.LLM


@pytest.fixture(scope="module", params=["mamba2", "qwen3_next"])
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Models]:
    path = tmp_path_factory.mktemp("recurrent") / f"{request.param}.gguf"
    write_recurrent_model(path, request.param, scheme="q8_0")
    with rlx.llm.load(path, threads=1) as alone, rlx.llm.load(path, threads=1, parallel=3) as several:
        yield _Models(request.param, path, alone, several)


def _content(completion: Any) -> Any:
    return completion.text, completion.tokens, completion.logprobs


def _expected(models: _Models, prompts: Any = _PROMPTS, **options: Any) -> list[Any]:
    return [_content(models.alone.generate(p, seed=i, **_OPTIONS | options)) for i, p in enumerate(prompts)]


def _check(models: _Models, found: list[Any], expected: list[Any]) -> None:
    """Check that texts are those that are computed alone: bit for bit, if all products have kernels for packed weights."""
    assert [tokens for _, tokens, _ in found] == [tokens for _, tokens, _ in expected]
    if models.name == "mamba2":
        assert found == expected
    for (_, _, own), (_, _, other) in zip(found, expected, strict=True):
        for a, b in zip(own, other, strict=True):
            assert a == pytest.approx(b, abs=1e-4)


@pytest.mark.parametrize("name", ["mamba", "mamba2", "qwen3_next"])
def test_the_size_of_the_states(tmp_path: Path, name: str) -> None:
    model = load(write_recurrent_model(tmp_path / "model.gguf", name))
    states = [
        a for a in model.graph(context=8, slots=5, sequence=1).arguments if a.name.startswith(("conv_", "state_"))
    ]
    assert {a.shape.dims[0] for a in states} == {5}
    assert sum(a.shape.num_elements for a in states) == 5 * model.config.recurrent_elements
    assert load(write_model(tmp_path / "other.gguf")).config.recurrent_elements == 0


def test_a_list_of_prompts_and_several_samples(models: _Models) -> None:
    seeds = [models.alone.generate(prompt, seed=5, **_OPTIONS) for prompt in _PROMPTS]
    found = models.several.generate(_PROMPTS, seed=5, **_OPTIONS)
    _check(models, [_content(c) for c in found], [_content(c) for c in seeds])
    # A text alone is computed by the same program as several.
    assert _content(models.several.generate(_PROMPTS[6], seed=5, **_OPTIONS)) == _content(found[6])
    samples = models.several.generate(_PROMPTS[3], seed=5, n=4, **_OPTIONS)
    expected = [_content(models.alone.generate(_PROMPTS[3], seed=5 + i, **_OPTIONS)) for i in range(4)]
    _check(models, [_content(c) for c in samples], expected)


def test_mamba(tmp_path: Path) -> None:
    path = write_recurrent_model(tmp_path / "mamba.gguf", "mamba", scheme="q8_0")
    with rlx.llm.load(path, threads=1) as alone, rlx.llm.load(path, threads=1, parallel=3) as several:
        expected = [alone.generate(prompt, seed=5, **_OPTIONS).tokens for prompt in _PROMPTS[1:6]]
        found = several.generate(_PROMPTS[1:6], seed=5, **_OPTIONS)
        assert [c.tokens for c in found] == expected
        again = several.generate(_PROMPTS[4:6], seed=5, **_OPTIONS)
        assert [(c.tokens, c.cached_tokens) for c in again] == [(found[3].tokens, 255), (found[4].tokens, 256)]


def test_texts_join_and_leave_at_different_times(models: _Models) -> None:
    expected = _expected(models)
    streams = [models.several.stream(prompt, seed=i, **_OPTIONS) for i, prompt in enumerate(_PROMPTS)]
    parts: list[list[Any]] = [[] for _ in streams]
    other = models.several.stream(_PROMPTS[4], ignore_eos=True)
    for step in range(60):
        for number, stream in enumerate(streams):
            if number <= step // 2:
                parts[number] += [chunk for chunk in [next(stream, None)] if chunk is not None]
        if step == 5:
            next(other)
            other.cancel()
    found = [
        ("".join(c.text for c in own), [t for c in own for t in c.tokens], [p for c in own for p in c.logprobs])
        for own in parts
    ]
    _check(models, found, expected)


def test_threads_and_cancellation(models: _Models) -> None:
    """Texts of several threads are the same while others are cancelled, in their prompts and between tokens."""
    expected, results = _expected(models), list[Any]([None] * len(_PROMPTS))
    cancelled = [models.several.stream([9 + i] * 900, ignore_eos=True) for i in range(3)]

    def run(number: int) -> None:
        results[number] = _content(models.several.generate(_PROMPTS[number], seed=number, **_OPTIONS))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(_PROMPTS))]
    threads += [threading.Thread(target=list, args=(stream,)) for stream in cancelled]
    for thread in threads:
        thread.start()
    for stream in cancelled:
        stream.cancel()
    for thread in threads:
        thread.join()
    _check(models, results, expected)


def test_a_prompt_continues_from_the_longest_checkpoint(monkeypatch: pytest.MonkeyPatch, models: _Models) -> None:
    start = [11 + i % 90 for i in range(600)]
    prompts = [start, start[:300] + [5] * 20, [*start, 5, 6], start, start[:512], start[:513], start[:255]]
    cached = [0, 256, 600, 600, 512, 512, 0]
    found = [models.alone.generate(prompt, seed=i, **_OPTIONS) for i, prompt in enumerate(prompts)]
    assert [c.cached_tokens for c in found] == cached
    again = models.several.generate(prompts, seed=0, **_OPTIONS)
    assert [c.cached_tokens for c in again] == cached
    monkeypatch.setattr(engine, "LARGEST_CHECKPOINTS", 0)
    with rlx.llm.load(models.path, threads=1) as plain:
        expected = [plain.generate(prompt, seed=i, **_OPTIONS) for i, prompt in enumerate(prompts)]
        assert {c.cached_tokens for c in expected} == {0}
    assert [_content(c) for c in found] == [_content(c) for c in expected]
    if models.name != "mamba2":
        return
    # Few checkpoints: the ends of some pages only, and older ones make room.
    monkeypatch.setattr(engine, "LARGEST_CHECKPOINTS", 1 << 28)
    monkeypatch.setattr(engine, "_MOST_CHECKPOINTS", 2)
    with rlx.llm.load(models.path, threads=1) as few:
        found = [few.generate(prompt, seed=i, **_OPTIONS) for i, prompt in enumerate(prompts)]
        assert [_content(c) for c in found] == [_content(c) for c in expected]
        assert [c.cached_tokens for c in found][:4] == [0, 0, 600, 600]


def test_texts_without_room_in_the_cache(monkeypatch: pytest.MonkeyPatch, models: _Models) -> None:
    """The cache has room for one text. The others are outside, and each takes its place when it continues."""
    monkeypatch.setattr(engine, "LARGEST_CACHE", 0)
    monkeypatch.setattr(engine, "LARGEST_CHECKPOINTS", 0)
    monkeypatch.setattr("rlx.runtime.program.Program.set_state", None)  # it would copy the states of all texts
    prompts = _PROMPTS[1:6]
    expected = _expected(models, prompts)
    with rlx.llm.load(models.path, threads=1, parallel=3, context=512) as model:
        streams = [model.stream(prompt, seed=i, **_OPTIONS) for i, prompt in enumerate(prompts)]
        parts: list[list[Any]] = [[] for _ in prompts]
        for _ in range(40):
            for own, stream in zip(parts, streams, strict=True):
                own += [chunk for chunk in [next(stream, None)] if chunk is not None]
        assert [[t for c in own for t in c.tokens] for own in parts] == [tokens for _, tokens, _ in expected]
        found = [_content(c) for c in model.generate(prompts, seed=0, **_OPTIONS)]
        _check(models, found[:1], expected[:1])
