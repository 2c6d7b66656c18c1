"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, Tensors
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.lift import cast, same_dtype
from rlx.ops.norm import statistics_input
from rlx.support.errors import ShapeError


@dataclass(frozen=True)
class RopeLayout(ArgumentGroup):
    """The lanes that a `rope` rotates: of each head of `head_dim` the first `n_rot`, in pairs by the style."""

    head_dim: int
    n_rot: int
    style: str


class Rope(Card, op="rope"):
    def infer(self, x: Shape, cos: Shape, sin: Shape, *, layout: RopeLayout) -> Shape:
        head_dim, n_rot = layout.head_dim, layout.n_rot
        same_dtype(x, cos, sin)
        if x.rank not in (3, 4) or head_dim < 1:
            raise ShapeError(f"x must be [B, S, H·D] or [B, H, S, D], got {x}")
        width = x.dims[-1]
        if type(width) is not int or (width % head_dim if x.rank == 3 else width != head_dim):
            raise ShapeError(f"{x} does not hold heads of {head_dim}")
        if n_rot % 2 or not 0 <= n_rot <= head_dim:
            raise ShapeError(f"n_rot = {n_rot} must be even and at most head_dim = {head_dim}")
        length = x.dims[1] if x.rank == 3 else x.dims[2]
        tables = ((length, n_rot // 2), (x.dims[0], length, n_rot // 2))
        if cos.dims != sin.dims or cos.dims not in tables:
            raise ShapeError(f"cos {cos} and sin {sin} must be [{length}, {n_rot // 2}] (or with the batch before it)")
        return x

    def evaluate(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, layout: RopeLayout) -> np.ndarray:
        head_dim, n_rot, style = layout.head_dim, layout.n_rot, layout.style
        heads = x.astype(np.float64)
        if x.ndim == 3:
            heads = heads.reshape(*x.shape[:2], x.shape[2] // head_dim, head_dim)
        half = n_rot // 2
        first, second = (
            (slice(0, half), slice(half, n_rot)) if style == "neox" else (slice(0, n_rot, 2), slice(1, n_rot, 2))
        )
        a, c = heads[..., first], heads[..., second]
        cosine, sine = (np.expand_dims(t.astype(np.float64), -2 if x.ndim == 3 else -3) for t in (cos, sin))
        result = heads.copy()
        result[..., first] = a * cosine - c * sine
        result[..., second] = c * cosine + a * sine
        return result.reshape(x.shape).astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, cos: Tensor, sin: Tensor, *, layout: RopeLayout) -> Tensor:
        head_dim, n_rot = layout.head_dim, layout.n_rot
        if n_rot == 0:
            return x + b.constant(0.0, dtype=x.dtype)
        lanes = _lanes(b, x, layout)
        result = cast(b, _rotated(b, lanes, _tables(b, x, cos, sin), layout.style), x.dtype)
        if n_rot < head_dim:
            result = b.concat([result, b.narrow(_heads(b, x, head_dim), -1, n_rot, head_dim - n_rot)], -1)
        return b.reshape(result, x.shape.dims)

    def build(
        self,
        b: Builder,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        head_dim: int,
        n_rot: int | None = None,
        style: str = "neox",
    ) -> Tensor:
        lanes = head_dim if n_rot is None else n_rot
        return b.emit("rope", (x, cos, sin), head_dim=head_dim, n_rot=lanes, style=style)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors, *, layout: RopeLayout
    ) -> Tensor | None:
        (x, cos, sin), (dx, dcos, dsin) = operands, tangents
        attributes = layout.named
        if dx is not None and dcos is None and dsin is None:
            return b.rope(dx, cos, sin, **attributes)
        turned = None if dx is None else b.rope(dx, cos, sin, **attributes)
        if layout.n_rot == 0:
            return turned
        tables = [rules.or_zeros(b, d, t.shape) for d, t in ((dcos, cos), (dsin, sin))]
        moved = _rotated(b, _lanes(b, x, layout), _tables(b, x, *tables), layout.style)
        moved = b.pad(cast(b, moved, x.dtype), [*((0, 0),) * 3, (0, layout.head_dim - layout.n_rot)])
        return rules.total(b, (turned, b.reshape(moved, x.shape.dims)))

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, layout: RopeLayout
    ) -> rules.Cotangents:
        (x, cos, sin), (dy,) = operands, cotangents

        def of_table(table: Tensor, is_sine: bool) -> Tensor | None:
            """Return the cotangent of a table: the products of its lanes with their cotangents, summed over heads."""
            if layout.n_rot == 0:
                return None
            (first, second), (dfirst, dsecond) = (_lanes(b, t, layout) for t in (x, dy))
            slope = first * dsecond - second * dfirst if is_sine else first * dfirst + second * dsecond
            of_heads = b.sum(slope, 2 if x.rank == 3 else 1)  # [B, S, half]
            if table.rank == 2:
                of_heads = b.sum(of_heads, 0)
            return cast(b, of_heads, table.dtype)

        return (
            lambda: b.rope(dy, cos, -sin, **layout.named),
            lambda: of_table(cos, False),
            lambda: of_table(sin, True),
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, **attributes: Any) -> Tensor:
        (x, *tables), (x_batched, *tables_batched) = operands, batched
        x = rules.batch(b, x, x_batched, size)
        rows = x.shape.dims[1]
        if any(tables_batched) or tables[0].rank == 3:
            tables = [_for_all_rows(b, t, o, size, rows) for t, o in zip(tables, tables_batched, strict=True)]
        result = b.emit("rope", (rules.folded(b, x, 0), *tables), **attributes)
        return rules.unfolded(b, result, 0, size, rows)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(3 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 3, 8), (3, 2), (3, 2), head_dim=4, n_rot=4, dtypes=FLOATS)
        yield sample((2, 2, 3, 6), (3, 2), (3, 2), head_dim=6, n_rot=4, dtypes=FLOATS)
        yield sample((2, 3, 8), (2, 3, 2), (2, 3, 2), head_dim=4, n_rot=4, style="gptj", dtypes=("f32",))
        yield sample((2, 2, 3, 6), (3, 2), (3, 2), head_dim=6, n_rot=4, style="gptj", dtypes=("f32",))
        yield sample((2, 3, 8), (3, 0), (3, 0), head_dim=4, n_rot=0, dtypes=("f32",))
        yield sample(("b", "s", 8), ("s", 2), ("s", 2), head_dim=4, n_rot=4, dtypes=("f32",))


