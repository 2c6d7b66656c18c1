"""Ops with regions whose values are sorted by type: within a group of values, the type may change only a few times.

Derivative rules form groups that would otherwise exceed this limit: carries with their tangents, and cotangents of all
captures of a body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Tensors

T = TypeVar("T")


def order_of(tensors: Tensors) -> list[int]:
    """Return the positions of tensors so that tensors of one type are adjacent; otherwise the order is kept."""
    return sorted(range(len(tensors)), key=lambda i: str(tensors[i].shape))


def _ordered(values: Sequence[T], order: Sequence[int]) -> list[T]:
    return [values[i] for i in order]


def _restored(values: Sequence[T], order: Sequence[int]) -> list[T]:
    by_position = dict(zip(order, values, strict=True))
    return [by_position[i] for i in range(len(order))]


def if_(b: Builder, condition: Tensor, branches: Sequence[Callable[[], Tensors]]) -> list[Tensor]:
    """Return the results of one of two branches."""
    order: list[int] = []

    def branch(function: Callable[[], Tensors]) -> list[Tensor]:
        results = function()
        order[:] = order_of(results)
        return _ordered(results, order)

    regions = [b.region(partial(branch, function), ()) for function in branches]
    return _restored(b.emit("if", (condition,), regions=regions), order)


def while_(
    b: Builder,
    carries: Tensors,
    condition: Callable[[Tensors], Tensor],
    body: Callable[[Tensors], Tensors],
    max_iterations: int | None,
) -> list[Tensor]:
    """Return the last carries of a loop."""
    order = order_of(carries)
    shapes = _ordered([c.shape for c in carries], order)
    regions = [
        b.region(lambda *values: condition(_restored(values, order)), shapes),
        b.region(lambda *values: _ordered(body(_restored(values, order)), order), shapes),
    ]
    results = b.emit("while", (_ordered(carries, order),), max_iterations=max_iterations, regions=regions)
    return _restored(results, order)


def scan(
    b: Builder,
    carries: Tensors,
    xs: Tensors,
    body: Callable[[Tensors, Tensors], tuple[Tensors, Tensors]],
    **attributes: Any,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the last carries of a scan, and the values that it stacked.

    Args:
        b: The builder that emits the ops.
        carries: The initial carries.
        xs: The tensors whose slices are the inputs of the steps.
        body: From carries and slices to the next carries and the values to stack.
        attributes: Those of the op: `length`, `reverse` and `num_checkpoints`.
    """
    count, order, order_of_xs = len(carries), order_of(carries), order_of(xs)
    order_of_stacks: list[int] = []

    def step(*tensors: Tensor) -> list[Tensor]:
        following, stacked = body(_restored(tensors[:count], order), _restored(tensors[count:], order_of_xs))
        order_of_stacks[:] = order_of(stacked)
        return [*_ordered(following, order), *_ordered(stacked, order_of_stacks)]

    first, rows = _ordered(carries, order), _ordered(xs, order_of_xs)
    shapes = [*(c.shape for c in first), *(x.shape.with_dims(x.shape.dims[1:]) for x in rows)]
    region = b.region(step, shapes)
    results = b.emit("scan", ([*first, *rows],), num_carries=count, regions=[region], **attributes)
    return _restored(results[:count], order), _restored(results[count:], order_of_stacks)
