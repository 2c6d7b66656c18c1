"""The calibration record: statistics of each product's operands, and the derived 8-bit scales."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.ir.calls import Answered
from rlx.support.errors import Error
from rlx.support.files import read_json, write_atomically
from rlx.support.guards import is_mapping
from rlx.support.printable import printable_lines

_FORMAT = "rlx calibration record, 1"
_ARRAYS = ("low", "high")
# The usual range of a channel is this quantile of the ranges of all channels: the median.
_USUAL = 0.5
# Channels are scaled only if the largest range is at least this multiple of the usual range.
_FAR = 4


@dataclass(frozen=True)
class CalibrationEntry:
    """The operands of one product.

    Attributes:
        place: The user's line.
        low: The smallest number of each contracted channel, f32 `[K]`; for a convolution, of each input channel.
        high: The largest number, likewise.
        range: The smallest and the largest number to represent; values outside are clipped.
    """

    place: str
    low: np.ndarray
    high: np.ndarray
    range: tuple[float, float]

    def smoothed(self, strength: float) -> tuple[np.ndarray | None, tuple[float, float]]:
        """Return factors that scale down activation channels with outliers, and the range after scaling.

        The weights of a channel are divided by its factor. (As Xiao et al., SmoothQuant, but channels are never scaled
        up: small numbers here may be larger elsewhere.)

        Args:
            strength: 0 changes nothing, 1 scales those channels to the range of the others.

        Returns:
            f32 `[K]`, powers of 2, so that nothing is rounded, or None if no channel has outliers; and the range.
        """
        low, high = self.range
        below, above = np.maximum(self.low, low), np.minimum(self.high, high)
        reach = np.maximum(-below, above)
        usual = float(np.quantile(reach, _USUAL))
        if not usual or reach.max() < _FAR * usual:
            return None, self.range
        factors = np.exp2(-np.rint(strength * np.log2(np.maximum(reach / usual, 1)))).astype(np.float32)
        return factors, (float((below * factors).min()), float((above * factors).max()))


@dataclass(frozen=True)
class CalibrationRecord(Answered):
    """The result of `rlx.calibrate`: an entry for each product with weights, by name.

    Attributes:
        method: The method that chose the ranges.
        batches: The number of batches.
        entries: By the name of the product, which is usually that of its weight.
    """

    method: str
    batches: int
    entries: Mapping[str, CalibrationEntry] = field(default_factory=dict[str, CalibrationEntry])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file.

        Raises:
            Error: The file cannot be written.
        """
        entries = {
            name: {"place": e.place, "range": list(e.range), **{k: getattr(e, k).tolist() for k in _ARRAYS}}
            for name, e in self.entries.items()
        }
        data = {"format": _FORMAT, "method": self.method, "batches": self.batches, "entries": entries}
        write_atomically(path, (json.dumps(data) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CalibrationRecord:
        """Read a file written by `save`.

        Raises:
            Error: The file is missing, or is something else.
        """
        name: str = os.fspath(path)
        data: Any = read_json(path)
        if not is_mapping(data) or data.get("format") != _FORMAT:
            raise Error(f"{name} is no calibration record", hint="rlx.calibrate(…).save(path) writes one")
        try:
            stored: dict[str, Any] = data["entries"]
            entries = {k: _entry(v) for k, v in stored.items()}
            return cls(str(data["method"]), int(data["batches"]), entries)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as problem:
            raise Error(f"{name} is a damaged calibration record: {problem!r:.100}") from None

    def __str__(self) -> str:
        lines = [f"{len(self.entries)} products, {self.batches} batches, {self.method}"]
        lines += [
            f"  {n}: {e.range[0]:.4g} to {e.range[1]:.4g}, {len(e.low)} channels" for n, e in self.entries.items()
        ]
        return printable_lines(lines).removesuffix("\n")


def _entry(data: Any) -> CalibrationEntry:
    low, high = (np.asarray(data[k], np.float32) for k in _ARRAYS)
    first, last = map(float, data["range"])
    if not low.shape == high.shape or low.ndim != 1 or not first <= 0 <= last:
        raise ValueError("sizes of arrays")
    if not all(np.isfinite(a).all() for a in (low, high, np.array([first, last]))):
        raise ValueError("a number that is not finite")
    return CalibrationEntry(str(data["place"]), low, high, (first, last))


def scale_of(low: float, high: float, *, symmetric: bool) -> tuple[float, int]:
    """Return scale and zero point of an i8 that represents the numbers from `low` to `high`, and 0 exactly.

    Args:
        low: At most 0.
        high: At least 0.
        symmetric: Whether the zero point must be 0.
    """
    if symmetric:
        return _positive(max(-low, high) / 127), 0
    scale = _positive((high - low) / 255)
    return scale, int(np.clip(np.rint(-128 - low / scale), -128, 127))


def _positive(scale: float) -> float:
    """Return a valid scale; 1 for a tensor of zeros."""
    return float(np.float32(scale)) if np.float32(scale) > np.finfo(np.float32).tiny else 1.0
