"""Quantisation schemes with few bits."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.support.errors import Error
from rlx.support.short import shown

WEIGHTS, ACTIVATIONS = ("int8", "int4"), ("int8", "dynamic", "none")


@dataclass(frozen=True)
class Scheme:
    """The dtypes of quantised weights and activations.

    Attributes:
        weights: `int8`, with a scale for each channel of the result, or `int4`, with a scale for each channel and group
            of rows.
        activations: `int8`, with one scale for each tensor, from a record; `dynamic`, with one for each row of a
            product, computed in each run; or `none`: they stay f32. The inputs of convolutions stay f32 with `dynamic`.
        symmetric: Whether zero points of activations are 0.
        smooth: How strongly the ranges of activation channels are equalised, 0 to 1: `CalibrationEntry.smoothed`.
        group: The number of rows in a group of 4-bit weights.
    """

    weights: str = "int8"
    activations: str = "int8"
    symmetric: bool = False
    smooth: float = 0.0
    group: int = 32

    def __post_init__(self) -> None:
        for name, known in (("weights", WEIGHTS), ("activations", ACTIVATIONS)):
            if not isinstance(given := getattr(self, name), str) or given not in known:
                raise Error(f"{name} is one of {', '.join(known)}, not {shown(given)}")
        if self.weights == "int4" and self.activations != "none":
            raise Error(
                "weights of 4 bits go with activations in f32", hint="give activations='none', or weights='int8'"
            )
        if isinstance(self.smooth, bool) or not 0 <= self.smooth <= 1:
            raise Error(f"smooth must be a number from 0 to 1, got {shown(self.smooth)}")
        if type(self.group) is not int or self.group < 2 or self.group % 2:
            raise Error(f"group must be an even number of rows, got {shown(self.group)}")
