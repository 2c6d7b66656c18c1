"""`TuningReport`: the trials of tuning for a program, and the choice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlx.report.text import table
from rlx.support.printable import printable
from rlx.targets.artifacts.fields import boolean, list_of, name, number, one_of, optional, record, row, text

# Outcomes of a trial.
OUTCOMES = (
    *("kept", "faster", "outdone", "no faster", "slower"),
    *("the same program", "other results", "failed", "no time left"),
)


@dataclass(frozen=True)
class TuningTrial:
    """One way to compile and run a program.

    Attributes:
        name: The differences, as a user would write them; `"as given"` for the program without tuning.
        outcome: One of `OUTCOMES`.
        seconds: Seconds per call: the median for the given program, for others `ratio` times that. None if it was not
            measured.
        ratio: The median ratio of its calls to alternating calls of the given program; below 1 is faster.
        note: The reason for a failure, or where its results differ.
    """

    name: str
    outcome: str
    seconds: float | None = None
    ratio: float | None = None
    note: str = ""

    def __str__(self) -> str:
        figures = (
            "" if self.ratio is None else f" ({_milliseconds(self.seconds)}, {self.ratio:.3f} of the time as given)"
        )
        return printable(f"{self.name}: {_said(self)}{figures}", keep="")


@dataclass(frozen=True)
class TuningReport:
    """The trials of tuning. `str()` is a table.

    Attributes:
        name: The name of the graph.
        chosen: The name of the trial that was chosen.
        budget: The time limit in seconds.
        took: The duration in seconds.
        trials: All trials, in order.
        interrupted: Whether it was interrupted.
        kept_before: Whether the result comes from an earlier run, so that nothing was measured.
    """

    name: str
    chosen: str
    budget: float
    took: float
    trials: tuple[TuningTrial, ...]
    interrupted: bool = False
    kept_before: bool = False

    @property
    def ratio(self) -> float:
        """The time of the chosen program relative to the given one."""
        return next((t.ratio for t in self.trials if t.name == self.chosen and t.ratio is not None), 1.0)

    @property
    def measured(self) -> int:
        """The number of trials that were measured against the given program."""
        return sum(t.ratio is not None for t in self.trials[1:])

    @property
    def enough_for(self) -> float:
        """A later search with at most this time limit may use this report. Unlimited if there was time for all trials."""
        if self.interrupted:
            return self.took
        return self.budget if any(t.outcome == "no time left" for t in self.trials) else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        rows = [[t.name, t.outcome, t.seconds, t.ratio, t.note] for t in self.trials]
        values = {name: getattr(self, name) for name in ("name", "chosen", "budget", "took", "interrupted")}
        return {**values, "trials": rows}

    @classmethod
    def from_json(cls, data: Any, what: str) -> TuningReport:
        """Return the report of an earlier run.

        Raises:
            Error: The data is not a report.
        """
        values: Mapping[str, Any] = _FIELDS(data, what)
        trials = tuple(TuningTrial(*row) for row in values["trials"])
        return cls(**{**values, "trials": trials}, kept_before=True)

    def __str__(self) -> str:
        rows = [(t.name, _milliseconds(t.seconds), _ratio(t.ratio), _said(t)) for t in self.trials]
        head = f"@{self.name}: {self.chosen}"
        if self.kept_before:
            head += f", kept from an earlier run of {self.took:.1f} s"
        elif not self.measured:
            head += f": {self.budget:g} s were too few to measure anything else"
        elif self.ratio < 1:
            head += f", {self.ratio:.2f} of the time of the program as given"
        else:
            head += ": nothing else is faster"
        tail = "" if self.kept_before else f"\n{self.measured} of {len(self.trials) - 1} measured in {self.took:.1f} s"
        lines = table(rows, ("tried", "median", "ratio", ""), right=(1, 2), indent="  ")
        return "\n".join([printable(head, keep=""), *lines]) + tail


_TRIAL = row(name, one_of(*OUTCOMES), optional(number), optional(number), text)
_FIELDS = record(
    {"name": name, "chosen": name, "budget": number, "took": number, "interrupted": boolean, "trials": list_of(_TRIAL)}
)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.4g} ms"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"


def _said(trial: TuningTrial) -> str:
    first = trial.note.strip().split("\n")[0][:100]
    return f"{trial.outcome}: {first}" if first else trial.outcome
