"""Shared definitions of reader and printer: tokens of MLIR text, and record properties that decide the form of an op."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby

from rlx.dialect.spec import RUNS, ValueSpec
from rlx.ir.op.grouping import is_segmented
from rlx.ir.op.registry import SPECS

# Quantifiers are possessive and alternatives start with different characters, so matching takes linear time for any
# text. A string without a closing quote ends at the end of its line.
STRING = r'"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"?+'
SPACES = r"(?:[ \t\r\n]++|//[^\n]*+)*+"
SPACE = re.compile(SPACES)
COMMENT = re.compile(rf"{STRING}|(//[^\n]*+)")


def _nested(levels: int) -> str:
    """Return the pattern of the text between the angle brackets of a type."""
    inner = rf"|<{_nested(levels - 1)}>" if levels else ""
    return rf'(?:->|[^<>"/(){{}}\n-]++|-(?!>)|{STRING}{inner})*+'


# Types as they are printed. Types with comments, line breaks or function types inside are handled by
# `Scanner.balanced`.
_TYPE = rf"!?[A-Za-z_][\w$.]*+(?:<{_nested(3)}>)?"
_LIST = rf'\((?:[^"()/\n]++|{STRING})*+\)'
TYPE = re.compile(rf"{_TYPE}(?![<.\w$])", re.ASCII)
# An op with one result, as it is printed if it has only operands, simple attributes and types.
PRINTED = re.compile(
    rf"[ \n]*+%[\w$.-]++ = (?P<op>rlx\.(?P<name>\w++))"
    rf'\((?P<operands>[%\w$.#, -]*+)\)(?: \{{(?:[^{{}}"/\n]++|{STRING})*+\}})?'
    rf" : (?:{_LIST} -> (?:{_TYPE}|{_LIST})|(?P<type>{_TYPE}))(?=\n| loc\([^\n]*\n)",
    re.ASCII,
)
TYPES = re.compile(_LIST)
TYPE_NAME = re.compile(r"!?[A-Za-z_][\w$.]*+", re.ASCII)

# The generic form repeats a type that is written once for all operands. This limits the length of the repeated text.
LONGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class OpForm:
    """The textual form of an op.

    Attributes:
        operands: The operands of the record, if the op needs `operandSegmentSizes` to group them; else None.
        brackets: Whether brackets group the operands in the text, because more than one group has a variable length.
        results: Whether the results, one variadic group, need `resultSegmentSizes`.
        regions: Names of the regions; the name of a single region is not written.
        ends: Whether the op is a terminator: it has no results, and its types are those of its operands.
        results_count: The number of results, if the record fixes it.
        most: The maximum number of operands, if the record fixes it.
        plain: Whether the form is the generic one without quotes.
        most_of_one_type: The maximum number of operands of a plain op that may be written with one type; -1 if not
            allowed.
    """

    operands: tuple[ValueSpec, ...] | None
    brackets: bool
    results: bool
    regions: tuple[str, ...]
    ends: bool
    results_count: int | None
    most: int | None
    plain: bool
    most_of_one_type: int


@cache
def layout(name: str) -> OpForm | None:
    """Return the layout of an op, given without the prefix `rlx.`; None if the op does not exist."""
    spec = SPECS.get(name)
    if spec is None:
        return None
    segmented, open_results = is_segmented(spec.operands), is_segmented(spec.results)
    most = None if any(v.arity == "variadic" for v in spec.operands) else len(spec.operands)
    plain = not (segmented or open_results or spec.regions)
    return OpForm(
        operands=spec.operands if segmented else None,
        brackets=segmented and len(spec.operands) > 1,
        results=open_results,
        regions=tuple(region.name.removesuffix("_region") for region in spec.regions),
        ends=not spec.results,
        results_count=None if open_results else len(spec.results),
        most=most,
        plain=plain,
        most_of_one_type=most if plain and most is not None and len(spec.results) == 1 else -1,
    )


def split_types(text: str) -> list[str] | None:
    """Return the types in a list; None if the list is not formatted as MLIR prints types."""
    types: list[str] = []
    position, end = 0, len(text)
    while position < end:
        match = TYPE.match(text, position)
        if match is None:
            return None
        types.append(match[0])
        position = match.end()
        if position < end:
            if not text.startswith(", ", position):
                return None
            position += 2
    return types


def runs(types: list[str]) -> list[int]:
    """Return the segment sizes of a variadic group: the length of each run of equal types."""
    sizes = [sum(1 for _ in run) for _, run in groupby(types)]
    return sizes + [0] * (RUNS - len(sizes))


@lru_cache(1024)
def run_sizes(text: str) -> str | None:
    """Return the segment sizes of a variadic group with this list of types; None if MLIR would print it differently."""
    types = split_types(text)
    return None if types is None or "!" in text else ", ".join(map(str, runs(types)))


def segments(values: tuple[ValueSpec, ...], counts: list[int], types: list[str]) -> list[int]:
    """Return the segment sizes of operands or results.

    Args:
        values: The operands or results of the record.
        counts: The number of values of each of them.
        types: The types of all values, in order.
    """
    sizes: list[int] = []
    position = 0
    for value, count in zip(values, counts, strict=True):
        sizes += runs(types[position : position + count]) if value.arity == "variadic" else [count]
        position += count
    return sizes
