"""Nodes that contain graphs: branches and loops.

If the condition of a branch is known, the branch is imported in place. A loop with a known number of steps becomes a scan.
It is unrolled if it is short, carries sequences, or its carries change their shape. A loop with a computed condition becomes
a `while`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.importers.onnx.order import names_read
from rlx.importers.onnx.rules import (
    element_count,
    static_dims,
    structural,
)
from rlx.importers.onnx.scope import OnnxScope, OnnxValue
from rlx.ir.dims.dim import Dim, DimExpr
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import Error, UnsupportedError

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

# The most steps of a loop that is repeated in place; a scan takes the same time to compile for any number.
_REPEATED = 32


def _scalar(value: OnnxValue | None) -> Any:
    """Return the value of a known scalar; None if it is not known."""
    return None if value is None or value.known is None else value.known.reshape(()).item()


def _count(value: OnnxValue | None) -> Dim | None:
    """Return the number of steps of a loop as a size; None if it depends on the inputs."""
    return value.sizes.array.reshape(-1)[0] if value is not None and value.sizes is not None else _scalar(value)


def _tensors(scope: OnnxScope, values: Sequence[OnnxValue]) -> tuple[Tensor, ...]:
    return tuple(scope.tensor(v, "a value of a graph in a node") for v in values)


@structural("If")
def if_(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    condition = scope.operands(node)[0]
    assert condition is not None
    branches = scope.attributes(node)
    known = _scalar(condition)
    if known is not None:
        return scope.inside(branches["then_branch" if known else "else_branch"], [])
    g = scope.g

    def branch(name: str) -> Any:
        inner = OnnxScope(scope.model, g, outer=scope)
        return lambda: _tensors(inner, inner.inside(branches[name], []))

    predicate = g.reshape(scope.tensor(condition, "the condition of an If"), ())
    results = g.if_(predicate, branch("then_branch"), branch("else_branch"))
    return [OnnxValue(tensor=t) for t in ([results] if isinstance(results, Tensor) else results)]


def _depends(scope: OnnxScope, body: GraphProto, changing: set[str]) -> set[str]:
    """Return the names in a body that depend on the inputs `changing`, or on tensors from outside."""
    found = set(changing)
    for node in body.node:
        names = list(names_read(node))
        outside = (scope.find(n) for n in names if n not in found)
        if node.op_type in ("Shape", "Size", "SequenceLength"):
            continue
        if any(n in found for n in names) or any(v is not None and not v.is_known and v.items is None for v in outside):
            found.update(node.output)
    return found


def _number(body: GraphProto, step: Any, g: Graph) -> OnnxValue:
    """Return the number of a step: a scalar, or one element if the body declares an axis."""
    has_axis = len(body.input[0].type.tensor_type.shape.dim) == 1
    if isinstance(step, int):
        return OnnxValue(known=np.array([step] if has_axis else step, np.int64))
    return OnnxValue(tensor=g.reshape(step, (1,)) if has_axis else step)


def _names(body: GraphProto) -> tuple[str, ...]:
    """Return all names that a body defines. They identify the body."""
    return tuple(name for node in body.node for name in node.output)


def _condition_is_known(scope: OnnxScope, body: GraphProto, carries: Sequence[OnnxValue]) -> bool:
    """Whether the condition after each step of a loop can be computed while it is imported, as far as names tell.

    The condition may depend on sizes, including open ones.
    """
    return _names(body) not in scope.model.undecided and body.output[0].name not in _changing(scope, body, carries)


def _changing(scope: OnnxScope, body: GraphProto, carries: Sequence[OnnxValue]) -> set[str]:
    """Return the names in a body that are not known while a loop is imported: those that depend on tensors."""
    names = [i.name for i in body.input][2:]
    results = [o.name for o in body.output]
    changing = {n for n, v in zip(names, carries, strict=True) if not v.is_known and v.items is None}
    while True:
        found = _depends(scope, body, changing)
        more = {n for n, r in zip(names, results[1:], strict=False) if r in found} | changing
        if more == changing:
            return found
        changing = more


@structural("Loop")
def loop(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    trips, condition, *others = [*scope.operands(node), None, None][: max(2, len(node.input))]
    carries = [v for v in others if v is not None]
    body = scope.attributes(node)["body"]
    count, go_on = _count(trips), _scalar(condition)
    stacked = len(body.output) - 1 - len(carries)
    if go_on is False:
        return _repeated(scope, body, trips, 0, carries, False)
    if (condition is None or go_on is not None) and _condition_is_known(scope, body, carries):
        are_tensors = all(v.items is None and not v.is_none for v in carries)
        if are_tensors and isinstance(count, DimExpr) and _is_regular(body):
            return _scanned(scope, body, carries, count, stacked)
        is_counted = isinstance(count, int) or (count is None and trips is None and go_on is not None)
        if are_tensors and is_counted and not isinstance(count, DimExpr) and (count is None or count > _REPEATED):
            steps, last = (count, {}) if _is_regular(body) else _known_steps(scope, body, carries, count)
            if steps is not None and steps > _REPEATED and _fits_scan(scope, body, carries, steps, stacked):
                results = _scanned(scope, body, carries, steps, stacked)
                return [last.get(i, result) for i, result in enumerate(results)]
        if is_counted:
            return _repeated(scope, body, trips, count, carries, True)  # type: ignore[arg-type]
    return _while(scope, body, trips, condition, carries)


def _is_regular(body: GraphProto) -> bool:
    """Return whether a loop's condition never changes."""
    passed = {body.input[1].name}
    for node in body.node:
        if node.op_type == "Identity" and node.input[0] in passed:
            passed.add(node.output[0])
    return body.output[0].name in passed


