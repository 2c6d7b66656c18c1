"""`rlx-lapack`: marks the factorisations and triangular solves that a routine of LAPACK computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op import opview
from rlx.ir.op.card import as_results
from rlx.ir.shape import shape_of
from rlx.ops.factorization.jacobi import scale_of
from rlx.ops.factorization.phases import phases
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input
from rlx.passes.base import Pass, option
from rlx.passes.claims import known_ops
from rlx.passes.rewrite import collect, replace_with

# The start of the names in the attribute `rlx.kernel`.
PREFIX = "lapack."
# The first letter of a routine's name, by the dtype of its matrices. 16-bit floats are cast to f32.
LETTERS = {"f16": "s", "bf16": "s", "f32": "s", "f64": "d", "c64": "c", "c128": "z"}
# The routine that computes the most of each op. Those of complex matrices may have another name.
ROUTINES = {
    "cholesky": "potrf",
    "lu": "getrf",
    "qr": "geqrf",
    "eigh": "syevd",
    "svd": "gesdd",
    "eig": "geev",
    "triangular_solve": "trsm",
    "batched_dense_solve": "gesv",
}
OPS = tuple(ROUTINES)
_OF_COMPLEX = {"syevd": "heevd", "orglq": "unglq", "orgqr": "ungqr"}
# These ops, and one that decomposes into them.
_SOURCES = frozenset((*OPS, "dense_solve"))
# The smallest number of rows and columns for which the call is faster than the decomposition: for a few matrices, and for a
# batch, whose small matrices are factored together by loops (docs/performance.md).
_LEAST = {
    "cholesky": (4, 8),
    "lu": (4, 8),
    "qr": (4, 24),
    "eigh": (4, 8),
    "svd": (4, 8),
    "eig": (4, 4),
    "triangular_solve": (8, 16),
    "batched_dense_solve": (8, 16),
}
_FEW_MATRICES = 8
# The ops whose routines end for all matrices, and whose results for matrices that are not finite are all replaced.
_WITHOUT_ITERATION = ("cholesky", "qr")


@dataclass(frozen=True)
class Lapack(Pass, name="rlx-lapack", idempotent=True):
    """Mark the ops that LAPACK computes with the name of the routine, `rlx.kernel = "lapack.dpotrf"`.

    The meaning of an op stays: ops around it check that matrices are finite, and fix the signs of vectors. Only programs of a
    session on the CPU may have such ops. The lowering turns them into calls. Small matrices are left to the decompositions.
    """

    without: tuple[str, ...] = option((), "ops that are left alone")
    least: int = option(
        0, "the smallest number of rows and columns; 0 is what measurements have shown to be best", least=0
    )

    only_mark: bool = option(False, "whether to add nothing around the ops, for reports")

    def run(self, module: mlir.Module) -> None:
        names = frozenset(OPS) - known_ops(self.without)
        with mlir.entered():
            for op in collect(module, names):
                if opview.kernel_of(op) is None and self._is_faster(op):
                    self._mark(op)

    def _mark(self, op: mlir.Operation) -> None:
        name = opview.name_of(op)
        if self.only_mark:
            mark(op)
        else:
            replace_with(op, _SOLVERS.get(name) or _factors(name), self.name, **opview.attributes_of(op))

    def _is_faster(self, op: mlir.Operation) -> bool:
        """Whether LAPACK takes an op, and is faster than its decomposition."""
        shapes = [shape_of(v) for v in op.operands]
        *batch, rows, columns = shapes[0].dims
        sizes = [rows, columns, shapes[-1].dims[-1]]
        if (
            shapes[0].dtype.name not in LETTERS
            or 0 in (*batch, *sizes)
            or type(rows) is not int
            or type(columns) is not int
        ):
            return False
        count = product(batch)
        one, many = _LEAST[opview.name_of(op)]
        least = self.least or (one if type(count) is int and count <= _FEW_MATRICES else many)
        return min(rows, columns) >= least


def has_factorizations(module: mlir.Module) -> bool:
    """Return whether a module has ops that may become marked ops."""
    with mlir.entered():
        return bool(collect(module, _SOURCES))


def is_lapack(op: mlir.Operation) -> bool:
    """Whether an op is marked."""
    return (opview.kernel_of(op) or "").startswith(PREFIX)


def routine_name(letter: str, routine: str) -> str:
    """Return the whole name of a routine, from its name for real matrices."""
    return letter + (_OF_COMPLEX.get(routine, routine) if letter in "cz" else routine)


def mark(op: mlir.Operation) -> None:
    """Add the name of the routine to an op."""
    name = routine_name(LETTERS[shape_of(op.operands[0]).dtype.name], ROUTINES[opview.name_of(op)])
    op.attributes[opview.KERNEL] = mlir.ir.StringAttr.get(PREFIX + name)


def _marked(b: Builder, name: str, *operands: Tensor, **attributes: Any) -> Any:
    """Emit an op on batches `[B, M, N]` of f32, f64, c64 or c128 that LAPACK computes."""
    result = b.emit(name, operands, **attributes)
    first: Tensor = as_results(result)[0]
    mark(first.value.owner)
    return result


def _factors(name: str) -> Callable[..., Any]:
    """Return a function that emits a factorisation with the op `name` as LAPACK computes it."""

    def emit(b: Builder, a: Tensor) -> Tensor | tuple[Tensor, ...]:
        *batch, rows, columns = a.shape.dims
        matrices = statistics_input(b, b.reshape(a, (product(batch), rows, columns)))
        read = b.tril(matrices) if name in ("cholesky", "eigh") else matrices
        # A finite number minus itself is 0, anything else is NaN.
        finite = b.sum(read - read, axes=(1, 2), keep_dims=True) == 0.0
        given = matrices if name in _WITHOUT_ITERATION else b.where(finite, matrices, 0.0)
        factors = _scaled_eig(b, given) if name == "eig" else as_results(_marked(b, name, given))
        factors = _with_phases(b, name, factors)
        found = [_finished(b, f, finite, batch, a) for f in factors]
        return found[0] if len(found) == 1 else tuple(found)

    return emit


def _scaled_eig(b: Builder, a: Tensor) -> tuple[Tensor, ...]:
    """Return the eigenvalues and vectors of matrices that are divided by their largest element, and the values multiplied.

    LAPACK's own scaling of very large and small matrices gives wrong results if denormal numbers are flushed to zero.
    """
    scale = scale_of(b, a)
    values, vectors = as_results(_marked(b, "eig", a / scale))
    return values * b.squeeze(scale, -1), vectors


def _with_phases(b: Builder, name: str, factors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return factors with the phases of the op. LAPACK's depend on the library."""
    if name in ("eigh", "eig"):
        values, vectors = factors
        return values, vectors * b.conjugate(phases(b, vectors, b.where))
    if name == "svd":
        u, s, vt = factors
        phase = phases(b, u, b.where)
        return u * b.conjugate(phase), s, vt * b.swapaxes(phase, 1, 2)
    return factors


