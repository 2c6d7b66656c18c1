"""Constant arrays in C."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlx.targets.c.lower.values import LEAST_I64, float_text

_WIDTH = 100


@dataclass(frozen=True)
class ConstantArray:
    """A constant array.

    Attributes:
        name: Its name.
        kind: The type of an element.
        dims: Its sizes.
        body: The lines of its initialiser.
        note: A description for a comment.
        size: The size in bytes.
    """

    name: str
    kind: str
    dims: tuple[int, ...]
    body: list[str] = field(repr=False)
    note: str
    size: int

    @property
    def declarator(self) -> str:
        """The name with the sizes."""
        return self.name + "".join(f"[{d}]" for d in self.dims)

    def holds(self, other: ConstantArray) -> bool:
        """Whether it has the elements and the type of another array. The text alone is ambiguous: types may differ."""
        return (self.kind, self.dims, self.body) == (other.kind, other.dims, other.body)


def table_of(name: str, array: np.ndarray, kind: str, note: str) -> ConstantArray:
    """Return an array of numbers, with two axes for a matrix."""
    rows = array.reshape(array.shape if array.ndim == 2 else (1, -1))
    lines: list[str] = []
    for row in rows:
        texts = _filled([_text(v) for v in row])
        if array.ndim == 2 and len(texts) == 1:
            lines.append(f"{{{texts[0]}}},")
        elif array.ndim == 2:
            lines += ["{", *(f"    {text}," for text in texts), "},"]
        else:
            lines += [f"{text}," for text in texts]
    dims = array.shape if array.ndim == 2 else (array.size,)
    return ConstantArray(name, kind, dims, lines, note, array.nbytes)


def record_table(name: str, kind: str, fields: dict[str, np.ndarray], note: str) -> ConstantArray:
    """Return an array of structures of i32."""
    columns = [values.tolist() for values in fields.values()]
    lines = [f"{{{', '.join(map(_text, row))}}}," for row in zip(*columns, strict=True)]
    return ConstantArray(name, kind, (len(lines),), lines, note, 4 * len(columns) * len(lines))


def _text(value: object) -> str:
    if isinstance(value, float) or np.asarray(value).dtype.kind == "f":
        return float_text(float(value))  # type: ignore[arg-type]
    number = int(value)  # type: ignore[call-overload]
    if number == -(2**63):
        return LEAST_I64
    if number == -(2**31):
        return "INT32_MIN"
    if abs(number) > 2**32 - 1:
        return f"INT64_C({number})"
    return f"{number}u" if number > 2**31 - 1 else str(number)


def _filled(texts: list[str]) -> list[str]:
    """Return lines of numbers, separated by commas."""
    lines: list[str] = []
    line: list[str] = []
    length = 0
    for text in texts:
        if line and length + len(text) + 2 > _WIDTH:
            lines.append(", ".join(line))
            line, length = [], 0
        line.append(text)
        length += len(text) + 2
    return [*lines, ", ".join(line)] if line else lines
