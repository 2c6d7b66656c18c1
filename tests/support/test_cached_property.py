"""Cached properties with several threads, failures and interrupts."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlx.support.cached_property import locked_property


class _Sample:
    def __init__(self, failures: int = 0):
        self.failures, self.calls, self.others = failures, 0, 0

    @locked_property
    def value(self) -> list[int]:
        """A value."""
        self.calls += 1
        time.sleep(0.02)  # other threads arrive meanwhile
        if self.calls <= self.failures:
            raise ValueError(f"failure {self.calls}")
        return [self.calls]

    @locked_property
    def outer(self) -> list[int]:
        self.others += 1
        return [*self.value, self.others]


def _values(sample: _Sample, name: str, count: int) -> list[object]:
    barrier = threading.Barrier(count)

    def read(_: int) -> object:
        barrier.wait(60)
        try:
            return getattr(sample, name)
        except ValueError as problem:
            return str(problem)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(read, range(count)))


def test_one_thread_computes() -> None:
    first, second = _Sample(), _Sample()
    values = _values(first, "value", 8)
    assert first.calls == 1 and all(value is first.value for value in values)
    assert second.calls == 0 and second.value == [1] and second.value is not first.value
    assert _Sample.value.__doc__ == "A value."


def test_properties_that_need_each_other() -> None:
    sample = _Sample()
    assert _values(sample, "outer", 8) == [[1, 1]] * 8 and (sample.calls, sample.others) == (1, 1)


def test_failures_are_not_stored() -> None:
    sample = _Sample(failures=2)
    values = _values(sample, "value", 5)
    assert sorted(map(str, values)) == ["[3]"] * 3 + ["failure 1", "failure 2"] and sample.calls == 3
    assert sample.value == [3]


def test_an_interrupt_releases_the_lock() -> None:
    class Interrupted(_Sample):
        @locked_property
        def value(self) -> list[int]:  # type: ignore[override]
            self.calls += 1
            if self.calls == 1:
                raise KeyboardInterrupt
            return [self.calls]

    sample = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        _ = sample.value
    assert _values(sample, "value", 2) == [[2], [2]]
