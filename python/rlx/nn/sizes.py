"""Checks of sizes in layer arguments."""

from __future__ import annotations

from typing import Any

from rlx.support.caller import caller_place
from rlx.support.errors import Error
from rlx.support.guards import is_integer, is_sequence
from rlx.support.short import short_repr

_MOST = 2**40


def check_sizes(least: int = 0, **sizes: int) -> None:
    """Check arguments of a layer that are sizes or counts.

    Args:
        least: The smallest allowed value.
        sizes: The values by argument name.

    Raises:
        Error: A value is not an integer, or is out of range.
    """
    for name, size in sizes.items():
        if not is_integer(size) or not least <= size <= _MOST:
            message = f"{name} must be an integer of at least {least}, got {short_repr(size)}"
            raise Error(message, location=caller_place())


def as_tuple(name: str, value: Any, count: int = 1) -> tuple[int, ...]:
    """Return a tuple of sizes, from one number for all axes or a sequence.

    Raises:
        Error: It is neither an integer nor a sequence of integers, or one of them is negative.
    """
    sizes = (value,) * count if is_integer(value) else value
    if not is_sequence(sizes) or not sizes:
        raise Error(f"{name} must be an integer or a sequence of integers, got {short_repr(sizes)}")
    for size in sizes:
        check_sizes(**{name: size})
    return tuple(int(size) for size in sizes)
