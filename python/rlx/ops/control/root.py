"""Roots of functions as ops: differentiated by the implicit function theorem, never through their computation."""

# Functions of regions are lambdas of tensors. Their parameters have no types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.evaluate import EvaluatedRegion
from rlx.ir.graph.regions import Region
from rlx.ir.graph.typing import Flags, Tangents, Tensors
from rlx.ir.op import opview
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, sample
from rlx.ir.op.dataflow import RegionFlow, wholes
from rlx.ir.op.opview import RegionShapes
from rlx.ir.shape import Shape, shape_of
from rlx.ops import rules
from rlx.ops.control.control import check_takes, expect_arguments, flat, present, shapes_text, unpacked
from rlx.ops.rules import or_zeros
from rlx.support.errors import Error, ShapeError

if TYPE_CHECKING:
    from rlx.transforms.batching import BatchedRegion
    from rlx.transforms.forward import ForwardRegion
    from rlx.transforms.reverse import ReverseRegion


class CustomRoot(Card, op="custom_root"):
    def infer(self, *, symmetric: bool, regions: Sequence[RegionShapes | None]) -> tuple[Shape, ...]:
        primal, function = present(regions[0], "primal_region"), present(regions[1], "function_region")
        expect_arguments(primal, (), "primal_region")
        roots = function.arguments
        if list(primal.results[: len(roots)]) != list(roots):
            raise ShapeError(f"primal_region must yield {shapes_text(roots)} first, got {shapes_text(primal.results)}")
        _check_yields(function, roots, "function_region")
        for name, region in (("solve_region", present(regions[2], "solve_region")), ("adjoint_region", regions[3])):
            if region is not None:
                expect_arguments(region, (*roots, *roots), name)
                _check_yields(region, roots, name)
        if symmetric and regions[3] is not None:
            raise ShapeError("adjoint_region must be empty, because the derivative is its own adjoint (symmetric)")
        return primal.results

    def evaluate(self, *, symmetric: bool, regions: Sequence[EvaluatedRegion]) -> tuple[np.ndarray, ...]:
        return tuple(regions[0]())

    def decompose(self, b: Builder, *, symmetric: bool, regions: Sequence[Any]) -> tuple[Tensor, ...]:
        return tuple(b.inline(regions[0], ()))

    def build(
        self,
        b: Builder,
        f: Callable[..., Any],
        primal: Callable[..., Any],
        solve: Callable[..., Any],
        adjoint: Callable[..., Any] | None = None,
        symmetric: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """The result is that of `primal()`, tensors `x` with `f(*x) = 0`, after which other results may follow.

        The derivatives of `x` to the tensors from outside that `f` uses are those of the implicit function theorem. None
        go through `primal` or `solve`. `solve(x, c)` returns `t` with `df/dx(x)·t = c`. All of `x`, `c` and `t` are
        tuples of tensors of the same shapes; a single tensor may be returned as it is.

        Own arguments:
            adjoint: As `solve`, for the adjoint of the derivative: reverse mode needs it. None if there is none.
            symmetric: Whether the derivative is its own adjoint; then reverse mode uses `solve`.
        """
        for name, function in (("primal", primal), ("f", f), ("solve", solve), ("adjoint", adjoint)):
            if not callable(function) and (name != "adjoint" or function is not None):
                raise ShapeError(f"{name} must be a function of tensors, got {function!r}")
        check_takes(primal, 0, "primal")
        first = b.region(lambda: flat(primal()), ())
        count = _parameters(f, len(first.shapes.results))
        roots = first.shapes.results[:count]
        second = b.region(lambda *x: flat(f(*x)), roots)

        def solver(function: Callable[..., Any]) -> Region:
            return b.region(lambda *t: flat(function(t[:count], t[count:])), (*roots, *roots))

        regions = [first, second, solver(solve), None if adjoint is None else solver(adjoint)]
        return unpacked(b.emit("custom_root", (), symmetric=symmetric, regions=regions))

    def flows(self, operands: int, results: int, attributes: Attributes) -> tuple[RegionFlow | None, ...]:
        return (RegionFlow((), wholes(results), repeats=False), None, None, None)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)  # the cost is that of the ops in its first region

    def pushforward(
        self, b: Builder, operands: Tensors, tangents: Tangents, *, symmetric: bool, regions: Sequence[Any]
    ) -> rules.ResultsAndTangents:
        results, function = _emitted_again(b, regions, symmetric), regions[1]
        x = results[: len(function.argument_shapes)]
        _, moved = function.run(x, [None] * len(x))
        if all(t is None for t in moved):
            return results, [None] * len(results)
        sides = [-or_zeros(b, t, s.shape) for t, s in zip(moved, x, strict=True)]
        solved = _solved(b, regions, x, sides, symmetric=symmetric)
        return results, [*solved, *[None] * (len(results) - len(x))]

    def pullback(
        self, b: Builder, operands: Tensors, wanted: Flags, *, symmetric: bool, regions: Sequence[Any]
    ) -> rules.ResultsAndPullback:
        results, function = _emitted_again(b, regions, symmetric), regions[1]
        x = results[: len(function.argument_shapes)]

        def pull(cotangents: Sequence[Tensor | None]) -> list[Any]:
            given = cotangents[: len(x)]
            if all(c is None for c in given):
                return [None] * len(function.captures)
            sides = [or_zeros(b, c, s.shape) for c, s in zip(given, x, strict=True)]
            solved = _solved(b, regions, x, sides, symmetric=symmetric, adjoint=True)
            _, pull_function = function.vjp(x, [False] * len(x))
            return pull_function([-t for t in solved])[1]

        return results, pull

    def vmap(
        self,
        b: Builder,
        operands: Tensors,
        batched: Flags,
        *,
        size: Dim,
        symmetric: bool,
        regions: Sequence[BatchedRegion | None],
    ) -> tuple[Tensor, ...]:
        def batched_region(body: BatchedRegion) -> Region:
            shapes = [Shape((size, *s.dims), s.dtype) for s in map(shape_of, body.block.arguments)]
            flags = [True] * len(opview.yielded(body.block))
            return b.region(lambda *t: body(t, [True] * len(t), flags), shapes)

        return b.emit("custom_root", (), symmetric=symmetric, regions=[r and batched_region(r) for r in regions])

    def samples(self) -> Iterable[OpSample]:
        def square_root(b: Builder, a: Tensor, *, symmetric: bool) -> object:
            halved = lambda x, c: c[0] / (2.0 * x[0])  # noqa: E731
            return b.custom_root(lambda x: x * x - a, lambda: (b.sqrt(a), b.sum(a)), halved, symmetric=symmetric)

        def rotated(b: Builder, x: Tensor, y: Tensor) -> object:
            return b.custom_root(
                lambda u, v: (v - x, y - u), lambda: (y, x), lambda _, c: (-c[1], c[0]), lambda _, c: (c[1], -c[0])
            )

        yield sample(SampleOperand(("n", 3), low=0.5), build=square_root, dtypes=("f32",), symmetric=True)
        yield sample((2, 3), (2, 3), build=rotated, dtypes=("f32",))


