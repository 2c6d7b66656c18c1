"""Bounds of sizes that are open: what an argument says of symbols besides its shape, as in `3 <= batch <= 64`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rlx.ir.dim import Dim, DimExpr, parse, substitute
from rlx.ir.errors import Error, ShapeError

BOUNDS = "rlx.bounds"
_BETWEEN = " and "
_ENTRY = re.compile(r"(?:(?P<low>\d{1,18}) *<= *)?(?P<size>[^<>=]+?)(?: *<= *(?P<high>\d{1,18}))?")
_MOST = 64


@dataclass(frozen=True)
class Bound:
    """What a size lies between.

    Attributes:
        size: An expression in symbols.
        low: The least value.
        high: The greatest one, None if there is none.
    """

    size: DimExpr
    low: int = 0
    high: int | None = None

    def __str__(self) -> str:
        least = f"{self.low} <= " if self.low or self.high is None else ""
        return f"{least}{self.size}" + ("" if self.high is None else f" <= {self.high}")

    def requires(self, what: str) -> Iterator[tuple[Dim, str]]:
        """Expressions that must not be negative, with what is wrong if one is.

        Args:
            what: The argument, for messages.
        """
        if self.low:
            yield self.size - self.low, f"{what}: {self.size} must be {self.low} or more"
        if self.high is not None:
            yield self.high - self.size, f"{what}: {self.size} must be {self.high} or less"


Bounds = tuple[Bound, ...]


def bounds_text(bounds: Bounds) -> str:
    """How bounds are written: `"3 <= batch <= 64 and seq <= 100"`."""
    return _BETWEEN.join(map(str, bounds))


@lru_cache(256)
def bounds_from_text(text: str) -> Bounds:
    """The bounds of an attribute `rlx.bounds`.

    Raises:
        ShapeError: The text is of another form, or no size lies within.
    """
    entries = text.split(_BETWEEN)
    found = [_ENTRY.fullmatch(entry.strip()) for entry in entries]
    if len(entries) > _MOST or any(f is None or f["low"] is f["high"] is None for f in found):
        raise ShapeError(f'\'{BOUNDS}\' is bounds such as "3 <= batch <= 64 and seq <= 100", not "{text:.80}"')
    return tuple(
        _bound(f["size"], int(f["low"] or 0), None if f["high"] is None else int(f["high"])) for f in found if f
    )


def _bound(text: str, low: int, high: int | None) -> Bound:
    try:
        size = parse(text)
    except Error as problem:
        raise ShapeError(f"'{BOUNDS}': {problem.message}", hint=problem.hint) from None
    if not isinstance(size, DimExpr):
        raise ShapeError(f"'{BOUNDS}': {size} has no symbols: nothing depends on it")
    if high is not None and high < low:
        raise ShapeError(f"'{BOUNDS}': {size} cannot lie between {low} and {high}")
    return Bound(size, low, high)


def bounds_with(bounds: Bounds, sizes: Mapping[str, Dim], what: str) -> Bounds:
    """What is left of bounds when symbols get sizes.

    Args:
        bounds: The bounds.
        sizes: What takes the place of symbols.
        what: The argument, for messages.

    Raises:
        ShapeError: A size lies outside.
    """
    kept: list[Bound] = []
    for bound in bounds:
        size = substitute(bound.size, sizes)
        if isinstance(size, DimExpr):
            kept.append(Bound(size, bound.low, bound.high))
            continue
        for value, meaning in bound.requires(what):
            if isinstance(left := substitute(value, sizes), int) and left < 0:
                raise ShapeError(f"{meaning}, got {size}")
    return tuple(kept)
