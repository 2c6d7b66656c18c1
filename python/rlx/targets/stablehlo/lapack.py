"""Calls of LAPACK in StableHLO: custom calls of jaxlib's handlers, which work in this process only.

The pass `rlx-lapack` marks the ops. jaxlib's handlers need routines that the XLA client looks up in SciPy before it compiles or
loads a program with calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx import mlir
from rlx.ir.dtype import i32
from rlx.ir.op import opview
from rlx.ir.shape import Shape
from rlx.passes.lapack import LETTERS, routine_name
from rlx.support.errors import UnsupportedError
from rlx.targets.stablehlo.attributes import attribute

if TYPE_CHECKING:
    from rlx.targets.lowering.table import Lowered
    from rlx.targets.stablehlo.emitter import HloEmitter

_NAN, _INFINITY = float("nan"), float("inf")
# LAPACK reads matrices by columns: the layout of `[B, M, N]` whose axis 1 is the fastest.
_BY_COLUMNS = (1, 2, 0)


def call_lapack(
    emit: HloEmitter, op: mlir.Operation, results: Sequence[Shape], operands: Sequence[Lowered]
) -> tuple[Lowered, ...]:
    """Emit the call for a marked op, on batches `[B, M, N]`.

    Args:
        emit: The emitter.
        op: The op.
        results: The result shapes.
        operands: The lowered operands.

    Raises:
        UnsupportedError: The op is marked for something else than LAPACK.
    """
    name = opview.name_of(op)
    if name not in _CALLS:
        raise UnsupportedError(f"StableHLO has no kernels, and rlx.{name} is marked with {opview.kernel_of(op)}")
    return _CALLS[name](emit, results, *operands, **opview.attributes_of(op))


def _call(
    emit: HloEmitter,
    routine: str,
    operands: Sequence[Lowered],
    results: Sequence[Shape],
    config: Mapping[str, str] | None = None,
    *,
    in_place: int | None = 0,
    by_columns: bool = True,
) -> tuple[Lowered, ...]:
    """Emit a custom call of jaxlib's handler of a routine.

    Args:
        emit: The emitter.
        routine: The routine without the letter of its dtype.
        operands: The operands.
        results: The shapes of the results.
        config: The characters that LAPACK takes, by the handler's names.
        in_place: The operand whose memory the first result takes; None if there is none.
        by_columns: Whether matrices are passed as LAPACK reads them, and not as their transposes.
    """
    ir = mlir.ir
    characters = ", ".join(f"{name} = {ord(value)} : ui8" for name, value in (config or {}).items())
    place = "0" if len(results) > 1 else ""
    alias = (
        f"[#stablehlo.output_operand_alias<output_tuple_indices = [{place}], "
        f"operand_index = {in_place}, operand_tuple_indices = []>]"
    )
    attributes = {
        "call_target_name": ir.StringAttr.get(f"lapack_{routine_name(LETTERS[operands[0].dtype.name], routine)}_ffi"),
        "api_version": attribute("4 : i32"),
        "backend_config": attribute(f"{{{characters}}}"),
        "operand_layouts": _layouts([o.rank for o in operands], by_columns),
        "result_layouts": _layouts([r.rank for r in results], by_columns),
        "output_operand_aliases": attribute("[]" if in_place is None else alias),
    }
    return emit.op("custom_call", operands, results, attributes)


def _layouts(ranks: Sequence[int], by_columns: bool) -> mlir.Attribute:
    layouts = [_BY_COLUMNS if rank == 3 and by_columns else tuple(reversed(range(rank))) for rank in ranks]
    return attribute("[" + ", ".join(f"dense<{list(v)}> : tensor<{len(v)}xindex>" for v in layouts) + "]")


def _info(a: Lowered) -> Shape:
    """The shape of LAPACK's status of each matrix."""
    return Shape(a.dims[:1], i32)


def _where(emit: HloEmitter, condition: Lowered, a: Lowered, number: float) -> Lowered:
    """Return a tensor with a number in matrices or vectors for which a condition `[B]` does not hold."""
    return emit.select(emit.broadcast_in_dim(condition, a.dims, [0]), a, number)


def _cholesky(emit: HloEmitter, results: Sequence[Shape], a: Lowered) -> tuple[Lowered, ...]:
    """Return factors whose columns are NaN from the first pivot that is not positive."""
    # The lower triangle is the upper one of the transpose, so that XLA need not transpose.
    config, shapes = {"uplo": "U"}, [a.shape, _info(a)]
    factor, info = _call(emit, "potrf", [a], shapes, config, by_columns=False)
    rows, columns = (emit.iota(a.dims, axis, i32) for axis in (1, 2))
    is_lower = emit.compare("ge", rows, columns)
    found = emit.select(is_lower, factor, 0.0)
    failed = emit.compare("gt", info, 0)

    def again() -> list[Lowered]:
        # LAPACK stops at the pivot. With infinities on the diagonal from there on, it computes the columns before.
        first = emit.broadcast_in_dim(emit.select(failed, emit.sub(info, 1), a.dims[1]), a.dims, [0])
        is_after = emit.compare("ge", columns, first)
        diagonal = emit.select(emit.compare("eq", rows, columns), emit.like(a, _INFINITY), 0.0)
        rest = emit.both(is_after, emit.compare("ge", rows, first))
        columns_before, _ = _call(emit, "potrf", [emit.select(rest, diagonal, a)], shapes, config, by_columns=False)
        return [emit.select(is_lower, emit.select(emit.elementwise("not", is_after), columns_before, _NAN), 0.0)]

    any_failed = emit.reduce(failed, "or", [0], False)
    return emit.op("case", [emit.convert(any_failed, i32)], [a.shape], {}, [([], lambda: [found]), ([], again)])


