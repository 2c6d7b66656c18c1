"""Several texts at the same time: each is the text that its prompt gives alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.llm import engine
from tests.llm.tiny_model import write_model

_PROMPTS = [
    "the man",
    "in the inn and the",
    "the",
    "an end in the inn",
    "the man in",
    "her",
    "a",
    "then and there",
    "and",
]
_OPTIONS: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "logprobs": 2, "ignore_eos": True}
_LONG = {"llama.context_length": 1024}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long: Any = _LONG
    return write_model(tmp_path_factory.mktemp("parallel") / "long.gguf", scheme="q8_0", **long)


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[rlx.llm.LLM]:
    with rlx.llm.load(path, threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def several(path: Path) -> Iterator[rlx.llm.LLM]:
    with rlx.llm.load(path, threads=1, parallel=3) as model:
        yield model


def _in_threads(model: rlx.llm.LLM, prompts: list[Any]) -> list[Any]:
    """Return the completions of prompts, each of a thread of its own, with its number as seed."""
    results: list[Any] = [None] * len(prompts)

    def run(number: int) -> None:
        results[number] = model.generate(prompts[number], seed=number, **_OPTIONS)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _content(completion: Any) -> Any:
    return completion.text, completion.tokens, completion.logprobs


def test_a_list_of_prompts_and_several_samples(alone: rlx.llm.LLM, several: rlx.llm.LLM) -> None:
    expected = [_content(alone.generate(prompt, seed=5, **_OPTIONS)) for prompt in _PROMPTS]
    assert [_content(c) for c in several.generate(_PROMPTS, seed=5, **_OPTIONS)] == expected
    samples = [_content(alone.generate(_PROMPTS[0], seed=5 + i, **_OPTIONS)) for i in range(4)]
    pairs = several.generate(_PROMPTS[:2], seed=5, n=4, **_OPTIONS)
    assert [_content(c) for c in pairs[0]] == samples
    assert pairs[1][1].cached_tokens > 0


def test_threads(alone: rlx.llm.LLM, several: rlx.llm.LLM) -> None:
    expected = [_content(alone.generate(prompt, seed=i, **_OPTIONS)) for i, prompt in enumerate(_PROMPTS)]
    for _ in range(2):
        assert [_content(c) for c in _in_threads(several, _PROMPTS)] == expected


def test_prompts_of_several_pages(alone: rlx.llm.LLM, several: rlx.llm.LLM) -> None:
    """Texts with a common beginning, which some of them share while others use it, and streams that are closed."""
    start = [7 + i % 40 for i in range(600)]
    prompts = [start + [i] * (1 + 40 * i) for i in range(6)]
    expected = [_content(alone.generate(prompt, seed=i, **_OPTIONS)) for i, prompt in enumerate(prompts)]
    stream = several.stream(prompts[5], seed=5, max_tokens=100)
    next(stream)
    results = _in_threads(several, prompts)
    assert [_content(c) for c in results] == expected
    assert max(c.cached_tokens for c in results) >= 600
    stream.close()
    again = several.generate(prompts[3], seed=3, **_OPTIONS)
    assert _content(again) == expected[3] and again.cached_tokens == len(prompts[3]) - 1


def test_texts_without_room_in_the_cache(monkeypatch: pytest.MonkeyPatch, path: Path, alone: rlx.llm.LLM) -> None:
    """The cache has pages for one text of the whole context, and all together have more tokens."""
    monkeypatch.setattr(engine, "LARGEST_CACHE", 0)
    monkeypatch.setattr("rlx.runtime.program.Program.set_state", None)  # it would copy the pages of all texts
    prompts = [[9 + i] * (250 + 60 * i) for i in range(5)]
    expected = [_content(alone.generate(prompt, seed=i, **_OPTIONS)) for i, prompt in enumerate(prompts)]
    with rlx.llm.load(path, threads=1, parallel=3) as model:
        streams = [model.stream(prompt, seed=i, **_OPTIONS) for i, prompt in enumerate(prompts)]
        parts: list[list[Any]] = [[] for _ in prompts]
        for _ in range(200):
            for own, stream in zip(parts, streams, strict=True):
                own += [chunk for chunk in [next(stream, None)] if chunk is not None]
        assert ["".join(chunk.text for chunk in own) for own in parts] == [text for text, *_ in expected]
        assert [_content(c) for c in _in_threads(model, prompts)] == expected
        assert _content(model.generate(prompts, seed=0, **_OPTIONS)[0]) == expected[0]


def test_each_program_is_compiled_once(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Threads that need the same program wait for the one that compiles it."""
    names: list[str] = []
    compile_graphs = rlx.Session.compile

    def counted(self: Any, graphs: Any, **options: Any) -> Any:
        names.append(",".join(graphs) if isinstance(graphs, dict) else "whole")
        return compile_graphs(self, graphs, **options)

    monkeypatch.setattr(rlx.Session, "compile", counted)
    with rlx.llm.load(path, threads=1) as model:
        calls = [lambda: model.embed("the"), lambda: model.generate("the", max_tokens=2)] * 3
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(names) == ["prefill,decode,copy_page,write_page", "whole"]


