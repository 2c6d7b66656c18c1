"""Rewrite patterns, and the driver that applies them to a fixpoint.

A pattern is a function for one kind of op, which its annotation names. It returns the replacement of the op's result,
or None if it does not match:

    @pattern
    def transposed_twice(op: views.Transpose, rewriter: Rewriter) -> Any:
        '''Two transposes in a row.'''
        inner = producer(op.x, views.Transpose)
        if inner is None:
            return None
        return rewriter.emit("transpose", [inner.x], perm=tuple(inner.perm[p] for p in op.perm))

A pass applies its patterns with `rewrite(module, patterns, note)`. New ops are inserted before the matched op, with its
location. Ops without uses are erased.
"""

from __future__ import annotations

import contextlib
import types
import typing
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, overload

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.location import describe, layer_of
from rlx.ir.op import opview, registry
from rlx.ir.op.card import as_results
from rlx.ir.op.views import View
from rlx.passes import rewrite_count
from rlx.passes.rewrite import builder_before, check_types, collect, is_unread
from rlx.passes.worklist import Worklist
from rlx.support.errors import Error, PassError
from rlx.support.guards import is_sequence, is_tuple
from rlx.support.traces import raised_at

# Maximum rewrites per initial op before the driver gives up. Terminating patterns need only a few.
_LIMIT_PER_OP, _LIMIT = 32, 1000

ViewT = TypeVar("ViewT", bound=View)


@dataclass(frozen=True)
class Pattern:
    """A rewrite of one op.

    Attributes:
        name: Its name in statistics, in bisection and in errors.
        roots: The classes of `rlx.ir.op.views` that it matches; `View` matches every op.
        function: Called with a view and a `Rewriter`; returns a value for each result of the op, or None.
        place: Where it is defined, as `file:line`.
    """

    name: str
    roots: tuple[type[View], ...]
    function: Callable[[Any, Rewriter], Any]
    place: str

    def candidates(self, op: View) -> Sequence[Pattern]:
        """Return the patterns to try on an op of one of the classes: this one."""
        return (self,)


class PatternSource(Protocol):
    """A pattern, or a table that selects those of its patterns that may match an op."""

    @property
    def roots(self) -> tuple[type[View], ...]:
        """The classes of ops that its patterns match."""
        ...

    def candidates(self, op: View) -> Sequence[Pattern]:
        """Return the patterns to try on an op of one of the classes, in order."""
        ...


def pattern(function: Callable[[Any, Rewriter], Any]) -> Pattern:
    """Create a pattern from a function whose first parameter is annotated with a view, or several joined by `|`.

    Raises:
        Error: The annotation is something else.
    """
    code = function.__code__
    hint = typing.get_type_hints(function).get(code.co_varnames[0]) if code.co_argcount == 2 else None
    roots: tuple[Any, ...] = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    place = f"{code.co_filename}:{code.co_firstlineno}"
    if not all(isinstance(root, type) and issubclass(root, View) for root in roots):
        message = f"pattern '{function.__name__}' must take (op: views.SomeOp, rewriter: Rewriter)"
        raise Error(message, location=place)
    return Pattern(function.__name__, roots, function, place)


def patterns_in(module: types.ModuleType) -> tuple[Pattern, ...]:
    """Return the patterns that a module defines, in the order of their definitions."""
    return tuple(value for value in vars(module).values() if isinstance(value, Pattern))


@dataclass
class RewriteCounts:
    """Statistics of a driver.

    Attributes:
        rewrites: The number of applications of each pattern, by name.
        erased: The number of ops erased because they had no uses.
        visits: The number of attempts to match a pattern on an op.
    """

    rewrites: Counter[str] = field(default_factory=Counter[str])
    erased: int = 0
    visits: int = 0


_counting: ContextVar[tuple[RewriteCounts, ...]] = ContextVar("counting", default=())


@contextlib.contextmanager
def count_rewrites() -> Generator[RewriteCounts]:
    """Count all rewrites in this context."""
    counts = RewriteCounts()
    token = _counting.set((*_counting.get(), counts))
    try:
        yield counts
    finally:
        _counting.reset(token)


