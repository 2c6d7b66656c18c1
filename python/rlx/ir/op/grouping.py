"""Grouping of the flat operands and results of MLIR ops as named in the records.

A group is a single value, an optional one (None when absent), or a variadic one (a list). If a record has more than one
group of variable length, an attribute of the op has the number of values of each: `operandSegmentSizes`,
`resultSegmentSizes`. In IRDL, all values of a group have one type. Therefore a variadic group of a record is `RUNS`
groups in IRDL, one for each run of values of equal type.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar

from rlx import mlir
from rlx.dialect.spec import RUNS, OpSpec, ValueSpec
from rlx.support.errors import ShapeError

T = TypeVar("T")

OPERAND_SEGMENTS, RESULT_SEGMENTS = "operandSegmentSizes", "resultSegmentSizes"
SEGMENTS = (OPERAND_SEGMENTS, RESULT_SEGMENTS)


def is_segmented(values: tuple[ValueSpec, ...]) -> bool:
    """Whether an op with these operands or results needs an attribute with their segment sizes."""
    open_ended = [v.arity for v in values if v.arity != "single"]
    return len(open_ended) > 1 or "variadic" in open_ended


def group_values(
    values: tuple[ValueSpec, ...], items: Sequence[object], kind: str, sizes: Sequence[int] | None = None
) -> list[Any]:
    """Group flat operands or results as in the record.

    A group is a single item, None for an absent optional one, or a list for a variadic one.

    Args:
        values: The operands or results of the record.
        items: One item for each value, flat.
        kind: `"operand"` or `"result"`, for messages.
        sizes: The segment sizes of the op, if the record needs them.

    Raises:
        ShapeError: The count does not fit.
    """
    return _by_sizes(values, items, kind, sizes) if is_segmented(values) else counted(values, items, kind)


def counted(values: Sequence[ValueSpec], items: Sequence[object], kind: str) -> list[Any]:
    """Group items of a record with at most one optional or variadic value, where the count determines the groups.

    Raises:
        ShapeError: The count does not fit.
    """
    if any(v.arity == "variadic" for v in values):
        extra = len(items) - (len(values) - 1)
        if extra < 0:
            raise ShapeError(f"expected at least {len(values) - 1} {kind}s, got {len(items)}")
        remaining = iter(items)
        return [[next(remaining) for _ in range(extra)] if v.arity == "variadic" else next(remaining) for v in values]
    optional = sum(v.arity == "optional" for v in values)
    extra = len(items) - (len(values) - optional)
    if not 0 <= extra <= optional:
        raise ShapeError(f"expected {_count(values)} {kind}s, got {len(items)}")
    remaining = iter(items)
    return [None if v.arity == "optional" and not extra else next(remaining) for v in values]


def _by_sizes(
    values: Sequence[ValueSpec], items: Sequence[object], kind: str, sizes: Sequence[int] | None
) -> list[Any]:
    expected = sum(RUNS if v.arity == "variadic" else 1 for v in values)
    if sizes is None or len(sizes) != expected or sum(sizes) != len(items):
        raise ShapeError(f"{kind}SegmentSizes must have {expected} entries that add up to {len(items)}, got {sizes}")
    result: list[object] = []
    counts, remaining = iter(sizes), iter(items)
    for value in values:
        if value.arity == "variadic":
            count = sum(next(counts) for _ in range(RUNS))
            result.append([next(remaining) for _ in range(count)])
        elif next(counts):
            result.append(next(remaining))
        elif value.arity == "optional":
            result.append(None)
        else:
            raise ShapeError(f"{kind} '{value.name}' is missing")
    return result


def _count(values: Sequence[ValueSpec]) -> str:
    least = sum(v.arity == "single" for v in values)
    return str(least) if least == len(values) else f"{least} or {len(values)}"


def segment_sizes(values: Sequence[ValueSpec], groups: Sequence[Any], kind: str) -> list[int]:
    """Return the segment sizes of groups of types.

    Raises:
        ShapeError: A variadic group changes its type too often.
    """
    sizes: list[int] = []
    for value, group in zip(values, groups, strict=True):
        if value.arity != "variadic":
            sizes.append(int(group is not None))
            continue
        runs = [len(list(run)) for _, run in groupby(group)]
        if len(runs) > RUNS:
            raise ShapeError(
                f"the {kind}s '{value.name}' change their type {len(runs) - 1} times; at most {RUNS - 1} are possible",
                hint="order them by type",
            )
        sizes += runs + [0] * (RUNS - len(runs))
    return sizes


def segment_attributes(spec: OpSpec) -> set[str]:
    """Return the names of the segment attributes that an op has in addition to those of its record."""
    groups = zip(SEGMENTS, (spec.operands, spec.results), strict=True)
    return {name for name, values in groups if is_segmented(values)}


def grouped_operands(spec: OpSpec, op: mlir.Operation, items: Sequence[object]) -> list[Any]:
    """Return a list with one item per operand of an op, grouped as in its record.

    Raises:
        ShapeError: The count does not fit.
    """
    attributes = op.attributes
    sizes = list(attributes[OPERAND_SEGMENTS]) if OPERAND_SEGMENTS in attributes else None
    return group_values(spec.operands, items, "operand", sizes)


def flat(groups: Sequence[T | list[T] | None]) -> list[T]:
    """Return all items of groups, flattened, without absent ones."""
    result: list[T] = []
    for group in groups:
        result += group if isinstance(group, list) else [] if group is None else [group]
    return result
