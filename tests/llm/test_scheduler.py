"""The thread that runs the programs of a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rlx.llm import scheduler as scheduler_module
from rlx.llm.pages import CachedText
from rlx.llm.scheduler import Scheduler, Step

_RUN_S, _SAMPLER_S = 0.1, 0.04


def _together(functions: Sequence[Callable[[], None]]) -> None:
    """Call functions in threads of their own, and wait for all."""
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_step_stays_finished_while_its_thread_takes_the_result() -> None:
    step = Step(CachedText(), 1, lambda steps: None, 1)
    assert not step.is_finished
    step.finish(np.zeros(1))
    with step._done:  # as the waiting thread does
        assert step.is_finished


def test_each_step_is_run_once() -> None:
    """Threads take their results while others are still finished."""
    counts: dict[tuple[int, int], int] = {}

    def run(steps: Sequence[Step]) -> None:
        for step in steps:
            key = id(step.text), step.token
            counts[key] = counts.get(key, 0) + 1
            step.finish(np.full(1, step.token))

    scheduler, wrong = Scheduler(), list[Any]()

    def generate() -> None:
        text = CachedText()
        for token in range(300):
            (result,) = scheduler.run([Step(text, token, run, 4)])
            if result[0] != token:
                wrong.append(token)
        kept.append(text)

    kept: list[CachedText] = []
    threads = [threading.Thread(target=generate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(counts) == 1200 and set(counts.values()) == {1}


def test_errors_reach_the_thread_that_waits() -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no")

    scheduler = Scheduler()
    with pytest.raises(ValueError, match="no"):
        scheduler.call(fail)
    with pytest.raises(ValueError, match="no"):
        scheduler.run([Step(CachedText(), 1, fail, 1)])
    assert scheduler.call(int, "3") == 3


def test_texts_whose_tokens_are_chosen_slowly_stay_in_one_run() -> None:
    """The choice of a token takes longer than the least patience, and less than a run."""
    counts: list[int] = []

    def run(steps: Sequence[Step]) -> None:
        counts.append(len(steps))
        time.sleep(_RUN_S)
        for step in steps:
            step.finish(np.zeros(1))

    scheduler = Scheduler()

    def generate() -> None:
        text = CachedText()
        for token in range(8):
            scheduler.run([Step(text, token, run, 4)])
            time.sleep(_SAMPLER_S)

    _together([generate] * 4)
    # The first run may have one text, and a slow machine may part them once more. Without patience they are parted always.
    assert sum(counts) == 32 and counts.count(4) >= 4, counts


@pytest.mark.parametrize("end", ["done", "call"])
def test_nothing_is_waited_for_that_does_not_come(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """A text of the last run is done, or its thread waits for a call. With patience without end, this would take as long."""
    monkeypatch.setattr(scheduler_module, "_PATIENCE_S", 1e6)
    scheduler, both = Scheduler(), threading.Barrier(2)

    def run(steps: Sequence[Step]) -> None:
        for step in steps:
            step.finish(np.zeros(1))

    def first() -> None:
        text = CachedText()
        both.wait()
        for token in range(3):
            scheduler.run([Step(text, token, run, 2)])
        time.sleep(_SAMPLER_S)  # the other text waits meanwhile
        if end == "call":
            scheduler.call(int)
        text.is_done = True

    def second() -> None:
        text = CachedText()
        both.wait()
        for token in range(9):
            scheduler.run([Step(text, token, run, 2)])
        text.is_done = True

    _together([first, second])


def test_texts_outside_of_the_cache_come_last() -> None:
    runs: list[list[int]] = []

    def run(steps: Sequence[Step]) -> None:
        runs.append([step.token for step in steps])
        for step in steps:
            step.finish(np.zeros(1))

    texts, scheduler = [CachedText() for _ in range(5)], Scheduler()
    texts[0].saved, texts[3].saved_states = {}, {}
    is_over = threading.Event()
    holder = threading.Thread(target=scheduler.call, args=(is_over.wait,), daemon=True)
    holder.start()
    steps = [Step(text, token, run, 2) for token, text in enumerate(texts)]
    threading.Timer(0.2, is_over.set).start()  # all steps wait by then
    scheduler.run(steps)
    holder.join(60)
    assert [token for own in runs for token in own] == [1, 2, 4, 0, 3]