def test_the_number_of_texts_is_checked(path: Path) -> None:
    for parallel in (0, -1, True, 1.5, 10**6):
        with pytest.raises(rlx.Error, match="parallel must be an integer from 1 to"):
            rlx.llm.load(path, parallel=parallel)  # type: ignore[arg-type]


def test_a_text_is_cancelled_by_another_thread(several: rlx.llm.LLM) -> None:
    """While it waits for its prompt, and between tokens; other texts go on."""
    prompts = [[7 + i] * 900 for i in range(3)]
    expected = several.generate(prompts[2], seed=1, **_OPTIONS)
    streams = [several.stream(prompt, ignore_eos=True) for prompt in prompts[:2]]
    counts: list[int] = []
    threads = [threading.Thread(target=lambda s=stream: counts.append(len(list(s)))) for stream in streams]
    next(streams[1])
    for thread in threads:
        thread.start()
    for stream in streams:
        stream.cancel()
    found = several.generate(prompts[2], seed=1, **_OPTIONS)
    for thread in threads:
        thread.join(60)
    assert len(counts) == 2 and max(counts) < 100
    assert _content(found) == _content(expected)


@pytest.mark.parametrize("draft", ["model", "lookup"])
def test_proposed_tokens_at_the_end_of_a_page(
    monkeypatch: pytest.MonkeyPatch, path: Path, alone: rlx.llm.LLM, draft: str
) -> None:
    """Texts that take turns in a cache with room for one: a wrong proposal may have been the first of a page."""
    monkeypatch.setattr(engine, "LARGEST_CACHE", 0)
    options: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, "ignore_eos": True}
    prompts = [[9 + i] * 245 for i in range(3)]
    expected = [alone.generate(prompt, seed=i, **options).text for i, prompt in enumerate(prompts)]
    proposals = rlx.llm.PromptLookup() if draft == "lookup" else path
    with rlx.llm.load(path, threads=1, context=512, draft=proposals) as model:
        streams, texts = [model.stream(p, seed=i, **options) for i, p in enumerate(prompts)], [""] * 3
        for _ in range(30):
            for i, stream in enumerate(streams):
                chunk = next(stream, None)
                texts[i] += "" if chunk is None else chunk.text
    assert texts == expected


def test_a_text_outside_of_the_cache_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, path: Path, alone: rlx.llm.LLM
) -> None:
    monkeypatch.setattr(engine, "LARGEST_CACHE", 0)
    prompts = [[9] * 250, [20] * 300, [30] * 50]
    expected = alone.generate(prompts[1], seed=1, **_OPTIONS)
    with rlx.llm.load(path, threads=1, context=768, parallel=3) as model:
        first, other = model.stream(prompts[0], ignore_eos=True), model.stream(prompts[2], ignore_eos=True)
        for _ in range(12):
            next(first)
        next(other)
        next(model.stream(prompts[1], ignore_eos=True))  # the first one is moved out
        first.cancel()
        assert list(first) == []
        assert _content(model.generate(prompts[1], seed=1, **_OPTIONS)) == _content(expected)