# --- helpers for patterns ----------------------------------------------------------------------------


@overload
def producer(value: mlir.Value, view: type[ViewT]) -> ViewT | None: ...
@overload
def producer(value: mlir.Value, view: None = None) -> View | None: ...
def producer(value: mlir.Value, view: type[View] | None = None) -> View | None:
    """Return the rlx op that defines a value, if it has the given class."""
    if not isinstance(value, mlir.ir.OpResult):
        return None
    op = value.owner.operation
    if view is None or not view.op_name:
        return View(op) if registry.is_ours(op) else None
    return view(op) if op.name == view.op_name else None


def has_one_use(value: mlir.Value) -> bool:
    """Whether a value has exactly one use."""
    uses = iter(value.uses)
    return next(uses, None) is not None and next(uses, None) is None


def feeder(op: View, value: mlir.Value, view: type[ViewT]) -> ViewT | None:
    """Return the op of a class that defines a value, if `op`, in the same block, is its only user."""
    inner = producer(value, view)
    if inner is None or inner.operation.block != op.operation.block or not has_one_use(value):
        return None
    return inner


def _has_several_uses(value: mlir.Value) -> bool:
    return not has_one_use(value) and any(True for _ in value.uses)


class Rewriter:
    """Emits ops before the op that a pattern has matched."""

    def __init__(self, op: mlir.Operation, note: str, misses: list[tuple[str, str]] | None = None):
        self._op, self._note, self._misses = op, note, misses
        self._builder: Builder | None = None
        self.made: list[Tensor] = []
        self.replaced: list[tuple[View, Any]] = []

    @property
    def explains(self) -> bool:
        """Whether near misses are collected."""
        return self._misses is not None

    def miss(self, reason: str, hint: str) -> None:
        """Record why a pattern nearly matches, if near misses are collected (`passes/fusion/explain.py`). Returns None.

        Args:
            reason: The reason why the pattern does not match.
            hint: How to make it match.
        """
        if self._misses is not None:
            self._misses.append((reason, hint))

    def replace(self, other: View, values: Any) -> None:
        """Replace another, later op together with the matched one."""
        self.replaced.append((other, values))

    @property
    def new_ops(self) -> list[mlir.Operation]:
        """The ops that have been emitted."""
        return list(dict.fromkeys(t.value.owner.operation for t in self.made))

    def clear(self) -> None:
        """Erase the ops emitted for a pattern that did not match."""
        for op in reversed(self.new_ops):
            if is_unread(op):
                op.erase()
        self.made.clear()

    def locate(self, part: View) -> None:
        """Give new ops the location of a matched op, such as the product of a layer, unless that has neither scope nor name."""
        if self._builder is None and layer_of(part.operation.location):
            self._builder = builder_before(self._op, self._note, part.operation.location)
            self._builder.record(self.made)

    @property
    def builder(self) -> Builder:
        """A builder at the insertion point, for functions of tensors."""
        if self._builder is None:
            self._builder = builder_before(self._op, self._note)
            self._builder.record(self.made)
        return self._builder

    def emit(self, name: str, operands: Sequence[Any], /, **attributes: Any) -> Any:
        """Emit an op. Returns its result, or a tuple of results.

        Args:
            name: The name without prefix.
            operands: MLIR values, in the groups of the op's record.
            attributes: Attributes as passed to cards.
        """
        results = self.builder.emit(name, [self.tensors(v) for v in operands], **attributes)
        return tuple(t.value for t in results) if is_tuple(results) else results.value

    def tensors(self, value: Any) -> Any:
        """Return a value as a tensor of the builder; None and lists are mapped accordingly."""
        if is_sequence(value):
            return [self.tensors(v) for v in value]
        return value if value is None else self.builder.tensor(value)


# --- the driver ---------------------------------------------------------------------------------------


Tried = list[tuple[PatternSource, type[View]]]


