"""Kernels of factorisations and triangular solves that call LAPACK: the ops that `rlx-lapack` marks.

They are used only in programs that run in this process, where the runtime passes the pointers of the routines. A matrix in
row-major order is its transpose in LAPACK's order of columns: a lower triangle is an upper one, and the QR decomposition of a
matrix is the LQ decomposition of its transpose. Only `lu` and `eig` have to transpose. A complex number is a pair of floats,
on one more axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx.ir.dtype import i32
from rlx.ir.shape import Shape
from rlx.kernels.buffer import Buffer, Size
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import Kernel
from rlx.kernels.registry import CpuKernel
from rlx.kernels.routines import RoutineCalls
from rlx.kernels.values import Value
from rlx.passes.lapack import LETTERS, PREFIX, ROUTINES, routine_name

_NAN, _INFINITY = float("nan"), float("inf")
# The number of columns that LAPACK's routines join into a block, for the size of their workspace.
_BLOCK = 64
# The rows and columns of a tile of a transposition.
_TILE = 16


def _name(a: Buffer, routine: str) -> str:
    """The whole name of a routine for the matrices `a`."""
    letter = LETTERS[a.element.name]
    return routine_name({"s": "c", "d": "z"}[letter] if _is_complex(a) else letter, routine)


def _is_complex(a: Buffer) -> bool:
    """Whether the matrices of a batch, or one matrix, are complex."""
    return a.rank == 4


def _parts(a: Buffer) -> list[tuple[int, ...]]:
    """The places of the parts of a number, after those of its row and column."""
    return [(0,), (1,)] if _is_complex(a) else [()]


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
            for part in _parts(a):
                for column in k.range(row + 1):
                    result[(i, row, column, *part)] = a[(i, row, column, *part)]
                for column in k.range(row + 1, size):
                    result[(i, row, column, *part)] = 0
        factor(i)
        failed = info[0][info[1]]
        for _ in k.when(failed > 0):
            # LAPACK stops at the pivot. With infinities on the diagonal from there on, it computes the columns before.
            first = k.register((failed - 1).to("i64"))
            for row in k.range(size):
                for column in k.range(row + 1):
                    is_before = column.to("i64") < first.value
                    for part in _parts(a):
                        on_diagonal = 0.0 if part == (1,) else k.constant(_INFINITY, a.element)
                        rest = k.where(row == column, on_diagonal, k.constant(0.0, a.element))
                        place = (i, row, column, *part)
                        result[place] = k.where(is_before, a[place], rest)
            factor(i)
            for row in k.range(size):
                for column in k.range(row + 1):
                    is_before = column.to("i64") < first.value
                    for part in _parts(a):
                        place = (i, row, column, *part)
                        result[place] = k.where(is_before, result[place], k.constant(_NAN, a.element))


def _lu(k: Kernel, a: Buffer, table: Buffer, lu: Buffer, pivots: Buffer, permutation: Buffer, work: Buffer) -> None:
    rows, columns = _known(*a.shape[1:3])
    given, steps = RoutineCalls(k, 3), min(rows, columns)
    m, n, info = given.integer(rows), given.integer(columns), given.integer()
    for i in k.range(a.shape[0]):
        _transpose(k, a, lambda r, c, part, i=i: _set(work, (c, r, *part), a[(i, r, c, *part)]))
        given.call(table, _name(a, "getrf"), [m, n, work, m, (pivots, i * steps), info])
        _transpose(k, a, lambda r, c, part, i=i: _set(lu, (i, r, c, *part), work[(c, r, *part)]))
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
    rows, columns = _known(*a.shape[1:3])
    inner = min(rows, columns)
    given = RoutineCalls(k, 5)
    m, n, steps = given.integer(rows), given.integer(columns), given.integer(inner)
    count, info = given.integer(_work_of_qr(rows, columns)), given.integer()
    for i in k.range(a.shape[0]):
        _copy(k, a, i, matrix)
        given.call(table, _name(a, "gelqf"), [n, m, matrix, n, factors, work, count, info])
        for row in k.range(inner):
            for part in _parts(a):
                for column in k.range(k.least(row, columns)):
                    r[(i, row, column, *part)] = 0
                for column in k.range(row, columns):
                    r[(i, row, column, *part)] = matrix[(row, column, *part)]
        given.call(table, _name(a, "orglq"), [steps, m, steps, matrix, n, factors, work, count, info])
        for row in k.range(rows):
            for column in k.range(inner):
                for part in _parts(a):
                    q[(i, row, column, *part)] = matrix[(row, column, *part)]


def _eigh(
    k: Kernel,
    a: Buffer,
    table: Buffer,
    values: Buffer,
    vectors: Buffer,
    matrix: Buffer,
    work: Buffer,
    integers: Buffer,
    *real_work: Buffer,
) -> None:
    (size,) = _known(a.shape[1])
    given = RoutineCalls(k, 7)
    jobz, uplo, n, info = given.character("V"), given.character("U"), given.integer(size), given.integer()
    # The workspace with its sizes, which count numbers.
    spaces = [entry for b in (work, *real_work, integers) for entry in (b, given.integer(*_known(b.shape[0])))]
    for i in k.range(a.shape[0]):
        _copy(k, a, i, matrix)
        given.call(table, _name(a, "syevd"), [jobz, uplo, n, matrix, n, (values, i * size), *spaces, info])
        _transpose(
            k, a, lambda r, c, part, i=i: _set(vectors, (i, c, r, *part), _conjugate(matrix[(r, c, *part)], part))
        )
        for _ in k.when(info[0][info[1]] != 0):
            _fill_with_nan(k, [vectors, values], i)


def _conjugate(x: Value, part: tuple[int, ...]) -> Value:
    """Return a part of the conjugate of the number with the part `x`."""
    return -x if part == (1,) else x


def _eig(
    k: Kernel,
    a: Buffer,
    table: Buffer,
    values: Buffer,
    vectors: Buffer,
    matrix: Buffer,
    found: Buffer,
    work: Buffer,
    *reals: Buffer,
) -> None:
    """Find right eigenvectors.

    Args:
        k: The kernel.
        a: The matrices.
        table: The pointers.
        values: The eigenvalues, `[B, N, 2]`.
        vectors: The eigenvectors, `[B, N, N, 2]`.
        matrix: The transpose of a matrix.
        found: Vectors in rows. Of a real matrix, a pair of conjugate vectors has its real part in the first row, and the
            imaginary one in the second.
        work: LAPACK's workspace.
        reals: Of real matrices the parts of the eigenvalues, else one more workspace.
    """
    (size,) = _known(a.shape[1])
    given = RoutineCalls(k, 6)
    left, right, n, one = given.character("N"), given.character("V"), given.integer(size), given.integer(1)
    count, info = given.integer(*_known(work.shape[0])), given.integer()
    for i in k.range(a.shape[0]):
        _transpose(k, a, lambda r, c, part, i=i: _set(matrix, (c, r, *part), a[(i, r, c, *part)]))
        results = [(values, i * (2 * size))] if _is_complex(a) else list(reals)
        spaces = [work, count, *(reals if _is_complex(a) else ()), info]
        arguments = [left, right, n, matrix, n, *results, work, one, found, n, *spaces]
        given.call(table, _name(a, "geev"), arguments)
        if _is_complex(a):
            _transpose(k, a, lambda r, c, part, i=i: _set(vectors, (i, c, r, *part), found[(r, c, *part)]))
        else:
            _write_pairs(k, i, found, reals, values, vectors)
        for _ in k.when(info[0][info[1]] != 0):
            _fill_with_nan(k, [vectors, values], i)


def _write_pairs(k: Kernel, i: Value, found: Buffer, reals: Sequence[Buffer], values: Buffer, vectors: Buffer) -> None:
    """Write the eigenvalues and vectors of a real matrix."""
    (size,), (real, imaginary) = _known(found.shape[0]), reals
    for j in k.range(size):
        at = imaginary[j]
        values[i, j, 0], values[i, j, 1] = real[j], at
        first = k.where(at < 0.0, (j - 1).maximum(k.index(0)), j)
        second = k.where(at > 0.0, k.least(j + 1, size - 1), j)
        sign = k.where(at > 0.0, 1.0, k.where(at < 0.0, -1.0, k.constant(0.0, found.element)))
        for row in k.range(size):
            vectors[i, row, j, 0], vectors[i, row, j, 1] = found[first, row], sign * found[second, row]


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
    *real_work: Buffer,
) -> None:
    rows, columns = _known(*a.shape[1:3])
    inner = min(rows, columns)
    given = RoutineCalls(k, 6)
    jobz, m, n, steps = given.character("S"), given.integer(rows), given.integer(columns), given.integer(inner)
    count, info = given.integer(*_known(work.shape[0])), given.integer()
    for i in k.range(a.shape[0]):
        _copy(k, a, i, matrix)
        of_s, of_u, of_vt = (s, i * inner), _matrix(u, i), _matrix(vt, i)
        arguments = [jobz, n, m, matrix, n, of_s, of_vt, n, of_u, steps, work, count, *real_work, integers, info]
        given.call(table, _name(a, "gesdd"), arguments)
        for _ in k.when(info[0][info[1]] != 0):
            _fill_with_nan(k, [u, s, vt], i)


def _triangular_solve(
    k: Kernel, a: Buffer, b: Buffer, table: Buffer, result: Buffer, *, lower: bool, unit_diagonal: bool
) -> None:
    """Solve `xᵀ·aᵀ = bᵀ` in LAPACK's order."""
    (size,), columns = _known(a.shape[1]), b.shape[2]
    given, one = RoutineCalls(k, 7), k.scratch(2, element=a.element)
    side, uplo, trans = given.character("R"), given.character("U" if lower else "L"), given.character("N")
    diag = given.character("U" if unit_diagonal else "N")
    m, n, leading = given.integer(columns), given.integer(size), given.integer(_at_least_one(k, columns))
    one[0], one[1] = 1.0, 0.0
    for i in k.range(a.shape[0]):
        for row in k.range(size):
            for column in k.range(columns):
                for part in _parts(a):
                    result[(i, row, column, *part)] = b[(i, row, column, *part)]
        matrices = [_matrix(a, i), n, _matrix(result, i), leading]
        given.call(table, _name(a, "trsm"), [side, uplo, trans, diag, m, n, one, *matrices])


