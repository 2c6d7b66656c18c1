"""The tables of rules of ONNX, by the names of its ops; those of another domain have it in front (`com.microsoft.Gelu`).

A rule of `imports` takes an op's operands, None for one that is left out, and by keyword its attributes as Python values
(tensors as arrays, lists as tuples). If it names them, it also gets `static`, the elements of each operand where they are
known, else None; `opset`, the version of the op's domain; and `outputs`, the number of results that are asked for.

A rule of `structural` is for what tensors cannot express: graphs inside of a node, sequences, optional values. It takes the
scope and the node, and gives values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.importers.table import Table
from rlx.ir.errors import Error, UnsupportedError

imports = Table("ONNX")
structures: dict[str, Callable[..., Any]] = {}

Static = Sequence[np.ndarray | None]


def structural(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the rule of ops that work on values: `rule(scope, node)` gives their results."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            if op in structures:
                raise Error(f"ONNX has two rules for {op}")
            structures[op] = rule
        return rule

    return register


def integers(static: Static, position: int, what: str) -> tuple[int, ...] | None:
    """The elements of an operand as integers, which have to be known; None for one that is left out.

    Raises:
        UnsupportedError: They depend on the inputs.
    """
    array = elements(static, position, what)
    return None if array is None else tuple(int(n) for n in array.reshape(-1))


class Unknown:
    """In place of the elements of an operand that is there, and whose elements are not known."""


def elements(static: Sequence[object], position: int, what: str) -> np.ndarray | None:
    """The elements of an operand, which have to be known; None for one that is left out.

    Raises:
        UnsupportedError: They depend on the inputs.
    """
    value = static[position] if position < len(static) else None
    if isinstance(value, Unknown):
        raise UnsupportedError(
            f"whose {what} depends on the inputs cannot be imported",
            hint=f"where it is an input with one value, give it: rlx.from_onnx(…, constants={{'{what}': …}})",
        )
    assert value is None or isinstance(value, np.ndarray)
    return value


def needed(static: Sequence[object], position: int, what: str) -> np.ndarray:
    """The elements of an operand, which has to be there and known.

    Raises:
        UnsupportedError: It is left out, or depends on the inputs.
    """
    value = elements(static, position, what)
    if value is None:
        raise UnsupportedError(f"without {what} cannot be imported")
    return value
