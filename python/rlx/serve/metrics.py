"""Counters, gauges and histograms in Prometheus's text format."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


def escaped_label(value: str) -> str:
    r"""Return the value of a label with backslashes, quotation marks and line feeds escaped."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{escaped_label(text)}"' for key, text in labels.items())
    number = repr(value) if isinstance(value, int) or not float(value).is_integer() else str(int(value))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


class _MetricFamily:
    """Samples with one name, by the values of their labels."""

    kind = ""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()):
        self.name, self.text, self.labels = name, text, tuple(labels)
        self.lock = threading.Lock()

    def lines(self) -> list[str]:
        """Return the text of the family."""
        return [f"# HELP {self.name} {self.text}", f"# TYPE {self.name} {self.kind}", *self.samples()]

    def samples(self) -> list[str]:
        """Return a line for each sample."""
        raise NotImplementedError


class MetricCounter(_MetricFamily):
    """A number that only grows, or for the kind `gauge` one that also falls."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()):
        super().__init__(name, text, labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, number: float, *labels: str) -> None:
        """Add a number to the sample with these labels."""
        with self.lock:
            self._values[labels] = self._values.get(labels, 0) + number

    def value(self, *labels: str) -> float:
        """Return the sample with these labels."""
        return self._values.get(labels, 0)

    def samples(self) -> list[str]:
        """Return a line for each sample."""
        with self.lock:
            values = sorted(self._values.items())
        return [_sample(self.name, dict(zip(self.labels, key, strict=True)), value) for key, value in values]


class MetricGauge(MetricCounter):
    """A number that grows and falls."""

    kind = "gauge"


class MetricHistogram(_MetricFamily):
    """The distribution of durations, in seconds."""

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()):
        super().__init__(name, text, labels)
        self._counts: dict[tuple[str, ...], list[int]] = {} if labels else {(): [0] * (len(_SECONDS) + 1)}
        self._totals: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def observe(self, seconds: float, *labels: str) -> None:
        """Add a duration."""
        with self.lock:
            counts = self._counts.setdefault(labels, [0] * (len(_SECONDS) + 1))
            counts[bisect_left(_SECONDS, seconds)] += 1
            self._totals[labels] = self._totals.get(labels, 0.0) + seconds

    def samples(self) -> list[str]:
        """Return the cumulated counts, the total and the number of durations."""
        lines: list[str] = []
        with self.lock:
            every = [(key, list(counts), self._totals[key]) for key, counts in sorted(self._counts.items())]
        for key, counts, total in every:
            labels = dict(zip(self.labels, key, strict=True))
            count = 0
            for limit, number in zip((*map(repr, _SECONDS), "+Inf"), counts, strict=True):
                count += number
                lines.append(_sample(f"{self.name}_bucket", {**labels, "le": limit}, count))
            lines += [_sample(f"{self.name}_sum", labels, total), _sample(f"{self.name}_count", labels, count)]
        return lines


class ServerMetrics:
    """The measurements of a server. All methods are thread-safe."""

    def __init__(self) -> None:
        labels = ("route", "status")
        self.requests = MetricCounter("rlx_requests_total", "Answered requests.", labels)
        self.durations = MetricHistogram("rlx_request_seconds", "Time from request to end of answer.", ("route",))
        self.running = MetricGauge("rlx_requests_running", "Requests that are computed.")
        self.waiting = MetricGauge("rlx_requests_waiting", "Requests in the queue.")
        self.prompt_tokens = MetricCounter("rlx_prompt_tokens_total", "Tokens of prompts.")
        self.cached_tokens = MetricCounter("rlx_cached_tokens_total", "Tokens of prompts found in the cache.")
        self.generated_tokens = MetricCounter("rlx_generated_tokens_total", "Generated tokens.")
        self.proposed_tokens = MetricCounter("rlx_proposed_tokens_total", "Tokens that a draft proposed.")
        self.accepted_tokens = MetricCounter("rlx_accepted_tokens_total", "Proposed tokens that were right.")
        self.first_tokens = MetricHistogram("rlx_first_token_seconds", "Time from request to first token.")
        self.cancelled = MetricCounter("rlx_requests_cancelled_total", "Requests whose client disconnected.")

    def text(self) -> str:
        """Return all samples in Prometheus's text format."""
        families = [value for value in vars(self).values() if isinstance(value, _MetricFamily)]
        return "".join(f"{line}\n" for family in families for line in family.lines())
