"""Ranges of all values of a graph, as observed by calibration."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.calls import Answered
from rlx.support.errors import Error
from rlx.support.files import read_json, write_atomically
from rlx.support.guards import is_mapping

_FORMAT = "rlx value ranges, 1"


@dataclass(frozen=True)
class ValueRange:
    """The range of one value.

    Attributes:
        maker: The op that computes it, without prefix, or the name of an input.
        place: The user's line.
        low: The smallest number to represent, at most 0.
        high: The largest number to represent, at least 0.
    """

    maker: str
    place: str
    low: float
    high: float


@dataclass(frozen=True)
class ValueRanges(Answered):
    """The ranges of the values that `rlx-quantize-values` rounds, in order.

    Attributes:
        method: The method that chose the ranges.
        batches: The number of batches.
        values: One for each value.
    """

    method: str
    batches: int
    values: Sequence[ValueRange]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file.

        Raises:
            Error: The file cannot be written.
        """
        values = [[v.maker, v.place, v.low, v.high] for v in self.values]
        data = {"format": _FORMAT, "method": self.method, "batches": self.batches, "values": values}
        write_atomically(path, (json.dumps(data) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ValueRanges:
        """Read a file written by `save`.

        Raises:
            Error: The file is missing, or is something else.
        """
        name, data = os.fspath(path), read_json(path)
        if not is_mapping(data) or data.get("format") != _FORMAT:
            raise Error(f"{name} holds no ranges of values", hint="rlx.observe_ranges(…).save(path) writes them")
        try:
            values = [_range(*entry) for entry in data["values"]]
            return cls(str(data["method"]), int(data["batches"]), values)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as problem:
            raise Error(f"{name} is damaged: {problem!r:.100}") from None


def _range(maker: Any, place: Any, low: Any, high: Any) -> ValueRange:
    ends = float(low), float(high)
    if not np.isfinite(ends).all() or not ends[0] <= 0 <= ends[1]:
        raise ValueError(f"a range from {low} to {high}")
    return ValueRange(str(maker), str(place), *ends)
