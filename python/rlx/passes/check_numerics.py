"""Checks that passes do not change results: evaluates a module before and after each pass, on the same inputs."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from rlx import mlir
from rlx.ir import opview, registry
from rlx.ir.dim import DimExpr, evaluate
from rlx.ir.dtype import DType
from rlx.ir.errors import Error, PassError
from rlx.ir.evaluate import bind_symbols, evaluate_function
from rlx.ir.graph import Graph
from rlx.ir.printable import printable
from rlx.ir.shape import Shape, shape_of
from rlx.ir.signature import Argument, functions
from rlx.passes.pipeline import Step
from rlx.passes.runner import Instrument, clone_module

# Relative to the largest element: a pass may change the order of sums, and fused ops round less often.
TOLERANCES = {"f64": 1e-9, "f32": 1e-4, "c64": 1e-4, "f16": 2e-2, "bf16": 1e-1}
# Sizes of symbols to try. Different sizes come first; some graphs need even or larger sizes.
_SIZES = ((3, 5, 7, 4, 6), (4, 8, 6, 12, 10), (8, 16, 32, 24, 48), (1, 1, 1, 1, 1))
# Names of operands that are positions.
_POSITIONS = ("indices", "labels", "targets")


def _print_note(text: str) -> None:
    print(f"note: check-numerics: {printable(text)}", file=sys.stderr)


class CheckNumerics(Instrument):
    """Raises an error at the first pass that changes a result, or after which a function cannot be evaluated.

    Functions with ops of other dialects are not checked, and neither are passes that change results on purpose; a note
    says so.

    Args:
        seed: The seed of the inputs: floats in [-2, 2], integers in the range that they index, small sizes of symbols.
        note: Called with a text about each thing that is not checked; by default it is printed to standard error.
    """

    def __init__(self, seed: int = 0, note: Callable[[str], None] | None = None):
        self.seed = seed
        self._note = note or _print_note
        self._noted: set[str] = set()
        self._copy: Any = None

    def before(self, step: Step, module: mlir.Module) -> None:
        self._copy = clone_module(module)

    def after(self, step: Step, module: mlir.Module) -> None:
        if step.ours is not None and not step.ours.preserves_results:
            self._note_once(f"{step.name} changes results on purpose")
            return
        results = {f.name.value: f for f in functions(module)}
        for function in functions(self._copy):
            if not function.is_external:
                self._check(step, function, results.get(function.name.value))
        self._copy = None

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)

    def _fail(self, step: Step, message: str) -> NoReturn:
        raise PassError(f"check-numerics: {step.name} {message} (seed {self.seed})")

    def _check(self, step: Step, before: Any, after: Any) -> None:
        name = f"@{before.name.value}"
        if after is None:
            if "sym_visibility" not in before.attributes:
                self._fail(step, f"removes {name}")
            return
        for function in (before, after):
            foreign = foreign_op(function)
            if foreign is not None:
                self._note_once(f"{name} is not checked: it holds '{foreign}'")
                return
        old, new = (Graph.from_module(f.operation.parent.opview, f.name.value) for f in (before, after))
        if [a.name for a in old.arguments] != [a.name for a in new.arguments]:
            self._fail(step, f"changes the arguments of {name}")
        expected = self._first_value(name, old, new)
        if expected is None:
            return
        arrays, results, symbols = expected
        try:
            values = evaluate_function(new.function, arrays, symbols)
        except Exception as problem:  # evaluators pass on the exceptions of NumPy
            self._fail(step, f"gives a {name} that cannot be evaluated: {_reason(problem)}")
        difference = differs(results, values, [o.name for o in old.results])
        if difference:
            self._fail(step, f"changes the result of {name}: {difference}")

    def _first_value(self, name: str, old: Graph, new: Graph) -> Any:
        """Inputs, results of the old graph, and symbols of the new one, for the first sizes with which the old one has a value.

        None, with a note, if there are no such sizes.
        """
        reason = ""
        for sizes in _SIZES:
            try:
                symbols = dict(zip(sorted(new.symbols), _repeated(sizes), strict=False))
                shapes = [tuple(evaluate(d, symbols) for d in a.shape.dims) for a in new.arguments]
                bound = bind_symbols(list(zip(old.arguments, shapes, strict=True)))
                arrays = self._inputs(old, bound)
                return arrays, evaluate_function(old.function, arrays, bound), symbols
            except Exception as problem:
                reason = _reason(problem)
        self._note_once(f"{name} is not checked: it cannot be evaluated: {reason}")
        return None

    def _inputs(self, graph: Graph, symbols: Mapping[str, int]) -> list[np.ndarray]:
        random = np.random.default_rng([self.seed, zlib.crc32(graph.name.encode())])
        values = graph.function.entry_block.arguments
        return [draw(random, a, v, symbols) for a, v in zip(graph.arguments, values, strict=True)]


def _reason(problem: Exception) -> str:
    return problem.message if isinstance(problem, Error) else f"{type(problem).__name__}: {problem}"


def _repeated(sizes: Sequence[int]) -> Iterator[int]:
    while True:
        yield from sizes


def foreign_op(function: mlir.FuncOp) -> str | None:
    """The name of an op of another dialect inside a function, None if there is none."""
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
    """A random array for an argument."""
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
    """The size of the smallest axis that a value indexes, None if it does not index."""
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


# --- comparing ------------------------------------------------------------------------------------


def tolerance(kind: DType) -> float:
    """How far two results may differ, relative to the largest element; 0 for dtypes that are exact."""
    return TOLERANCES.get(kind.name, 0.0)


def differs(expected: Sequence[np.ndarray], got: Sequence[np.ndarray], names: Sequence[str]) -> str:
    """A description of where two lists of results differ, empty if they agree."""
    if len(expected) != len(got):
        return f"{len(expected)} results became {len(got)}"
    for name, a, b in zip(names, expected, got, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output '{name}' was {a.dtype}{list(a.shape)} and is {b.dtype}{list(b.shape)}"
        where = _worst(a, b)
        if where is not None:
            return f"output '{name}' at {list(where)} was {a[where]} and is {b[where]}"
    return ""


def _worst(a: np.ndarray, b: np.ndarray) -> tuple[int, ...] | None:
    """The index at which two arrays differ most, None if they agree."""
    limit = tolerance(Shape(a.shape, a.dtype).dtype)
    if limit == 0 or a.size == 0:
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
