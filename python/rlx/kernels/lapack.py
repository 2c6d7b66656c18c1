"""Kernels of factorisations and triangular solves that call LAPACK: the ops that `rlx-lapack` marks.

They are used only in programs that run in this process, where the runtime passes the pointers of the routines. A matrix in
row-major order is its transpose in LAPACK's order of columns: a lower triangle is an upper one, and the QR decomposition of a
matrix is the LQ decomposition of its transpose. Only `lu` has to transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.ir.dtype import i32
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Size
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import Kernel
from rlx.kernels.registry import CpuKernel
from rlx.kernels.routines import RoutineCalls
from rlx.kernels.values import Value
from rlx.passes.lapack import LETTERS, PREFIX, ROUTINES

_NAN, _INFINITY = float("nan"), float("inf")
# The number of columns that LAPACK's routines join into a block, for the size of their workspace.
_BLOCK = 64
# The rows and columns of a tile of a transposition.
_TILE = 16


def _name(a: Buffer, routine: str) -> str:
    return f"{LETTERS[a.element.name]}{routine}"


def _known(*sizes: Size) -> tuple[int, ...]:
    """Return sizes of matrices, which are known."""
    assert all(isinstance(size, int) for size in sizes)
    return tuple(size for size in sizes if isinstance(size, int))


def _cholesky(k: Kernel, a: Buffer, table: Buffer, result: Buffer) -> None:
    (size,) = _known(a.shape[1])
    given = RoutineCalls(k, 3)
    uplo, n, info = given.character("U"), given.integer(size), given.integer()

    def factor(i: Value) -> None:
        given.call(table, _name(a, "potrf"), [uplo, n, _matrix(result, i), n, info])

    for i in k.range(a.shape[0]):
        for row in k.range(size):
            for column in k.range(row + 1):
                result[i, row, column] = a[i, row, column]
            for column in k.range(row + 1, size):
                result[i, row, column] = 0
        factor(i)
        failed = info[0][info[1]]
        for _ in k.when(failed > 0):
            # LAPACK stops at the pivot. With infinities on the diagonal from there on, it computes the columns before.
            first = k.register((failed - 1).to("i64"))
            for row in k.range(size):
                for column in k.range(row + 1):
                    is_before = column.to("i64") < first.value
                    rest = k.where(row == column, k.constant(_INFINITY, a.element), 0.0)
                    result[i, row, column] = k.where(is_before, a[i, row, column], rest)
            factor(i)
            for row in k.range(size):
                for column in k.range(row + 1):
                    is_before = column.to("i64") < first.value
                    result[i, row, column] = k.where(is_before, result[i, row, column], k.constant(_NAN, a.element))


def _lu(k: Kernel, a: Buffer, table: Buffer, lu: Buffer, pivots: Buffer, permutation: Buffer, work: Buffer) -> None:
    rows, columns = _known(*a.shape[1:])
    given, steps = RoutineCalls(k, 3), min(rows, columns)
    m, n, info = given.integer(rows), given.integer(columns), given.integer()
    for i in k.range(a.shape[0]):
        _transpose(k, rows, columns, lambda r, c, i=i: _set(work, (c, r), a[i, r, c]))
        given.call(table, _name(a, "getrf"), [m, n, work, m, (pivots, i * steps), info])
        _transpose(k, rows, columns, lambda r, c, i=i: _set(lu, (i, r, c), work[c, r]))
        for row in k.range(rows):
            permutation[i, row] = row.to(i32)
        for step in k.range(steps):
            pivot = pivots[i, step] - 1
            pivots[i, step] = pivot
            other = pivot.to("index")
            at_step, at_pivot = k.register(permutation[i, step]), k.register(permutation[i, other])
            permutation[i, step] = at_pivot.value
            permutation[i, other] = at_step.value


def _qr(
    k: Kernel, a: Buffer, table: Buffer, q: Buffer, r: Buffer, matrix: Buffer, factors: Buffer, work: Buffer
) -> None:
    rows, columns = _known(*a.shape[1:])
    inner = min(rows, columns)
    given = RoutineCalls(k, 5)
    m, n, steps = given.integer(rows), given.integer(columns), given.integer(inner)
    count, info = given.integer(_work_of_qr(rows, columns)), given.integer()
    for i in k.range(a.shape[0]):
        for row in k.range(rows):
            for column in k.range(columns):
                matrix[row, column] = a[i, row, column]
        given.call(table, _name(a, "gelqf"), [n, m, matrix, n, factors, work, count, info])
        for row in k.range(inner):
            for column in k.range(k.least(row, columns)):
                r[i, row, column] = 0
            for column in k.range(row, columns):
                r[i, row, column] = matrix[row, column]
        given.call(table, _name(a, "orglq"), [steps, m, steps, matrix, n, factors, work, count, info])
        for row in k.range(rows):
            for column in k.range(inner):
                q[i, row, column] = matrix[row, column]


def _eigh(
    k: Kernel, a: Buffer, table: Buffer, values: Buffer, vectors: Buffer, matrix: Buffer, work: Buffer, integers: Buffer
) -> None:
    (size,) = _known(a.shape[1])
    given = RoutineCalls(k, 6)
    jobz, uplo, n, info = given.character("V"), given.character("U"), given.integer(size), given.integer()
    count, integer_count = (given.integer(*_known(b.shape[0])) for b in (work, integers))
    for i in k.range(a.shape[0]):
        for row in k.range(size):
            for column in k.range(size):
                matrix[row, column] = a[i, row, column]
        arguments = [jobz, uplo, n, matrix, n, (values, i * size), work, count, integers, integer_count, info]
        given.call(table, _name(a, "syevd"), arguments)
        _transpose(k, size, size, lambda r, c, i=i: _set(vectors, (i, c, r), matrix[r, c]))
        for _ in k.when(info[0][info[1]] != 0):
            _fill_with_nan(k, [vectors, values], i)


def _svd(
    k: Kernel,
    a: Buffer,
    table: Buffer,
    u: Buffer,
    s: Buffer,
    vt: Buffer,
    matrix: Buffer,
    work: Buffer,
    integers: Buffer,
) -> None:
    rows, columns = _known(*a.shape[1:])
    inner = min(rows, columns)
    given = RoutineCalls(k, 6)
    jobz, m, n, steps = given.character("S"), given.integer(rows), given.integer(columns), given.integer(inner)
    count, info = given.integer(*_known(work.shape[0])), given.integer()
    for i in k.range(a.shape[0]):
        for row in k.range(rows):
            for column in k.range(columns):
                matrix[row, column] = a[i, row, column]
        of_s, of_u, of_vt = (s, i * inner), _matrix(u, i), _matrix(vt, i)
        arguments = [jobz, n, m, matrix, n, of_s, of_vt, n, of_u, steps, work, count, integers, info]
        given.call(table, _name(a, "gesdd"), arguments)
        for _ in k.when(info[0][info[1]] != 0):
            _fill_with_nan(k, [u, s, vt], i)


def _triangular_solve(
    k: Kernel, a: Buffer, b: Buffer, table: Buffer, result: Buffer, *, lower: bool, unit_diagonal: bool
) -> None:
    """Solve `xᵀ·aᵀ = bᵀ` in LAPACK's order."""
    (size,), columns = _known(a.shape[1]), b.shape[2]
    given, one = RoutineCalls(k, 7), k.scratch(1, element=a.element)
    side, uplo, trans = given.character("R"), given.character("U" if lower else "L"), given.character("N")
    diag = given.character("U" if unit_diagonal else "N")
    m, n, leading = given.integer(columns), given.integer(size), given.integer(_at_least_one(k, columns))
    one[0] = 1.0
    for i in k.range(a.shape[0]):
        for row in k.range(size):
            for column in k.range(columns):
                result[i, row, column] = b[i, row, column]
        matrices = [_matrix(a, i), n, _matrix(result, i), leading]
        given.call(table, _name(a, "trsm"), [side, uplo, trans, diag, m, n, one, *matrices])


