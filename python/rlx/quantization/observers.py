"""Statistics of a tensor over all batches, and the choice of ranges from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

METHODS = ("minmax", "percentile", "mse", "entropy")
_BINS = 8192  # for both signs together
_STEPS = 255
# The candidate ranges, as fractions of the whole range.
_SHARES = np.linspace(0.1, 1, 91)


@dataclass
class Observer:
    """The statistics of one tensor.

    Attributes:
        axis: The axis of its channels.
        counts: Whether to record a histogram, which all methods but `minmax` need.
        low: The smallest value of each channel so far, at most 0.
        high: The largest value of each channel so far, at least 0.
    """

    axis: int
    counts: bool
    low: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    high: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    reach: float = 0.0  # the histogram covers the values from -reach to reach, a power of 2

    def observe(self, x: np.ndarray) -> None:
        """Add the values of a batch, which are finite."""
        x = np.asarray(x, np.float32)
        others = tuple(i for i in range(x.ndim) if i != self.axis)
        low, high = np.min(x, axis=others, initial=0), np.max(x, axis=others, initial=0)
        self.low = np.minimum(self.low, low) if self.low.size else low
        self.high = np.maximum(self.high, high) if self.high.size else high
        largest = float(max(-self.low.min(initial=0), self.high.max(initial=0)))
        if self.counts and largest:
            self._widen(2.0 ** np.ceil(np.log2(largest)))
            self.histogram += np.histogram(x, _BINS, (-self.reach, self.reach))[0]

    def _widen(self, reach: float) -> None:
        """Merge neighbouring bins until the histogram covers this range."""
        while self.reach and self.reach < reach:
            joined = self.histogram.reshape(-1, 2).sum(1)
            self.histogram = np.pad(joined, (_BINS // 4, _BINS // 4))
            self.reach *= 2
        self.reach = max(self.reach, reach)

    def range(self, method: str, percentile: float) -> tuple[float, float]:
        """Return the smallest and the largest value to represent. The range includes 0.

        Args:
            method: One of `METHODS`. `percentile` excludes outliers. `mse` minimises the mean squared error of rounding
                and clipping, `entropy` their loss of information.
            percentile: The percentage of values in the range, for `percentile`.
        """
        low, high = float(self.low.min(initial=0)), float(self.high.max(initial=0))
        if method == "minmax" or not self.reach:
            return low, high
        if method == "percentile":
            return self._percentile(percentile, low, high)
        loss = self._mean_square if method == "mse" else self._divergence
        high = min((loss(low, high * share), high * share) for share in _SHARES)[1] if high else high
        low = min((loss(low * share, high), low * share) for share in _SHARES)[1] if low else low
        return low, high

    @property
    def _centres(self) -> np.ndarray:
        width = 2 * self.reach / _BINS
        return -self.reach + width * (np.arange(_BINS) + 0.5)

    def _percentile(self, percentile: float, low: float, high: float) -> tuple[float, float]:
        share = np.cumsum(self.histogram) / self.histogram.sum()
        tail, width = (1 - percentile / 100) / 2, 2 * self.reach / _BINS
        first = -self.reach + width * int(np.searchsorted(share, tail, side="right"))
        last = -self.reach + width * (int(np.searchsorted(share, 1 - tail)) + 1)
        return max(low, min(first, 0.0)), min(high, max(last, 0.0))

    def _mean_square(self, low: float, high: float) -> float:
        """Return the summed squared error of rounding in a range and clipping beyond it."""
        centres = self._centres
        beyond = centres - np.clip(centres, low, high)
        rounding = ((high - low) / _STEPS) ** 2 / 12
        return float(np.sum(self.histogram * np.where(beyond == 0, rounding, beyond**2)))

    def _divergence(self, low: float, high: float) -> float:
        """Return the divergence of the distribution of rounded values, including clipped values, from that of the values.

        (Migacz, 8-bit inference with TensorRT, 2017.)
        """
        centres, counts = self._centres, self.histogram.astype(np.float64)
        inside = (centres >= low) & (centres <= high)
        if inside.sum() < 2 or not counts[inside].any():
            return np.inf
        own = counts[inside]
        level = np.minimum(((centres[inside] - low) / (high - low) * (_STEPS + 1)).astype(int), _STEPS)
        used = own > 0
        of_level, bins = (np.bincount(level, weights, _STEPS + 1) for weights in (own, used.astype(np.float64)))
        rounded = np.where(used, (of_level / np.maximum(bins, 1))[level], 0)
        own = own.copy()
        own[0] += counts[centres < low].sum()
        own[-1] += counts[centres > high].sum()
        p, q = own / own.sum(), rounded / rounded.sum()
        seen = p > 0
        return float(np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12))))


def finite(x: Any) -> bool:
    """Return whether all values are finite."""
    return bool(np.isfinite(x).all())
