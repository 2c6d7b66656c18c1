"""Matrix products by group, low-rank adaptation, and systems of linear equations."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from rlx.ir.dims.dim import Dim, minimum
from rlx.ir.dtype import COMPLEXES, FLOATS, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.contraction.contraction import Matmul, swap_last_axes
from rlx.ops.lift import cast, common, same_dtype, size_of, tensor_like
from rlx.ops.norm import statistics_input
from rlx.ops.shape.index import clamp, clamp_indices
from rlx.support.errors import ShapeError


class GroupedMatmul(Card, op="grouped_matmul"):
    def infer(self, x: Shape, w: Shape, indices: Shape) -> Shape:
        same_dtype(x, w)
        if x.rank != 2 or w.rank != 3 or x.dims[1] != w.dims[1]:
            raise ShapeError(f"expected x [M, K] and w [E, K, N], got {x} and {w}")
        if indices.dims != x.dims[:1]:
            raise ShapeError(f"indices must be [{x.dims[0]}] to go with x {x}, got {indices}")
        if w.dims[0] == 0 and x.dims[0] != 0:
            raise ShapeError(f"w {w} has no matrix to choose")
        return x.with_dims((x.dims[0], w.dims[2]))

    def requires(self, x: Shape, w: Shape, indices: Shape) -> list[tuple[Dim, str]]:
        return [(w.dims[0] - minimum(1, x.dims[0]), f"w {w} has no matrix to choose")]

    def evaluate(self, x: np.ndarray, w: np.ndarray, indices: np.ndarray) -> np.ndarray:
        result = np.zeros((x.shape[0], w.shape[2]))
        for row, chosen in enumerate(clamp(indices, w.shape[0])):
            result[row] = x[row].astype(np.float64) @ w[chosen].astype(np.float64)
        return result.astype(x.dtype)

    def decompose(self, b: Builder, x: Tensor, w: Tensor, indices: Tensor) -> Tensor:
        groups, _, columns = w.shape.dims
        return grouped_products(
            b, x, indices, (groups, columns), lambda rows, group: b.matmul(rows, b.gather(w, group))
        )

    def build(self, b: Builder, x: TensorLike, w: TensorLike, indices: TensorLike) -> Tensor:
        return b.emit("grouped_matmul", (*common(b, x, w), tensor_like(b, indices, i32)))

    linear = ("x", "w")

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> rules.Cotangents:
        (x, w, indices), (dy,) = operands, cotangents
        return (
            lambda: b.emit("grouped_matmul", (dy, swap_last_axes(b, w), indices)),
            lambda: _matrix_gradient(b, x, w.shape, indices, dy),
            None,
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim) -> Tensor:
        """If only the matrices are batched, join them into wider matrices.

        Otherwise all rows of the batch choose among all matrices of the batch.
        """
        (x, w, indices), (x_batched, w_batched, indices_batched) = operands, batched
        if not x_batched and not indices_batched:
            return rules.unfolded(
                b, b.emit("grouped_matmul", (x, rules.folded(b, w, 2), indices)), 1, size, w.shape.dims[3]
            )
        x, indices = rules.batch(b, x, x_batched, size), rules.batch(b, indices, indices_batched, size)
        if w_batched:
            groups = w.shape.dims[1]
            first = b.iota((size, 1)) * size_of(b, groups)
            w, indices = rules.folded(b, w, 0), first + _clamped(b, indices, groups)
        y = b.emit("grouped_matmul", (rules.folded(b, x, 0), w, rules.folded(b, indices, 0)))
        return rules.unfolded(b, y, 0, size, x.shape.dims[1])

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(2 * results[0].num_elements * operands[0].dims[1], moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        wide: Attributes = {"low": -2, "high": 6}  # out of range in both directions: clamped
        yield sample((7, 4), (3, 4, 5), SampleOperand((7,), "i32", **wide), dtypes=FLOATS)
        yield sample((2, 3), (4, 3, 2), SampleOperand((2,), "u8", low=0, high=4), dtypes=("f32",))
        yield sample((0, 3), (4, 3, 2), SampleOperand((0,), "i64"), dtypes=("f32",))
        yield sample(("tokens", 4), (3, 4, 5), SampleOperand(("tokens",), "i64", **wide), dtypes=("f32",))
        yield sample((40, 2), (2, 2, 3), SampleOperand((40,), "i32", low=0, high=2), dtypes=("f32",))


# The block size if the number of rows is symbolic, and the largest block size that is worth its padding.
_TYPICAL_BLOCK, _LARGEST_BLOCK = 16, 128


def grouped_products(
    b: Builder, x: Tensor, indices: Tensor, sizes: tuple[Dim, Dim], product: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return the product of each row with the matrix of its group.

    Args:
        b: The builder.
        x: The rows, `[M, K]`.
        indices: The group of each row, `[M]`.
        sizes: The number of groups, and the number of columns of a matrix.
        product: Returns the products `[block, N]` of a block of rows `[block, K]` with the matrix of a group, a scalar.
    """
    rows, (groups, columns) = x.shape.dims[0], sizes
    if rows == 0:
        return b.expand(b.constant(0.0, dtype=x.dtype), (0, columns))
    return row_blocks(b, indices, rows, groups).products(x, product)