# --- lanes and tables -------------------------------------------------------------------------------


def _heads(b: Builder, x: Tensor, head_dim: int) -> Tensor:
    """Return packed heads as `[B, S, H, D]`; other layouts stay `[B, H, S, D]`."""
    dims = x.shape.dims
    return b.reshape(x, (*dims[:2], dims[2] // head_dim, head_dim)) if x.rank == 3 else x


def _lanes(b: Builder, x: Tensor, layout: RopeLayout) -> tuple[Tensor, Tensor]:
    """Return the pairs of lanes that are rotated together, both `[…, n_rot/2]`; f16 and bf16 are widened to f32."""
    head_dim, n_rot = layout.head_dim, layout.n_rot
    heads, half = _heads(b, x, head_dim), n_rot // 2
    rotated = statistics_input(b, b.narrow(heads, -1, 0, n_rot) if n_rot < head_dim else heads)
    if layout.style == "neox":
        return b.narrow(rotated, -1, 0, half), b.narrow(rotated, -1, half, half)
    pairs = b.reshape(rotated, (*rotated.shape.dims[:-1], half, 2))
    return pairs[..., 0], pairs[..., 1]


def _rotated(b: Builder, lanes: tuple[Tensor, Tensor], tables: tuple[Tensor, Tensor], style: str) -> Tensor:
    """Return the rotated lanes in their original order: `[…, n_rot]`."""
    (first, second), (cosine, sine) = lanes, tables
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    if style == "neox":
        return b.concat(turned, -1)
    *dims, half = turned[0].shape.dims
    return b.reshape(b.concat([b.reshape(t, (*dims, half, 1)) for t in turned], -1), (*dims, 2 * half))


def _tables(b: Builder, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return both tables in a shape that broadcasts against `[B, S, H, half]` (packed x) or `[B, H, S, half]`."""

    def table(vectors: Tensor) -> Tensor:
        *batch, length, half = vectors.shape.dims
        dims = (*batch, length, 1, half) if x.rank == 3 else (*batch, 1, length, half)
        return b.reshape(statistics_input(b, vectors), dims)

    return table(cos), table(sin)


def _for_all_rows(b: Builder, table: Tensor, batched: bool, size: Dim, rows: Dim) -> Tensor:
    """Return a table for each row of each entry of a batch: `[size·rows, S, half]`."""
    tables = rules.batch(b, table, batched, size)
    if tables.rank == 3:
        entries, *dims = tables.shape.dims
        tables = b.expand(b.reshape(tables, (entries, 1, *dims)), (entries, rows, *dims))
    return rules.folded(b, tables, 0)