def _at_least_one(k: Kernel, size: Size) -> Size:
    return max(size, 1) if isinstance(size, int) else size.maximum(k.index(1))


def _matrix(buffer: Buffer, number: Size) -> tuple[Buffer, Size]:
    """Return the place of a matrix of a batch."""
    return buffer, number * buffer.shape[1] * buffer.shape[2]


def _set(buffer: Buffer, position: tuple[Size, ...], value: Value) -> None:
    buffer[position] = value


def _transpose(k: Kernel, rows: int, columns: int, move: Callable[[Value, Value], None]) -> None:
    """Move each element of a matrix, in tiles that fit into the cache."""
    for top in k.range(0, rows, _TILE):
        for left in k.range(0, columns, _TILE):
            for row in k.range(top, k.least(top + _TILE, rows)):
                for column in k.range(left, k.least(left + _TILE, columns)):
                    move(row, column)


def _fill_with_nan(k: Kernel, results: Sequence[Buffer], number: Value) -> None:
    """Set the results of one matrix to NaN."""
    for result in results:
        nan = k.constant(_NAN, result.element)
        for row in k.range(result.shape[1]):
            if result.rank == 2:
                result[number, row] = nan
            else:
                for column in k.range(result.shape[2]):
                    result[number, row, column] = nan