def _at_least_one(k: Kernel, size: Size) -> Size:
    return max(size, 1) if isinstance(size, int) else size.maximum(k.index(1))


def _matrix(buffer: Buffer, number: Size) -> tuple[Buffer, Size]:
    """Return the place of a matrix of a batch."""
    return buffer, number * buffer.shape[1] * buffer.shape[2] * len(_parts(buffer))


def _copy(k: Kernel, a: Buffer, number: Value, matrix: Buffer) -> None:
    """Copy a matrix of a batch."""
    for row in k.range(a.shape[1]):
        for column in k.range(a.shape[2]):
            for part in _parts(a):
                matrix[(row, column, *part)] = a[(number, row, column, *part)]


def _set(buffer: Buffer, position: tuple[Size, ...], value: Value) -> None:
    buffer[position] = value


def _transpose(k: Kernel, a: Buffer, move: Callable[[Value, Value, tuple[int, ...]], None]) -> None:
    """Move each element of a matrix of the batch `a`, in tiles that fit into the cache."""
    rows, columns = _known(*a.shape[1:3])
    for top in k.range(0, rows, _TILE):
        for left in k.range(0, columns, _TILE):
            for row in k.range(top, k.least(top + _TILE, rows)):
                for column in k.range(left, k.least(left + _TILE, columns)):
                    for part in _parts(a):
                        move(row, column, part)


