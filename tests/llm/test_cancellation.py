"""Texts that another thread ends: after each part, and while one of their calls waits for the thread of the programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.llm import PredictionHead, PromptLookup
from rlx.llm.engine import Engine
from rlx.llm.pages import CachedText
from tests.llm.recurrent_models import write_recurrent_model
from tests.llm.tiny_model import write_model

_PROMPT = [7 + i % 90 for i in range(300)]
_CALLS: dict[str, Callable[[Engine, CachedText], Any]] = {
    "extend": lambda engine, text: engine.extend(text, _PROMPT),
    "step": lambda engine, text: engine.step(text, 9),
    "verify": lambda engine, text: engine.verify(text, [9, 8, 7]),
    "predict": lambda engine, text: engine.predict(text, 9, 3),
}


@pytest.fixture(scope="module", params=["llama", "qwen3_next"])
def drafted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rlx.llm.LLM]:
    path: Path = tmp_path_factory.mktemp("cancelled") / "model.gguf"
    draft: Any = PredictionHead()
    if request.param == "llama":
        long: Any = {"llama.context_length": 512}
        draft = PromptLookup()
        write_model(path, **long)
    else:
        write_recurrent_model(path, request.param, context=512, has_head=True)
    with rlx.llm.load(path, threads=1, cache="f32", draft=draft) as model:
        yield model


@contextmanager
def _held(engine: Engine) -> Iterator[Callable[[int], None]]:
    """Let calls of an engine wait until the end of the block. Gives a function that waits for a number of calls."""
    scheduler, is_running, is_over = engine._scheduler, threading.Event(), threading.Event()

    def hold() -> None:
        is_running.set()
        is_over.wait(60)

    def wait_for(count: int) -> None:
        for _ in range(6000):
            if scheduler._queue.qsize() >= count:
                return
            time.sleep(0.01)
        pytest.fail("no call arrives")

    thread = threading.Thread(target=scheduler.call, args=(hold,))
    thread.start()
    is_running.wait(60)
    try:
        yield wait_for
    finally:
        is_over.set()
        thread.join(60)


def _in_thread(results: dict[str, Any], name: str, function: Callable[[], Any]) -> threading.Thread:
    def run() -> None:
        try:
            results[name] = function()
        except BaseException as problem:
            results[name] = problem

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("call", _CALLS)
def test_while_a_call_waits(drafted: rlx.llm.LLM, call: str) -> None:
    """Before it runs, another text takes the pages and slots of the text that is done. Nothing is computed from them."""
    engine, options = drafted.engine, {"max_tokens": 6, "ignore_eos": True}
    if call == "predict" and drafted.architecture == "llama":
        return
    text, other, results = CachedText(), CachedText(), dict[str, Any]()
    begin = 256 if call == "extend" else len(_PROMPT)
    engine.extend(text, _PROMPT[:begin])
    if call != "extend":
        engine.step(text, 5)
        engine.step(text, 6)
    with _held(engine) as wait_for:
        threads = [_in_thread(results, "other", lambda: engine.extend(other, [50, 51, 52]))]
        wait_for(1)
        threads.append(_in_thread(results, "text", lambda: _CALLS[call](engine, text)))
        wait_for(2)
        text.is_done = True
    for thread in threads:
        thread.join(60)
    assert len(results["text"]) == 0 and results["other"].shape == (drafted.config.vocab_size,)
    other.is_done = True
    found = [drafted.generate(prompt, **options).tokens for prompt in ([50, 51, 52], _PROMPT)]
    expected = []
    for prompt in ([50, 51, 52], _PROMPT):
        tokens = list(prompt)
        for _ in range(6):
            tokens.append(int(drafted.logits(tokens)[-1].argmax()))
        expected.append(tokens[len(prompt) :])
    assert found == expected


def test_verified_tokens_after_an_earlier_cancellation(drafted: rlx.llm.LLM) -> None:
    """Proposed tokens that are accepted after the text is done do not become tokens of it."""
    engine, text = drafted.engine, CachedText()
    engine.extend(text, _PROMPT)
    engine.verify(text, [9, 8, 7])
    text.is_done = True
    text.continue_at(len(_PROMPT) + 3)
    assert engine.verify(text, [1]) == [] and text.tokens == _PROMPT


@pytest.mark.parametrize("parts", range(1, 9))
def test_no_part_comes_after_the_end(drafted: rlx.llm.LLM, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """Of several verified tokens, those after the part that the reader ends at are not returned."""
    options: dict[str, Any] = {"max_tokens": 30, "ignore_eos": True, "temperature": 0}
    whole = drafted.generate(_PROMPT[:40], **options)

    def right(*arguments: Any) -> list[int]:
        tokens, count = arguments[-2:]
        return whole.tokens[len(tokens) - 40 :][:count]

    for name in ("_LookupProposer", "_HeadProposer"):
        monkeypatch.setattr(f"rlx.llm.draft.{name}.propose", right)
    with_end = drafted.stream_together([(_PROMPT[:40], options), (_PROMPT[:30], options)])
    numbers: list[int] = []
    for number, _ in with_end:
        numbers.append(number)
        if numbers.count(0) == parts:
            with_end.end(0)
    assert numbers.count(0) == parts and numbers.count(1) > parts
    stream = drafted.stream(_PROMPT[:40], **options)
    for _ in range(parts):
        next(stream)
    stream.cancel()
    assert list(stream) == []