def _sizes(case: KernelCase) -> tuple[int, int]:
    rows, columns = case.tensors[0].dims[1:]
    return int(rows), int(columns)  # type: ignore[arg-type]


def _work_of_qr(rows: int, columns: int) -> int:
    return _BLOCK * max(rows, columns)


def _workspace_of_lu(case: KernelCase) -> list[Shape]:
    rows, columns = _sizes(case)
    return [Shape((columns, rows), case.tensors[0].dtype)]


def _workspace_of_qr(case: KernelCase) -> list[Shape]:
    (rows, columns), kind = _sizes(case), case.tensors[0].dtype
    sizes = [(rows, columns), (min(rows, columns),), (_work_of_qr(rows, columns),)]
    return [Shape(dims, kind) for dims in sizes]


def _workspace_of_eigh(case: KernelCase) -> list[Shape]:
    (size, _), kind = _sizes(case), case.tensors[0].dtype
    work = max(1 + 6 * size + 2 * size * size, size * (2 + _BLOCK))
    return [Shape((size, size), kind), Shape((work,), kind), Shape((3 + 5 * size,), i32)]


def _workspace_of_svd(case: KernelCase) -> list[Shape]:
    (rows, columns), kind = _sizes(case), case.tensors[0].dtype
    inner = min(rows, columns)
    work = 4 * inner * inner + 7 * inner + _BLOCK * (rows + columns)
    return [Shape((rows, columns), kind), Shape((work,), kind), Shape((8 * inner,), i32)]


def _none(case: KernelCase) -> list[Shape]:
    return []


_CODES: dict[str, tuple[Callable[..., None], Callable[[KernelCase], Sequence[Shape]]]] = {
    "cholesky": (_cholesky, _none),
    "lu": (_lu, _workspace_of_lu),
    "qr": (_qr, _workspace_of_qr),
    "eigh": (_eigh, _workspace_of_eigh),
    "svd": (_svd, _workspace_of_svd),
    "triangular_solve": (_triangular_solve, _none),
}
KERNELS: dict[str, CpuKernel] = {
    f"{PREFIX}{letter}{ROUTINES[op]}": CpuKernel(op, f"{PREFIX}{letter}{ROUTINES[op]}", function, workspace=workspace)
    for op, (function, workspace) in _CODES.items()
    for letter in dict.fromkeys(LETTERS.values())
}