def _fill_with_nan(k: Kernel, results: Sequence[Buffer], number: Value) -> None:
    """Set the results of one matrix to NaN."""
    for result in results:
        flat = result.view(result.shape[0], math.prod(_known(*result.shape[1:])))
        for place in k.range(flat.shape[1]):
            flat[number, place] = k.constant(_NAN, result.element)


def _sizes(case: KernelCase) -> tuple[int, int]:
    rows, columns = case.tensors[0].dims[1:3]
    return int(rows), int(columns)  # type: ignore[arg-type]


def _memory(case: KernelCase, *dims: int) -> Shape:
    """The shape of a workspace for numbers of the matrices' dtype."""
    return Shape(dims, case.tensors[0].dtype)


def _reals(case: KernelCase, *dims: int) -> Shape:
    """The shape of a workspace for the parts of numbers."""
    return Shape(dims, case.tensors[0].dtype.part)


def _is_of_complex(case: KernelCase) -> bool:
    return case.tensors[0].dtype.is_complex


def _work_of_qr(rows: int, columns: int) -> int:
    return _BLOCK * max(rows, columns)


def _workspace_of_lu(case: KernelCase) -> list[Shape]:
    rows, columns = _sizes(case)
    return [_memory(case, columns, rows)]


def _workspace_of_qr(case: KernelCase) -> list[Shape]:
    rows, columns = _sizes(case)
    return [_memory(case, *dims) for dims in ((rows, columns), (min(rows, columns),), (_work_of_qr(rows, columns),))]


