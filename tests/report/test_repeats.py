"""The search for repeated layers, on drawn lists of ops."""

from __future__ import annotations

import random
import time

import pytest

from rlx.report.repeats import FEWEST, Repeat, RepeatedUnit, _RepeatSearch, repeats


def units(kinds: str, reads: list[tuple[int, ...]]) -> list[RepeatedUnit]:
    return [RepeatedUnit(kind, read) for kind, read in zip(kinds, reads, strict=True)]


def chain(kinds: str) -> list[RepeatedUnit]:
    """Return ops that each read the one before."""
    return units(kinds, [(i - 1,) for i in range(len(kinds))])


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("", []),
        ("ababab", [(0, 2, 3)]),
        ("abab", []),  # two layers are not worth a box
        ("xababababy", [(1, 2, 4)]),
        ("aaaaaa", [(0, 2, 3)]),
        ("abcabcabcxdedede", [(0, 3, 3), (10, 2, 3)]),
        ("abcdefgh", []),
    ],
)
def test_chains(kinds: str, expected: list[tuple[int, int, int]]) -> None:
    assert [(r.start, r.length, r.times) for r in repeats(chain(kinds))] == expected


def test_connections_must_be_alike() -> None:
    """A layer that also reads the input, or an early layer, is not like one that does not."""
    assert repeats(units("ab" * 4, [(-1,), (0, -2), *[pair for i in (2, 4, 6) for pair in ((i - 1,), (i, -2))]]))
    residual = [(-1,), (0, -1), (1,), (2, 1), (3,), (4, 3), (5,), (6, 5)]
    assert [(r.start, r.times) for r in repeats(units("ab" * 4, residual))] == [(0, 4)]
    residual[5] = (4, 1)  # it reads the first layer instead of the one before
    assert repeats(units("ab" * 4, residual)) == []
    residual[5] = (4, 3, 1)
    assert repeats(units("ab" * 4, residual)) == []


@pytest.mark.parametrize("case", range(40))
def test_planted_layers_are_found(case: int, seed: int) -> None:
    """The layers read the one before, themselves and the input. The ops before and after are different ones."""
    draw = random.Random(f"{seed} {case}")
    length, times, before, after = draw.randint(2, 7), draw.randint(FEWEST, 9), draw.randint(0, 9), draw.randint(0, 9)
    layer = [(chr(97 + draw.randrange(5)), draw.randint(1, length)) for _ in range(length)]
    kinds = [f"before{i}" for i in range(before)]
    reads: list[tuple[int, ...]] = [(-1,)] * before
    for number in range(times):
        for i, (kind, distance) in enumerate(layer):
            at = before + number * length + i
            kinds.append(kind)
            reads.append((at - distance if number or i >= distance else -2, -1))
    kinds += [f"after{i}" for i in range(after)]
    reads += [(len(kinds) - 1,)] * after
    found = repeats([RepeatedUnit(kind, read) for kind, read in zip(kinds, reads, strict=True)])
    covered = {i for r in found for i in range(r.start, r.end)}
    assert covered <= set(range(before, before + length * times))
    # A layer may itself repeat shorter ones, or begin at another of its ops: then fewer ops are covered at the borders.
    assert len(covered) > length * (times - 1) - length
    for r in found:
        for first in range(r.start, r.end - r.length):
            assert kinds[first] == kinds[first + r.length]


def test_large_graphs_take_little_time() -> None:
    draw = random.Random(0)
    started = time.perf_counter()
    assert repeats(chain("".join(chr(97 + draw.randrange(26)) for _ in range(4_000)))) == []
    (found,) = repeats(chain("abcdefgh" * 500))
    assert found.times == 500 and time.perf_counter() - started < 20


def test_the_work_of_a_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many units of one kind with irregular connections, for which each length and position would be compared."""
    irregular = [(-1,) if i % 97 == 0 else (i - 1,) for i in range(2000)]
    compared: list[int] = []

    class Counted(_RepeatSearch):
        def largest(self, start: int, end: int) -> Repeat | None:
            found = super().largest(start, end)
            compared.append(self.comparisons)
            return found

    monkeypatch.setattr("rlx.report.repeats._RepeatSearch", Counted)
    monkeypatch.setattr("rlx.report.repeats._MOST_COMPARISONS", 20_000)
    repeats(units("a" * 2000, irregular))
    assert max(compared) < 25_000
