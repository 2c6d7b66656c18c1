"""`Buckets`: the sizes of symbols for which an entry point has separate programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from rlx.ir.dims.dim import DimExpr
from rlx.support.errors import Error, ShapeError
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion
from rlx.targets.artifacts.signature import Signature

# The sizes of the bucketed symbols of one program, in the order of the symbols.
Sizes = tuple[int, ...]
MOST_BUCKETS = 64  # in one entry point


@dataclass(frozen=True)
class Buckets:
    """The sizes of bucketed symbols.

    Attributes:
        sizes: The sizes of each symbol, ascending.
    """

    sizes: Mapping[str, Sizes]

    @classmethod
    def of(cls, sizes: Mapping[Any, Any], signature: Signature) -> Buckets:
        """Return the buckets that a user asks for.

        Args:
            sizes: The sizes of each symbol: an iterable of positive integers.
            signature: The arguments and outputs with these symbols.

        Raises:
            Error: A symbol or size does not exist, there are more programs than a file can have, or the signature has
                values that cannot be padded and cut.
        """
        buckets = cls({name: _checked_sizes(name, given) for name, given in sizes.items()})
        count = prod(map(len, buckets.sizes.values()))
        if count > MOST_BUCKETS:
            raise Error(f"buckets: {count} programs; at most {MOST_BUCKETS} are allowed", hint="give fewer sizes")
        _check_signature(buckets.sizes, signature)
        return buckets

    @property
    def combinations(self) -> list[Sizes]:
        """The sizes of each program."""
        return list(product(*self.sizes.values()))

    @property
    def example(self) -> str:
        """The smallest sizes, as arguments of a call."""
        return ", ".join(f"{name}={steps[0]}" for name, steps in self.sizes.items())

    def named(self, sizes: Sizes) -> dict[str, int]:
        """Return the sizes of a program by symbol."""
        return dict(zip(self.sizes, sizes, strict=True))

    def of_symbols(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of the bucketed symbols, from those of all symbols."""
        return {symbol: sizes[symbol] for symbol in self.sizes}

    def choose(self, sizes: Mapping[str, int]) -> Sizes:
        """Return the sizes of the smallest program that holds the given sizes.

        Raises:
            Error: A symbol is missing or unknown, or a size is not an integer.
            ShapeError: A size is larger than the largest bucket.
        """
        known = ", ".join(self.sizes)
        for name in sizes:
            if name not in self.sizes:
                raise Error(f"there is no bucketed symbol '{name}'{suggestion(name, self.sizes)}; there are {known}")
        chosen = []
        for name, steps in self.sizes.items():
            if name not in sizes:
                raise Error(f"the size of '{name}' is missing; the bucketed symbols are {known}")
            size = sizes[name]
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
                raise Error(f"the size of '{name}' must be an integer of at least 0, got {short_repr(size)}")
            fitting = [step for step in steps if step >= size]
            if not fitting:
                raise ShapeError(
                    f"{name} = {size} is larger than the largest bucket",
                    hint=f"the buckets are {', '.join(map(str, steps))}: add a larger one",
                )
            chosen.append(fitting[0])
        return tuple(chosen)

    def __str__(self) -> str:
        return "; ".join(f"{name}: {', '.join(map(str, sizes))}" for name, sizes in self.sizes.items())


def _checked_sizes(name: Any, sizes: Any) -> Sizes:
    """Return the sizes of a symbol in ascending order, each once.

    Raises:
        Error: They are not an iterable of positive integers, or there are too many.
    """
    if not isinstance(name, str):
        raise Error(f"buckets: the name of a symbol is a string, not {short_repr(name)}")
    values: list[Any] | None = None
    if isinstance(sizes, Iterable) and not isinstance(sizes, (str, bytes, Mapping)):
        try:
            values = list(islice(iter(sizes), MOST_BUCKETS + 1))  # an iterator may be infinite
        except TypeError:  # an array without axes
            values = None
    if not values:
        raise Error(f"buckets: the sizes of '{name}' must be a list of integers, got {short_repr(sizes)}")
    for size in values:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise Error(f"buckets: a size of '{name}' must be a positive integer, got {short_repr(size)}")
    if len(values) > MOST_BUCKETS:
        raise Error(f"buckets: more than {MOST_BUCKETS} sizes of '{name}'", hint="give fewer sizes")
    return tuple(sorted({int(size) for size in values}))


def _check_signature(symbols: Mapping[str, Sizes], signature: Signature) -> None:
    """Check that inputs can be padded to the sizes of buckets, and outputs be cut.

    Raises:
        Error: A symbol is unknown, a parameter has a bucketed size, or there are states.
        ShapeError: A size is an expression of a bucketed symbol.
    """
    inputs = signature.of_kind("input")
    known = frozenset[str]().union(*(a.shape.symbols for a in signature.arguments))
    for name in symbols:
        if name not in known:
            raise Error(f"buckets: the graph has no symbol '{name}'; it has {', '.join(sorted(known)) or 'none'}")
    if states := [a.name for a in signature.of_kind("state")]:
        raise Error(
            f"buckets: the graph has states ({', '.join(states)}), which its programs cannot share",
            hint="make them inputs and outputs, or leave the symbol dynamic",
        )
    for what, entry in [("input", a) for a in signature.arguments] + [("output", o) for o in signature.outputs]:
        for d in entry.shape.dims:
            if isinstance(d, DimExpr) and d.symbols & symbols.keys() and str(d) not in symbols:
                raise ShapeError(
                    f"buckets: {what} '{entry.name}' has the size {d}, of which padding is not at the end",
                    hint="only sizes that are a bucketed symbol itself can be padded and cut",
                )
    for a in signature.of_kind("param"):
        if sized := a.shape.symbols & symbols.keys():
            raise Error(f"buckets: param '{a.name}' has the size {sorted(sized)[0]}: only inputs can be padded")
    for name in symbols:
        if not any(name in a.shape.symbols for a in inputs):
            raise Error(f"buckets: no input has the size {name}")