def _check_yields(region: RegionShapes, expected: Sequence[Shape], name: str) -> None:
    if list(region.results) != list(expected):
        raise ShapeError(f"{name} must yield {shapes_text(expected)}, got {shapes_text(region.results)}")


def _parameters(f: Callable[..., Any], available: int) -> int:
    """Return how many of the results of `primal` a function takes: the roots come first."""
    kinds = [p.kind for p in inspect.signature(f).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return available
    in_order = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(available, sum(kind in in_order for kind in kinds))


def _emitted_again(b: Builder, regions: Sequence[Any], symmetric: bool) -> tuple[Tensor, ...]:
    """Emit the op itself on other tensors, so that it keeps its rule."""
    copies = [r and b.region(lambda *t, r=r: r.plain(t), r.argument_shapes) for r in regions]
    return b.emit("custom_root", (), symmetric=symmetric, regions=copies)


def _solved(
    b: Builder,
    regions: Sequence[ForwardRegion | ReverseRegion | None],
    x: Sequence[Tensor],
    sides: Sequence[Tensor],
    *,
    symmetric: bool,
    adjoint: bool = False,
) -> tuple[Tensor, ...]:
    """Return `t` with `df/dx(x)·t = sides`, or the same for the adjoint: again a root, of a function that is linear."""
    _, function, solve, other = regions
    assert function is not None and solve is not None
    transposed = adjoint and not symmetric
    if transposed:
        if other is None:
            raise Error(
                "the adjoint of its derivative has no solver", hint="give adjoint=, or use forward mode (rlx.jvp)"
            )
        solve, other = other, solve

    def applied(t: Sequence[Tensor]) -> list[Tensor | None]:
        if transposed:
            return function.pulled(x, t)  # type: ignore[union-attr]
        return function.pushed(x, t)[1]

    def residual(*t: Tensor) -> list[Tensor]:
        return [or_zeros(b, y, s.shape) - s for y, s in zip(applied(t), sides, strict=True)]

    shapes = [s.shape for s in x]

    def solver(body: ForwardRegion | ReverseRegion) -> Region:
        return b.region(lambda *t: body.plain([*x, *t[len(x) :]]), [*shapes, *shapes])

    first = b.region(lambda: solve.plain([*x, *sides]), ())
    new = [first, b.region(residual, shapes), solver(solve), None if other is None else solver(other)]
    return b.emit("custom_root", (), symmetric=symmetric, regions=new)
