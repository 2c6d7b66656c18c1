"""Tuning with a fake clock and invented times: the choices that it keeps."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.report.tuning import TuningReport
from rlx.runtime import tuning
from rlx.runtime.tuner import Candidate, Choice, ChoiceSearch
from rlx.runtime.tuning import Request, choices_of, tune_program
from rlx.targets.cache import DiskCache
from rlx.targets.options import CompileOptions

GIVEN, GIVEN_ONE_THREAD = Choice("cpu"), Choice("cpu", threads=1)
TILING = "--iree-dispatch-creation-data-tiling=false"


class Machine:
    """A clock, and programs whose calls take given times by choice. Making a program takes a second."""

    def __init__(self, seconds: Callable[[Choice], float]):
        self.seconds, self.now, self.noise = seconds, 0.0, np.random.default_rng(0)
        self.interrupt_at = float("inf")
        self.made: list[Choice] = []

    def prepare(self, choice: Choice) -> Candidate:
        self.now += 1.0
        self.made.append(choice)
        if "--fails" in choice.flags:
            raise rlx.CompileError("no such kernel")
        identity = choice if "--same" not in choice.flags else GIVEN
        return Candidate(choice, identity, "output 'y' differs" if "--wrong" in choice.flags else "")

    def measure(self, choice: Choice, calls: int) -> float:
        seconds = self.seconds(choice) * self.noise.uniform(0.9, 1.1)
        self.now += seconds * calls
        if self.now > self.interrupt_at:
            raise KeyboardInterrupt
        return seconds

    def search(self, flags: list[str], budget: float) -> ChoiceSearch:
        choices = [GIVEN, *(Choice("cpu", (flag,)) for flag in flags)]
        search = ChoiceSearch(choices, self.prepare, self.measure, budget, lambda: self.now, lambda _: None)
        with contextlib.suppress(KeyboardInterrupt):
            search.run()
        return search


def by_flag(factors: Mapping[str, float]) -> Callable[[Choice], float]:
    return lambda choice: 0.01 * float(np.prod([factors.get(flag, 1.0) for flag in choice.flags]))


def test_the_fastest_wins_and_all_are_told_of() -> None:
    machine = Machine(by_flag({"--fast": 0.8, "--slow": 2.0, "--faster": 0.5, "--wrong": 0.1, "--same": 0.1}))
    search = machine.search(["--slow", "--fast", "--wrong", "--fails", "--same", "--equal", "--faster"], 60)
    outcomes = {trial.name: trial.outcome for trial in search.results()}
    assert search.chosen.flags == ("--faster", "--fast")  # combined with the best
    assert outcomes == {
        "as given": "outdone",
        **{"--slow": "slower", "--fast": "outdone", "--wrong": "other results", "--fails": "failed"},
        **{"--same": "the same program", "--equal": "no faster", "--faster": "outdone", "--faster --fast": "kept"},
    }
    given = search.results()[0].seconds
    for trial in search.results():
        assert (trial.ratio is None) == (trial.seconds is None), trial.name
        assert trial.ratio is None or (given and trial.seconds == pytest.approx(trial.ratio * given)), trial.name
    ratios = {trial.name: trial.ratio for trial in search.results()}
    assert ratios["--faster --fast"] == pytest.approx(0.4, abs=0.05) and ratios["--wrong"] is None


def test_what_is_not_faster_than_by_chance_is_not_kept() -> None:
    machine = Machine(by_flag({"--almost": 0.99}))
    search = machine.search([f"--{i}" for i in range(10)] + ["--almost"], 1000)
    assert search.chosen == GIVEN
    assert search.results()[0].outcome == "kept"


@pytest.mark.parametrize("budget", [0.001, 1.0, 1.9, 3.5, 8.0, 20.0])
def test_the_seconds_are_kept_to(budget: float) -> None:
    machine = Machine(by_flag({"--5": 0.5}))
    search = machine.search([f"--{i}" for i in range(30)], budget)
    assert machine.now <= max(budget, 1.0) + 0.3  # the given program is made whatever the seconds are
    assert len(search.results()) >= 31  # also one combined with the best
    left_out = [trial for trial in search.results() if trial.outcome == "no time left"]
    assert len(left_out) == len(search.results()) - len(machine.made)
    if len(machine.made) == 1:
        assert search.chosen == GIVEN and all(trial.ratio is None for trial in search.results()[1:])
    assert (search.chosen.flags == ("--5",)) == (len(machine.made) > 6)


def test_the_same_times_give_the_same_choice() -> None:
    factors = {f"--{i}": 1 - 0.04 * i for i in range(9)}
    found = [Machine(by_flag(factors)).search(list(factors), 40) for _ in range(2)]
    assert found[0].results() == found[1].results()


@pytest.mark.parametrize("at", [0.5, 1.05, 2.5, 4.1, 5.0])
def test_an_interrupt_leaves_the_best_so_far(at: float) -> None:
    machine = Machine(by_flag({"--fast": 0.5}))
    machine.interrupt_at = at
    search = machine.search(["--slow", "--fast", "--other"], 60)
    assert search.chosen.flags == (("--fast",) if at > 3.2 else ())


def test_an_interrupt_of_the_finals_loses_nothing() -> None:
    whole, measured = Machine(by_flag({"--fast": 0.5})), 0
    whole.search(["--fast"], 60)
    for at in np.linspace(2.0, whole.now, 300):
        machine = Machine(by_flag({"--fast": 0.5}))
        machine.interrupt_at = at
        search = machine.search(["--fast"], 60)
        if [trial.outcome for trial in search.trials[1:]] == ["faster"]:  # its first pairs are complete
            measured += 1
            assert search.chosen.flags == ("--fast",), at
    assert measured > 100


def test_a_program_that_is_wrong_itself_is_not_tuned() -> None:
    choices = [Choice("cpu", ("--wrong",)), GIVEN]
    machine = Machine(by_flag({}))
    with pytest.raises(rlx.Error, match="own results are wrong: output 'y' differs"):
        ChoiceSearch(choices, machine.prepare, machine.measure, 10, lambda: 0.0, lambda _: None).run()


# --- programs -------------------------------------------------------------------------------------


def network(name: str = "net") -> Any:
    g: Any = rlx.Graph(name)
    x, w = g.input("x", ("n", 8)), g.param("w", (8, 4))
    state = g.state("count", (4,))
    y = g.softmax(g.gelu(x @ w) + state)
    g.update(state, state + 1.0)
    g.set_outputs({"y": y})
    return g


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> DiskCache:
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return DiskCache(folder)


@pytest.fixture
def cache(programs: DiskCache, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    """Return a cache without choices; compiled programs may be in it. There is one alternative, another layout."""
    choices = lambda request: [choices_of(request)[0], Choice("cpu", (TILING,), threads=1)]  # noqa: E731
    monkeypatch.setattr(tuning, "choices_of", choices)
    programs.put(record_key(programs), b"")
    return programs


def record_key(cache: DiskCache) -> str:
    given = request(cache)
    key = tuning._key(given, tuning.choices_of(given))
    assert key is not None
    return key


def request(cache: DiskCache | None, graph: Any = None, **options: Any) -> Request:
    weights = {"w": np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)}
    inputs = {"x": np.ones((3, 8), np.float32)}
    return Request(rlx.Session(threads=1), graph or network(), CompileOptions(**options), weights, inputs, cache)


def flags_are_fast(program: rlx.Program, inputs: Any, calls: int) -> float:
    return 0.5 if TILING in program.artifact.info["flags"] else 1.0


def test_a_choice_is_kept_and_used_without_measuring(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tune_program(request(cache), 1000, measure=flags_are_fast)
    assert first.tuning is not None and first.tuning.chosen == TILING and first.tuning.ratio == 0.5
    assert "0.50 of the time of the program as given" in str(first.tuning)

    def refuse(*_: Any) -> Any:
        pytest.fail("a kept choice is measured again")

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "_expected", refuse)
        second = tune_program(request(cache), 5, measure=refuse)
    assert second.tuning is not None and second.tuning.kept_before and "kept from an earlier run" in str(second.tuning)
    assert second.phases.get("cached") and second.artifact.program == first.artifact.program
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    untuned = rlx.Session(threads=1).compile(network(), params=request(None).params, cache=cache)
    for _ in range(2):  # states begin as usual
        np.testing.assert_allclose(second.run({"x": x})[0], untuned.run({"x": x})[0], rtol=1e-5)
    assert untuned.artifact.program != first.artifact.program
    again = tune_program(request(cache), 1000, again=True, measure=lambda *_: 1.0)
    assert (
        again.tuning is not None and again.tuning.chosen == "as given" and "nothing else is faster" in str(again.tuning)
    )


def test_other_sizes_and_other_programs_are_tuned_by_themselves(cache: DiskCache) -> None:
    tune_program(request(cache), 1000, measure=flags_are_fast)
    other = request(cache)
    assert isinstance(other.inputs, dict)
    other.inputs["x"] = np.ones((4, 8), np.float32)
    for changed in (other, request(cache, passes="rlx-decompose")):
        report = tune_program(changed, 1e-6, measure=flags_are_fast).tuning
        assert report is not None and not report.kept_before and report.measured == 0
        assert "too few to measure anything else" in str(report)
    assert tune_program(request(cache), 1000, measure=flags_are_fast).tuning.kept_before  # type: ignore[union-attr]


def test_a_damaged_record_is_as_none(cache: DiskCache) -> None:
    chosen = tune_program(request(cache), 1000, measure=flags_are_fast).tuning
    assert chosen is not None
    key = record_key(cache)
    stored = cache.get(key)
    assert stored is not None
    for data in (b"", b"{}", b'{"choice": {}, "report": {}}', stored.replace(b'"opt": 2', b'"opt": 9')):
        cache.put(key, data)
        assert not tune_program(request(cache), 1e-6, measure=flags_are_fast).tuning.kept_before  # type: ignore[union-attr]
    assert TuningReport.from_json(chosen.to_json(), "a report").trials == chosen.trials


def test_an_interrupt_is_passed_on_and_what_was_found_is_kept(cache: DiskCache) -> None:
    calls = 0

    def interrupted(program: Any, inputs: Any, count: int) -> float:
        nonlocal calls
        calls += 1
        if calls > 14:
            raise KeyboardInterrupt
        return flags_are_fast(program, inputs, count)

    with pytest.raises(KeyboardInterrupt):
        tune_program(request(cache), 1000, measure=interrupted)
    report = tune_program(request(cache), 1e-6, measure=interrupted).tuning
    assert report is not None and report.kept_before and report.chosen == TILING


def test_what_few_seconds_found_does_not_decide_for_more(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished search satisfies any number of seconds; an interrupted one only its own or fewer."""
    both = [*tuning.choices_of(request(cache)), GIVEN]  # GIVEN may use all threads
    monkeypatch.setattr(tuning, "choices_of", lambda _: both)

    def tune(seconds: float, interrupt_at: float = math.inf) -> TuningReport:
        calls = count()

        def measure(program: Any, inputs: Any, number: int) -> float:
            if next(calls) == interrupt_at:
                raise KeyboardInterrupt
            return flags_are_fast(program, inputs, number)

        report = tune_program(request(cache), seconds, clock=lambda: float(next(ticks)), measure=measure).tuning
        assert report is not None
        return report

    ticks = count()
    short = tune(3.5)  # each reading of the clock takes a second
    assert short.measured == 1 and short.enough_for == 3.5 and not short.kept_before
    assert tune(2).kept_before and tune(3.5).kept_before
    with pytest.raises(KeyboardInterrupt):
        tune(10_000, interrupt_at=13)
    assert tune(1).kept_before and not tune(9_000).kept_before
    assert tune(1e6).kept_before


