"""Quantisation schemes with few bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import TypedDict

from rlx.support.errors import Error
from rlx.support.options import described
from rlx.support.short import short_repr

WEIGHTS, ACTIVATIONS = ("int8", "int4"), ("int8", "dynamic", "none")


@dataclass(frozen=True)
class QuantizationScheme:
    """The dtypes of quantised weights and activations.

    A new option is a field here, the same name in `SchemeKeywords`, and a check if not every value is valid.

    Raises:
        Error: A value is not valid.
    """

    weights: str = field(
        default="int8",
        metadata=described(
            "`int8`, with a scale for each channel, or `int4`, with one for each group of rows of a channel.",
            "--weights",
            choices=WEIGHTS,
            help="default: %(default)s",
        ),
    )
    activations: str = field(
        default="int8",
        metadata=described(
            "`int8`: products are of 8-bit integers, with sums in i32. `dynamic`: likewise, with a scale for each row, from "
            "its numbers in each run; what convolutions take stays f32. `none`: weights are made floats again.",
            "--activations",
            choices=ACTIVATIONS,
            help="default: %(default)s",
        ),
    )
    symmetric: bool = field(
        default=False,
        metadata=described(
            "Whether the zero points of activations are 0.",
            "--symmetric",
            action="store_true",
            help="zero points of activations are 0",
        ),
    )
    smooth: float = field(
        default=0.75,
        metadata=described(
            "How far channels of activations with large numbers are scaled down, and their weights up, 0 to 1: 0 is not at "
            "all, and all that can be done without a record.",
            "--smooth",
            type=float,
            metavar="S",
            help="how far channels of large numbers are scaled down, 0 to 1 (default: %(default)s)",
        ),
    )
    group: int = field(
        default=32,
        metadata=described(
            "The rows of a group, for `int4`.",
            "--group",
            type=int,
            metavar="N",
            help="rows that share a scale, for int4 (default: %(default)s)",
        ),
    )

    def __post_init__(self) -> None:
        for name, known in (("weights", WEIGHTS), ("activations", ACTIVATIONS)):
            if not isinstance(given := getattr(self, name), str) or given not in known:
                raise Error(f"{name} is one of {', '.join(known)}, not {short_repr(given)}")
        if self.weights == "int4" and self.activations != "none":
            raise Error(
                "weights of 4 bits go with activations in f32", hint="give activations='none', or weights='int8'"
            )
        if isinstance(self.smooth, bool) or not isinstance(self.smooth, Real) or not 0 <= self.smooth <= 1:
            raise Error(f"smooth must be a number from 0 to 1, got {short_repr(self.smooth)}")
        if type(self.group) is not int or self.group < 2 or self.group % 2:
            raise Error(f"group must be an even number of rows, got {short_repr(self.group)}")


class SchemeKeywords(TypedDict, total=False):
    """The fields of `QuantizationScheme` as keywords of a call, for `**options: Unpack[SchemeKeywords]`."""

    weights: str
    activations: str
    symmetric: bool
    smooth: float
    group: int
