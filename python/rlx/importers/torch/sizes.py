"""Sizes: conversion of PyTorch's symbolic integers to dimensions, and names of their symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlx.importers.torch.rules import dtype_of
from rlx.ir.dims import dim
from rlx.ir.dims.bounds import Bound, Bounds
from rlx.ir.dims.dim import Dim
from rlx.ir.shape import Shape
from rlx.support.errors import Error, UnsupportedError

# From this value on, a bound is ignored.
LARGEST_SIZE = 2**31


class SymbolNames:
    """The symbols of a program, by their names in the graph.

    Args:
        names: The name of each PyTorch symbol (`s77`). A symbol without an entry keeps PyTorch's name.
    """

    def __init__(self, names: Mapping[str, str]):
        self.names = dict(names)
        self._known: dict[Any, Dim] = {}

    def unite(self, one: Any, other: Any) -> None:
        """Unite two symbols, under the name that the user gave to either of them."""
        first, second = str(one), str(other)
        name = self.names.get(first) or self.names.get(second) or first
        self.names |= {first: name, second: name}
        self._known.clear()

    def dim(self, size: Any) -> Dim:
        """Return a size as a dimension.

        Raises:
            UnsupportedError: It depends on values, or on an operation that dimensions do not support.
        """
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in self._known:
            self._known[expression] = self.translated(expression)
        return self._known[expression]

    def shape(self, tensor: Any) -> Shape:
        """Return the shape of a PyTorch tensor."""
        return Shape([self.dim(d) for d in tensor.shape], dtype_of(tensor.dtype))

    def bounds(self, program: Any, shape: Shape) -> Bounds:
        """Return the bounds of the symbols of a shape.

        A smallest size of 2 is not a bound: PyTorch assumes it for all open sizes, but accepts 0 and 1.
        """
        found = list[Bound]()
        for symbol, limits in getattr(program, "range_constraints", {}).items():
            low, high = bound_of(limits, "lower", 0), bound_of(limits, "upper", LARGEST_SIZE)
            if not getattr(symbol, "is_Symbol", False) or not str(symbol).startswith("s"):
                continue  # an expression, whose symbols have bounds, or a size that depends on values
            size = dim.symbol(self.names.get(str(symbol), str(symbol)))
            if size.symbols <= shape.symbols and (low > 2 or high < LARGEST_SIZE):
                found.append(Bound(size, low if low > 2 else None, high if high < LARGEST_SIZE else None))
        return tuple(found)

    def translated(self, e: Any) -> Dim:
        """Return a sympy expression as a dimension: see `dim`."""
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            if not str(e).startswith("s"):
                raise UnsupportedError(
                    f"the size {e} depends on values", hint="sizes may depend on sizes of inputs alone"
                )
            return dim.symbol(self.names.get(str(e), str(e)))
        parts = [self.translated(a) for a in e.args]
        match type(e).__name__:
            case "Add":
                return sum(parts)
            case "Mul":
                return dim.product(parts)
            case "Pow" if isinstance(parts[1], int) and parts[1] > 0:
                return dim.product([parts[0]] * parts[1])
            case "FloorDiv" | "CleanDiv":
                return parts[0] // parts[1]
            case "Mod" | "PythonMod":
                return parts[0] % parts[1]
            case "ModularIndexing":
                return parts[0] // parts[1] % parts[2]
            case "CeilDiv":
                return -(-parts[0] // parts[1])
            case "Max":
                return dim.maximum(*parts)
            case "Min":
                return dim.minimum(*parts)
            case kind:
                raise UnsupportedError(f"the size {e} cannot be imported: RLX computes no sizes with {kind}")


def bound_of(limits: Any, side: str, otherwise: int) -> int:
    """Return a bound of a range (`"lower"`, `"upper"`) as an integer; `otherwise` if it is infinite."""
    try:
        return max(0, min(int(getattr(limits, side)), otherwise or LARGEST_SIZE))
    except (TypeError, ValueError, OverflowError, AttributeError):
        return otherwise


def named_symbols(
    program: Any, given: Sequence[tuple[str, Any]], dynamic_shapes: Any, order: Sequence[str]
) -> dict[str, str]:
    """Return names for the symbols of a program, from the user's `torch.export.Dim`s.

    Args:
        program: The exported program.
        given: The arguments of the module by name.
        dynamic_shapes: The user's argument of `from_torch`.
        order: The names of the parameters of `forward`, for a sequence of specifications.
    """
    if dynamic_shapes is None:
        return {}
    if not isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = dict(zip(order, dynamic_shapes, strict=False))
    placeholders = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    names: dict[str, str] = {}
    for argument, value in given:
        for path, axis, name in _named_dims(argument, value, dynamic_shapes.get(argument)):
            tensor = placeholders.get(path)
            size = tensor.shape[axis] if tensor is not None and hasattr(tensor, "shape") else 0
            symbols = () if isinstance(size, int) else tuple(size.node.expr.free_symbols)
            if len(symbols) != 1:
                continue
            try:
                names.setdefault(str(symbols[0]), str(dim.symbol(name)))
            except Error as problem:
                raise Error(f"dynamic_shapes of '{path}': {problem.message}", hint=problem.hint) from None
    return names


def _named_dims(path: str, value: Any, spec: Any) -> Iterator[tuple[str, int, str]]:
    """Yield path, axis and name of all named dimensions in a specification for a value. `2*batch` has the name `batch`."""
    if spec is None:
        return
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        for axis, size in pairs:
            name = getattr(getattr(size, "root", size), "__name__", None)
            if isinstance(name, str):
                yield path, axis % max(len(value.shape), 1), name
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named_dims(f"{path}_{key}", inner, spec.get(key) if isinstance(spec, Mapping) else None)
    elif isinstance(value, (list, tuple)) and isinstance(spec, (list, tuple)):
        for i, (inner, of_inner) in enumerate(zip(value, spec, strict=False)):
            yield from _named_dims(f"{path}_{i}", inner, of_inner)
