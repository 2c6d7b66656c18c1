"""What reader and printer share: the tokens of MLIR text, and what the form of an op follows from in its record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby

from rlx.dialect.spec import RUNS, ValueSpec
from rlx.ir.grouping import is_segmented
from rlx.ir.registry import SPECS

# Quantifiers are possessive and alternatives begin differently, so that no text makes a pattern slow.
# A string without an end goes on to that of its line: else each quote in it would begin another one.
STRING = r'"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"?+'
SPACES = r"(?:[ \t\r\n]++|//[^\n]*+)*+"
SPACE = re.compile(SPACES)
COMMENT = re.compile(rf"{STRING}|(//[^\n]*+)")


def _nested(levels: int) -> str:
    """What stands between the angle brackets of a type."""
    inner = rf"|<{_nested(levels - 1)}>" if levels else ""
    return rf'(?:->|[^<>"/(){{}}\n-]++|-(?!>)|{STRING}{inner})*+'


# Types as they are printed; what has comments, line breaks or function types inside is left to `balanced`.
_TYPE = rf"!?[A-Za-z_][\w$.]*+(?:<{_nested(3)}>)?"
_LIST = rf'\((?:[^"()/\n]++|{STRING})*+\)'
TYPE = re.compile(rf"{_TYPE}(?![<.\w$])", re.ASCII)
# An op after its name, as it is printed when it is not more than types, operands and simple attributes.
PRINTED = re.compile(
    rf'\((?P<operands>[%\w$.#, -]*+)\)(?: \{{(?:[^{{}}"/\n]++|{STRING})*+\}})?'
    rf" : (?:{_LIST} -> (?:{_TYPE}|{_LIST})|(?P<type>{_TYPE}))(?=\n| loc\([^\n]*\n)",
    re.ASCII,
)
TYPES = re.compile(_LIST)
TYPE_NAME = re.compile(r"!?[A-Za-z_][\w$.]*+", re.ASCII)

# One type may stand for all, and so a line for many times its length; this bounds what comes of it.
LONGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of an op.

    Attributes:
        operands: The record's, where `operandSegmentSizes` has to say how they are grouped; else None.
        brackets: Whether the text must say how they are grouped: there is more than one open group.
        results: Whether the results, one variadic group, need `resultSegmentSizes`.
        regions: Names of the regions; a single one goes without.
        ends: It has no results and ends a block: its types are those of its operands.
        results_count: How many results it has, where the record says.
        most: How many operands it has at most, where the record says.
    """

    operands: tuple[ValueSpec, ...] | None
    brackets: bool
    results: bool
    regions: tuple[str, ...]
    ends: bool
    results_count: int | None
    most: int | None

    @property
    def plain(self) -> bool:
        """Whether the form is the generic one without quotes."""
        return self.operands is None and not self.results and not self.regions


@cache
def layout(name: str) -> Layout | None:
    """The layout of an op, without the prefix `rlx.`; None when there is no such op."""
    spec = SPECS.get(name)
    if spec is None:
        return None
    segmented, open_results = is_segmented(spec.operands), is_segmented(spec.results)
    return Layout(
        operands=spec.operands if segmented else None,
        brackets=segmented and len(spec.operands) > 1,
        results=open_results,
        regions=tuple(region.name.removesuffix("_region") for region in spec.regions),
        ends=not spec.results,
        results_count=None if open_results else len(spec.results),
        most=None if any(v.arity == "variadic" for v in spec.operands) else len(spec.operands),
    )


def split_types(text: str) -> list[str] | None:
    """The types of a list; None when it is not written as types are printed."""
    types: list[str] = []
    position, end = 0, len(text)
    while position < end:
        found = TYPE.match(text, position)
        if found is None:
            return None
        types.append(found[0])
        position = found.end()
        if position < end:
            if not text.startswith(", ", position):
                return None
            position += 2
    return types


def runs(types: list[str]) -> list[int]:
    """The sizes of a variadic group: a run for each stretch of equal types."""
    sizes = [sum(1 for _ in run) for _, run in groupby(types)]
    return sizes + [0] * (RUNS - len(sizes))


@lru_cache(1024)
def run_sizes(text: str) -> str | None:
    """The sizes of a variadic group whose types are this list; None when it is not written as types are printed."""
    types = split_types(text)
    return None if types is None or "!" in text else ", ".join(map(str, runs(types)))


def segments(values: tuple[ValueSpec, ...], counts: list[int], types: list[str]) -> list[int]:
    """Segment sizes of operands or results.

    Args:
        values: The record's.
        counts: How many values each of them has.
        types: Of all values, in order.
    """
    sizes: list[int] = []
    position = 0
    for value, count in zip(values, counts, strict=True):
        sizes += runs(types[position : position + count]) if value.arity == "variadic" else [count]
        position += count
    return sizes