def test_what_other_back_ends_gave_is_kept_only_with_them(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    static = rlx.passes.run(network(), "rlx-bind{n=3}")
    monkeypatch.setattr(tuning, "choices_of", lambda _: [GIVEN_ONE_THREAD, Choice("xla", threads=1)])
    on_xla_is_fast = lambda program, *_: 0.5 if program.artifact.target == "xla" else 1.0  # noqa: E731
    assert tune_program(request(cache, static), 1000, measure=on_xla_is_fast).tuning.chosen == "device=xla"  # type: ignore[union-attr]
    assert tune_program(request(cache, static), 1000, measure=on_xla_is_fast).tuning.kept_before  # type: ignore[union-attr]

    def absent(*_: Any) -> Any:
        raise rlx.Error("JAX is not installed")

    for name in ("client.client", "backend.load_cached"):
        monkeypatch.setattr(f"rlx.targets.xla.{name}", absent)
    report = tune_program(request(cache, static), 1000, measure=on_xla_is_fast).tuning
    assert report is not None and not report.kept_before and report.chosen == "as given"
    assert [t.outcome for t in report.trials] == ["kept", "failed"]


def test_wrong_results_do_not_win(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rlx.Program.run

    def wrong(self: rlx.Program, inputs: Any = None) -> list[np.ndarray]:
        results = real(self, inputs)
        return [r * 1.01 for r in results] if flags_are_fast(self, None, 1) < 1 else results

    monkeypatch.setattr(rlx.Program, "run", wrong)
    report = tune_program(request(cache), 1000, measure=flags_are_fast).tuning
    assert report is not None and report.chosen == "as given"
    assert [t.outcome for t in report.trials if t.name == TILING] == ["other results"]


def test_the_two_compilers_for_the_cpu_are_alternatives() -> None:
    static = request(None, rlx.passes.run(network(), "rlx-bind{n=3}"))
    assert "xla" in {choice.device for choice in choices_of(static)}
    assert "xla" not in {choice.device for choice in choices_of(request(None))}  # XLA compiles for each set of sizes
    assert len({choice.named(GIVEN) for choice in choices_of(static)}) == len(choices_of(static))


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "10", True, [1]])
def test_seconds_are_a_positive_number(seconds: Any) -> None:
    with pytest.raises(rlx.Error, match="tune must be a positive number of seconds"):
        rlx.Session().compile(network(), tune=seconds, cache=False)


def test_a_wrong_use_says_what_is_wrong(tmp_path: Path) -> None:
    session, x = rlx.Session(), np.ones((3, 8), np.float32)
    with pytest.raises(rlx.Error, match="not with buckets"):
        session.compile(network(), tune=1, buckets={"n": [1, 2]})  # type: ignore[call-overload]
    with pytest.raises(rlx.Error, match="no input or state 'z'"):
        session.compile(network(), tune=1, tune_inputs={"z": x})
    with pytest.raises(rlx.Error, match=r"input 'x' must be f32\[n, 8\]"):
        session.compile(network(), tune=1, tune_inputs={"x": x[0]})
    with pytest.raises(rlx.Error, match="a mapping of names"):
        session.compile(network(), tune=1, tune_inputs=[x])  # type: ignore[call-overload]
    with pytest.raises(rlx.Error, match="aarch64"):  # compiled, but cannot run here
        rlx.Session(arch="aarch64").compile(network(), tune=1, cache=False)
