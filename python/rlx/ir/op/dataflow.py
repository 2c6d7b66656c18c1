"""How values go into the regions of an op and out of them, for whoever follows bytes and not numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# "whole": all of an operand or a result. "carry": the operand, the arguments and the result of one number are one variable of
# a loop. "row": the part of one step along the leading axis.
FlowKind = Literal["whole", "carry", "row"]


@dataclass(frozen=True)
class Flow:
    """Where the argument of a region comes from, or where goes what it yields.

    Attributes:
        kind: How much of it.
        index: The number of the operand, of an argument; of the result, for what is yielded.
    """

    kind: FlowKind
    index: int


@dataclass(frozen=True)
class RegionFlow:
    """One region of an op.

    Attributes:
        arguments: One for each argument of the region.
        yields: One for each value that it yields; None for what only the op reads, such as a condition.
        repeats: Whether the region may run more than once.
    """

    arguments: tuple[Flow, ...]
    yields: tuple[Flow | None, ...]
    repeats: bool


def wholes(count: int) -> tuple[Flow, ...]:
    """All of that many values, in order."""
    return tuple(Flow("whole", i) for i in range(count))


def carries(count: int) -> tuple[Flow, ...]:
    """That many carries, in order."""
    return tuple(Flow("carry", i) for i in range(count))
