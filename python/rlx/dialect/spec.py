"""What a TableGen record says about an op, as plain data.

`spec_gen.py` holds one `OpSpec` for each record of `dialect/*.td`; verifiers, builders, documentation
and the conformance harness read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from rlx.dialect.dtypes import members

Arity = Literal["single", "optional", "variadic"]
AttributeKind = Literal["i64", "f64", "bool", "i64s", "str", "enum", "dims", "dtype", "elements", "dict"]

# Declared, with what each says, in `dialect/RlxTraits.td`.
TraitName = Literal[
    "product",
    "reduction",
    "elementwise",
    "local",
    "rowwise",
    "updates",
    "moves_data",
    "rearranges",
    "view",
    "commutative",
    "cheap",
    "bounded",
    "wide_range",
]

# Of these, which say what an op does to numbers, the first that it has counts: the identity has two.
_WORK: tuple[TraitName, ...] = ("product", "reduction", "moves_data", "elementwise", "local")

# Of how many runs of values of equal type a variadic group may consist: IRDL declares each run as a group.
RUNS = 16


class _Required:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """An operand or a result: its name, how often it occurs, and the dtypes that it may have, as names and groups of names."""

    name: str
    accepts: tuple[str, ...]
    arity: Arity = "single"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The names of the dtypes that it may have."""
        return members(self.accepts)


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
class TraitSpec:
    """A trait that an op has: always, or where the named attribute is one of `cases`."""

    name: TraitName
    attribute: str = ""
    cases: tuple[str, ...] = ()


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
    traits: tuple[TraitSpec, ...] = ()
    defined_at: str = ""
    terminator: bool = False
    custom: bool = False  # registered by a user: an `rlx.custom` in the IR

    def has_trait(self, name: TraitName, attributes: Mapping[str, Any] | None = None) -> bool:
        """Whether an op has a trait.

        Args:
            name: The trait.
            attributes: Those of the op, of which a trait may depend on one; without them, whether it has the trait
                whatever they are.
        """
        trait = self.trait(name)
        if trait is None or not trait.attribute:
            return trait is not None
        return attributes is not None and attributes[trait.attribute] in trait.cases

    @property
    def valid_anywhere(self) -> bool:
        """Whether the validity of an op follows from its operands, attributes and results, wherever it is and whoever asks."""
        return not (self.regions or self.terminator or self.custom) and self.stage != "hir"

    @property
    def work(self) -> TraitName | None:
        """What the op does to numbers: `product`, `reduction`, `moves_data`, `elementwise`, `local`, or None of these."""
        return next((name for name in _WORK if self.trait(name)), None)

    def trait(self, name: TraitName) -> TraitSpec | None:
        """A trait that the op has, perhaps for some of its attributes only."""
        for trait in self.traits:
            if trait.name == name:
                return trait
        return None
