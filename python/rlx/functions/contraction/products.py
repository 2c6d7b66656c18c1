"""Tensor products with NumPy's names: `dot`, `inner`, `tensordot`, `kron`, `cross` and others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from rlx.functions.shape.arrange import moveaxis, ravel
from rlx.functions.shape.make import diagonal
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import axis_of, broadcast, common
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import INTEGERS


def _conjugate(b: Builder, x: Tensor) -> Tensor:
    return b.conjugate(x) if x.dtype.is_complex else x


@helper
def dot(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `dot`: the sum over the last axis of `lhs` and the second to last axis (or only axis) of `rhs`.

    Args:
        b: The builder.
        lhs: `[…, K]`, or a scalar, which multiplies.
        rhs: `[K]` or `[…, K, N]`, or a scalar. `matmul` treats the other axes as a shared batch; `dot` keeps the other
            axes of both operands.
    """
    lhs, rhs = common(b, lhs, rhs)
    if not lhs.rank or not rhs.rank:
        return b.mul(lhs, rhs)
    return b.dot_general(lhs, rhs, (-1,), (-1 if rhs.rank == 1 else -2,))


@helper
def inner(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `inner`: the sum over the last axes of both, `[…, K]` and `[…, K]`. A scalar multiplies."""
    lhs, rhs = common(b, lhs, rhs)
    return b.dot_general(lhs, rhs, (-1,), (-1,)) if lhs.rank and rhs.rank else b.mul(lhs, rhs)


@helper
def vdot(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `vdot`: the scalar sum of the products of all elements, with `lhs` conjugated."""
    lhs, rhs = common(b, lhs, rhs)
    return b.dot_general(ravel(b, _conjugate(b, lhs)), ravel(b, rhs), (0,), (0,))


@helper
def vecdot(b: Builder, lhs: TensorLike, rhs: TensorLike, axis: int = -1) -> Tensor:
    """The array API's `vecdot`: the sum of products along one axis, with `lhs` conjugated; other axes broadcast."""
    lhs, rhs = common(b, lhs, rhs)
    left = moveaxis(b, _conjugate(b, lhs), axis_of(axis, lhs.rank), -1)
    right = moveaxis(b, rhs, axis_of(axis, rhs.rank), -1)
    if left.shape.dims[-1] != right.shape.dims[-1]:
        raise ShapeError(f"axis {axis} of {lhs.shape} and of {rhs.shape} have different sizes")
    outer = broadcast(left.shape.dims[:-1], right.shape.dims[:-1])
    left, right = (b.expand(x, (*outer, x.shape.dims[-1])) for x in (left, right))
    batch = tuple(range(len(outer)))
    return b.dot_general(left, right, (-1,), (-1,), batch, batch)


@helper
def tensordot(b: Builder, lhs: TensorLike, rhs: TensorLike, axes: int | Sequence[Any] = 2) -> Tensor:
    """NumPy's `tensordot`: the sum over several axes of both.

    Args:
        b: The builder.
        lhs: Any tensor.
        rhs: Any tensor.
        axes: The number of axes to contract: the last ones of `lhs` with the first ones of `rhs`. Or a pair: the axes
            of `lhs`, the axes of `rhs`.

    Raises:
        ShapeError: There are not that many axes, or their sizes differ.
    """
    lhs, rhs = common(b, lhs, rhs)
    pair: Any = axes
    if isinstance(axes, INTEGERS):
        count = int(axes)
        if not 0 <= count <= min(lhs.rank, rhs.rank):
            raise ShapeError(f"axes = {count}, but {lhs.shape} and {rhs.shape} have {lhs.rank} and {rhs.rank} axes")
        left, right = range(lhs.rank - count, lhs.rank), range(count)
    else:
        pair = list(pair)
        if len(pair) != 2:
            raise ShapeError(f"axes is a number or a pair of lists, not {axes!r}")
        sides: list[list[Any]] = [[side] if isinstance(side, INTEGERS) else list(side) for side in pair]
        left, right = sides
    return b.dot_general(lhs, rhs, tuple(left), tuple(right))


@helper
def kron(b: Builder, lhs: TensorLike, rhs: TensorLike) -> Tensor:
    """NumPy's `kron`: the Kronecker product. A tensor of lower rank gets leading axes of size 1."""
    lhs, rhs = common(b, lhs, rhs)
    rank = max(lhs.rank, rhs.rank)
    left, right = ((1,) * (rank - x.rank) + tuple(x.shape.dims) for x in (lhs, rhs))
    spread = b.reshape(lhs, tuple(chain.from_iterable((d, 1) for d in left)))
    within = b.reshape(rhs, tuple(chain.from_iterable((1, d) for d in right)))
    return b.reshape(b.mul(spread, within), [m * n for m, n in zip(left, right, strict=True)])


@helper
def cross(b: Builder, lhs: TensorLike, rhs: TensorLike, axis: int = -1) -> Tensor:
    """NumPy's `cross`: the vector product along an axis of size 3; other axes broadcast.

    Raises:
        ShapeError: The axis does not have size 3.
    """
    lhs, rhs = common(b, lhs, rhs)
    vectors = [moveaxis(b, x, axis_of(axis, x.rank), 0) for x in (lhs, rhs)]
    for x, vector in zip((lhs, rhs), vectors, strict=True):
        if vector.shape.dims[0] != 3:
            raise ShapeError(f"axis {axis} of {x.shape} has to have size 3", hint="axis=… names the one that has")
    (ax, ay, az), (bx, by, bz) = ([v[i] for i in range(3)] for v in vectors)
    parts = [ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx]
    return moveaxis(b, b.stack(parts, axis=0), 0, axis)


@helper
def trace(b: Builder, x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """NumPy's `trace`: the sum of diagonal `offset` of the matrices formed by two axes."""
    return b.sum(diagonal(b, x, offset, axis1, axis2), -1)
