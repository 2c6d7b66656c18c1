"""Derivative and batching rules of loops. The ops are in `control`."""

# Functions of regions are lambdas of tensors. Their parameters have no types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, Tensors
from rlx.ir.op import opview
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Card
from rlx.ir.shape import Shape, shape_of
from rlx.ops import rules
from rlx.ops.control.control_rules import chosen, filled, select, spread
from rlx.ops.elementwise import by_type
from rlx.support.errors import ShapeError

if TYPE_CHECKING:
    from rlx.transforms.batching import BatchedRegion
    from rlx.transforms.forward import ForwardRegion
    from rlx.transforms.reverse import ReverseRegion

# Ops with at least this number of operations per result element are not recomputed in the backward pass of a loop.
_WORTH_KEEPING = 16

T = TypeVar("T")


def _row(shape: Shape) -> Shape:
    return shape.with_dims(shape.dims[1:])


def _fixed_point(flags: Sequence[bool], following: Callable[[list[bool]], list[bool]]) -> list[bool]:
    """Return the smallest set of flags that contains the given flags and all flags that follow from them."""
    current = list(flags)
    while True:
        grown = [a or b for a, b in zip(current, following(current), strict=True)]
        if grown == current:
            return current
        current = grown


class WhileRules(Card):
    """Rules of a while loop. Tangents are additional carries.

    Reverse mode with respect to values that change from step to step needs a bound on the number of steps. The loop
    then becomes a scan that may stop early.
    """

    def pushforward(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        tangents: Sequence[Tangents],
        *,
        max_iterations: int | None,
        regions: Sequence[ForwardRegion],
    ) -> rules.ResultsAndTangents:
        (inits,), (init_tangents,) = operands, tangents
        condition, body = regions
        count = len(inits)
        moving = _fixed_point([t is not None for t in init_tangents], body.moving)
        moved = filled(b, init_tangents, inits, moving)

        def step(carries: Sequence[Tensor]) -> list[Tensor]:
            results, after = body.run(carries[:count], spread(carries[count:], moving))
            return [*results, *filled(b, after, results, moving)]

        holds = lambda carries: condition.plain(carries[:count])[0]  # noqa: E731
        results = by_type.while_(b, [*inits, *moved], holds, step, max_iterations)
        return results[:count], spread(results[count:], moving)

    def is_replaced(self, *, max_iterations: int | None) -> bool:
        return max_iterations is not None

    def reversible(
        self, b: Builder, inits: list[Tensor], *, max_iterations: int | None, regions: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        """Return a scan over the maximum number of steps, whose body does nothing once the condition is false."""
        assert max_iterations is not None
        condition, body = regions

        def step(carries: tuple[Tensor, ...], _: None) -> tuple[tuple[Tensor, ...], None]:
            running, *values = carries
            holds = b.if_(running, lambda: b.inline(condition, values)[0], lambda: running)
            following = b.if_(holds, lambda: tuple(b.inline(body, values)), lambda: tuple(values))
            return (holds, *(following if isinstance(following, tuple) else (following,))), None

        (_, *results), _ = b.scan(step, (b.constant(True), *inits), None, length=max_iterations)
        return tuple(results)

    def pullback(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        wanted: Sequence[Flags],
        *,
        max_iterations: int | None,
        regions: Sequence[ReverseRegion],
    ) -> rules.ResultsAndPullback:
        """Return the loop itself, which has no bound, and cotangents only for the carries that no step changes."""
        (inits,), (flags,), (condition, body) = operands, wanted, regions
        shapes = [x.shape for x in inits]
        copies = [b.region(lambda *carries, r=r: r.plain(carries), shapes) for r in (condition, body)]
        results = b.emit("while", (inits,), max_iterations=max_iterations, regions=copies)
        unchanged = [v == a for v, a in zip(opview.yielded(body.block), body.block.arguments, strict=True)]
        moving = _fixed_point(list(flags), body.moving)

        def pull(cotangents: Sequence[Tensor | None]) -> list[Any]:
            for cotangent, moves, stays in zip(cotangents, moving, unchanged, strict=True):
                if cotangent is not None and moves and not stays:
                    raise ShapeError(
                        "a while loop without max_iterations has no reverse mode: how many steps there are to go back "
                        "is not known",
                        hint="give max_iterations, or use a scan, or forward mode (rlx.jvp, rlx.jacfwd); where the "
                        "derivative is not to go through the loop, rlx.stop_gradient of its result",
                    )
            return [*spread(chosen(cotangents, unchanged), unchanged), *[None] * len(body.captures)]

        return results, pull

    def vmap(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        batched: Sequence[Flags],
        *,
        size: Dim,
        max_iterations: int | None,
        regions: Sequence[BatchedRegion],
    ) -> tuple[Tensor, ...]:
        (inits,), (flags,) = operands, batched
        condition, body = regions

        def following(flags: list[bool]) -> list[bool]:
            return [True] * len(flags) if condition.batched(flags)[0] else body.batched(flags)

        flags = _fixed_point(list(flags), following)
        mixed = condition.batched(flags)[0]  # entries may stop at different steps; then their carries stay
        carries = [
            rules.batch(b, c, is_batched, size) if needs_batch else c
            for c, is_batched, needs_batch in zip(inits, batched[0], flags, strict=True)
        ]

        def holds(*carries: Tensor) -> Tensor:
            (value,) = condition(carries, flags, [mixed])
            return b.max(value) if mixed else value

        def step(*carries: Tensor) -> list[Tensor]:
            after = body(carries, flags, flags)
            if not mixed:
                return after
            (running,) = condition(carries, flags, [True])
            return [select(b, running, new, old) for new, old in zip(after, carries, strict=True)]

        shapes = [c.shape for c in carries]
        new_regions = [b.region(holds, shapes), b.region(step, shapes)]
        results = b.emit("while", (carries,), max_iterations=max_iterations, regions=new_regions)
        return tuple(rules.batch(b, r, is_batched, size) for r, is_batched in zip(results, flags, strict=True))


@dataclass(frozen=True)
class ScanLoop(ArgumentGroup):
    """The attributes of a `scan`."""

    num_carries: int
    length: tuple[Dim]
    reverse: bool
    num_checkpoints: int | None


class ScanRules(Card):
    """Rules of a scan. Tangents are additional carries and slices; cotangents are a scan in the other direction."""

    def pushforward(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        tangents: Sequence[Tangents],
        *,
        num_carries: int,
        regions: Sequence[ForwardRegion],
        **attributes: Any,
    ) -> rules.ResultsAndTangents:
        (inputs,), (input_tangents,), (body,) = operands, tangents, regions
        moving = [t is not None for t in input_tangents]
        sliced = moving[num_carries:]
        carried = _fixed_point(moving[:num_carries], lambda c: body.moving([*c, *sliced])[:num_carries])
        stacked = body.moving([*carried, *sliced])[num_carries:]
        moved = filled(b, input_tangents[:num_carries], inputs[:num_carries], carried)
        slices = chosen(input_tangents[num_carries:], sliced)

        def step(carries: Sequence[Tensor], xs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            carry_values, carry_tangents = carries[:num_carries], carries[num_carries:]
            rows, row_tangents = _parted(xs, [len(sliced), len(slices)])
            results, after = body.run(
                [*carry_values, *rows], [*spread(carry_tangents, carried), *spread(row_tangents, sliced)]
            )
            following, stacks = results[:num_carries], results[num_carries:]
            return (
                [*following, *filled(b, after[:num_carries], following, carried)],
                [*stacks, *filled(b, after[num_carries:], stacks, stacked)],
            )

        entering, xs = [*inputs[:num_carries], *moved], [*inputs[num_carries:], *slices]
        last, stacks = by_type.scan(b, entering, xs, step, **attributes)
        moved_stacks = spread(stacks[len(stacked) :], stacked)
        return [*last[:num_carries], *stacks[: len(stacked)]], [*spread(last[num_carries:], carried), *moved_stacks]

    def is_replaced(self, *, num_checkpoints: int | None, **_: object) -> bool:
        return num_checkpoints is not None

    def reversible(
        self, b: Builder, inputs: list[Tensor], *, loop: ScanLoop, regions: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        """With checkpoints, return a scan over segments. Each segment is a scan.

        Only the carries between segments are stored.
        """
        return _segmented(b, inputs, regions[0], loop)

    def pullback(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        wanted: Sequence[Flags],
        *,
        loop: ScanLoop,
        regions: Sequence[ReverseRegion],
    ) -> rules.ResultsAndPullback:
        (inputs,), (flags,), (body,), num_carries = operands, wanted, regions, loop.num_carries
        sliced = flags[num_carries:]
        carried = _fixed_point(flags[:num_carries], lambda c: body.moving([*c, *sliced])[:num_carries])
        kept = _worth_keeping(body.block)

        def forward(carries: Sequence[Tensor], xs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            results, values = body.forward([*carries, *xs], [*carried, *sliced], kept)
            return results[:num_carries], [*results[num_carries:], *carries, *values]

        carries, xs = inputs[:num_carries], inputs[num_carries:]
        ends, stacks_and_kept = by_type.scan(b, carries, xs, forward, length=loop.length, reverse=loop.reverse)
        count = len(stacks_and_kept) - num_carries - len(kept)
        stacks, before, values = _parted(stacks_and_kept, [count, num_carries, len(kept)])
        outside = body.captures

        def pull(cotangents: Sequence[Tensor | None]) -> list[Any]:
            has_cotangent = [c is not None for c in cotangents[num_carries:]]
            starts = filled(b, cotangents[:num_carries], ends, carried)
            sums = [rules.zeros(b, t.shape) for t in chosen(outside, body.wanted)]
            rows = (before, xs, values, chosen(cotangents[num_carries:], has_cotangent))

            def back(entering: Sequence[Tensor], tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
                after, so_far = entering[: len(starts)], entering[len(starts) :]
                carries, slices, kept_values, row_cotangents = _parted(tensors, [len(r) for r in rows])
                _, pull_step = body.vjp(
                    [*carries, *slices], [*carried, *sliced], dict(zip(kept, kept_values, strict=True))
                )
                arguments, captured = pull_step([*spread(after, carried), *spread(row_cotangents, has_cotangent)])
                added = [rules.total(b, pair) for pair in zip(so_far, chosen(captured, body.wanted), strict=True)]
                ahead = filled(b, arguments[:num_carries], carries, carried)
                return [*ahead, *added], filled(b, arguments[num_carries:], slices, sliced)  # type: ignore[list-item]

            xs_of_all = [t for part in rows for t in part]
            backwards: dict[str, Any] = {"length": loop.length, "reverse": not loop.reverse}
            last, slices = by_type.scan(b, [*starts, *sums], xs_of_all, back, **backwards)
            first, total = last[: len(starts)], last[len(starts) :]
            return [*spread(first, carried), *spread(slices, sliced), *spread(total, body.wanted)]

        return [*ends, *stacks], pull

    def vmap(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        batched: Sequence[Flags],
        *,
        size: Dim,
        num_carries: int,
        regions: Sequence[BatchedRegion],
        **attributes: Any,
    ) -> tuple[Tensor, ...]:
        (inputs,), (flags,), (body,) = operands, batched, regions
        sliced = flags[num_carries:]
        carried = _fixed_point(flags[:num_carries], lambda c: body.batched([*c, *sliced])[:num_carries])
        stacked = body.batched([*carried, *sliced])[num_carries:]
        carries = [
            rules.batch(b, c, is_batched, size) if needs_batch else c
            for c, is_batched, needs_batch in zip(inputs, flags, [*carried, *[False] * len(sliced)], strict=True)
        ][:num_carries]
        xs = [
            rules.move_axis(b, x, 0, 1) if is_batched else x
            for x, is_batched in zip(inputs[num_carries:], sliced, strict=True)
        ]

        def step(*tensors: Tensor) -> list[Tensor]:
            return body(tensors, [*carried, *sliced], [*carried, *stacked])

        shapes = [*(c.shape for c in carries), *(_row(x.shape) for x in xs)]
        results = b.emit(
            "scan", ([*carries, *xs],), num_carries=num_carries, regions=[b.region(step, shapes)], **attributes
        )
        last = [rules.batch(b, r, is_batched, size) for r, is_batched in zip(results, carried, strict=False)]
        stacks = [
            rules.move_axis(b, r, 0, 1) if is_batched else rules.batch(b, r, False, size)
            for r, is_batched in zip(results[num_carries:], stacked, strict=True)
        ]
        return (*last, *stacks)


def _parted(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Split values into groups of the given lengths."""
    remaining = iter(values)
    return [[next(remaining) for _ in range(count)] for count in counts]


def _worth_keeping(block: mlir.Block) -> list[mlir.Value]:
    """Return the values of a loop's body to stack for the backward pass. The backward pass recomputes all other values."""
    values: list[mlir.Value] = []
    for view in block.operations:
        op = view.operation
        if op.name == opview.YIELD or len(op.regions) or len(op.results) != 1:
            continue
        size = shape_of(op.results[0]).num_elements
        flops = opview.own_cost_of(op).flops
        if type(flops) is int and type(size) is int and flops >= _WORTH_KEEPING * max(size, 1):
            values.append(op.results[0])
    return values


def _segmented(b: Builder, inputs: list[Tensor], block: mlir.Block, loop: ScanLoop) -> tuple[Tensor, ...]:
    """Return a scan as a scan over at most `num_checkpoints` segments. Each segment is a scan."""
    (steps,), num_carries, reverse = loop.length, loop.num_carries, loop.reverse
    assert loop.num_checkpoints is not None
    if type(steps) is not int:
        raise ShapeError(
            f"a scan of symbolic length {steps} cannot be cut into segments",
            hint="bind it, or leave num_checkpoints out",
        )
    segment_length = max(-(-steps // loop.num_checkpoints), 1)
    num_segments = steps // segment_length
    carries, xs = inputs[:num_carries], inputs[num_carries:]

    def run(
        carries: Sequence[Tensor], xs: Sequence[Tensor], size: int
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        shapes = [*(c.shape for c in carries), *(_row(x.shape) for x in xs)]
        region = b.region(lambda *t: b.inline(block, t), shapes)
        results = b.emit(
            "scan", ([*carries, *xs],), num_carries=num_carries, length=(size,), reverse=reverse, regions=[region]
        )
        return results[:num_carries], results[num_carries:]

    def segments(carries: Sequence[Tensor]) -> tuple[Sequence[Tensor], list[Tensor]]:
        rows = [b.narrow(x, 0, 0, num_segments * segment_length) for x in xs]
        rows = [b.reshape(x, (num_segments, segment_length, *x.shape.dims[1:])) for x in rows]
        step = lambda c, x: run(c, x or (), segment_length)  # noqa: E731
        last, stacks = b.scan(step, tuple(carries), tuple(rows) or None, length=num_segments, reverse=reverse)
        return last, [b.reshape(s, (num_segments * segment_length, *s.shape.dims[2:])) for s in stacks or ()]

    def remainder(carries: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        size = steps - num_segments * segment_length
        return run(carries, [b.narrow(x, 0, num_segments * segment_length, size) for x in xs], size)

    if num_segments * segment_length == steps:
        last, stacks = segments(carries)
        return (*last, *stacks)
    parts = (remainder, segments) if reverse else (segments, remainder)
    carries, first = parts[0](carries)
    carries, second = parts[1](carries)
    head, tail = (second, first) if reverse else (first, second)
    return (*carries, *(b.concat([x, y], 0) for x, y in zip(head, tail, strict=True)))
