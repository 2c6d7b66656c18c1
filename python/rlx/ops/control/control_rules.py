"""Derivative and batching rules of branches and functions; the ops are in `control` and `function`."""

# Functions of regions are lambdas of tensors. Their parameters have no types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.regions import Region
from rlx.ir.graph.typing import Flags, Tangents, Tensors
from rlx.ir.op import opview
from rlx.ir.op.card import Card
from rlx.ir.shape import Shape, shape_of
from rlx.ops import rules
from rlx.ops.elementwise import by_type
from rlx.ops.rules import or_zeros
from rlx.support.errors import Error

if TYPE_CHECKING:
    from rlx.transforms.batching import BatchedRegion
    from rlx.transforms.forward import ForwardRegion
    from rlx.transforms.reverse import ReverseRegion

T = TypeVar("T")
_IN_REVERSE = (
    "give the function a jvp as well; or differentiate it in reverse mode: grad, and jvp, hvp and hessian of a gradient, "
    "take any vjp"
)


def chosen(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [v for v, flag in zip(values, flags, strict=True) if flag]


def spread(values: Sequence[T], flags: Sequence[bool]) -> list[T | None]:
    """Return a list with the values at the set flags, and None elsewhere."""
    remaining = iter(values)
    return [next(remaining) if flag else None for flag in flags]


def filled(b: Builder, values: Sequence[Tensor | None], like: Sequence[Tensor], flags: Sequence[bool]) -> list[Tensor]:
    """Return the tangents or cotangents at the set flags, with zero tensors in place of None."""
    return [or_zeros(b, v, t.shape) for v, t, flag in zip(values, like, flags, strict=True) if flag]


class IfRules(Card):
    """Rules of a branch: one branch runs, together with its tangents or cotangents."""

    def pushforward(
        self, b: Builder, operands: Tensors, tangents: Tensors, *, regions: Sequence[ForwardRegion]
    ) -> rules.ResultsAndTangents:
        moving = [a or c for a, c in zip(*(r.moving([]) for r in regions), strict=True)]

        def branch(body: ForwardRegion) -> list[Tensor]:
            results, moved = body.run([], [])
            return [*results, *filled(b, moved, results, moving)]

        outputs = by_type.if_(b, operands[0], [lambda body=body: branch(body) for body in regions])
        return outputs[: len(moving)], spread(outputs[len(moving) :], moving)

    def pullback(
        self, b: Builder, operands: Tensors, wanted: Flags, *, regions: Sequence[ReverseRegion]
    ) -> rules.ResultsAndPullback:
        (condition,) = operands
        results = b.emit("if", operands, regions=[b.region(lambda r=r: r.forward([], [])[0], ()) for r in regions])
        outside, wanted_captures = regions[0].captures, regions[0].wanted

        def branch(body: ReverseRegion, cotangents: Sequence[Tensor | None]) -> list[Tensor]:
            _, pull = body.vjp([], [])
            return filled(b, pull(cotangents)[1], outside, wanted_captures)

        def pull(cotangents: Sequence[Tensor | None]) -> list[Any]:
            """Return the cotangents of the branch that ran. The forward values that it needs are computed again."""
            pulled = by_type.if_(b, condition, [lambda body=body: branch(body, cotangents) for body in regions])
            return [None, *spread(pulled, wanted_captures)]

        return results, pull

    def vmap(
        self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, regions: Sequence[BatchedRegion]
    ) -> tuple[Tensor, ...]:
        (condition,), (mixed,) = operands, batched
        if mixed:  # batch entries take different branches, so both are computed
            count = len(regions[0].batched([]))
            then, otherwise = (body([], [], [True] * count) for body in regions)
            return tuple(select(b, condition, x, y) for x, y in zip(then, otherwise, strict=True))
        result_flags = [True] * len(regions[0].batched([]))
        return b.emit("if", operands, regions=[b.region(lambda r=r: r([], [], result_flags), ()) for r in regions])


def select(b: Builder, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Select `x` or `y` by a condition for each entry of their leading axis."""
    column = b.reshape(condition, (*condition.shape.dims, *(1,) * (x.rank - 1)))
    return b.where(column, x, y)


class CustomFnRules(Card):
    """Rules of a function: those that the user supplied, else the rules of the ops inside it."""

    def pushforward(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        tangents: Sequence[Tangents],
        *,
        no_derivative: str | None = None,
        regions: Sequence[Any],
    ) -> rules.ResultsAndTangents:
        (inputs,), (input_tangents,) = operands, tangents
        forward, backward, rule = regions
        _check_derivable(no_derivative)
        if rule is None and backward is None:
            if not _is_pointwise(forward.block):
                return forward.run(inputs, input_tangents)
            results = _emitted_again(b, inputs, regions)
            terms = [t * _partial(b, inputs, i, forward) for i, t in enumerate(input_tangents) if t is not None]
            return results, [rules.total(b, [b.cast(t, results[0].dtype) for t in terms])]
        results = _emitted_again(b, inputs, regions)
        moved = [or_zeros(b, t, x.shape) for t, x in zip(input_tangents, inputs, strict=True)]
        if rule is not None:
            return results, [_float(t) for t in rule.plain([*inputs, *moved])]
        # The map of cotangents is the adjoint of the map of tangents.
        try:
            return results, backward.adjoint([*inputs, *results], [r.shape for r in results], moved)
        except Error as problem:
            raise Error(problem.message, location=problem.location, hint=_IN_REVERSE) from None

    def pullback(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        wanted: Sequence[Flags],
        *,
        no_derivative: str | None = None,
        regions: Sequence[Any],
    ) -> rules.ResultsAndPullback:
        ((inputs,), (flags,)), (forward, backward, rule) = (operands, wanted), regions
        _check_derivable(no_derivative)
        outside = [None] * len(forward.captures)
        if rule is None and backward is None and _is_pointwise(forward.block):

            def multiplied(cotangents: Sequence[Tensor | None]) -> list[Any]:
                (c,) = cotangents

                def pulled(position: int) -> Tensor | None:
                    """Return the cotangent of an input. Its dtype may differ from that of the result."""
                    if c is None or not flags[position]:
                        return None
                    return b.cast(c * _partial(b, inputs, position, forward), inputs[position].dtype)

                return [*map(pulled, range(len(inputs))), *outside]

            return _emitted_again(b, inputs, regions), multiplied
        if rule is None and backward is None:
            results, pull_back = forward.vjp(inputs, flags)

            def through(cotangents: Sequence[Tensor | None]) -> list[Any]:
                arguments, captured = pull_back(cotangents)
                return [*arguments, *captured]

            return results, through
        if rule is None and backward is not None and not backward.is_linear(len(opview.yielded(forward.block))):
            regions = [forward, backward, _Pushed(b, forward)]
        results = _emitted_again(b, inputs, regions)

        def pull(cotangents: Sequence[Tensor | None]) -> list[Any]:
            if backward is not None:
                filled = [or_zeros(b, c, r.shape) for c, r in zip(cotangents, results, strict=True)]
                return [*map(_float, backward.plain([*inputs, *results, *filled])), *outside]
            # Results that are not used get None, not zeros: their derivatives may be infinite.
            assert rule is not None
            return [*rule.adjoint(inputs, [x.shape for x in inputs], cotangents), *outside]

        return results, pull

    def vmap(
        self,
        b: Builder,
        operands: Sequence[Tensors],
        batched: Sequence[Flags],
        *,
        size: Dim,
        no_derivative: str | None = None,
        regions: Sequence[BatchedRegion | None],
    ) -> tuple[Tensor, ...]:
        (inputs,), (flags,) = operands, batched
        full = [rules.batch(b, x, is_batched, size) for x, is_batched in zip(inputs, flags, strict=True)]

        def batched_region(body: BatchedRegion) -> Region:
            arguments = [Shape((size, *s.dims), s.dtype) for s in map(shape_of, body.block.arguments)]
            result_flags = [True] * len(opview.yielded(body.block))
            return b.region(lambda *t: body(t, [True] * len(t), result_flags), arguments)

        batched_regions = [r and batched_region(r) for r in regions]
        return b.emit("custom_fn", (full,), regions=batched_regions, no_derivative=no_derivative)


class _Pushed:
    """The region with the tangents of a function, where it has a vjp that is not linear and has been differentiated.

    The vjp has then been applied, and its ops are in the graph. As in JAX, the next derivative is that of these ops and
    of the function itself. A vjp that is not linear has no adjoint, which would be the rule of forward mode.
    """

    def __init__(self, b: Builder, forward: ReverseRegion):
        self._builder, self._forward = b, forward

    @property
    def argument_shapes(self) -> list[Shape]:
        """The shapes of the arguments: inputs and their tangents."""
        shapes = [shape_of(a) for a in self._forward.block.arguments]
        return [*shapes, *shapes]

    def plain(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Emit the tangents of the results."""
        count = len(self._forward.block.arguments)
        results, tangents = self._forward.pushed(arguments[:count], arguments[count:])
        return [or_zeros(self._builder, t, r.shape) for t, r in zip(tangents, results, strict=True)]


def _is_pointwise(block: mlir.Block) -> bool:
    """Return whether each element of the only result depends only on the same element of each real argument."""
    results, arguments = opview.yielded(block), list(block.arguments)
    shape = shape_of(results[0])
    if len(results) != 1 or not shape.dtype.is_float:
        return False
    if any(shape_of(a).dtype.is_float and shape_of(a).dims != shape.dims for a in arguments):
        return False
    known, constants = set(arguments), set[mlir.Value]()
    *body, _ = (view.operation for view in block.operations)
    for op in body:
        outside = [v for v in op.operands if v not in known]
        is_constant = all(v in constants or v in outside for v in op.operands)  # also for an op without operands
        if not all(map(_is_constant, outside)) or not (is_constant or _is_elementwise(op)):
            return False
        known.update(op.results)
        constants.update(op.results if is_constant else ())
    return not any(shape_of(v).dtype.is_complex for v in known)


def _is_constant(value: mlir.Value) -> bool:
    while isinstance(value, mlir.OpResult) and value.owner.operation.name == "rlx.expand":
        value = value.owner.operation.operands[0]
    return isinstance(value, mlir.OpResult) and value.owner.operation.name == "rlx.constant"


def _is_elementwise(op: mlir.Operation) -> bool:
    if op.name == "rlx.custom_fn":
        forward, backward, _ = map(opview.block_of, op.regions)
        return forward is not None and backward is None and _is_pointwise(forward)
    return opview.has_trait(op, "elementwise")


def _partial(b: Builder, inputs: Sequence[Tensor], position: int, forward: ForwardRegion | ReverseRegion) -> Tensor:
    """Return the derivative of a pointwise function (see `_is_pointwise`), itself a pointwise function.

    In forward mode it takes the branch that `where` chooses. In reverse mode the zero cotangent of the other branch
    would be multiplied by the derivative of that branch, which may be infinite.
    """
    region = b.region(lambda *t: forward.partial(t, position), [x.shape for x in inputs])
    return b.emit("custom_fn", (list(inputs),), regions=[region, None, None])[0]


def _check_derivable(no_derivative: str | None) -> None:
    """Raise an `Error` with this text, if it is not None."""
    if no_derivative is not None:
        raise Error(f"the function has no derivative: {no_derivative}", hint="stop_gradient keeps derivatives from it")


def _float(value: Tensor) -> Tensor | None:
    """Return a tangent or cotangent from a user's rule; None for integers, which have none."""
    return value if value.dtype.is_inexact else None


def _emitted_again(b: Builder, inputs: Sequence[Tensor], regions: Sequence[Any]) -> tuple[Tensor, ...]:
    """Emit the op itself on other tensors, so that it keeps its rules."""
    new_regions = [r and b.region(lambda *t, r=r: r.plain(t), r.argument_shapes) for r in regions]
    return b.emit("custom_fn", (list(inputs),), regions=new_regions)