def _known_steps(
    scope: OnnxScope, body: GraphProto, carries: Sequence[OnnxValue], most: int | None
) -> tuple[int | None, dict[int, OnnxValue]]:
    """Return the number of steps of a loop whose condition is known, and the last values of the carries that are known.

    Only the nodes that the condition and these carries depend on are evaluated. The number is None if the condition depends on
    shapes of other carries, or is not known after all.
    """
    changing = _changing(scope, body, carries)
    known = [i for i, v in enumerate(carries) if v.is_known and body.output[1 + i].name not in changing]
    control = _restricted(body, [0, *(1 + i for i in known)])
    read = {name for node in control.node for name in names_read(node)} | {o.name for o in control.output}
    if any(body.input[2 + i].name in read for i in range(len(carries)) if i not in known):
        return None, {}
    values, step = list(carries), 0
    while most is None or step < most:
        condition, *following = scope.inside(
            control, [_number(body, step, scope.g), OnnxValue(known=np.array(True)), *values]
        )
        goes_on, step = _scalar(condition), step + 1
        scope.model.count()
        if goes_on is None or not all(v.is_known for v in following):
            return None, {}
        for i, value in zip(known, following, strict=True):
            values[i] = value
        if not goes_on:
            break
    return step, {i: values[i] for i in known}