def _matrix_gradient(b: Builder, x: Tensor, w: Shape, indices: Tensor, dy: Tensor) -> Tensor:
    """Return the cotangent of the matrices `w`: one product per block of rows, then one sum per group.

    There are about as many blocks as groups, so this takes little more memory than the cotangent itself.
    """
    (rows, inner), columns = x.shape.dims, dy.shape.dims[1]
    if rows == 0 or w.dims[0] == 0:
        return rules.zeros(b, w)
    blocks = row_blocks(b, indices, rows, w.dims[0])

    def of_blocks(rows_of: Tensor, width: Dim) -> Tensor:
        rows_in_blocks = b.where(b.reshape(blocks.occupied, (-1, 1)), b.gather(rows_of, blocks.sources), 0.0)
        return statistics_input(b, b.reshape(rows_in_blocks, (blocks.count, blocks.size, width)))

    products = b.matmul(swap_last_axes(b, of_blocks(x, inner)), of_blocks(dy, columns))
    return cast(b, b.scatter_add(products, blocks.groups, size=w.dims[0]), w.dtype)


def _clamped(b: Builder, indices: Tensor, groups: Dim) -> Tensor:
    """Return indices of any dtype as i32 in `[0, groups)`."""
    return b.cast(clamp_indices(b, indices, groups), i32)


