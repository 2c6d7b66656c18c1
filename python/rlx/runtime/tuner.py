"""The search of tuning for the fastest way to compile and run a program, within a time limit.

Each candidate is compiled, checked, and measured alternating with the given program, a few calls at first. The best
candidates, and a combination of them, go on. They are measured twice as often in each round, and the better half stays.
Differences within noise are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import median
from typing import Any

from rlx.report.tuning import TuningTrial
from rlx.support.errors import Error

FASTER = 0.97  # fraction of the time; larger ratios are within measurement noise
_FINALISTS = 4
_FIRST_PAIRS, _FINAL_PAIRS = 5, 9
_FOR_FINALS = 0.25  # fraction of the seconds
_SHORTEST_SAMPLE = 5e-3  # seconds; one sample consists of this many calls
_MOST_CALLS = 100


@dataclass(frozen=True)
class Choice:
    """One way to compile and run a program.

    Attributes:
        device: The name of the device.
        flags: Compiler flags in addition to the user's.
        opt: The optimisation level.
        fusions: `"target"` (those that pay off on the target), `"all"` or `"none"`.
        threads: As in `Session`.
    """

    device: str
    flags: tuple[str, ...] = ()
    opt: int = 2
    fusions: str = "target"
    threads: int | None = None

    def named(self, given: Choice) -> str:
        """Return the differences from the given program."""
        changed = [f.name for f in fields(self) if getattr(self, f.name) != getattr(given, f.name)]
        texts = [" ".join(self.flags) if name == "flags" else f"{name}={getattr(self, name)}" for name in changed]
        return ", ".join(texts) or "as given"

    def joined(self, other: Choice, given: Choice) -> Choice:
        """Return the choice with the options of another choice, for options that this choice does not change."""
        names = {flag.partition("=")[0] for flag in self.flags}
        flags = [flag for flag in other.flags if flag.partition("=")[0] not in names]
        changes: dict[str, Any] = {"flags": (*self.flags, *flags)}
        for name in ("opt", "fusions", "threads"):
            if getattr(self, name) == getattr(given, name):
                changes[name] = getattr(other, name)
        return replace(self, **changes)


@dataclass(frozen=True)
class Candidate:
    """A program that is ready to run.

    Attributes:
        program: The program to measure.
        identity: Equal for programs with the same code that run in the same way.
        problem: The location and size of wrong results; empty if the results are correct.
    """

    program: Any
    identity: object
    problem: str = ""


@dataclass
class _Contestant:
    choice: Choice
    number: int  # the number of its trial
    program: Any
    seconds: float = 0.0  # seconds of the last call
    ratios: list[float] = field(default_factory=list[float])
    screened: list[float] = field(default_factory=list[float])  # the ratios of the first round, which selects finalists

    @property
    def _counted(self) -> list[float]:
        """The ratios of the finals, or those of the first round while it has more."""
        return self.ratios if len(self.ratios) >= len(self.screened) else self.screened

    @property
    def ratio(self) -> float:
        return median(self._counted) if self._counted else math.inf

    @property
    def is_faster(self) -> bool:
        """Whether it is faster beyond noise: by a few percent, and in at least three of four pairs."""
        return self.ratio <= FASTER and sorted(self._counted)[3 * len(self._counted) // 4] < 1


class ChoiceSearch:
    """The search for the fastest of several choices.

    Args:
        choices: The first one is the given program; the others are tried in order.
        prepare: Creates a program for a choice. If it raises an `Error`, the choice cannot be tried.
        measure: Returns the seconds of a call of a program, measured over a number of calls.
        budget: The seconds for everything.
        clock: Returns the time in seconds.
        progress: Called with each trial after its first measurement.
    """

    def __init__(
        self,
        choices: Sequence[Choice],
        prepare: Callable[[Choice], Candidate],
        measure: Callable[[Any, int], float],
        budget: float,
        clock: Callable[[], float],
        progress: Callable[[TuningTrial], None],
    ):
        self.given, self.others = choices[0], list(choices[1:])
        self.prepare, self.measure, self.clock, self.budget, self.progress = prepare, measure, clock, budget, progress
        self.started = clock()
        self.trials: list[TuningTrial] = []
        self._base: Candidate | None = None
        self._base_seconds: list[float] = []
        self._same: dict[object, str] = {}
        self._best: list[_Contestant] = []
        self._calls = 1
        self._once = 0.0  # the seconds to create a program

    @property
    def left(self) -> float:
        """The remaining seconds."""
        return self.budget - (self.clock() - self.started)

    def run(self) -> None:
        """Search until all choices are tried, or time is out. An interrupt leaves the results so far in `chosen` and `trials`.

        Raises:
            Error: The given program cannot be compiled or run, or its results are wrong.
        """
        self._base = base = self.prepare(self.given)
        if base.problem:
            hint = "results are compared with those of the NumPy evaluator; without tune= nobody looks"
            raise Error(f"cannot tune a program whose own results are wrong: {base.problem}", hint=hint)
        self._once = self.clock() - self.started
        self._same[base.identity] = "as given"
        once = self.measure(base.program, 1)
        self._calls = min(_MOST_CALLS, max(1, math.ceil(_SHORTEST_SAMPLE / max(once, 1e-9))))
        self._base_seconds.append(self.measure(base.program, self._calls))
        self.trials.append(TuningTrial("as given", "kept", self._base_seconds[0], 1.0))
        self.progress(self.trials[0])
        for choice in self.others:
            if self.left < max(self._once, _FOR_FINALS * self.budget):
                break
            self._try(choice)
        self._try_joined()
        self._final()

    @property
    def chosen(self) -> Choice:
        """The best choice so far: the given program, unless another choice is faster beyond noise."""
        best = min((c for c in self._best if c.is_faster), key=lambda c: c.ratio, default=None)
        return self.given if best is None else best.choice

    def results(self) -> list[TuningTrial]:
        """Return the trials with their outcomes, including those for which there was no time."""
        chosen, tried = self.chosen.named(self.given), {trial.name for trial in self.trials}
        done = [replace(self._timed(trial), outcome=_outcome(trial, chosen)) for trial in self.trials]
        done[:1] = [replace(trial, outcome="kept" if chosen == trial.name else "outdone") for trial in done[:1]]
        names = [choice.named(self.given) for choice in self.others]
        return [*done, *(TuningTrial(name, "no time left") for name in names if name not in tried)]

    def _timed(self, trial: TuningTrial) -> TuningTrial:
        """Return a trial with its time relative to the given program, since the load of the machine varies between trials."""
        return replace(trial, seconds=None if trial.ratio is None else trial.ratio * median(self._base_seconds))

    def _try(self, choice: Choice) -> None:
        name, number = choice.named(self.given), len(self.trials)
        candidate = self._prepared(choice, name)
        if isinstance(candidate, Candidate):
            self.trials.append(TuningTrial(name, "no time left"))
            contestant = _Contestant(choice, number, candidate.program)
            for _ in range(_FIRST_PAIRS):
                if self._pair(contestant) > 2:
                    break
            self._best = sorted([*self._best, contestant], key=lambda c: c.ratio)[:_FINALISTS]
            self.trials[number] = replace(self._timed(self.trials[number]), outcome=_outcome(self.trials[number], ""))
        else:
            self.trials.append(candidate)
        self.progress(self.trials[number])

    def _prepared(self, choice: Choice, name: str) -> Candidate | TuningTrial:
        """Return the program of a choice, or the reason why it cannot be measured."""
        try:
            candidate = self.prepare(choice)
        except Error as problem:
            return TuningTrial(name, "failed", note=problem.message)
        if candidate.problem:
            return TuningTrial(name, "other results", note=candidate.problem)
        same = self._same.setdefault(candidate.identity, name)
        if same != name:
            return TuningTrial(name, "the same program", note=f"as with {same}" if same != "as given" else "")
        return candidate

    def _pair(self, contestant: _Contestant) -> float:
        """Measure a program and the given one, alternating. Returns the ratio."""
        assert self._base is not None
        programs = [self._base.program, contestant.program]
        swapped = len(contestant.ratios) % 2
        seconds = [self.measure(program, self._calls) for program in (programs[::-1] if swapped else programs)]
        base, own = reversed(seconds) if swapped else seconds
        contestant.seconds = own
        contestant.ratios.append(own / base if base else 1.0)
        self._base_seconds.append(base)
        self.trials[contestant.number] = replace(self.trials[contestant.number], ratio=contestant.ratio)
        return contestant.ratios[-1]

    def _try_joined(self) -> None:
        """Try a combination of the best choices, which may be fast for different reasons."""
        faster = [c.choice for c in self._best if c.is_faster]
        alike = [c for c in faster if c.device == faster[0].device]
        if len(alike) > 1:
            joined = alike[0]
            for other in alike[1:]:
                joined = joined.joined(other, self.given)
            if joined not in alike and self.left > self._once:
                self.others.append(joined)
                self._try(joined)

    def _final(self) -> None:
        """Run the final rounds.

        Each round measures twice as often as the last one, and the better half of the candidates goes on. The
        measurements of the first round are not used: among many similar candidates, some are fast by chance.
        """
        self._best, pairs = [c for c in self._best if c.ratio < 1], _FINAL_PAIRS
        if self.left < 2 * pairs * sum(c.seconds for c in self._best) * self._calls:
            return
        for contestant in self._best:
            contestant.screened, contestant.ratios = contestant.ratios, []
        while self._best:
            for _ in range(pairs):
                if self.left < 2 * sum(c.seconds for c in self._best) * self._calls:
                    return
                for contestant in self._best:
                    self._pair(contestant)
            if len(self._best) == 1:
                return
            self._best = sorted(self._best, key=lambda c: c.ratio)[: (len(self._best) + 1) // 2]
            pairs *= 2


def _outcome(trial: TuningTrial, chosen: str) -> str:
    """Return the outcome of a trial, given the final choice; empty while it is open."""
    if trial.ratio is None or trial.name == chosen:
        return "kept" if trial.name == chosen else trial.outcome
    if trial.ratio <= FASTER:
        return "outdone" if chosen else "faster"
    return "slower" if trial.ratio > 1 / FASTER else "no faster"