# The last interrupt may end the thread.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_interrupts_at_any_time_leave_a_model_that_works(path: Path, alone: rlx.llm.LLM) -> None:
    """A thread is interrupted again and again, while others generate."""
    prompts = [[9 + i] * (200 + 30 * i) for i in range(3)]
    expected = [_content(alone.generate(prompt, seed=i, **_OPTIONS)) for i, prompt in enumerate(prompts)]
    with rlx.llm.load(path, threads=1, context=512, parallel=3) as model:
        model.generate("a", max_tokens=2)
        is_ended = threading.Event()

        def interrupted() -> None:
            while not is_ended.is_set():
                with contextlib.suppress(KeyboardInterrupt):
                    model.generate(prompts[0], max_tokens=5, ignore_eos=True)

        def swallowing() -> None:
            while not is_ended.is_set():
                with contextlib.suppress(KeyboardInterrupt):
                    interrupted()

        thread = threading.Thread(target=swallowing)
        thread.start()
        results: list[Any] = []
        for number in range(60):
            time.sleep(0.003 * (number % 7))
            target, kind = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(target, kind)
            if number % 20 == 0:
                results.append(_in_threads(model, prompts))
        is_ended.set()
        thread.join(60)
        assert not thread.is_alive()
        results.append(_in_threads(model, prompts))
    assert all([_content(c) for c in own] == expected for own in results)


# In a process of its own, because JAX warns of forks once it is imported.
_FORKS = """
import os, signal, sys, threading
import rlx

def child(model, expected):
    number = os.fork()
    if number:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    signal.alarm(60)
    try:
        os._exit(0 if model.generate("the", max_tokens=5, ignore_eos=True).tokens == expected else 1)
    except rlx.Error:
        os._exit(3)
    finally:
        os._exit(4)

with rlx.llm.load(sys.argv[1], threads=1) as model:
    expected = model.generate("the", max_tokens=5, ignore_eos=True).tokens
    assert child(model, expected) == 0
    stream = model.stream("the", ignore_eos=True)
    thread = threading.Thread(target=lambda: list(stream))
    thread.start()
    codes = {child(model, expected) for _ in range(5)}
    stream.cancel()
    thread.join()
    assert codes <= {0, 3}, codes
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_generates_or_says_why_not(path: Path) -> None:
    subprocess.run([sys.executable, "-c", _FORKS, str(path)], check=True, timeout=300)


def test_texts_with_options_of_their_own(several: rlx.llm.LLM) -> None:
    """Texts that are streamed together are those of single calls. One can be ended, and all of them from another thread."""
    requests: list[tuple[str, dict[str, Any]]] = [
        ("the man", {"max_tokens": 9, "ignore_eos": True}),
        ("in", {"max_tokens": 5, "temperature": 1.0, "seed": 3, "ignore_eos": True}),
        ("a", {"max_tokens": 0}),
        ("the inn", {"max_tokens": 7, "ignore_eos": True, "logprobs": 1}),
    ]
    parts: dict[int, list[rlx.llm.Chunk]] = {number: [] for number in range(len(requests))}
    for number, chunk in several.stream_together(requests):
        parts[number].append(chunk)
    for number, (prompt, options) in enumerate(requests):
        expected = several.generate(prompt, **options)
        assert [t for chunk in parts[number] for t in chunk.tokens] == expected.tokens
        assert "".join(chunk.text for chunk in parts[number]) == expected.text
        assert parts[number][-1].finish_reason == expected.finish_reason
    endless = [(prompt, {"ignore_eos": True}) for prompt in ("the man", "in", "a", "the inn")]
    group, seen = several.stream_together(endless), set[int]()
    for number, _ in group:
        seen.add(number)
        group.end(number)  # another text takes its row
    assert seen == {0, 1, 2, 3}
    group = several.stream_together(endless)
    next(group)
    thread = threading.Thread(target=group.cancel)
    thread.start()
    thread.join()
    assert len([*group]) <= 4  # parts that were ready
    with pytest.raises(rlx.Error, match="a stream has one result"):
        next(several.stream_together([("a", {"n": 2})]))
