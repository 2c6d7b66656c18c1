"""Tables of rules for ONNX ops, by op name. Other domains are a prefix of the name (`com.microsoft.Gelu`).

A rule of `imports` takes an op's operands, None for one that is left out, and by keyword its attributes as Python values
(tensors as arrays, lists as tuples). If it names them, it also gets `static`, the elements of each operand where they are
known (`SymbolicArray` where they are sizes that are open), else None; `opset`, the version of the op's domain; `outputs`, the
number of results that are asked for; and `wanted`, which of them have a name that anything reads.
Ops that share attributes share a dataclass of them (`ImportTable`).

- `static`: the elements of each operand if they are known (`SymbolicArray` if they include open sizes), else None
- `opset`: the version of the op's domain
- `outputs`: the number of requested results
- `wanted`: whether each result has a name that is read

A rule of `structural` handles nodes that tensors cannot express: inner graphs, sequences and optional values. It takes
the scope and the node, and returns values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.importers.onnx.sizes import SymbolicArray
from rlx.importers.table import ImportTable
from rlx.ir.dims.dim import Dim, DimExpr
from rlx.ir.graph.graph import Graph
from rlx.ops.lift import size_of
from rlx.support.errors import Error, UnsupportedError

imports = ImportTable("ONNX")
structures: dict[str, Callable[..., Any]] = {}

Static = Sequence[Any]

# Operands that a rule reads only through `static`. If they are known, they do not become tensors.
STATIC_OPERANDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Split", "Squeeze", "Unsqueeze", "TopK", "CumSum", "Trilu"), (1,)),
    **{
        f"Reduce{kind}": (1,)
        for kind in ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    },
    **{"Slice": (1, 2, 3, 4), "Pad": (1, 2, 3), "Resize": (1, 2, 3), "Upsample": (1,), "ConstantOfShape": (0,)},
}

# The largest number of elements computed during import, for example tables of positions and ranges.
MOST_KNOWN = 1 << 22


def structural(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the rule of ops on values: `rule(scope, node)` returns their results."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            if op in structures:
                raise Error(f"ONNX has two rules for {op}")
            structures[op] = rule
        return rule

    return register


def integers(static: Static, position: int, what: str) -> tuple[int, ...] | None:
    """Return the elements of an operand as integers, which must be known; None for an omitted operand.

    Raises:
        UnsupportedError: They depend on the inputs.
    """
    array = elements(static, position, what)
    return None if array is None else tuple(int(n) for n in array.reshape(-1))


# The hint for an operand that has to be known and is computed from inputs. An import that fails lists the inputs instead.
NEEDS_CONSTANTS = "give the inputs that it depends on: rlx.from_onnx(…, constants={name: value})"


class Unknown:
    """Placeholder for the elements of an operand that is present but not known."""


def elements(static: Sequence[object], position: int, what: str) -> np.ndarray | None:
    """Return the elements of an operand, which must be known; None for an omitted operand.

    Raises:
        UnsupportedError: They depend on the inputs.
    """
    value = static[position] if position < len(static) else None
    if isinstance(value, SymbolicArray):
        symbols = {n for e in value.array.reshape(-1).tolist() if isinstance(e, DimExpr) for n in e.symbols}
        raise UnsupportedError(
            f"whose {what} depends on sizes that are open ({', '.join(sorted(symbols))}) cannot be imported",
            hint="give these sizes: rlx.from_onnx(…, sizes={…})",
        )
    if isinstance(value, Unknown):
        raise UnsupportedError(
            f"whose {what} depends on the inputs cannot be imported",
            hint=NEEDS_CONSTANTS,
        )
    assert value is None or isinstance(value, np.ndarray)
    return value


def known_elements(static: Sequence[object], position: int, what: str) -> np.ndarray:
    """Return the elements of an operand, which must be present and known.

    Raises:
        UnsupportedError: It is omitted, or depends on the inputs.
    """
    value = elements(static, position, what)
    if value is None:
        raise UnsupportedError(f"without {what} cannot be imported")
    return value


def dims(static: Sequence[object], position: int, what: str) -> tuple[Dim, ...] | None:
    """Return the elements of an operand as sizes, which may have symbols; None for an omitted operand.

    Raises:
        UnsupportedError: They depend on the inputs.
    """
    value = static[position] if position < len(static) else None
    return (
        tuple(value.array.reshape(-1).tolist())
        if isinstance(value, SymbolicArray)
        else integers(static, position, what)
    )


def needed_dims(static: Sequence[object], position: int, what: str) -> tuple[Dim, ...]:
    """The elements of an operand as sizes, which may have symbols.

    Raises:
        UnsupportedError: It is left out, or depends on the inputs.
    """
    sizes = dims(static, position, what)
    if sizes is None:
        raise UnsupportedError(f"without {what} cannot be imported")
    return sizes


def static_dims(x: Any, *axes: int) -> tuple[int, ...]:
    """Return the sizes of axes, which must be known.

    Raises:
        UnsupportedError: A size is open.
    """
    sizes = tuple(x.shape.dims[a] for a in axes)
    if unknown := [d for d in sizes if not isinstance(d, int)]:
        raise UnsupportedError(f"along an axis of open size {unknown[0]} cannot be imported")
    return sizes  # type: ignore[return-value]


def once(x: Any, axes: Sequence[int]) -> tuple[int, ...]:
    """Return axes without duplicates. Some models name an axis twice, once from the start and once from the end."""
    rank = x.shape.rank
    return tuple(dict.fromkeys(a + rank if -rank <= a < 0 else a for a in axes))


def extent(g: Graph, size: Dim, dtype: Any) -> Any:
    """Return a size for use with tensors of a dtype: an integer if it is known, else a scalar of that dtype."""
    return size if isinstance(size, int) else g.cast(size_of(g, size), dtype)


def all_within(numbers: np.ndarray, count: int | None, what: str) -> None:
    """Check that all numbers are in `range(count)`, or that none is negative if `count` is None.

    Raises:
        ValueError: A number is out of range.
    """
    if numbers.size and (numbers.min() < 0 or (count is not None and numbers.max() >= count)):
        wrong = numbers.min() if numbers.min() < 0 else numbers.max()
        raise ValueError(f"number {wrong} of {'any' if count is None else count} {what}")


def element_count(count: int, what: str, most: int = MOST_KNOWN) -> int:
    """Return a number of elements that are computed during import.

    Raises:
        UnsupportedError: There are too many elements.
    """
    if count > most:
        raise UnsupportedError(f"with {count} {what} cannot be imported; {most} is the most")
    return count
