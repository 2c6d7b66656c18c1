"""Bounds of symbolic sizes that an argument declares in addition to its shape, such as `3 <= batch <= 64` or `n%2 == 0`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from rlx.ir.dims.dim import Dim, DimExpr, parse, substitute
from rlx.support.errors import Error, ShapeError

BOUNDS = "rlx.bounds"
_BETWEEN = " and "
_NUMBER = r"-?\d{1,18}"
_ENTRY = re.compile(
    rf"(?:(?P<low>{_NUMBER}) *<= *)?(?P<size>[^<>=!]+?)(?: *<= *(?P<high>{_NUMBER}))?"
    rf"|(?P<of>[^<>=!]+?) *(?P<sign>[=!]=) *(?P<number>{_NUMBER})"
)
_MOST = 64


@dataclass(frozen=True)
class Bound:
    """The range of a size.

    Attributes:
        size: An expression in symbols.
        low: The smallest value, None if unbounded.
        high: The largest value, None if unbounded.
        unlike: A value that the size must not have.
    """

    size: DimExpr
    low: int | None = None
    high: int | None = None
    unlike: int | None = None

    def __str__(self) -> str:
        if self.unlike is not None:
            return f"{self.size} != {self.unlike}"
        if self.low == self.high:
            return f"{self.size} == {self.low}"
        least = "" if self.low is None else f"{self.low} <= "
        return f"{least}{self.size}" + ("" if self.high is None else f" <= {self.high}")

    def requires(self, what: str) -> Iterator[tuple[Dim, str]]:
        """Yield expressions that must not be negative, each with the error message for a negative value.

        Args:
            what: The argument, for messages.
        """
        least, most = ("", "") if self.low == self.high else (" or more", " or less")
        if self.low is not None:
            yield self.size - self.low, f"{what}: {self.size} must be {self.low}{least}"
        if self.high is not None:
            yield self.high - self.size, f"{what}: {self.size} must be {self.high}{most}"
        if self.unlike is not None:
            away = self.size - self.unlike
            yield away * away - 1, f"{what}: {self.size} must not be {self.unlike}"


Bounds = tuple[Bound, ...]


def bounds_text(bounds: Bounds) -> str:
    """Return the text of bounds: `"3 <= batch <= 64 and seq <= 100"`."""
    return _BETWEEN.join(map(str, bounds))


@lru_cache(256)
def bounds_from_text(text: str) -> Bounds:
    """Return the bounds of an attribute `rlx.bounds`.

    Raises:
        ShapeError: The syntax is wrong, or no size satisfies the bounds.
    """
    entries = text.split(_BETWEEN)
    found = [_ENTRY.fullmatch(entry.strip()) for entry in entries]
    if len(entries) > _MOST or any(f is None or f["low"] is f["high"] is f["number"] is None for f in found):
        raise ShapeError(f'\'{BOUNDS}\' is bounds such as "3 <= batch <= 64 and seq <= 100", not "{text:.80}"')
    return tuple(_bound(f) for f in found if f)


def _bound(found: re.Match[str]) -> Bound:
    try:
        size = parse(found["size"] or found["of"])
    except Error as problem:
        raise ShapeError(f"'{BOUNDS}': {problem.message}", hint=problem.hint) from None
    if not isinstance(size, DimExpr):
        raise ShapeError(f"'{BOUNDS}': {size} has no symbols: nothing depends on it")
    low, high, number = (None if found[n] is None else int(found[n]) for n in ("low", "high", "number"))
    if number is not None:
        return Bound(size, unlike=number) if found["sign"] == "!=" else Bound(size, number, number)
    if low is not None and high is not None and high < low:
        raise ShapeError(f"'{BOUNDS}': {size} cannot lie between {low} and {high}")
    return Bound(size, low, high)


def bounds_with(bounds: Bounds, sizes: Mapping[str, Dim], what: str) -> Bounds:
    """Return the bounds that are left when symbols are replaced by sizes.

    Args:
        bounds: The bounds.
        sizes: The sizes that replace symbols.
        what: The argument, for messages.

    Raises:
        ShapeError: A size is out of bounds.
    """
    kept: list[Bound] = []
    for bound in bounds:
        size = substitute(bound.size, sizes)
        if isinstance(size, DimExpr):
            kept.append(replace(bound, size=size))
            continue
        for value, meaning in bound.requires(what):
            if isinstance(left := substitute(value, sizes), int) and left < 0:
                raise ShapeError(f"{meaning}, got {size}")
    return tuple(kept)
