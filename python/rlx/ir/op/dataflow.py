"""Flow of values into and out of the regions of an op, for byte-level analyses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# "whole": all of an operand or a result. "carry": the operand, the arguments and the result with the same index are one
# loop-carried variable. "row": the slice of one step along the leading axis.
FlowKind = Literal["whole", "carry", "row"]


@dataclass(frozen=True)
class Flow:
    """The source of a region's argument, or the destination of a yielded value.

    Attributes:
        kind: The part of the value.
        index: The index of the operand, for an argument; of the result, for a yielded value.
    """

    kind: FlowKind
    index: int


@dataclass(frozen=True)
class RegionFlow:
    """One region of an op.

    Attributes:
        arguments: One for each argument of the region.
        yields: One for each value that it yields; None for a value that only the op reads, such as a condition.
        repeats: Whether the region may run more than once.
    """

    arguments: tuple[Flow, ...]
    yields: tuple[Flow | None, ...]
    repeats: bool


def wholes(count: int) -> tuple[Flow, ...]:
    """Return `count` whole values, in order."""
    return tuple(Flow("whole", i) for i in range(count))


def carries(count: int) -> tuple[Flow, ...]:
    """Return `count` carries, in order."""
    return tuple(Flow("carry", i) for i in range(count))