def _workspace_of_eigh(case: KernelCase) -> list[Shape]:
    size, _ = _sizes(case)
    shapes = [_memory(case, size, size), Shape((3 + 5 * size,), i32)]
    triangle = 1 + 6 * size + 2 * size * size
    if _is_of_complex(case):
        return [shapes[0], _memory(case, size * (max(2, _BLOCK) + size)), shapes[1], _reals(case, triangle)]
    return [shapes[0], _memory(case, max(triangle, size * (2 + _BLOCK))), shapes[1]]


def _workspace_of_eig(case: KernelCase) -> list[Shape]:
    size, _ = _sizes(case)
    matrices = [_memory(case, size, size), _memory(case, size, size), _memory(case, size * (4 + _BLOCK))]
    return matrices + ([_reals(case, 2 * size)] if _is_of_complex(case) else [_reals(case, size), _reals(case, size)])


def _workspace_of_svd(case: KernelCase) -> list[Shape]:
    rows, columns = _sizes(case)
    inner, most = min(rows, columns), max(rows, columns)
    work = 4 * inner * inner + 7 * inner + _BLOCK * (rows + columns)
    shapes = [_memory(case, rows, columns), _memory(case, work), Shape((8 * inner,), i32)]
    if _is_of_complex(case):
        shapes.append(_reals(case, inner * max(5 * inner + 7, 2 * (most + inner) + 1)))
    return shapes


def _none(case: KernelCase) -> list[Shape]:
    return []


_CODES: dict[str, tuple[Callable[..., None], Callable[[KernelCase], Sequence[Shape]]]] = {
    "cholesky": (_cholesky, _none),
    "lu": (_lu, _workspace_of_lu),
    "qr": (_qr, _workspace_of_qr),
    "eigh": (_eigh, _workspace_of_eigh),
    "svd": (_svd, _workspace_of_svd),
    "eig": (_eig, _workspace_of_eig),
    "triangular_solve": (_triangular_solve, _none),
}
KERNELS: dict[str, CpuKernel] = {
    name: CpuKernel(op, name, function, workspace=workspace)
    for op, (function, workspace) in _CODES.items()
    for name in (f"{PREFIX}{routine_name(letter, ROUTINES[op])}" for letter in dict.fromkeys(LETTERS.values()))
}
