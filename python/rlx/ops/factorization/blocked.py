"""Factorisations and triangular systems in blocks of columns or rows: loops whose work is in matrix products.

A block is a step of a loop, so that the code does not grow with the matrix. Sizes are padded to whole blocks with an
identity, which does not change the other elements.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops import rules
from rlx.ops.factorization.matrices import adjoint, order_of

PanelFactors = Callable[[Builder, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]

# The columns of a block, and the largest size that is factorised in one block. Measured with sizes from 32 to 512.
BLOCK, LARGEST = 32, 64


def blocks_of(size: int) -> int:
    """Return the number of blocks of a size."""
    return -(-size // BLOCK)


def padded(b: Builder, a: Tensor) -> Tensor:
    """Pad square matrices `[B, N, N]` to whole blocks, with ones on the diagonal."""
    size, _ = order_of(a.shape, square=True)
    more = blocks_of(size) * BLOCK - size
    if not more:
        return a
    last = b.constant(1.0, dtype=a.dtype) * b.cast(b.iota((size + more,), dtype="i32") >= size, a.dtype)
    return b.pad(a, [(0, 0), (0, more), (0, more)]) + b.eye(size + more, dtype=a.dtype) * last


def rows_of(b: Builder, a: Tensor, block: Tensor) -> Tensor:
    """Return the rows of a block, `[B, BLOCK, N]`."""
    return b.gather(a, block * BLOCK + b.iota((BLOCK,), dtype="i32"), axis=1)


def columns_in_blocks(b: Builder, a: Tensor) -> Tensor:
    """Return the blocks of the columns of matrices `[B, M, N]`, `[N / BLOCK, B, M, BLOCK]`."""
    batch, (rows, columns) = a.shape.dims[0], order_of(a.shape, square=False)
    return b.transpose(b.reshape(a, (batch, rows, blocks_of(columns), BLOCK)), (2, 0, 1, 3))


def with_columns(b: Builder, a: Tensor, panel: Tensor, block: Tensor) -> Tensor:
    """Replace the columns of a block by a panel `[B, M, BLOCK]`."""
    batch, (rows, columns) = a.shape.dims[0], order_of(a.shape, square=False)
    count = blocks_of(columns)
    is_here = b.reshape(b.iota((count,), dtype="i32") == block, (count, 1))
    parts = b.reshape(a, (batch, rows, count, BLOCK))
    return b.reshape(b.where(is_here, b.reshape(panel, (batch, rows, 1, BLOCK)), parts), a.shape.dims)


def with_rows(b: Builder, a: Tensor, panel: Tensor, block: Tensor) -> Tensor:
    """Replace the rows of a block by a panel `[B, BLOCK, N]`."""
    batch, (rows, columns) = a.shape.dims[0], (a.shape.dims[1], a.shape.dims[2])
    assert type(rows) is int
    count = blocks_of(rows)
    is_here = b.reshape(b.iota((count,), dtype="i32") == block, (count, 1, 1))
    parts = b.reshape(a, (batch, count, BLOCK, columns))
    return b.reshape(b.where(is_here, b.reshape(panel, (batch, 1, BLOCK, columns)), parts), a.shape.dims)


def cholesky(b: Builder, a: Tensor) -> Tensor:
    """Return the lower factors of Hermitian matrices `[B, N, N]`: a product per block, then one column per step."""
    size, _ = order_of(a.shape, square=True)
    whole = padded(b, a)

    def of_block(factor: Tensor, panel_of: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        panel, block = panel_of
        rest = panel - b.matmul(factor, adjoint(b, rows_of(b, factor, block)))
        return with_columns(b, factor, _cholesky_panel(b, rest, block), block), ()

    steps = (columns_in_blocks(b, whole), b.iota((blocks_of(size),), dtype="i32"))
    factor, _ = b.scan(of_block, rules.zeros(b, whole.shape), steps)
    return b.narrow(b.narrow(factor, 1, 0, size), 2, 0, size)


def _cholesky_panel(b: Builder, panel: Tensor, block: Tensor) -> Tensor:
    """Return columns of the factor `[B, N, BLOCK]`, from those of the matrix less the products of the earlier ones."""
    batch, size = panel.shape.dims[:2]
    places, columns = b.iota((size,), dtype="i32"), b.iota((BLOCK,), dtype="i32")
    own_places = block * BLOCK + columns

    def eliminate(kept: Tensor, step: Tensor) -> tuple[Tensor, tuple[()]]:
        place = block * BLOCK + step
        column = b.gather(kept, step, axis=2)
        pivot = b.real(b.reshape(b.gather(column, place, axis=1), (batch, 1)))
        root = b.sqrt(b.where(pivot > 0.0, pivot, float("nan")))
        found = b.where(places < place, 0.0, b.where(places == place, root, column / root))
        own = b.conjugate(b.gather(found, own_places, axis=1))
        column = b.reshape(found, (batch, size, 1))
        rest = b.where(columns > step, kept - column * b.reshape(own, (batch, 1, BLOCK)), kept)
        return b.where(columns == step, column, rest), ()

    return b.scan(eliminate, panel, columns)[0]


def triangular_solve(b: Builder, a: Tensor, right: Tensor, *, lower: bool, unit_diagonal: bool) -> Tensor:
    """Return the solutions `[B, N, K]` of triangular systems: a product per block, then one row per step."""
    size = right.shape.dims[1]
    assert type(size) is int
    count, whole = blocks_of(size), padded(b, a)
    total = count * BLOCK
    right = b.pad(right, [(0, 0), (0, total - size), (0, 0)])
    places = b.iota((total,), dtype="i32")

    def of_block(x: Tensor, step: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        given, block = step
        rows, first = rows_of(b, whole, block), block * BLOCK
        # Unsolved elements of x are 0, but the part of the rows that is not read may be infinite.
        known = b.where(places < first if lower else places >= first + BLOCK, rows, 0.0)
        own = b.gather(rows, first + b.iota((BLOCK,), dtype="i32"), axis=2)
        rest = given - b.matmul(known, x)
        found = b.emit("triangular_solve", (own, rest), lower=lower, unit_diagonal=unit_diagonal)
        return with_rows(b, x, found, block), ()

    steps = (_rows_in_blocks(b, right), b.iota((count,), dtype="i32"))
    x, _ = b.scan(of_block, rules.zeros(b, right.shape), steps, reverse=not lower)
    return b.narrow(x, 1, 0, size)


def _rows_in_blocks(b: Builder, a: Tensor) -> Tensor:
    """Return the blocks of the rows of matrices `[B, M, N]`, `[M / BLOCK, B, BLOCK, N]`."""
    batch, rows, columns = a.shape.dims
    assert type(rows) is int
    return b.transpose(b.reshape(a, (batch, blocks_of(rows), BLOCK, columns)), (1, 0, 2, 3))


def lu(b: Builder, a: Tensor, panel_of: PanelFactors) -> tuple[Tensor, Tensor, Tensor]:
    """Return packed factors, pivots and permutations of square matrices `[B, N, N]`.

    Args:
        b: The builder.
        a: The matrices.
        panel_of: Eliminates a panel `[B, N, BLOCK]` below the place of its first column. It returns the panel, the rows that
            were exchanged, `[B, BLOCK]`, and the order of the rows, `[B, N]`.
    """
    batch, (size, _) = a.shape.dims[0], order_of(a.shape, square=True)
    whole, count = padded(b, a), blocks_of(size)
    total = count * BLOCK
    places = b.iota((total,), dtype="i32")

    def of_block(carry: tuple[Tensor, Tensor], block: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        matrix, order = carry
        first = block * BLOCK
        own = first + b.iota((BLOCK,), dtype="i32")
        panel, pivots, moved = panel_of(b, b.gather(matrix, own, axis=2), first)
        matrix, order = b.gather_batched(matrix, moved, axis=1), b.gather_batched(order, moved, axis=1)
        is_later = places >= first + BLOCK
        rows = b.gather(matrix, own, axis=1)
        diagonal = b.gather(panel, own, axis=1)
        upper = b.emit("triangular_solve", (diagonal, rows), lower=True, unit_diagonal=True)
        upper = b.where(is_later, upper, rows)
        below = b.where(b.reshape(is_later, (total, 1)), panel, 0.0)
        matrix = b.where(is_later, matrix - b.matmul(below, upper), matrix)
        return (with_columns(b, with_rows(b, matrix, upper, block), panel, block), order), pivots

    order = b.expand(places, (batch, total))
    (matrix, order), pivots = b.scan(of_block, (whole, order), b.iota((count,), dtype="i32"))
    pivots = b.reshape(b.transpose(pivots, (1, 0, 2)), (batch, total))
    packed = b.narrow(b.narrow(matrix, 1, 0, size), 2, 0, size)
    return packed, b.narrow(pivots, 1, 0, size), b.narrow(order, 1, 0, size)
