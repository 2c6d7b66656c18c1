"""Lowering rules for control flow: `stablehlo.case` and `stablehlo.while`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.dtype import i32
from rlx.ir.shape import Shape
from rlx.ops.control.loop_rules import ScanLoop
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, Region, lowers


@lowers("if")
def if_(
    emit: HloEmitter, results: list[Shape], condition: Lowered, *, regions: Sequence[Region]
) -> tuple[Lowered, ...]:
    then, otherwise = regions
    branch = emit.convert(condition, i32)
    return emit.op("case", [branch], results, {}, [([], otherwise), ([], then)])


@lowers("while")
def while_(
    emit: HloEmitter,
    results: list[Shape],
    inits: list[Lowered],
    *,
    max_iterations: int | None,
    regions: Sequence[Region],
) -> tuple[Lowered, ...]:
    condition, body = regions
    if max_iterations is None:
        return emit.while_(inits, lambda *c: condition(*c)[0], body)
    done = emit.full((), i32, 0)

    def holds(count: Lowered, *carries: Lowered) -> Lowered:
        return emit.both(condition(*carries)[0], emit.compare("lt", count, min(max_iterations, i32.max)))

    def step(count: Lowered, *carries: Lowered) -> list[Lowered]:
        return [emit.add(count, 1), *body(*carries)]

    return emit.while_([done, *inits], holds, step)[1:]


@lowers("scan")
def scan(
    emit: HloEmitter,
    results: list[Shape],
    inputs: list[Lowered],
    *,
    loop: ScanLoop,
    regions: Sequence[Region],
) -> tuple[Lowered, ...]:
    num_carries, (size,) = loop.num_carries, loop.length
    assert type(size) is int
    xs = inputs[num_carries:]
    stacks = [emit.full(s.static, s.dtype, 0) for s in results[num_carries:]]
    if not size:
        return (*inputs[:num_carries], *stacks)

    def step(count: Lowered, *state: Lowered) -> list[Lowered]:
        position = emit.sub(emit.like(count, size - 1), count) if loop.reverse else count
        yielded = regions[0](*state[:num_carries], *(_row(emit, x, position) for x in xs))
        stacked = [
            _with_row(emit, row, stack, position)
            for row, stack in zip(yielded[num_carries:], state[num_carries:], strict=True)
        ]
        return [emit.add(count, 1), *yielded[:num_carries], *stacked]

    first = emit.full((), i32, 0)

    def goes_on(count: Lowered, *_: Lowered) -> Lowered:
        return emit.compare("lt", count, size)

    return emit.while_([first, *inputs[:num_carries], *stacks], goes_on, step)[1:]


def _starts(emit: HloEmitter, position: Lowered, rank: int) -> list[Any]:
    return [position, *(emit.full((), i32, 0) for _ in range(rank - 1))]


def _row(emit: HloEmitter, x: Lowered, position: Lowered) -> Lowered:
    """`x[position]`."""
    part = emit.dynamic_slice(x, _starts(emit, position, x.rank), [1, *x.dims[1:]])
    return emit.reshape(part, x.dims[1:])


def _with_row(emit: HloEmitter, row: Lowered, into: Lowered, position: Lowered) -> Lowered:
    """`into` with `into[position] = row`."""
    part = emit.reshape(row, [1, *row.dims])
    return emit.dynamic_update_slice(into, part, _starts(emit, position, into.rank))
