"""Checkpoints: regions that the backward pass computes again, so that their values need not be stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import EVERY, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.evaluate import EvaluatedRegion
from rlx.ir.graph.regions import Region
from rlx.ir.graph.typing import Flags, Tangents, TensorLike, Tensors
from rlx.ir.op import opview
from rlx.ir.op.card import Attributes, Card, Cost, Groups, OpSample, Shapes, sample
from rlx.ir.op.opview import RegionShapes
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.control.control import expect_arguments, flat, like, present
from rlx.ops.lift import tensor_like
from rlx.support.errors import ShapeError

if TYPE_CHECKING:
    from rlx.transforms.batching import BatchedRegion
    from rlx.transforms.forward import ForwardRegion
    from rlx.transforms.reverse import ReverseRegion


class Checkpoint(Card, op="checkpoint"):
    def infer(self, *, regions: Sequence[RegionShapes | None]) -> tuple[Shape, ...]:
        body = present(regions[0], "body_region")
        expect_arguments(body, (), "body_region")
        return body.results

    def evaluate(self, *, regions: Sequence[EvaluatedRegion]) -> tuple[np.ndarray, ...]:
        return tuple(regions[0]())

    def decompose(self, b: Builder, *, regions: Sequence[Any]) -> tuple[Tensor, ...]:
        return tuple(b.inline(regions[0], []))

    def build(self, b: Builder) -> contextlib.AbstractContextManager[None]:
        """`with g.checkpoint():` puts all ops that are built inside the block into one region.

        Reverse mode stores only the values that the region uses from outside, and runs the region again (Griewank,
        "Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation").
        """
        return _checkpointed(b)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)  # the cost is that of the ops in its region

    def pushforward(
        self, b: Builder, operands: Tensors, tangents: Tangents, *, regions: Sequence[ForwardRegion]
    ) -> rules.ResultsAndTangents:
        (body,) = regions
        moving = body.moving([])

        def inside() -> list[Tensor]:
            results, moved = body.run([], [])
            filled = [rules.or_zeros(b, t, r.shape) for t, r, m in zip(moved, results, moving, strict=True) if m]
            return [*results, *filled]

        outputs = recomputed(b, inside)
        remaining = iter(outputs[len(moving) :])
        return outputs[: len(moving)], [next(remaining) if m else None for m in moving]

    def pullback(
        self, b: Builder, operands: Tensors, wanted: Flags, *, regions: Sequence[ReverseRegion]
    ) -> rules.ResultsAndPullback:
        (body,) = regions
        results = recomputed(b, lambda: body.forward([], [])[0])

        def pull(cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
            """Compute the ops again once the cotangents exist, then go back through them."""
            # Parameters and states stay in memory in any case. Values that depend only on them may be shared with the
            # forward pass.
            recomputed = [i for i, t in enumerate(body.captures) if not b.is_weight(t.value)]
            captures = list(body.captures)
            fenced = barrier(b, [captures[i] for i in recomputed], [c for c in cotangents if c is not None])
            for i, value in zip(recomputed, fenced, strict=True):
                captures[i] = value
            _, pull_back = body.vjp([], [], captures=captures)
            return pull_back(cotangents)[1]

        return results, pull

    def vmap(
        self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, regions: Sequence[BatchedRegion]
    ) -> tuple[Tensor, ...]:
        (body,) = regions
        result_flags = [True] * len(body.batched([]))
        return recomputed(b, lambda: body([], [], result_flags))

    def samples(self) -> Iterable[OpSample]:
        def normal(b: Builder, x: Tensor, w: Tensor) -> object:
            with b.checkpoint():
                h = b.where(x == x, x, w)
                y = b.where(h != h, w, h)
            return y, h

        def layer(b: Builder, x: Tensor, w: Tensor) -> object:
            with b.checkpoint():
                y = b.tanh(x @ w) @ w
            return y

        yield sample((2, 3), (2, 3), build=normal, dtypes=EVERY)
        yield sample(("n", 3), (3, 3), build=layer, dtypes=("f32",))


@contextlib.contextmanager
def _checkpointed(b: Builder) -> Generator[None]:
    with b.scratchpad():  # after an error inside, the unfinished region is dropped
        holder, block = b.open_region(())
        with b.at(mlir.ir.InsertionPoint(block)), b.recorded() as emitted:
            yield
            # Tensors are sorted by type: within a group of values the type may change only a few times.
            yielded = sorted((t for t in emitted if opview.home_of(t.value) == block), key=lambda t: str(t.value.type))
            b.emit("yield", (yielded,))
        region = Region(holder, block, RegionShapes((), tuple(t.shape for t in yielded)))
        for tensor, result in zip(yielded, b.emit("checkpoint", (), regions=[region]), strict=True):
            tensor.value = result.value


def recomputed(b: Builder, emit: Callable[[], Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """Return the values of a checkpoint over the ops that a function emits."""
    return tuple(b.emit("checkpoint", (), regions=[b.region(emit, ())]))


def barrier(b: Builder, values: Sequence[Tensor], after: Sequence[Tensor]) -> list[Tensor]:
    """Return the same values after one `optimization_barrier`."""
    order = sorted(range(len(values)), key=lambda i: str(values[i].value.type))
    late = sorted(after, key=lambda t: str(t.value.type))
    fenced = b.emit("optimization_barrier", ([values[i] for i in order], late))
    by_position = dict(zip(order, fenced, strict=True))
    return [by_position[i] for i in range(len(values))]


class OptimizationBarrier(Card, op="optimization_barrier"):
    def infer(self, inputs: list[Shape], after: list[Shape]) -> tuple[Shape, ...]:
        if not after:
            raise ShapeError("expected at least one tensor in 'after'")
        return tuple(inputs)

    def evaluate(self, inputs: list[np.ndarray], after: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        return tuple(inputs)

    def aliases(self, operands: Shapes, results: Shapes, attributes: Attributes) -> list[tuple[int, int] | None]:
        return [(i, 0) for i in range(len(results))]

    def decompose(self, b: Builder, inputs: list[Tensor], after: list[Tensor]) -> tuple[Tensor, ...]:
        """Emit a `where` whose condition is always true.

        The condition reads an element of each of `after`, so no compiler can prove that it is true. Barriers of
        compilers do not help: XLA's CPU client drops its barrier before it merges equal ops, and IREE treats the result
        of its barrier as a value that it may overwrite.
        """
        holds: Tensor | None = None
        for tensor in after:
            always_true = _always(b, tensor)
            holds = always_true if holds is None else b.minimum(holds, always_true)
        assert holds is not None
        return tuple(b.where(holds, x, rules.zeros(b, x.shape)) for x in inputs)

    def build(self, b: Builder, inputs: Sequence[TensorLike], after: Sequence[TensorLike]) -> Any:
        tensors = [[tensor_like(b, x, f32) for x in flat(group)] for group in (inputs, after)]
        return like(inputs, b.emit("optimization_barrier", tensors))

    def jvp(self, b: Builder, operands: Groups, tangents: Groups, results: Tensors) -> tuple[Tensor | None, ...]:
        return tuple(tangents[0])

    def vjp(self, b: Builder, operands: Groups, results: Tensors, cotangents: Tangents) -> rules.Cotangents:
        return list(cotangents), None

    def vmap(self, b: Builder, operands: Groups, batched: Groups, *, size: Dim) -> tuple[Tensor, ...]:
        full = [rules.batch(b, x, is_batched, size) for x, is_batched in zip(operands[0], batched[0], strict=True)]
        return tuple(b.emit("optimization_barrier", (full, operands[1])))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, 0)

    def samples(self) -> Iterable[OpSample]:
        yield sample([(2, 3), (2, 3), (4,)], [(2, 2)], dtypes=EVERY)
        yield sample([("n", 3)], [("n",), ()], dtypes=("f32",))


def _always(b: Builder, x: Tensor) -> Tensor:
    """Return a scalar that is always true, computed from an element of a tensor, or from its size if it may be empty."""
    if any(type(d) is not int or d == 0 for d in x.shape.dims):
        x = b.sum(b.cast(x, f32)) if not x.dtype.is_inexact else b.sum(x)
    else:
        x = b.reshape(b.slice(x, (0,) * x.rank, (1,) * x.rank), ())
    if x.dtype.is_complex:
        x = b.real(x)
    elif not x.dtype.is_float:
        x = b.cast(x, f32)
    return (b.abs(x) >= 0.0) | (x != x)
