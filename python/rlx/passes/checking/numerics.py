"""Comparison of two modules: their functions are evaluated on the same inputs, which are random or given."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dims.dim import DimExpr, evaluate
from rlx.ir.dtype import DType, dtype
from rlx.ir.graph.evaluate import evaluate_function
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, bind_symbols, check_argument
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import bodies, functions
from rlx.ir.python_values import with_dtype
from rlx.ir.shape import shape_of
from rlx.support.errors import Error

# Tolerances relative to the largest element: a pass may reorder sums, and fused ops round less often.
_TOLERANCES = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}


def tolerance(kind: DType) -> float:
    """Return the tolerance of a dtype. For storage dtypes it is one step, because results are rounded to it."""
    if not kind.is_inexact:
        return 0.0
    # A power of two differs from the next one by half of the larger one.
    return min(kind.eps, 0.5) if kind.storage else _TOLERANCES[kind.part.name]


# Sizes of symbols to try. Distinct sizes come first; some graphs need even or larger sizes.
_SIZES = ((3, 5, 7, 4, 6), (4, 8, 6, 12, 10), (8, 16, 32, 24, 48), (1, 1, 1, 1, 1))
# Names of operands that are indices.
_POSITIONS = ("indices", "labels", "targets")


def _no_note(text: str) -> None:
    pass


@dataclass(frozen=True)
class Comparison:
    """The options of a comparison of two modules.

    Attributes:
        seed: The seed of the inputs: floats in [-2, 2], integers in the range that they index, small sizes of symbols.
        given: Arrays or tensors of files to use instead, by argument name, in functions where they fit the argument of
            that name.
        tolerance: The maximum difference of float results, relative to the largest element; None uses `tolerances`.
        note: Called with a text for each function that is not compared.
    """

    seed: int = 0
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tolerance: float | None = None
    note: Callable[[str], None] = _no_note

    def check_given(self, module: mlir.Module) -> None:
        """Check that the given arrays are arguments of a module.

        Raises:
            Error: There is no such argument, or it does not fit any.
        """
        arguments = [a for f in bodies(module) for a in Graph.from_module(module, f.name.value).arguments]
        for name in self.given:
            alike = [a for a in arguments if a.name == name]
            if not alike:
                known = ", ".join(dict.fromkeys(a.name for a in arguments)) or "none"
                raise Error(f"an array is given for '{name}', but there is no such argument; there are {known}")
            if all(self._fitting(a) is None for a in alike):
                self._checked(alike[0])

    def difference(self, before: mlir.Module, after: mlir.Module) -> str:
        """Return a description of the first difference between a module and a derived one; empty if there is none.

        Functions with ops of other dialects, and those that cannot be evaluated before, are not compared.
        """
        results = {f.name.value: f for f in functions(after)}
        for function in bodies(before):
            if said := self._difference(function, results.get(function.name.value)):
                return said
        return ""

    def _difference(self, before: Any, after: Any) -> str:
        name = f"@{before.name.value}"
        if after is None:
            return "" if "sym_visibility" in before.attributes else f"removes {name}"
        for function in (before, after):
            foreign = foreign_op(function)
            if foreign is not None:
                self.note(f"{name} is not checked: it holds '{foreign}'")
                return ""
        old, new = (Graph.from_module(f.operation.parent.opview, f.name.value) for f in (before, after))
        if [a.name for a in old.arguments] != [a.name for a in new.arguments]:
            return f"changes the arguments of {name}"
        expected = self._first_value(name, old, new)
        if expected is None:
            return ""
        arrays, results, symbols = expected
        try:
            values = evaluate_function(new.function, arrays, symbols)
        except Exception as problem:  # evaluators do not convert exceptions of NumPy
            return f"gives a {name} that cannot be evaluated: {_reason(problem)}"
        limits = tolerances(old.function) if self.tolerance is None else [self.tolerance] * len(results)
        where = differs(results, values, [o.name for o in old.results], limits)
        return f"changes the result of {name}: {where}" if where else ""

    def _first_value(self, name: str, old: Graph, new: Graph) -> Any:
        """Return inputs, results of the old graph, and symbols of the new one, for the first sizes that the old graph supports.

        Returns None, with a note, if there are no such sizes.
        """
        reason = ""
        for sizes in _SIZES:
            try:
                symbols = dict(zip(sorted(new.symbols), _repeated(sizes), strict=False))
                fitting = [(a, given.shape) for a in new.arguments if (given := self._fitting(a)) is not None]
                symbols |= bind_symbols(fitting)
                shapes = [tuple(evaluate(d, symbols) for d in a.shape.dims) for a in new.arguments]
                bound = bind_symbols(list(zip(old.arguments, shapes, strict=True)))
                arrays = self._inputs(old, bound)
                return arrays, evaluate_function(old.function, arrays, bound), symbols
            except Exception as problem:
                reason = _reason(problem)
        self.note(f"{name} is not checked: it cannot be evaluated: {reason}")
        return None

    def _inputs(self, graph: Graph, symbols: Mapping[str, int]) -> list[np.ndarray]:
        random = np.random.default_rng([self.seed, zlib.crc32(graph.name.encode())])
        values = graph.function.entry_block.arguments
        drawn = [draw(random, a, v, symbols) for a, v in zip(graph.arguments, values, strict=True)]
        return [self._given(a, array) for a, array in zip(graph.arguments, drawn, strict=True)]

    def _given(self, argument: Argument, drawn: np.ndarray) -> np.ndarray:
        given = self._fitting(argument)
        return drawn if given is None or given.shape != drawn.shape else given

    def _fitting(self, argument: Argument) -> np.ndarray | None:
        """Return the array that is given for an argument, if it fits."""
        try:
            return self._checked(argument) if argument.name in self.given else None
        except Error:
            return None

    def _checked(self, argument: Argument) -> np.ndarray:
        # The file of a tensor may not record its dtype.
        array = np.asarray(with_dtype(self.given[argument.name], argument.shape.dtype))
        check_argument(argument, array)
        return array


def _reason(problem: Exception) -> str:
    return problem.message if isinstance(problem, Error) else f"{type(problem).__name__}: {problem}"


def _repeated(sizes: Sequence[int]) -> Iterator[int]:
    while True:
        yield from sizes


def foreign_op(function: mlir.FuncOp) -> str | None:
    """Return the name of an op of another dialect inside a function, or None."""
    names: list[str] = []

    def visit(op: mlir.Operation) -> Any:
        name = op.operation.name
        if name.startswith("rlx.") or name in ("func.func", "func.return"):
            return mlir.ir.WalkResult.ADVANCE
        names.append(name)
        return mlir.ir.WalkResult.INTERRUPT

    mlir.walk(function, visit, mlir.ir.WalkOrder.PRE_ORDER)
    return names[0] if names else None


# --- inputs ---------------------------------------------------------------------------------------


def draw(random: np.random.Generator, argument: Argument, value: mlir.Value, symbols: Mapping[str, int]) -> np.ndarray:
    """Return a random array for an argument."""
    shape = argument.shape.bind(symbols).static
    kind = argument.shape.dtype
    if kind.is_bool:
        return random.integers(0, 2, shape).astype(bool)
    if kind.is_integer:
        limit = index_limit(value, symbols)
        low, high = (0, limit) if limit is not None else (-4 if kind.is_signed else 0, 5)
        return random.integers(low, max(high, low + 1), shape).astype(kind.numpy)
    real = random.uniform(-2, 2, shape)
    return (real + 1j * random.uniform(-2, 2, shape) if kind.is_complex else real).astype(kind.numpy)


def index_limit(value: mlir.Value, symbols: Mapping[str, int]) -> int | None:
    """Return the size of the smallest axis that a value indexes, or None if it is not an index."""
    limits: list[int] = []
    pending, seen = [value], {value}
    while pending:
        current = pending.pop()
        for use in current.uses:
            op = use.owner.operation
            if not registry.is_ours(op):
                continue
            limit = _limit_in(op, current, symbols)
            if limit is not None:
                limits.append(limit)
            elif (opview.has_trait(op, "moves_data") or op.name == "rlx.cast") and op.results[0] not in seen:
                seen.add(op.results[0])
                pending.append(op.results[0])
    return min(limits, default=None)


def _limit_in(op: mlir.Operation, value: mlir.Value, symbols: Mapping[str, int]) -> int | None:
    spec = opview.card_of(op).spec
    groups = dict(zip([o.name for o in spec.operands], opview.operands_of(op, list(op.operands)), strict=True))
    role = next((n for n in _POSITIONS if n in groups and groups[n] == value), None)
    if role is None:
        return None
    values = opview.attributes_of(op, symbols)
    if "size" in values:
        return int(np.ravel(values["size"])[0])
    table = shape_of(next(v for n, v in groups.items() if n != role and not isinstance(v, list)))
    axis: int = values.get("axis", 0 if role == "indices" else table.rank - 1)
    size = table.bind(symbols).dims[axis]
    return None if isinstance(size, DimExpr) else size


# --- comparison -----------------------------------------------------------------------------------


def tolerances(function: mlir.FuncOp) -> list[float]:
    """Return the tolerance of each result of a function: the tolerance of the least precise floats that it is computed from."""
    return [max(map(_own_tolerance, _behind(value)), default=0.0) for value in opview.yielded(function.entry_block)]


def _behind(value: mlir.Value) -> set[mlir.Value]:
    """Return a value and all values from which it is computed, also inside regions."""
    pending, found = [value], {value}
    while pending:
        current = pending.pop()
        if not isinstance(current, mlir.ir.OpResult):
            continue
        op = current.owner.operation
        inside = [i for region in op.regions for block in region.blocks for i in opview.operations(block)]
        read = [*op.operands, *(v for inner in inside for v in (*inner.operands, *inner.results))]
        pending += [v for v in dict.fromkeys(read) if v not in found]
        found.update(read)
    return found


def _own_tolerance(value: mlir.Value) -> float:
    return tolerance(shape_of(value).dtype)


def differs(
    expected: Sequence[np.ndarray], got: Sequence[np.ndarray], names: Sequence[str], limits: Sequence[float]
) -> str:
    """Return a description of where two lists of results differ, empty if they agree.

    Args:
        expected: The expected results.
        got: The actual results.
        names: The names of the results.
        limits: The maximum difference of each float result, relative to its largest element; other results must be
            equal.
    """
    if len(expected) != len(got):
        return f"{len(expected)} results became {len(got)}"
    for name, a, b, limit in zip(names, expected, got, limits, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output '{name}' was {a.dtype}{list(a.shape)} and is {b.dtype}{list(b.shape)}"
        where = _worst(a, b, limit)
        if where is not None:
            return f"output '{name}' at {list(where)} was {a[where]} and is {b[where]}"
    return ""


def _worst(a: np.ndarray, b: np.ndarray, limit: float) -> tuple[int, ...] | None:
    """Return the index at which two arrays differ most, None if they agree."""
    if a.size == 0 or not dtype(a.dtype).is_inexact:
        is_different = a != b
        return tuple(int(i) for i in np.argwhere(is_different)[0]) if is_different.any() else None
    wide_dtype = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide_dtype), b.astype(wide_dtype)
    finite = np.isfinite(x)
    scale = max(1.0, float(np.abs(x[finite]).max(initial=0.0)))
    is_same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        error = np.where(is_same, 0.0, np.abs(x - y))
    error = np.where(np.isnan(error), np.inf, error)
    worst = np.unravel_index(int(error.argmax()), error.shape)
    return tuple(int(i) for i in worst) if error[worst] > limit * scale else None