def by_root(patterns: Iterable[PatternSource]) -> tuple[dict[str, Tried], Tried]:
    """Return the patterns to try on an op by its name, and those for ops without an entry."""
    by_op: dict[str, Tried] = {}
    everywhere: Tried = []
    for entry in patterns:
        for root in entry.roots:
            if root.op_name:
                by_op.setdefault(root.op_name, [*everywhere]).append((entry, root))
                continue
            everywhere.append((entry, root))
            for others in by_op.values():
                others.append((entry, root))
    return by_op, everywhere


Standing = dict[Any, tuple[str, "mlir.Location"]]


def rewrite(
    scope: Any, patterns: Iterable[PatternSource], note: str, standing: Standing | None = None
) -> RewriteCounts:
    """Apply patterns to the ops of a module, including regions, to a fixpoint, and erase ops without uses.

    Ops are visited in program order, and again when a neighbour has changed: an op that reads a changed value, or that
    defines a value used by an erased op. Patterns may inspect more distant ops, so after changes all ops are visited
    once more, until nothing changes. The order is deterministic, and so is the result.

    Args:
        scope: A module or function.
        patterns: The patterns and tables of patterns; those for the same op are tried in this order.
        note: The name in the locations of new ops, such as the name of the pass.
        standing: Filled with each rewrite whose result has not been replaced by a later one: value -> (pattern,
            location of the op).

    Raises:
        Error: A pattern raised an exception, or returned values of the wrong kind; the message names the pattern, and
            the location is the op's.
        PassError: The patterns do not terminate.
    """
    driver = _PatternDriver(scope, patterns, note, standing)
    try:
        driver.run()
    finally:
        for counts in _counting.get():
            counts.rewrites += driver.counts.rewrites
            counts.erased += driver.counts.erased
            counts.visits += driver.counts.visits
    return driver.counts