def _lu(emit: HloEmitter, results: Sequence[Shape], a: Lowered) -> tuple[Lowered, ...]:
    factors, pivots, _ = _call(emit, "getrf", [a], [*results[:2], _info(a)])
    pivots = emit.sub(pivots, 1)
    return factors, pivots, _permutation(emit, pivots, results[2])


def _permutation(emit: HloEmitter, pivots: Lowered, result: Shape) -> Lowered:
    """Return the permutation `[B, M]` of rows that are swapped with those of the pivots `[B, K]`, in order."""
    dims, (batch, steps) = result.static, pivots.dims
    places = emit.iota(dims, 1, i32)

    def column(x: Lowered, step: Lowered) -> Lowered:
        part = emit.dynamic_slice(x, [emit.full((), i32, 0), step], (batch, 1))
        return emit.broadcast(part, dims)

    def swap(step: Lowered, order: Lowered, pivots: Lowered) -> list[Lowered]:
        is_pivot = emit.compare("eq", places, column(pivots, step))
        at_pivot = emit.reduce(emit.select(is_pivot, order, 0), "add", [1], 0)
        is_step = emit.compare("eq", places, emit.broadcast(step, dims))
        moved = emit.select(is_pivot, column(order, step), order)
        return [emit.add(step, 1), emit.select(is_step, emit.broadcast_in_dim(at_pivot, dims, [0]), moved), pivots]

    carries = [emit.full((), i32, 0), places, pivots]

    def goes_on(step: Lowered, *_: Lowered) -> Lowered:
        return emit.compare("lt", step, steps)

    return emit.while_(carries, goes_on, swap)[1]


def _qr(emit: HloEmitter, results: Sequence[Shape], a: Lowered) -> tuple[Lowered, ...]:
    """Return Q and R. LAPACK makes Q of as many reflections as Q has columns."""
    batch, rows, columns = a.dims
    inner = min(rows, columns)
    reduced, factors = _call(emit, "geqrf", [a], [a.shape, Shape((batch, inner), a.dtype)])
    vectors = emit.slice(reduced, [0, 0, 0], [batch, rows, inner])
    (q,) = _call(emit, "orgqr", [vectors, factors], [results[0]])
    r = emit.slice(reduced, [0, 0, 0], [batch, inner, columns])
    is_upper = emit.compare("le", *(emit.iota(r.dims, axis, i32) for axis in (1, 2)))
    return q, emit.select(is_upper, r, 0.0)


def _eigh(emit: HloEmitter, results: Sequence[Shape], a: Lowered) -> tuple[Lowered, ...]:
    config = {"mode": "V", "uplo": "L"}
    vectors, values, info = _call(emit, "syevd", [a], [results[1], results[0], _info(a)], config)
    converged = emit.compare("eq", info, 0)
    return _where(emit, converged, values, _NAN), _where(emit, converged, vectors, _NAN)


def _eig(emit: HloEmitter, results: Sequence[Shape], a: Lowered) -> tuple[Lowered, ...]:
    of_values, of_vectors = results
    parts = [of_values] if a.dtype.is_complex else [of_values.with_dtype(a.dtype)] * 2
    config = {"compute_left": "N", "compute_right": "V"}
    shapes = [*parts, of_vectors, of_vectors, _info(a)]
    *values, _, vectors, info = _call(emit, "geev", [a], shapes, config, in_place=None)
    converged = emit.compare("eq", info, 0)
    value = values[0] if a.dtype.is_complex else emit.op("complex", values, [of_values])[0]
    return _where(emit, converged, value, _NAN), _where(emit, converged, vectors, _NAN)


def _svd(emit: HloEmitter, results: Sequence[Shape], a: Lowered) -> tuple[Lowered, ...]:
    of_u, of_s, of_vt = results
    _, s, u, vt, info = _call(emit, "gesdd", [a], [a.shape, of_s, of_u, of_vt, _info(a)], {"mode": "S"})
    converged = emit.compare("eq", info, 0)
    return tuple(_where(emit, converged, x, _NAN) for x in (u, s, vt))


def _triangular_solve(
    emit: HloEmitter, results: Sequence[Shape], a: Lowered, b: Lowered, *, lower: bool, unit_diagonal: bool
) -> tuple[Lowered, ...]:
    config = {
        "diag": "U" if unit_diagonal else "N",
        "side": "L",
        "trans_x": "N",
        "uplo": "L" if lower else "U",
    }
    return _call(emit, "trsm", [a, b], [b.shape], config, in_place=1)


_CALLS: Mapping[str, Any] = {
    "cholesky": _cholesky,
    "lu": _lu,
    "qr": _qr,
    "eigh": _eigh,
    "svd": _svd,
    "eig": _eig,
    "triangular_solve": _triangular_solve,
}
