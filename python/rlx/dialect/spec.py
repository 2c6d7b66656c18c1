"""The content of an op's TableGen record, as plain data.

`spec_gen.py` has one `OpSpec` for each record of `dialect/*.td`. Verifiers, builders, documentation
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

# `dialect/RlxTraits.td` declares and documents the traits.
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

# The traits for the kind of work of an op. The first one that an op has is used: the identity has two.
_WORK: tuple[TraitName, ...] = ("product", "reduction", "moves_data", "elementwise", "local")

# The maximal number of runs of values of equal type in a variadic group. IRDL declares each run as a group.
RUNS = 16


class _Required:
    """A marker for an attribute without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """An operand or a result: its name, its multiplicity, and the accepted dtypes, as names and groups of names."""

    name: str
    accepts: tuple[str, ...]
    arity: Arity = "single"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The names of the accepted dtypes."""
        return members(self.accepts)


@cache
def _ends(interval: str) -> tuple[float, float]:
    low, high = (_number(end.strip()) for end in interval[1:-1].split(","))
    return low, high


def _number(text: str) -> float:
    """Parse `-5`, `0.5`, `3.4e38` or `2^31`. Integers stay integers, because a float cannot represent the largest."""
    if "^" in text:
        base, exponent = text.split("^")
        return int(base) ** int(exponent)
    return int(text) if text.lstrip("-").isdigit() else float(text)


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """An attribute: its name, its storage, its default (`REQUIRED`, or None for optional attributes).

    `interval` is the range of a number, or of each number in a list: `"[0, 1)"` includes 0 but not 1, `""` has no limits.
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
        """Whether a number is in the interval; NaN is in no interval."""
        if not self.interval:
            return True
        low, high = _ends(self.interval)
        above = number >= low if self.interval[0] == "[" else number > low
        return above and (number <= high if self.interval[-1] == "]" else number < high)


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """A region of an op, with one block. An optional region may be empty."""

    name: str
    arity: Arity = "single"


@dataclass(frozen=True, slots=True)
class TraitSpec:
    """A trait that an op has always, or only if the named attribute is one of `cases`."""

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
            attributes: The attributes of the op; a trait may depend on one. Without attributes, the result is whether the op
                has the trait for all attributes.
        """
        trait = self.trait(name)
        if trait is None or not trait.attribute:
            return trait is not None
        return attributes is not None and attributes[trait.attribute] in trait.cases

    @property
    def valid_anywhere(self) -> bool:
        """Whether the validity of an op depends only on its operands, attributes and results, not on the context."""
        return not (self.regions or self.terminator or self.custom) and self.stage != "hir"

    @property
    def work(self) -> TraitName | None:
        """The kind of work: `product`, `reduction`, `moves_data`, `elementwise`, `local`, or None."""
        return next((name for name in _WORK if self.trait(name)), None)

    def trait(self, name: TraitName) -> TraitSpec | None:
        """Return a trait that the op has, possibly only for some attributes; None if it never has it."""
        for trait in self.traits:
            if trait.name == name:
                return trait
        return None
