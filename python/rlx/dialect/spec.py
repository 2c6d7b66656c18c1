"""What a TableGen record says about an op, as plain data.

`spec_gen.py` holds one `OpSpec` for each record of `dialect/*.td`; verifiers, builders, documentation
and the conformance harness read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Arity = Literal["single", "optional", "variadic"]
AttributeKind = Literal["i64", "f64", "bool", "i64s", "str", "enum", "dims", "dtype", "elements", "dict"]

# Of how many runs of values of equal type a variadic group may consist: IRDL declares each run as a group.
RUNS = 16


class _Required:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """An operand or a result: its name, how often it occurs, and the dtypes that it may have."""

    name: str
    dtypes: tuple[str, ...]
    arity: Arity = "single"


@cache
def _ends(interval: str) -> tuple[float, float]:
    low, high = (_number(end.strip()) for end in interval[1:-1].split(","))
    return low, high


def _number(text: str) -> float:
    """`-5`, `0.5`, `3.4e38` or `2^31`; an integer stays one, as a float would not hold the largest."""
    if "^" in text:
        base, exponent = text.split("^")
        return int(base) ** int(exponent)
    return int(text) if text.lstrip("-").isdigit() else float(text)


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """An attribute: its name, how it is stored, its default (`REQUIRED`, or None for optional ones).

    `interval` is where a number has to lie, each one of a list: `"[0, 1)"` includes 0 and not 1, `""` is everywhere.
    """

    name: str
    kind: AttributeKind
    default: Any = REQUIRED
    enum: str = ""
    cases: tuple[str, ...] = ()
    interval: str = ""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def admits(self, number: float) -> bool:
        """Whether a number lies in the interval; NaN lies in none."""
        if not self.interval:
            return True
        low, high = _ends(self.interval)
        above = number >= low if self.interval[0] == "[" else number > low
        return above and (number <= high if self.interval[-1] == "]" else number < high)


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """A region of an op, of one block; an optional one may be empty."""

    name: str
    arity: Arity = "single"


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One op of the dialect, without the `rlx.` prefix."""

    name: str
    family: str
    stage: str
    summary: str
    description: str
    operands: tuple[ValueSpec, ...]
    attributes: tuple[AttributeSpec, ...]
    results: tuple[ValueSpec, ...]
    regions: tuple[RegionSpec, ...] = ()
    traits: tuple[str, ...] = ()
    defined_at: str = ""
    custom: bool = False  # registered by a user: an `rlx.custom` in the IR

    @property
    def pure(self) -> bool:
        return "Pure" in self.traits

    @property
    def terminator(self) -> bool:
        return "Terminator" in self.traits