class _PatternDriver:
    def __init__(self, scope: Any, patterns: Iterable[PatternSource], note: str, standing: Standing | None):
        self.note, self.standing = note, standing
        self.counts = RewriteCounts()
        self.by_op, self.everywhere = by_root(patterns)
        self.scope = scope
        self.pending = Worklist(collect(scope))
        self.done = 0
        self.limit = _LIMIT_PER_OP * len(self.pending) + _LIMIT

    def run(self) -> None:
        changes = -1
        while (self.done + self.counts.erased) != changes:
            if changes >= 0:
                self.pending = Worklist(collect(self.scope))
            changes = self.done + self.counts.erased
            self._empty_worklist()

    def _empty_worklist(self) -> None:
        pending, by_op, everywhere = self.pending, self.by_op, self.everywhere
        while (op := pending.pop()) is not None:
            if is_unread(op):
                self.counts.erased += self._erase(op)
            elif patterns := by_op.get(op.name, everywhere):
                self._visit(op, patterns)

    def _visit(self, op: mlir.Operation, patterns: Tried) -> None:
        rewriter, view = Rewriter(op, self.note), patterns[0][1](op)
        for source, root in patterns:
            if type(view) is not root:
                view = root(op)
            for entry in source.candidates(view):
                self.counts.visits += 1
                result = apply_pattern(entry, view, rewriter)
                if result is not None:
                    results = [(view, result), *rewriter.replaced]
                    values = [(v.operation, _values(entry, v, r)) for v, r in results]
                    self._replace(entry, op, values, rewriter.new_ops)
                    return
                if rewriter.made or rewriter.replaced:
                    rewriter.clear()
                    rewriter = Rewriter(op, self.note)

    def _replace(
        self,
        entry: Pattern,
        op: mlir.Operation,
        together: Sequence[tuple[mlir.Operation, list[mlir.Value]]],
        new: Sequence[mlir.Operation],
    ) -> None:
        self.counts.rewrites[entry.name] += 1
        self.done += 1
        if self.done > self.limit:
            raise self._endless(entry, op)
        counter = rewrite_count.active()
        if counter is not None:
            counter.begin(f"pattern '{entry.name}'", op, together[0][1], new)
        for old, values in together:
            for result, value in zip(old.results, values, strict=True):
                self._enqueue([use.owner.operation for use in result.uses])
                result.replace_all_uses_with(value)
        if self.standing is not None:
            self.standing[together[0][1][0]] = entry.name, op.location
        for made in reversed(new):  # before the ops that read them
            self.pending.add(made, first=True)
        for old, _ in together:
            self.counts.erased += self._erase(old) - 1
        if counter is not None:
            counter.end()

    def _enqueue(self, ops: Iterable[mlir.Operation]) -> None:
        for op in ops:
            name = op.name
            if name.startswith("rlx.") and name not in opview.TERMINATORS:
                self.pending.add(op)

    def _erase(self, op: mlir.Operation) -> int:
        """Erase an op without uses, and ops that become unused. Returns their number."""
        dead, count = [op], 0
        while dead:
            op = dead.pop()
            values = self._read_by(op)
            self.pending.discard(op)
            if self.standing:
                self.standing.pop(op.results[0], None)
            op.erase()
            count += 1
            for value in values:
                # Patterns only test whether a value has one use. If it still has several, their result does not change.
                if not _has_several_uses(value):
                    maker = value.owner.operation
                    if is_unread(maker) and maker.name.startswith("rlx."):
                        dead.append(maker)
                    else:
                        self._enqueue([maker, *(use.owner.operation for use in value.uses)])  # at most one reader
        return count

    def _read_by(self, op: mlir.Operation) -> list[mlir.Value]:
        """Return the values that an op reads from other ops, one for each of these ops."""
        values = [v for v in op.operands if isinstance(v, mlir.ir.OpResult)]
        if len(op.regions):
            inside = [i for region in op.regions for block in region.blocks for i in opview.operations(block)]
            gone = {inner.results[0] for inner in inside if len(inner.results)}
            values += [v for i in inside for v in i.operands if isinstance(v, mlir.ir.OpResult)]
            values = [v for v in values if v.owner.operation.results[0] not in gone]
            for inner in inside:
                self.pending.discard(inner)
        return values if len(values) < 2 else list({v.owner.operation.results[0]: v for v in values}.values())

    def _endless(self, entry: Pattern, op: mlir.Operation) -> PassError:
        rewrites = ", ".join(f"{name} {count} times" for name, count in self.counts.rewrites.most_common(3))
        return PassError(
            f"pattern '{entry.name}' does not come to an end: after {self.limit} rewrites it matches still ({rewrites})",
            location=describe(op.location),
            hint=f"see {entry.place}: what a pattern gives must not match it, or another that undoes it",
        )


def apply_pattern(entry: Pattern, op: View, rewriter: Rewriter) -> Any:
    """Return the result of a pattern for an op. Errors name the pattern."""
    try:
        return entry.function(op, rewriter)
    except Error as problem:
        message = f"pattern '{entry.name}': {problem.message}"
        place = problem.location or describe(op.operation.location)
        raise problem.moved(message, location=place) from problem.__cause__
    except Exception as problem:
        raise _wrong(entry, op, f"raised {type(problem).__name__}: {problem}", raised_at(problem)) from problem


def _values(entry: Pattern, op: View, given: Any) -> list[mlir.Value]:
    """Return the values that replace the results of an op.

    Raises:
        PassError: The pattern returned something else.
    """
    values = [v.value if isinstance(v, Tensor) else v for v in as_results(given)]
    results = list(op.operation.results)
    for value in values:
        if not isinstance(value, mlir.ir.Value):
            raise _wrong(entry, op, f"must give values, got {type(value).__name__}")
        if value not in results:
            continue
        raise _wrong(entry, op, "gives the result that it is to replace; it gives None where it does not match")
    if len(values) != len(results):
        raise _wrong(entry, op, f"must give {len(results)} values for 'rlx.{op.spec.name}', got {len(values)}")
    try:
        check_types(op.operation, values)
    except Error as problem:
        raise _wrong(entry, op, f"gives another type: {problem.message}") from None
    return values


def _wrong(entry: Pattern, op: View, what: str, hint: str | None = None) -> PassError:
    message = f"pattern '{entry.name}' {what}"
    return PassError(message, location=describe(op.operation.location), hint=hint or f"see {entry.place}")