def _restricted(body: GraphProto, outputs: Sequence[int]) -> GraphProto:
    """Return a copy of a body with some of its outputs, and only the nodes that they depend on."""
    copy = type(body)()
    copy.CopyFrom(body)
    del copy.output[:], copy.node[:]
    copy.output.extend(body.output[i] for i in outputs)
    needed, nodes = {o.name for o in copy.output}, list[Any]()
    for node in reversed(body.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(names_read(node))
    copy.node.extend(reversed(nodes))
    return copy


def _fits_scan(scope: OnnxScope, body: GraphProto, carries: list[OnnxValue], count: int, stacked: int) -> bool:
    """Return whether a scan of a loop can be built. Carries keep their shapes, and no size depends on the step."""
    g, decided = scope.g, scope.model.scannable
    key = (*_names(body), *(str(t.shape) for t in _tensors(scope, carries)))
    if key not in decided:  # tried once, as loops in the body try theirs in each attempt
        try:
            with g.scratchpad():
                g.region(lambda: _tensors(scope, _scanned(scope, body, carries, count, stacked)), ())
        except Error:
            decided[key] = False
        else:
            decided[key] = True
    return decided[key]


def _repeated(
    scope: OnnxScope,
    body: GraphProto,
    trips: OnnxValue | None,
    count: int | None,
    carries: list[OnnxValue],
    go_on: bool,
) -> list[OnnxValue]:
    """Unroll a loop. From the first unknown condition on, the remaining steps become a `while`."""
    columns: list[list[OnnxValue]] = []
    step = 0
    while go_on and (count is None or step < count):
        arguments = [_number(body, step, scope.g), OnnxValue(known=np.array(True)), *carries]
        condition, *results = scope.inside(body, arguments)
        carries, column = results[: len(carries)], results[len(carries) :]
        columns.append(column)
        step += 1
        scope.model.count()
        known = _scalar(condition)
        if known is None:
            scope.model.undecided.add(_names(body))
            return _while(scope, body, trips, condition, carries, step)
        go_on = bool(known)
    if not columns:
        return carries + _no_rows(scope, body, carries)
    return carries + [OnnxValue(tensor=scope.g.stack(list(_tensors(scope, c)), 0)) for c in zip(*columns, strict=True)]


def _no_rows(scope: OnnxScope, body: GraphProto, carries: list[OnnxValue]) -> list[OnnxValue]:
    """Return the stacked results of a loop without steps: no rows, with the shapes that a step would return."""
    if len(body.output) == 1 + len(carries):
        return []
    g = scope.g

    def step() -> tuple[Tensor, ...]:
        inner = OnnxScope(scope.model, g, outer=scope)
        results = inner.inside(body, [_number(body, 0, g), OnnxValue(known=np.array(True)), *carries])
        return _tensors(inner, results[1 + len(carries) :])

    with g.scratchpad():
        shapes = g.region(step, ()).shapes.results
    return [OnnxValue(tensor=g.zeros((0, *s.dims), dtype=s.dtype)) for s in shapes]


def _scanned(scope: OnnxScope, body: GraphProto, carries: list[OnnxValue], count: Dim, stacked: int) -> list[OnnxValue]:
    g = scope.g

    def step(carry: Sequence[Tensor], number: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        inner = OnnxScope(scope.model, g, outer=scope)
        arguments = [_number(body, number, g), OnnxValue(known=np.array(True)), *(OnnxValue(tensor=t) for t in carry)]
        results = inner.inside(body, arguments)[1:]
        return _tensors(inner, results[: len(carries)]), _tensors(inner, results[len(carries) :])

    numbers = g.iota((count,), 0, "i64")
    last, values = g.scan(step, _tensors(scope, carries), numbers)
    return [OnnxValue(tensor=t) for t in (*last, *values)]


def _while(
    scope: OnnxScope,
    body: GraphProto,
    trips: OnnxValue | None,
    condition: OnnxValue | None,
    carries: list[OnnxValue],
    steps: int = 0,
) -> list[OnnxValue]:
    """Emit a `while` for the steps that follow the first `steps` ones."""
    if len(body.output) > 1 + len(carries):
        raise UnsupportedError(
            "that stacks values, and whose number of steps depends on the inputs, cannot be imported"
        )
    g, what = scope.g, "a value of a loop"
    first = g.constant(True) if condition is None else g.reshape(scope.tensor(condition, what), ())
    limit = None if trips is None else g.reshape(scope.tensor(trips, what), ())

    def goes_on(number: Tensor, holds: Tensor, *rest: Tensor) -> Tensor:
        return holds if limit is None else g.logical_and(holds, g.lt(number, limit))

    def step(number: Tensor, holds: Tensor, *rest: Tensor) -> Any:
        inner = OnnxScope(scope.model, g, outer=scope)
        arguments = [_number(body, number, g), *(OnnxValue(tensor=t) for t in (holds, *rest))]
        following, *results = _tensors(inner, inner.inside(body, arguments))
        return g.add(number, 1), g.reshape(following, ()), *results

    results = g.while_(goes_on, step, g.constant(np.int64(steps)), first, *_tensors(scope, carries))
    return [OnnxValue(tensor=t) for t in results[2:]]


@structural("Scan")
def scan(scope: OnnxScope, node: NodeProto) -> list[OnnxValue]:
    attributes, g = scope.attributes(node), scope.g
    values = scope.operands(node)
    if scope.opsets.get("", 9) < 9:
        return _batched_scan(scope, attributes, values)
    body, count = attributes["body"], attributes["num_scan_inputs"]
    tensors = _tensors(scope, [v for v in values if v is not None])
    carries, xs = tensors[: len(tensors) - count], tensors[len(tensors) - count :]
    axes = attributes.get("scan_input_axes") or (0,) * count
    backwards = attributes.get("scan_input_directions") or (0,) * count
    xs = tuple(g.flip(x, axis) if back else x for x, axis, back in zip(xs, axes, backwards, strict=True))
    moved = [g.moveaxis(x, axis, 0) for x, axis in zip(xs, axes, strict=True)]
    last, stacks = _scan(scope, body, carries, moved)
    axes = attributes.get("scan_output_axes") or (0,) * len(stacks)
    backwards = attributes.get("scan_output_directions") or (0,) * len(stacks)
    turned = [g.flip(s, 0) if back else s for s, back in zip(stacks, backwards, strict=True)]
    return [OnnxValue(tensor=t) for t in (*last, *(g.moveaxis(s, 0, a) for s, a in zip(turned, axes, strict=True)))]


def _scan(scope: OnnxScope, body: GraphProto, carries: Sequence[Tensor], xs: Sequence[Tensor]) -> tuple[Any, Any]:
    def step(carry: Sequence[Tensor], slices: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        inner = OnnxScope(scope.model, scope.g, outer=scope)
        results = _tensors(inner, inner.inside(body, [OnnxValue(tensor=t) for t in (*carry, *slices)]))
        return results[: len(carries)], results[len(carries) :]

    return scope.g.scan(step, tuple(carries), tuple(xs))


def _batched_scan(
    scope: OnnxScope, attributes: Mapping[str, Any], values: Sequence[OnnxValue | None]
) -> list[OnnxValue]:
    """Scan of version 8: for each element of the batch, which is the first axis of all tensors, along the second axis."""
    lengths, *others = values
    if lengths is not None or any(attributes.get("directions") or ()):
        raise UnsupportedError("of version 8 with lengths or directions cannot be imported")
    g, count = scope.g, attributes["num_scan_inputs"]
    tensors = _tensors(scope, [v for v in others if v is not None])
    rows: list[Sequence[Tensor]] = []
    for i in range(element_count(static_dims(tensors[0], 0)[0], "elements of a batch", _REPEATED)):
        row = [g.squeeze(g.narrow(t, 0, i, 1), 0) for t in tensors]
        last, stacks = _scan(scope, attributes["body"], row[: len(row) - count], row[len(row) - count :])
        rows.append((*last, *stacks))
    return [OnnxValue(tensor=g.stack(list(column), 0)) for column in zip(*rows, strict=True)]
