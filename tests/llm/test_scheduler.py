"""The thread that runs the programs of a model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlx.llm.pages import CachedText
from rlx.llm.scheduler import Scheduler, Step


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
