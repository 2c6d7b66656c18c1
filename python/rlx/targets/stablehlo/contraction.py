"""Lowering rules for contractions: all become `dot_general`, which accumulates f16 and bf16 in f32."""

from __future__ import annotations

from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.ops.contraction.contraction import DotDims
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers


def accumulator(kind: DType) -> DType:
    """The dtype in which sums of a dtype accumulate. Storage dtypes are only moved."""
    return kind if kind.storage else kind.compute


@lowers("matmul")
def matmul(emit: HloEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered) -> Lowered:
    dims = results[0].static
    if rhs.rank == 2:
        product = emit.dot_general(lhs, rhs, ((lhs.rank - 1,), (0,)))
    else:
        rank, batch = len(dims), dims[:-2]
        lhs = emit.broadcast(lhs, (*batch, *lhs.dims[-2:]))
        rhs = emit.broadcast(rhs, (*batch, *rhs.dims[-2:]))
        shared = tuple(range(rank - 2))
        product = emit.dot_general(lhs, rhs, ((rank - 1,), (rank - 2,)), (shared, shared))
    return emit.convert(product, results[0].dtype)


@lowers("dot_general")
def dot_general(emit: HloEmitter, results: list[Shape], lhs: Lowered, rhs: Lowered, *, dims: DotDims) -> Lowered:
    contracting, batch = (dims.lhs_contracting, dims.rhs_contracting), (dims.lhs_batch, dims.rhs_batch)
    product = emit.dot_general(lhs, rhs, contracting, batch)
    return emit.convert(product, results[0].dtype)