def _finished(b: Builder, factor: Tensor, finite: Tensor, batch: list[Any], a: Tensor) -> Tensor:
    """Return a factor in the shape and dtype of the op, with NaN for matrices that were not finite."""
    dims = (*batch, *factor.shape.dims[1:])
    if factor.dtype.is_integer:
        return b.reshape(factor, dims)
    is_finite = finite if factor.rank == 3 else b.squeeze(finite, -1)
    dtype = a.dtype.complex if factor.dtype.is_complex else a.dtype.part
    return b.reshape(cast(b, b.where(is_finite, factor, float("nan")), dtype), dims)


def _systems(b: Builder, a: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices `[B, N, N]` and right-hand sides `[B, N, K]` of f32, f64, c64 or c128."""
    *batch, size, _ = a.shape.dims
    columns = right.shape.dims[-1] if right.rank == a.rank else 1
    whole = (b.reshape(a, (product(batch), size, size)), b.reshape(right, (product(batch), size, columns)))
    return statistics_input(b, whole[0]), statistics_input(b, whole[1])


def _triangular_solve(builder: Builder, a: Tensor, b: Tensor, **attributes: Any) -> Tensor:
    """Emit a triangular solve as LAPACK computes it."""
    found = _marked(builder, "triangular_solve", *_systems(builder, a, b), **attributes)
    return cast(builder, builder.reshape(found, b.shape.dims), b.dtype)


def _dense_solve(builder: Builder, a: Tensor, b: Tensor) -> Tensor:
    """Emit the solution of linear systems: factors and two triangular solves, as in LAPACK's `gesv`."""
    matrix, right = _systems(builder, a, b)
    factors, _, order = _marked(builder, "lu", matrix)
    permuted = builder.gather_batched(right, order, axis=1)
    lower = _marked(builder, "triangular_solve", factors, permuted, lower=True, unit_diagonal=True)
    found = _marked(builder, "triangular_solve", factors, lower, lower=False, unit_diagonal=False)
    return cast(builder, builder.reshape(found, b.shape.dims), b.dtype)


_SOLVERS: dict[str, Callable[..., Tensor]] = {
    "triangular_solve": _triangular_solve,
    "batched_dense_solve": _dense_solve,
}
