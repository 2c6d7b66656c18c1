"""The table of lowering rules to StableHLO: one function for each primitive op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlx.ir.dtype import DType
from rlx.ir.shape import Shape

RULES: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A StableHLO value with its shape, which is static."""

    value: Any
    shape: Shape

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes."""
        return self.shape.static

    @property
    def rank(self) -> int:
        return self.shape.rank

    @property
    def dtype(self) -> DType:
        return self.shape.dtype


def lowers(op: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register `rule(emit, results, *operands, **attributes)` for an op.

    `emit` is the `Emitter`, `results` are the result shapes; operands are `Lowered`, None, or lists of them. An op with
    regions has one more keyword argument, `regions`: for each region a function that takes a `Lowered` for each of its
    arguments, emits its ops at the insertion point, and returns a list of what it yields; None for an empty region. The
    rule returns a `Lowered`, or a tuple of them.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        assert op not in RULES or "." in op, op  # the file of a user's op may be run twice
        RULES[op] = rule
        return rule

    return register