def _block_size(rows: Dim, groups: Dim) -> int:
    """Return a power of two, about twice the rows of a group. Measured with 8 and 64 groups and 4 to 1024 rows."""
    if type(rows) is not int or type(groups) is not int:
        return _TYPICAL_BLOCK
    return min(1 << (2 * rows // groups).bit_length() - 1, _LARGEST_BLOCK) if 2 * rows > groups else 1


class RowBlocks:
    """The slots of rows when each group has its own blocks.

    A block is one product. The last block of a group may be partly filled. Multiplying all rows with every matrix would
    multiply the cost by the number of matrices. A product for each row would read one matrix per row.

    Attributes:
        size: The number of rows of a block.
        count: The number of blocks; some at the end may be unused.
        groups: `[count]`, the group of each block; beyond the last group if the block is unused.
        slots: `[rows]`, the slot of each row among the slots of all blocks.
        sources: `[count·block]`, the row in each slot; an arbitrary row if the slot is empty.
    """

    def __init__(self, b: Builder, group_of_row: Tensor, groups: Dim, block: int, count: Dim):
        self.b, self.size, self.count = b, block, count
        rows = group_of_row.shape.dims[0]
        is_in_group = b.cast(b.reshape(group_of_row, (rows, 1)) == b.iota((groups,)), i32)
        rank = b.sum(b.cumsum(is_in_group, 0, exclusive=True) * is_in_group, 1)
        block_starts, position = b.iota((count,)) * block, b.iota((count,))
        sizes = b.reshape(b.sum(is_in_group, 0), (groups, 1))
        blocks_of_group = b.sum(b.cast(block_starts < sizes, i32), 1)
        ends = b.cumsum(blocks_of_group, 0)
        self.groups = b.sum(b.cast(b.reshape(position, (count, 1)) >= ends, i32), 1)
        self.slots = b.gather(ends - blocks_of_group, group_of_row) * block + rank
        nowhere = b.expand(b.constant(0), (count * block,))
        self.sources = b.scatter_nd(nowhere, b.reshape(self.slots, (rows, 1)), b.iota((rows,)))

    @property
    def occupied(self) -> Tensor:
        """`[count·block]`, whether each slot holds a row."""
        b = self.b
        return b.gather(self.slots, self.sources) == b.iota((self.count * self.size,))

    def products(self, x: Tensor, product: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return the products of rows `[M, K]` with the matrices of their groups, `[M, N]`; see `grouped_products`."""
        b = self.b
        blocks = b.reshape(b.gather(x, self.sources), (self.count, self.size, x.shape.dims[1]))

        def step(_: None, slices: tuple[Tensor, Tensor]) -> tuple[None, Tensor]:
            return None, product(*slices)

        products = b.scan(step, None, (blocks, self.groups))[1]
        return b.gather(b.reshape(products, (self.count * self.size, products.shape.dims[2])), self.slots)


def row_blocks(b: Builder, indices: Tensor, rows: Dim, groups: Dim) -> RowBlocks:
    """Return the blocks of the rows that choose these groups."""
    block = _block_size(rows, groups)
    # There are at most as many blocks as rows, and each group has at most one partly filled block.
    return RowBlocks(b, _clamped(b, indices, groups), groups, block, minimum(rows, rows // block + groups))


class LoraMatmul(Card, op="lora_matmul"):
    def infer(self, x: Shape, w: Shape, a: Shape, b: Shape, *, scale: float) -> Shape:
        same_dtype(x, w, a, b)
        if not x.rank or w.rank != 2 or x.dims[-1] != w.dims[0]:
            raise ShapeError(f"expected x […, K] and w [K, N], got {x} and {w}")
        if a.rank != 2 or a.dims[0] != w.dims[0] or b.dims != (a.dims[1], w.dims[1]):
            k, n = w.dims
            raise ShapeError(f"expected a [{k}, R] and b [R, {n}], got {a} and {b}")
        return x.with_dims((*x.dims[:-1], w.dims[1]))

    def evaluate(self, x: np.ndarray, w: np.ndarray, a: np.ndarray, b: np.ndarray, *, scale: float) -> np.ndarray:
        wide, weight, down, up = (array.astype(np.float64) for array in (x, w, a, b))
        return np.asarray(wide @ weight + scale * (wide @ down @ up)).astype(x.dtype)

    def decompose(self, builder: Builder, x: Tensor, w: Tensor, a: Tensor, b: Tensor, *, scale: float) -> Tensor:
        base = statistics_input(builder, builder.matmul(x, w))
        change = statistics_input(builder, builder.matmul(builder.matmul(x, a), b))
        return cast(builder, base + change * scale, x.dtype)

    def build(
        self, builder: Builder, x: TensorLike, w: TensorLike, a: TensorLike, b: TensorLike, scale: float = 1.0
    ) -> Tensor:
        return builder.emit("lora_matmul", common(builder, x, w, a, b), scale=scale)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        x, _, a, _ = operands
        rank = a.dims[1]
        products = [Matmul().cost([x], [results[0]], {}), Matmul().cost([x], [x.with_dims((*x.dims[:-1], rank))], {})]
        flops = products[0].flops + products[1].flops + 2 * results[0].num_elements * (rank + 1)
        return Cost(flops, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 6), (6, 5), (6, 2), (2, 5), scale=0.5, dtypes=FLOATS)
        yield sample((6,), (6, 5), (6, 2), (2, 5), dtypes=("f32",))
        yield sample((3, 6), (6, 5), (6, 0), (0, 5), dtypes=("f32",))
        yield sample(("batch", "seq", 6), (6, 5), (6, 2), (2, 5), scale=2.0, dtypes=("f32",))


# --- systems of linear equations --------------------------------------------------------------------


class _Solve(Card):
    def build(self, builder: Builder, a: TensorLike, b: TensorLike) -> Tensor:
        return builder.emit(self.name, common(builder, a, b))

    def jvp(self, builder: Builder, operands: Tensors, tangents: Tangents, results: Tensors) -> Tensor:
        """Differentiate `a·x = b`: `da·x + a·dx = db`."""
        (a, _), (da, db), (x,) = operands, tangents, results
        if da is not None:
            moved = builder.reshape(builder.matmul(da, _as_columns(builder, x, a.rank)), x.shape.dims)
            db = -moved if db is None else db - moved
        return builder.emit(self.name, (a, db))

    def vjp(self, builder: Builder, operands: Tensors, results: Tensors, cotangents: Tensors) -> rules.Cotangents:
        (a, _), (x,), (dx,) = operands, results, cotangents
        db = builder.emit(self.name, (builder.conjugate(swap_last_axes(builder, a)), dx))

        def of_matrix() -> Tensor:
            columns, solved = (_as_columns(builder, t, a.rank) for t in (db, x))
            return -builder.matmul(columns, builder.conjugate(swap_last_axes(builder, solved)))

        return of_matrix, db


def _as_columns(b: Builder, x: Tensor, rank: int) -> Tensor:
    """Return a right-hand side as a matrix, even if it is a vector."""
    return x if x.rank == rank else b.reshape(x, (*x.shape.dims, 1))


class BatchedDenseSolve(_Solve, op="batched_dense_solve"):
    """Gaussian elimination with partial pivoting. Among equally large pivots the first is taken."""

    def infer(self, a: Shape, b: Shape) -> Shape:
        same_dtype(a, b)
        if a.rank != 3 or a.dims[1] != a.dims[2]:
            raise ShapeError(f"a must be [B, N, N], got {a}")
        if b.rank not in (2, 3) or b.dims[:2] != a.dims[:2]:
            batch, size = a.dims[:2]
            raise ShapeError(f"b must be [{batch}, {size}] or [{batch}, {size}, K] to go with a {a}, got {b}")
        return b

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        matrices, given = a.astype(wide), b.astype(wide)
        solved = [solution(*pair) for pair in zip(matrices, given, strict=True)]
        return np.array(solved).reshape(b.shape).astype(b.dtype)

    def decompose(self, builder: Builder, a: Tensor, b: Tensor) -> Tensor:
        batch, size = b.shape.dims[:2]
        columns = 1 if b.rank == 2 else b.shape.dims[2]
        if 0 in (size, columns):
            return b
        matrix, wide = (
            statistics_input(builder, a),
            statistics_input(builder, builder.reshape(b, (batch, size, columns))),
        )
        if type(size) is int and size > _LARGEST_ELIMINATED:
            return cast(builder, builder.reshape(_factored(builder, matrix, wide), b.shape.dims), b.dtype)
        if type(size) is not int:
            matrix, wide = _with_one_more(builder, matrix, wide)
        upper = _eliminated(builder, builder.concat([matrix, wide], axis=2))
        x = builder.narrow(_substituted(builder, upper), 1, 0, size)
        return cast(builder, builder.reshape(x, b.shape.dims), b.dtype)

    def vmap(self, builder: Builder, operands: Tensors, batched: Flags, *, size: Dim) -> Tensor:
        """If only the right-hand sides are batched, join them as columns. Otherwise the batch becomes additional systems."""
        (a, b), (a_batched, b_batched) = operands, batched
        if not a_batched:
            return _more_columns(builder, self.name, a, b)
        b = rules.batch(builder, b, b_batched, size)
        x = builder.emit(self.name, (rules.folded(builder, a, 0), rules.folded(builder, b, 0)))
        return rules.unfolded(builder, x, 0, size, a.shape.dims[1])

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        size = operands[0].dims[1]
        flops = 2 * size * (operands[0].num_elements + 2 * results[0].num_elements)
        return Cost(flops, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((2, 4, 4), (2, 4, 3), dtypes=(*FLOATS, *COMPLEXES))
        yield sample((3, 3, 3), (3, 3), dtypes=("f32",))
        yield sample((2, 0, 0), (2, 0, 3), dtypes=("f32",))
        yield sample(("batch", 3, 3), ("batch", 3, "columns"), dtypes=("f32",))


class DenseSolve(_Solve, op="dense_solve"):
    def infer(self, a: Shape, b: Shape) -> Shape:
        same_dtype(a, b)
        if a.rank != 2 or a.dims[0] != a.dims[1]:
            raise ShapeError(f"a must be [N, N], got {a}")
        if b.rank not in (1, 2) or b.dims[:1] != a.dims[:1]:
            raise ShapeError(f"b must be [{a.dims[0]}] or [{a.dims[0]}, K] to go with a {a}, got {b}")
        return b

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return BatchedDenseSolve().evaluate(a[None], b[None])[0]

    def decompose(self, builder: Builder, a: Tensor, b: Tensor) -> Tensor:
        batch = [builder.reshape(t, _batch_of_one(t.shape).dims) for t in (a, b)]
        return builder.reshape(builder.batched_dense_solve(*batch), b.shape.dims)

    def vmap(self, builder: Builder, operands: Tensors, batched: Flags, *, size: Dim) -> Tensor:
        (a, b), (a_batched, b_batched) = operands, batched
        if not a_batched:
            return _more_columns(builder, self.name, a, b)
        return builder.emit("batched_dense_solve", (a, rules.batch(builder, b, b_batched, size)))

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return BatchedDenseSolve().cost(
            [_batch_of_one(s) for s in operands], [_batch_of_one(s) for s in results], attributes
        )

    def samples(self) -> Iterable[OpSample]:
        yield sample((4, 4), (4,), dtypes=(*FLOATS, *COMPLEXES))
        yield sample((1, 1), (1, 2), dtypes=("f32",))
        yield sample((2, 2), (2, 0), dtypes=("f32",))
        yield sample((0, 0), (0,), dtypes=("f32",))
        yield sample(("n", "n"), ("n", 2), dtypes=("f32",))


def _more_columns(builder: Builder, name: str, a: Tensor, b: Tensor) -> Tensor:
    """Solve for a batch of right-hand sides (the leading axis of `b`) as columns of one right-hand side."""
    size, *dims = b.shape.dims
    columns = _as_columns(builder, b, a.rank + 1)
    x = builder.emit(name, (a, rules.folded(builder, columns, a.rank - 1)))
    return builder.reshape(rules.unfolded(builder, x, a.rank - 1, size, columns.shape.dims[-1]), (size, *dims))


def _batch_of_one(shape: Shape) -> Shape:
    """Return the shape with a leading batch axis of size 1."""
    return shape.with_dims((1, *shape.dims))


def solution(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the solution of one system of f64 or c128."""
    size = len(a)
    upper = np.concatenate([a, b.reshape(size, b[0].size if size else 0)], 1)
    for step in range(size):
        pivot = step + int(np.argmax(np.abs(upper[step:, step])))
        upper[[step, pivot]] = upper[[pivot, step]]
        below = upper[step + 1 :]
        below -= below[:, step : step + 1] / upper[step, step] * upper[step]
    x = np.zeros_like(upper[:, size:])
    for step in reversed(range(size)):
        substituted = upper[step, step + 1 : size] @ x[step + 1 :]
        x[step] = (upper[step, size:] - substituted) / upper[step, step]
    return x.reshape(b.shape)


def _with_one_more(b: Builder, a: Tensor, wide: Tensor) -> tuple[Tensor, Tensor]:
    """Add one unknown to each system, which is 0 and in no other equation.

    Thus a system is not empty even if its symbolic size is 0.
    """
    batch, size, columns = wide.shape.dims
    zero, one = b.constant(0.0, dtype=a.dtype), b.constant(1.0, dtype=a.dtype)
    square = b.concat([a, b.expand(zero, (batch, 1, size))], axis=1)
    last = b.concat([b.expand(zero, (batch, size, 1)), b.expand(one, (batch, 1, 1))], axis=1)
    return b.concat([square, last], axis=2), b.concat([wide, b.expand(zero, (batch, 1, columns))], axis=1)


# The largest matrix that is eliminated together with its right-hand side. Larger ones are factorised in blocks.
_LARGEST_ELIMINATED = 64


def _factored(b: Builder, a: Tensor, right: Tensor) -> Tensor:
    """Return the solutions `[B, N, K]` of systems by the factors of `lu`."""
    packed, _, order = b.lu(a)
    given = b.gather_batched(right, order, axis=1)
    return b.triangular_solve(packed, b.triangular_solve(packed, given, unit_diagonal=True), lower=False)


def _eliminated(b: Builder, augmented: Tensor) -> Tensor:
    """Return `[B, N, N + K]` with the matrix made triangular. The elements below the diagonal are undefined."""
    rows = augmented.shape.dims[1]
    position = b.iota((rows,))

    def eliminate(m: Tensor, step: Tensor) -> tuple[Tensor, None]:
        column = b.gather(m, step, axis=2)
        sizes = b.where(position >= step, b.abs(column), -1.0)
        pivot = b.argmax(sizes, 1, keep_dims=True)
        pivot_row, step_row = b.gather_batched(m, pivot, axis=1), b.gather(m, b.reshape(step, (1,)), axis=1)
        pivot_value, step_value = (b.gather(row, step, axis=2) for row in (pivot_row, step_row))
        is_pivot = position == pivot
        factors = b.where(is_pivot, step_value, column) / pivot_value
        is_pivot, is_step, is_below = (
            b.reshape(mask, (*mask.shape, 1)) for mask in (is_pivot, position == step, position > step)
        )
        swap_last_axes = b.where(is_step, pivot_row, b.where(is_pivot, step_row, m))
        return b.where(
            is_below, swap_last_axes - b.reshape(factors, (*factors.shape, 1)) * pivot_row, swap_last_axes
        ), None

    return b.scan(eliminate, augmented, position)[0]


def _substituted(b: Builder, upper: Tensor) -> Tensor:
    """Return the solutions `[B, N, K]` of triangular systems `[B, N, N + K]`, from the last row up."""
    batch, size, width = upper.shape.dims
    columns = width - size
    position = b.iota((size,))

    def substitute(x: Tensor, step: Tensor) -> tuple[Tensor, None]:
        row = b.gather(upper, step, axis=1)
        # Unsolved elements of x are 0, but the row may be infinite there.
        factors = b.where(position > step, b.narrow(row, 1, 0, size), 0.0)
        substituted = b.sum(b.reshape(factors, (batch, size, 1)) * x, 1)
        value = (b.narrow(row, 1, size, columns) - substituted) / b.gather(row, b.reshape(step, (1,)), axis=1)
        return b.where(b.reshape(position == step, (size, 1)), b.reshape(value, (batch, 1, columns)), x), None

    start = b.expand(b.constant(0.0, dtype=upper.dtype), (batch, size, columns))
    return b.scan(substitute, start, position, reverse=True)[0]
