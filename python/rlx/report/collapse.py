"""Grouping of ops for drawings: each group becomes one box, with its own drawing, and repeated layers become one box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, groupby
from math import ceil

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.listing import GraphReport, OpReport
from rlx.ir.interface import Argument, Output
from rlx.ir.op.card import Cost
from rlx.ir.shape import Shape
from rlx.report.repeats import RepeatedUnit, repeats

MOST = 60  # boxes in one drawing
_FOLDED, _SMALLEST = 16, 9  # graphs of fewer ops are not folded, and neither are layers of fewer ops together
GROUP = "group"


@dataclass(frozen=True)
class Overview:
    """A listing in which each group of ops is one op with the name `group`.

    Attributes:
        name: The name of the group; the name of the function for the whole.
        count: The number of ops in it; of a repeated layer, those of the first one.
        listing: The listing to draw.
        groups: The groups in the listing, by their number, which is the attribute `number` of their ops.
        times: How often a layer is repeated. The listing is that of the first one.
    """

    name: str
    count: int
    listing: GraphReport
    groups: dict[int, Overview] = field(default_factory=dict)
    times: int = 1

    def all(self) -> Iterator[tuple[int, Overview]]:
        """Yield all groups with their numbers, each before the groups in it."""
        for number, group in self.groups.items():
            yield number, group
            yield from group.all()


@dataclass(frozen=True)
class _Unit:
    """An op of the function with the ops in its regions, or several that became one box."""

    ops: tuple[OpReport, ...]
    name: str = ""
    parts: tuple[_Unit, ...] = ()
    times: int = 1

    @property
    def scopes(self) -> tuple[str, ...]:
        return tuple(self.ops[0].scope.split("/")) if self.ops[0].scope else ()


def overview(report: GraphReport, most: int = MOST, seconds: Mapping[str, float] | None = None) -> Overview:
    """Return a graph of at most about `most` boxes, in which each group has at most about `most` boxes.

    Three or more consecutive layers with the same ops, shapes and connections are one box. Otherwise, consecutive ops
    form a group if they have the same scope (`Builder.named`, a block). If scopes do not help, they are grouped in program
    order. A group does not read values that depend on its results.

    Args:
        report: The graph.
        most: The number of boxes above which ops are grouped.
        seconds: The measured time of each op, by its first result. The op of a group has the sum as attribute `seconds`.
    """
    return _Collapse(report, most, seconds or {}).whole()


class _Collapse:
    def __init__(self, report: GraphReport, most: int, seconds: Mapping[str, float]):
        self._report, self._most, self._seconds = report, most, seconds
        self._numbers = count()
        self._shapes: dict[str, Shape] = {a.name: a.shape for a in report.arguments}
        fixed = report.fixed
        self._fixed: dict[str, OpReport | None] = dict.fromkeys(fixed)  # fixed values, and the ops that compute them
        units: list[_Unit] = []
        for op in report.ops:
            self._shapes.update(zip(op.results, op.shapes, strict=False))
            if op.depth:
                units[-1] = replace(units[-1], ops=(*units[-1].ops, op))
            elif op.results and op.results[0] in fixed:
                self._fixed.update(dict.fromkeys(op.results, op))
            else:
                units.append(_Unit((op,)))
        self._units = units
        self._readers = self._reader_counts()

    def _reader_counts(self) -> dict[str, int]:
        """Return the number of reads of each value, including returned values."""
        counts: dict[str, int] = {}
        returned = (*self._report.returned, *self._report.updates.values())
        for name in chain(returned, (n for unit in self._units for op in unit.ops for n in op.operands)):
            counts[name] = counts.get(name, 0) + 1
        return counts

    def whole(self) -> Overview:
        report = self._report
        read = (*report.returned, *report.updates.values())
        boxes = self._grouped(self._folded(self._units), 0)
        listing, groups = self._listing(boxes, read)
        return Overview(report.name, len(report.ops), replace(report, ops=listing) if groups else report, groups)

    # --- repeated layers --------------------------------------------------------------------------------

    def _folded(self, units: Sequence[_Unit]) -> list[_Unit]:
        """Return the units, with repeated layers as one unit each."""
        if len(units) <= _FOLDED:
            return list(units)
        made_by = {name: i for i, unit in enumerate(units) for op in unit.ops for name in op.results}
        outside = {name: -1 - i for i, name in enumerate(self._shapes) if name not in made_by}
        folded: list[_Unit] = []
        end = 0
        found = repeats([self._searched(unit, made_by, outside) for unit in units])
        for repeat in (repeat for repeat in found if repeat.length * repeat.times >= _SMALLEST):
            folded += units[end : repeat.start]
            end = repeat.end
            parts = tuple(units[repeat.start : end])
            unit = _joined(_layer_name(parts, repeat.length), parts)
            folded.append(replace(unit, times=repeat.times))
        return [*folded, *units[end:]]

    def _searched(self, unit: _Unit, made_by: Mapping[str, int], outside: Mapping[str, int]) -> RepeatedUnit:
        """Return a unit for the search. Weights differ between layers, so only their shapes count, but constants do not."""
        kind = tuple(
            (op.label, op.shapes, str(op.attributes), op.depth, tuple(map(self._described, op.operands)))
            for op in unit.ops
        )
        operands = [n for op in unit.ops for n in op.operands if n not in self._fixed]
        return RepeatedUnit(kind, tuple(made_by.get(n, outside.get(n, -1)) for n in operands))

    def _described(self, name: str) -> tuple[Shape | None, str]:
        made_by = self._fixed.get(name)
        value = str(made_by.attributes) if made_by is not None and made_by.name == "constant" else ""
        return self._shapes.get(name), value

    # --- grouping ---------------------------------------------------------------------------------------

    def _grouped(self, units: Sequence[_Unit], level: int) -> list[_Unit]:
        """Return at most about `most` boxes for some consecutive ops."""
        if len(units) <= self._most:
            return list(units)
        runs = [(name, tuple(run)) for name, run in groupby(units, _scope_at(level))]
        if len(runs) == 1:
            deeper = any(len(unit.scopes) > level + 1 for unit in units)
            return self._grouped(units, level + 1) if deeper else self._chunks(units)
        boxes = [_joined(name, run) if name and len(run) > 1 else run for name, run in runs]
        flat = [unit for box in boxes for unit in (box if isinstance(box, tuple) else (box,))]
        return flat if len(flat) <= self._most else self._chunks(flat)

    def _chunks(self, units: Sequence[_Unit]) -> list[_Unit]:
        """Return groups of consecutive units, of similar size."""
        size = max(2, ceil(len(units) / self._most), ceil(len(units) ** 0.5))
        return [_joined("", tuple(units[i : i + size])) for i in range(0, len(units), size)]

    # --- listings -------------------------------------------------------------------------------------

    def _listing(
        self, boxes: Sequence[_Unit], returned: Sequence[str]
    ) -> tuple[tuple[OpReport, ...], dict[int, Overview]]:
        """Return the ops to draw for some boxes, and the groups among them."""
        shown: list[OpReport] = []
        groups: dict[int, Overview] = {}
        for box in boxes:
            if not box.parts:
                shown += box.ops
                continue
            number = next(self._numbers)
            groups[number] = self._group(box)
            shown.append(self._op(box, number))
        read = chain(returned, (name for op in shown for name in op.operands))
        return (*self._needed(read), *shown), groups

    def _needed(self, names: Iterator[str] | chain[str]) -> list[OpReport]:
        """Return the ops that compute values from weights only, in order."""
        found: dict[str, OpReport] = {}
        pending = list(names)
        while pending:
            op = self._fixed.get(pending.pop())
            if op is not None and op.results[0] not in found:
                found[op.results[0]] = op
                pending += op.operands
        return [op for op in self._report.ops if op.results and op.results[0] in found]

    def _group(self, box: _Unit) -> Overview:
        if box.times > 1:
            length = len(box.parts) // box.times
            box = replace(_joined(box.name, box.parts[:length]), times=box.times)
        reads, gives = self._border(box)
        operands = dict.fromkeys(name for op in box.ops for name in op.operands)
        arguments = [a for a in self._report.arguments if a.name in operands or a.kind == "param"]
        known = {a.name for a in arguments}
        arguments += [Argument(name, "input", self._shapes[name]) for name in reads if name not in known]
        boxes = self._grouped(box.parts, _depth(box.parts))
        ops, groups = self._listing(boxes, gives)
        outputs = tuple(Output(name, self._shapes[name]) for name in gives)
        listing = GraphReport(box.name, self._report.stage, tuple(arguments), outputs, tuple(gives), {}, ops)
        return Overview(box.name, len(box.ops), listing, groups, box.times)

    def _op(self, box: _Unit, number: int) -> OpReport:
        """Return the op that represents a group."""
        reads, gives = self._border(box)
        costs = [op.cost for op in box.ops if op.cost is not None and op.depth == 0]
        zero: Dim = 0
        cost = Cost(sum((c.flops for c in costs), zero), sum((c.bytes for c in costs), zero))
        shapes = tuple(self._shapes[name] for name in gives)
        attributes = {"number": number, "ops": len(box.ops), "times": box.times}
        times = [self._seconds[op.results[0]] for op in box.ops if op.results and op.results[0] in self._seconds]
        attributes |= {"seconds": sum(times)} if times else {}
        return OpReport(GROUP, box.name, tuple(reads), tuple(gives), shapes, attributes, cost, None, "", 0)

    def _border(self, box: _Unit) -> tuple[list[str], list[str]]:
        """Return the values from outside that a group reads, and its values that are read outside. Fixed values are omitted."""
        inside: dict[str, int] = {}
        for op in box.ops:
            for name in op.operands:
                inside[name] = inside.get(name, 0) + 1
        made = {name: None for op in box.ops for name in op.results}
        reads = [n for n in inside if n not in made and n not in self._fixed and n in self._shapes]
        gives = [n for n in made if self._readers.get(n, 0) > inside.get(n, 0)]
        return reads, gives


def _scope_at(level: int) -> Callable[[_Unit], str]:
    return lambda unit: unit.scopes[level] if len(unit.scopes) > level else ""


def _depth(units: Sequence[_Unit]) -> int:
    """Return the number of scopes that all have in common."""
    first = units[0].scopes
    common = len(first)
    for unit in units:
        same = 0
        while same < min(common, len(unit.scopes)) and unit.scopes[same] == first[same]:
            same += 1
        common = same
    return common


def _layer_name(parts: Sequence[_Unit], length: int) -> str:
    """Return the name of repeated layers: the scopes of the first and the last one, or their ops."""
    first, last = parts[:length], parts[-length:]
    names = ["/".join(layer[0].scopes[: _depth(layer)]) for layer in (first, last)]
    return f"{names[0]} … {names[1]}" if names[0] and names[0] != names[1] else names[0] or _span(first)


def _joined(name: str, parts: tuple[_Unit, ...]) -> _Unit:
    ops = tuple(op for unit in parts for op in unit.ops)
    return _Unit(ops, name or _span(parts), parts)


def _span(parts: Sequence[_Unit]) -> str:
    """Return the name of ops that have no scope in common."""
    first, last = (unit.name or unit.ops[0].label for unit in (parts[0], parts[-1]))
    return f"{first} … {last}"
